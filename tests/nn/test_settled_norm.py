"""BatchNorm in evaluation with its activation as one operator: PyTorch's values, where nobody can tell."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from filtercov.nn import FusedSequential, accelerate_, kernels, native_status
from filtercov.nn.settled_norm import settled_norm
from tests.nn.test_batch_norm_act import MODULES
from tests.nn.test_gelu_batch_norm import SHAPES, channels_last, operators_of

needs_native = pytest.mark.skipif(not native_status().available, reason="native kernels not built")
ISAS = native_status().isas or ("none",)
OPERATOR = "filtercov::settled_norm"


def moments(channels: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a weight, bias, mean and variance."""
    return torch.randn(channels) * 3, torch.randn(channels), torch.randn(channels), torch.rand(channels) + 0.1


def expected(
    x: Tensor, vectors: tuple[Tensor, ...], activation: str, *, first: bool, residual: Tensor | None = None
) -> Tensor:
    """Return the result by the definition, in double precision."""
    weight, bias, mean, variance = (vector.double()[:, None, None] for vector in vectors)
    activate = MODULES[activation]()
    entered = activate(x.double()) if first else x.double()
    y = (entered - mean) / (variance + 1e-3).sqrt() * weight + bias
    y = y if first else activate(y)
    return y if residual is None else y + residual.double()


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", MODULES)
@pytest.mark.parametrize("how", ["after", "first", "first, plus a residual"])
def test_values_are_the_definitions(shape: tuple[int, ...], activation: str, isa: str, how: str) -> None:
    x, vectors = channels_last(*shape) * 2, moments(shape[1])
    residual = channels_last(*shape) if "plus" in how else None
    first = how != "after"
    y = kernels.settled_norm(x, *vectors, 1e-3, activation, activation_first=first, residual=residual, isa=isa)
    wanted = expected(x, vectors, activation, first=first, residual=residual)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert (y - wanted).abs().max() < 4e-5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("first", [False, True])
def test_the_operator_takes_any_layout_and_precision(dtype: torch.dtype, first: bool) -> None:
    x = torch.randn(2, 5, 3, 4).to(dtype)
    vectors = tuple(vector.to(dtype) for vector in moments(5))
    residual = torch.randn_like(x) if first else None
    y = settled_norm(x, *vectors, 1e-3, "silu", activation_first=first, residual=residual)
    assert torch.allclose(y.double(), expected(x, vectors, "silu", first=first, residual=residual), atol=4e-5)
    arguments = (x, *vectors, 1e-3, "silu", first, residual)
    utils = ("test_schema", "test_faketensor")  # it has no gradient
    torch.library.opcheck(torch.ops.filtercov.settled_norm.default, arguments, test_utils=utils)


def nets(*layers: nn.Module) -> tuple[nn.Module, FusedSequential]:
    """Return layers in evaluation, with statistics as after some training, as PyTorch runs them and fused."""
    plain = nn.Sequential(*layers)
    for layer in plain:
        if isinstance(layer, nn.BatchNorm2d):
            for vector, values in zip(
                (layer.weight.data, layer.bias.data, layer.running_mean, layer.running_var), moments(20), strict=True
            ):
                vector.copy_(values)
    return plain.eval(), FusedSequential(*copy.deepcopy(plain)).eval()


PAIRS: dict[str, Callable[[], tuple[nn.Module, ...]]] = {
    "GELU first": lambda: (nn.GELU(), nn.BatchNorm2d(20)),
    "ReLU after": lambda: (nn.BatchNorm2d(20), nn.ReLU(inplace=True)),
    "SiLU after": lambda: (nn.BatchNorm2d(20), nn.SiLU()),
}


@needs_native
@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_are_one_operator_in_evaluation_and_change_nothing(pair: str) -> None:
    plain, fused = nets(*PAIRS[pair]())
    before = copy.deepcopy(fused.state_dict())
    x = channels_last(4, 20, 7, 7)
    kept = x.clone()
    with torch.no_grad():
        assert OPERATOR in operators_of(fused, x)
        assert torch.allclose(fused(x), plain(x.clone()), atol=1e-5)
    assert torch.equal(x, kept)
    assert all(torch.equal(fused.state_dict()[name], value) for name, value in before.items())
    with torch.inference_mode():
        assert torch.allclose(fused(x), plain(x.clone()), atol=1e-5)


@needs_native
@pytest.mark.parametrize("pair", PAIRS)
def test_it_is_used_only_where_nobody_can_notice(pair: str) -> None:
    plain, fused = nets(*PAIRS[pair]())
    x = channels_last(4, 20, 7, 7)
    assert OPERATOR not in operators_of(fused, x)  # someone may ask for gradients
    weight = fused.get_submodule("0" if "after" in pair else "1").weight
    (grad,) = torch.autograd.grad(fused(x).square().sum(), weight)
    own = plain.get_submodule("0" if "after" in pair else "1").weight
    (wanted,) = torch.autograd.grad(plain(x.clone()).square().sum(), own)
    assert torch.allclose(grad, wanted, rtol=1e-4)
    with torch.no_grad():
        assert OPERATOR not in operators_of(copy.deepcopy(fused).double(), x.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert OPERATOR not in operators_of(fused, x)
        seen: list[Tensor] = []
        hooked = copy.deepcopy(fused)
        hooked[0].register_forward_hook(lambda _module, _inputs, output: seen.append(output.clone()))
        assert OPERATOR not in operators_of(hooked, x)
        assert torch.allclose(seen[0], plain[0](x), atol=1e-6)
        for module in (fused, plain):
            for layer in module:
                if isinstance(layer, nn.BatchNorm2d):
                    layer.running_mean = layer.running_var = None  # then it normalises by the batch's own
        assert OPERATOR not in operators_of(fused, x)
        assert torch.allclose(fused(x), plain(x.clone()), atol=1e-5)


@needs_native
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:`torch.jit")
@pytest.mark.parametrize("pair", PAIRS)
def test_traces_have_operators_of_pytorch_alone(pair: str) -> None:
    plain, fused = nets(*PAIRS[pair]())
    x = channels_last(4, 20, 7, 7)
    with torch.no_grad():
        traced = torch.jit.trace(fused, x)
        assert "filtercov::" not in str(traced.inlined_graph)
        assert torch.allclose(traced(x), plain(x.clone()), atol=1e-5)
        compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
        assert torch.allclose(compiled(x), plain(x.clone()), atol=1e-5)


@needs_native
def test_residuals_are_added_in_the_same_pass() -> None:
    convmixer = pytest.importorskip("timm.models.convmixer")
    net = convmixer.ConvMixer(dim=16, depth=2, kernel_size=5, patch_size=7, num_classes=10).eval()
    ours = copy.deepcopy(net)
    assert accelerate_(ours).residuals
    x = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        assert OPERATOR in operators_of(ours, x)
        assert torch.allclose(ours(x), net(x), atol=1e-5)
        assert "aten::add" not in operators_of(ours, x)


@needs_native
@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "efficientnet_b0"])
def test_timms_networks_evaluate_as_they_did(name: str) -> None:
    timm = pytest.importorskip("timm")
    net = timm.create_model(name, num_classes=10).eval()
    ours = copy.deepcopy(net)
    accelerate_(ours)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert OPERATOR in operators_of(ours, x)
        assert torch.allclose(ours(x), net(x), atol=1e-4, rtol=1e-4)
