"""GELU by itself: PyTorch's values and gradients, in modules that nobody can tell from PyTorch's."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from filtercov.nn import accelerate_, kernels, native_status, restore_
from filtercov.nn.gelu import gelu
from tests.nn.test_gelu_batch_norm import operators_of
from tests.nn.wrapping import double_output_

needs_native = pytest.mark.skipif(not native_status().available, reason="native kernels not built")
ISAS = native_status().isas or ("none",)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("count", [0, 1, 7, 16, 33, 16 * 1024 - 1, 16 * 1024 + 1, 50_000])
def test_values_and_gradients_are_as_accurate_as_pytorchs(isa: str, count: int) -> None:
    x, grad_y = torch.randn(count) * 4, torch.randn(count)
    ours = kernels.activation(x, "gelu", isa=isa), kernels.activation_backward(grad_y, x, "gelu", isa=isa)
    z = x.double().requires_grad_()
    exact = functional.gelu(z)
    (slope,) = torch.autograd.grad(exact, z, grad_y.double())
    for value, wanted in zip(ours, (exact, slope), strict=True):
        assert torch.allclose(value.double(), wanted, rtol=3e-7, atol=2e-6)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activation", [nn.Identity, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU])
def test_the_kernel_knows_every_activation(isa: str, activation: type[nn.Module]) -> None:
    x, grad_y = torch.linspace(-8, 8, 1601), torch.randn(1601)
    name = activation.__name__.lower()
    z = x.double().requires_grad_()
    exact = activation()(z)
    (slope,) = torch.autograd.grad(exact, z, grad_y.double())
    assert torch.allclose(kernels.activation(x, name, isa=isa).double(), exact, rtol=3e-7, atol=1e-7)
    assert torch.allclose(kernels.activation_backward(grad_y, x, name, isa=isa).double(), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 2, 2), (0, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_shape_and_layout_gives_what_pytorch_gives(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    dense = torch.randn(shape, dtype=dtype)
    layouts = [dense, torch.randn(*shape, 2, dtype=dtype)[..., 0]]
    if len(shape) > 1:
        layouts.append(dense.mT.contiguous().mT)
    if len(shape) == 4:
        layouts.append(dense.to(memory_format=torch.channels_last))
    for x in layouts:
        z = x.detach().requires_grad_()
        grad_y = torch.randn(shape, dtype=dtype)
        ours, theirs = gelu(z), functional.gelu(z)
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        grads = [torch.autograd.grad(y, z, grad_y)[0] for y in (ours, theirs)]
        assert torch.allclose(*grads, rtol=1e-5, atol=1e-6)


def test_gradients_agree_with_finite_differences_to_second_order() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(gelu, (x,))
    assert torch.autograd.gradgradcheck(gelu, (x,))


def test_operators_pass_torchs_own_checks() -> None:
    x = torch.randn(2, 8, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    torch.library.opcheck(torch.ops.filtercov.gelu.default, (x,))
    arguments = torch.randn(2, 8, 3, 3), x.detach()
    torch.library.opcheck(
        torch.ops.filtercov.gelu_backward.default, arguments, test_utils=("test_schema", "test_faketensor")
    )


@needs_native
def test_only_calls_in_which_nobody_can_notice_are_native() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    plain = copy.deepcopy(net)
    assert accelerate_(net).activations == ("1",)
    x = torch.randn(3, 4)
    assert "filtercov::gelu" in operators_of(net, x)
    assert torch.allclose(net(x), plain(x), atol=1e-6)
    seen: list[Tensor] = []
    handle = net[1].register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    assert "filtercov::gelu" in operators_of(net, x)  # the module is called, and so are its hooks
    assert torch.allclose(seen[0], functional.gelu(net[0](x)), atol=1e-6)
    handle.remove()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "filtercov::gelu" not in operators_of(net, x)
    assert "filtercov::gelu" not in operators_of(copy.deepcopy(net).double(), x.double())
    assert torch.allclose(torch.func.vmap(net)(x), plain(x), atol=1e-6)
    for model in (net, plain):
        double_output_(model[1])
    assert torch.allclose(net(x), plain(x), atol=1e-6)
    restore_(net)
    assert type(net[1]) is nn.GELU


@needs_native
def test_gelus_of_pairs_are_native_where_the_pair_is_not() -> None:
    net = nn.Sequential(nn.Conv2d(4, 4, 1), nn.GELU(), nn.BatchNorm2d(4), nn.GELU("tanh"))
    net[2].running_mean.fill_(0.3)
    plain = copy.deepcopy(net).eval()
    accelerate_(net)
    x = torch.randn(2, 4, 5, 6).contiguous(memory_format=torch.channels_last)
    assert "filtercov::gelu" not in operators_of(net, x)  # the pair is one operator
    net.eval()
    net[2].load_state_dict(plain[2].state_dict())
    assert "filtercov::gelu" in operators_of(net, x)
    assert torch.allclose(net(x), plain(x), atol=1e-6)
    seen: list[Tensor] = []
    net[1].register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    assert "filtercov::gelu" not in operators_of(net, x)
    assert torch.equal(seen[0], functional.gelu(net[0](x)))


def test_gelus_of_pairs_and_blocks_and_approximations_stay_modules_of_pytorch() -> None:
    net = nn.Sequential(nn.GELU(), nn.BatchNorm2d(4), nn.GELU("tanh"))
    assert accelerate_(net).activations == ()
    assert [type(layer) for layer in net] == [nn.GELU, nn.BatchNorm2d, nn.GELU]
    timm = pytest.importorskip("timm")
    model = timm.create_model("convnext_atto", num_classes=10)
    assert accelerate_(model).activations == ()


@needs_native
def test_timms_gelu_is_native_too() -> None:
    activations = pytest.importorskip("timm.layers.activations")
    pytest.importorskip("timm.layers.norm_act")
    net = nn.Sequential(activations.GELU())
    assert accelerate_(net).activations == ("0",)
    x = torch.randn(4, 5)
    assert "filtercov::gelu" in operators_of(net, x)
    assert torch.allclose(net(x), functional.gelu(x), atol=1e-6)
    assert restore_(net) == ("0",)
    assert type(net[0]) is activations.GELU


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_scripted_model_computes_what_it_did() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU())
    x = torch.randn(3, 4)
    wanted = net(x)
    accelerate_(net)
    assert torch.allclose(torch.jit.script(net)(x), wanted, atol=1e-6)
    assert torch.allclose(torch.jit.trace(net, x)(x), wanted, atol=1e-6)
