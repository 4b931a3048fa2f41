"""What accelerated layers must not do to what is around them: layers, graphs, transforms, parts of other people's."""

import copy
import types

import pytest
import torch
from torch import nn
from torch.nn import functional

from filtercov import depthwise_layers, init_
from filtercov.errors import ModelError
from filtercov.nn import accelerate_, restore_

LAST = torch.channels_last


def images(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(memory_format=LAST)


def accelerated(net: nn.Module) -> nn.Module:
    fast = copy.deepcopy(net)
    accelerate_(fast, keep_memory=False)
    return fast


DEPTHWISE = {
    "strided": nn.Conv2d(32, 32, 5, stride=2, padding=2, groups=32),
    "even": nn.Conv2d(32, 32, 4, groups=32),
    "one tap": nn.Conv2d(32, 32, 1, groups=32),
    "large": nn.Conv2d(32, 32, 9, padding=4, groups=32),
}


@pytest.mark.parametrize("kind", DEPTHWISE)
def test_the_next_layer_may_change_an_output_in_place(kind):
    plain = nn.Sequential(DEPTHWISE[kind], nn.ReLU(inplace=True))
    fast, x = accelerated(plain), images(16, 32, 32, 32)
    for net in (plain, fast):
        net(x).square().sum().backward()
    assert torch.allclose(plain[0].weight.grad, fast[0].weight.grad, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("axes", [1, 3])
def test_outputs_of_other_dimensions_may_be_changed_in_place(axes):
    kinds = {1: nn.Conv1d, 3: nn.Conv3d}
    layer = accelerated(kinds[axes](32, 32, 5, groups=32))
    x = torch.randn(4, *[12] * axes, 32).movedim(-1, 1)
    layer(x).add_(1).sum().backward()
    assert torch.equal(layer.bias.grad, torch.full_like(layer.bias, 4.0 * 8**axes))


def test_gradients_that_will_be_differentiated_may_be_changed_in_place():
    layer = accelerated(nn.Conv2d(8, 8, 5, groups=8).double())
    x = images(2, 8, 9, 9).double().requires_grad_()
    (grad,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    grad.mul_(2).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("gelu_first", [True, False])
def test_calls_of_both_kinds_share_one_backward_pass(gelu_first):
    """Multi-crop training: small images go to PyTorch's norm, which keeps the running statistics for its gradient."""
    pair = [nn.GELU(), nn.BatchNorm2d(32)] if gelu_first else [nn.BatchNorm2d(32), nn.ReLU()]
    plain = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *pair)
    fast, small, large = accelerated(plain), images(8, 3, 24, 24), images(8, 3, 64, 64)
    parts = [torch.randn(8, 32, size, size) for size in (24, 64)]
    exact = copy.deepcopy(plain).double()
    for net, kind in ((plain, torch.float32), (fast, torch.float32), (exact, torch.float64)):
        sum((net(x.to(kind)) * part).sum() for x, part in zip((small, large), parts, strict=True)).backward()
    wanted = exact[0].weight.grad
    assert (fast[0].weight.grad - wanted).norm() < 1e-4 * wanted.norm()


def test_one_exploded_batch_leaves_the_statistics_that_pytorch_has():
    plain = nn.Sequential(nn.BatchNorm2d(32), nn.ReLU())
    fast, x = accelerated(plain), images(16, 32, 32, 32)
    for net in (plain, fast):
        with torch.no_grad():
            net(x * 1e25)
            net(x)
    assert torch.equal(plain[0].running_var, fast[0].running_var)
    assert plain[0].running_var.isinf().all()
    with torch.no_grad():
        assert torch.equal(plain.eval()(x), fast.eval()(x))


def test_vmap_takes_norms_in_evaluation():
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    fast, x = accelerated(plain), torch.randn(2, 4, 3, 16, 16)
    with torch.no_grad():
        assert torch.allclose(torch.vmap(plain)(x), torch.vmap(fast)(x), atol=1e-5)


class Scaled(nn.Module):
    """Dropout's names, and another function: x times 1 - p in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x):
        return x * (1 - self.p)


def test_what_only_looks_like_dropout_is_run():
    timm_layers = pytest.importorskip("timm.layers")
    plain = timm_layers.BatchNormAct2d(32, drop_layer=lambda: Scaled(0.5)).eval()
    fast, x = accelerated(plain), images(16, 32, 32, 32)
    with torch.no_grad():
        assert torch.allclose(plain(x), fast(x), atol=1e-5)


def test_another_perceptron_in_a_convnext_block_is_run():
    convnext, timm_layers = pytest.importorskip("timm.models.convnext"), pytest.importorskip("timm.layers")

    class Twice(timm_layers.Mlp):
        def forward(self, x):
            return 2 * super().forward(x)

    for mlp in (Twice(32, 128), timm_layers.GluMlp(32, 128, act_layer=nn.GELU)):
        plain = convnext.ConvNeXtBlock(32, ls_init_value=1.0)
        plain.mlp = mlp
        fast, x = accelerated(plain), images(4, 32, 16, 16)
        assert torch.allclose(plain(x), fast(x), atol=1e-4)


def test_a_block_s_output_may_be_changed_in_place():
    convnext = pytest.importorskip("timm.models.convnext")
    fast = accelerated(convnext.ConvNeXtBlock(32))
    fast(images(4, 32, 16, 16)).add_(1).sum().backward()
    assert fast.mlp.fc1.weight.grad is not None


def test_a_layer_that_is_there_twice_runs_twice():
    torchvision_layers = pytest.importorskip("torchvision.ops.misc")
    plain = torchvision_layers.Conv2dNormActivation(8, 8, 3).eval()
    plain.append(plain[0])
    fast, x = accelerated(plain), images(4, 8, 32, 32)
    with torch.no_grad():
        assert torch.allclose(plain(x), fast(x), atol=1e-5)


def test_bounds_of_relu6_that_were_changed_are_kept():
    plain = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU6())
    plain[1].max_val = 1.0
    fast, x = accelerated(plain), images(8, 16, 64, 64)
    assert torch.allclose(plain(x), fast(x), atol=1e-5)


def around(self, x, weight, bias):
    """Convolve as if the image went on around a cylinder: somebody's own, of one layer."""
    padded = functional.pad(x, (2, 2, 0, 0), mode="circular")
    return functional.conv2d(padded, weight, bias, self.stride, (2, 0), 1, self.groups)


@pytest.mark.parametrize("before", [True, False])
def test_a_convolution_of_somebody_s_own_is_run(before):
    layer, x = nn.Conv2d(8, 8, 5, padding=2, groups=8), images(4, 8, 32, 32)
    wanted = around(layer, x, layer.weight, layer.bias)
    if not before:
        accelerate_(layer, keep_memory=False)
    layer._conv_forward = types.MethodType(around, layer)
    if before:
        accelerate_(layer, keep_memory=False)
    assert torch.allclose(layer(x), wanted, atol=1e-5)


def test_gelu_keeps_the_layout_that_pytorch_would():
    x, act = torch.randn(8, 256, 160).transpose(1, 2), accelerated(nn.GELU())
    assert act(x).stride() == functional.gelu(x).stride()
    assert torch.allclose(act(x), functional.gelu(x), atol=1e-6)
    sliced = torch.randn(8, 256, 320)[..., ::2]
    assert act(sliced).stride() == functional.gelu(sliced).stride()
    assert torch.allclose(act(sliced), functional.gelu(sliced), atol=1e-6)


def test_tensors_of_other_layouts_are_pytorch_s():
    x, act = images(8, 16, 64, 64), accelerated(nn.GELU())
    assert torch.allclose(act(x.to_mkldnn()).to_dense(), functional.gelu(x), atol=1e-5)


def test_a_gelu_that_became_part_of_a_pair_is_restored():
    act = nn.GELU()
    accelerate_(act, keep_memory=False)
    net = nn.Sequential(act, nn.BatchNorm2d(16))
    accelerate_(net, keep_memory=False)
    restore_(net)
    assert [type(module) for module in net.modules()] == [nn.Sequential, nn.GELU, nn.BatchNorm2d]


class Codebook(nn.Module):
    """A network that writes to a parameter whenever it is run."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.ones(4, 8), requires_grad=False)
        self.conv = nn.Conv2d(8, 8, 9, padding=4, groups=8)

    def forward(self, x):
        with torch.no_grad():
            self.code.mul_(0.5)
        return self.conv(x)


def test_parameters_that_a_network_writes_to_are_as_they_were():
    net, x = Codebook(), torch.randn(4, 8, 16, 16)
    accelerate_(net, example_input=x, seconds=0.1, keep_memory=False)
    init_(net, example_input=x)
    assert torch.equal(net.code, torch.ones(4, 8))


def test_a_model_that_cannot_be_moved_stays_as_it_was():
    class Stays(nn.Module):
        def _apply(self, _fn, **_more):
            raise RuntimeError("it stays where it is")

    net = nn.Sequential(nn.Conv2d(8, 8, 5, groups=8), nn.BatchNorm2d(8), nn.ReLU(), Stays())
    strides = net[0].weight.stride()
    with pytest.raises(ModelError, match=r"cannot be laid out channels last \(it stays"):
        accelerate_(net, keep_memory=False)
    assert [type(module) for module in net.children()] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, Stays]
    assert type(net) is nn.Sequential
    assert net[0].weight.stride() == strides


def test_buffers_of_other_layouts_stay():
    net = nn.Sequential(nn.Conv2d(8, 8, 5, groups=8))
    net.register_buffer("sparse", torch.ones(2, 3, 4, 4).to_sparse())
    accelerate_(net, keep_memory=False)
    assert net.sparse.layout is torch.sparse_coo


def test_a_model_accelerated_in_inference_mode_can_be_trained():
    net, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 9, groups=8)), torch.randn(2, 3, 20, 20)
    for change in (accelerate_, restore_):
        with torch.inference_mode():
            change(net)
        net(x).sum().backward()


def test_the_order_of_a_compiled_model_that_has_run_is_that_of_its_calls():
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.second, self.first = nn.Conv2d(8, 8, 5, groups=8), nn.Conv2d(8, 8, 3, groups=8)

        def forward(self, x):
            return self.second(self.first(x))

    net, x = Backwards().eval(), torch.randn(1, 8, 9, 9)
    net.compile(backend="eager")
    with torch.no_grad():
        net(x)
    assert [layer.name for layer in depthwise_layers(net, x)] == ["first", "second"]
