"""`restore_` after `accelerate_`: the model that was, object for object and stride for stride."""

import copy
import importlib.util
import io
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from filtercov.lab import models
from filtercov.nn import DepthwiseConv2d, FusedSequential, accelerate_, native_status, restore_


def plain() -> nn.Sequential:
    spatial = nn.Conv2d(8, 8, 9, groups=8, padding="same")
    return nn.Sequential(
        nn.Conv2d(3, 8, 2, stride=2),
        nn.GELU(),
        nn.BatchNorm2d(8),
        nn.Sequential(spatial, nn.GELU(), nn.BatchNorm2d(8)),
        nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        nn.Flatten(),
        nn.LazyLinear(3),
    )


def network() -> nn.Sequential:
    net = plain()
    net(torch.randn(2, 3, 12, 12))
    return net


def strides(net: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tensor.stride() for name, tensor in net.state_dict().items()}


@pytest.mark.parametrize("times", [1, 2])
def test_everything_is_as_it_was(times: int) -> None:
    net = network()
    called: list[str] = []
    net[3][0].register_forward_hook(lambda *_: called.append("convolution"))
    classes, modules, parameters = [type(m) for m in net.modules()], list(net.modules()), list(net.parameters())
    attributes, layouts = [set(vars(m)) for m in net.modules()], strides(net)
    values = copy.deepcopy(net.state_dict())
    for _ in range(times):
        report = accelerate_(net)
    restored = restore_(net)
    assert set(restored) >= {"3.0"}
    assert report is not None
    assert [type(m) for m in net.modules()] == classes
    assert all(a is b for a, b in zip(net.modules(), modules, strict=True))
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert [set(vars(m)) for m in net.modules()] == attributes
    assert strides(net) == layouts
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), values.values(), strict=True))
    net(torch.randn(2, 3, 12, 12))
    assert called == ["convolution"]


def test_the_names_returned_are_those_of_the_modules_changed() -> None:
    net = network()
    accelerate_(net)
    sequences = ("", "3") if native_status().available else ()
    assert set(restore_(net)) == {"3.0", *sequences}
    assert restore_(net) == ()


def test_gradients_lie_as_their_parameters_do() -> None:
    net = network()
    layouts = {name: p.stride() for name, p in net.named_parameters()}
    accelerate_(net)
    net(torch.randn(2, 3, 12, 12)).square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in net.named_parameters()}
    restore_(net)
    for name, parameter in net.named_parameters():
        assert parameter.grad.stride() == layouts[name]
        assert torch.equal(parameter.grad, gradients[name])


def test_a_copy_and_a_saved_model_know_the_way_back() -> None:
    net = network()
    layouts = strides(net)
    accelerate_(net)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for other in (copy.deepcopy(net), torch.load(file, weights_only=False)):
        restore_(other)
        assert strides(other) == layouts


def test_any_layout_comes_back_where_it_can() -> None:
    net = network()
    with torch.no_grad():
        net[0].weight.data = net[0].weight.data.transpose(0, 1).contiguous().transpose(0, 1)
        net[4].weight.data = torch.ones(()).expand(8, 8, 3, 3)  # one number: there is no room to train it
    layouts = strides(net)
    accelerate_(net)
    net[3][0].weight = nn.Parameter(torch.randn(8, 1, 5, 5))  # and one of another shape
    restore_(net)
    assert net[0].weight.stride() == layouts["0.weight"]
    assert net[4].weight.is_contiguous()
    assert torch.equal(net[4].weight, torch.ones(8, 8, 3, 3))
    assert net[3][0].weight.is_contiguous()


def test_layers_built_as_ours_become_pytorchs_and_subclasses_stay() -> None:
    class Own(DepthwiseConv2d):
        pass

    net = FusedSequential(DepthwiseConv2d(8, 8, 3, groups=8), Own(8, 8, 3, groups=8))
    assert restore_(net) == ("", "0")
    assert [type(m) for m in net.modules()] == [nn.Sequential, nn.Conv2d, Own]


EXPORTERS = {"TorchScript": False, "torch.export": True}


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", ["convmixer_8_2_k9_p2", "convnext_atto_div8_p1_k9"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_restored_network_exports_to_onnx(name: str, exporter: str, tmp_path: Path) -> None:
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed, which torch.onnx.export needs")
    net = models.create(name, num_classes=3)
    accelerate_(net)
    restore_(net)
    net.eval()
    x = torch.randn(2, 3, 16, 16)
    path = tmp_path / "network.onnx"
    torch.onnx.export(net, (x,), path, dynamo=EXPORTERS[exporter], verbose=False)
    assert _operators(path) >= {"Conv"}
    assert {kind for kind in _operators(path) if "filtercov" in kind} == set()
    if importlib.util.find_spec("onnxruntime") is not None:
        wanted: Tensor = net(x)
        assert torch.allclose(_run(path, x), wanted, rtol=1e-3, atol=1e-4)


def _operators(path: Path) -> set[str]:
    import onnx

    return {f"{node.domain}{node.op_type}" for node in onnx.load(path).graph.node}


def _run(path: Path, x: Tensor) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
