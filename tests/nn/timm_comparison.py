"""Compare an accelerated timm network with plain PyTorch; run in a process of its own, since a fault may end it.

`python -m tests.nn.timm_comparison NAME ...` prints a line of JSON before and after each network.
"""

import copy
import json
import sys
import warnings

import torch
from torch import Tensor, nn

from filtercov.layers.find import is_depthwise
from filtercov.nn import accelerate_
from tests.peers import import_peer

BATCH, SIZE = 4, 64
MOST_PARAMETERS = 60_000_000
# What draws random numbers while training; those of float64 and float32 differ.
RANDOM = ("p", "drop_prob", "drop_rate", "drop_path", "drop_path_rate", "attn_drop_rate")
LEAST = 1e-6  # a relative error that float32 may always have
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)

Gradients = dict[str, Tensor]


def build(name: str) -> nn.Module:
    """Return a network in training mode that draws no random numbers, with scales of layers that are not zero."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # timm's own deprecations
        model: nn.Module = import_peer("timm").create_model(name, num_classes=5)
    for module in model.modules():
        for attribute in RANDOM:
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
        # Normalisations and layer scales that start at zero would hide whatever is before them.
        for weight_name, parameter in module.named_parameters(recurse=False):
            if parameter.dim() == 1 and not weight_name.endswith("bias") and parameter.detach().abs().max() < 0.1:
                nn.init.constant_(parameter, 0.5)
    return model.train()


def images_for(model: nn.Module) -> Tensor:
    """Return small images, or ones of the network's own size where it takes no other."""
    own = model.default_cfg["input_size"]
    generator = torch.Generator().manual_seed(1)
    small = torch.randn(BATCH, own[0], SIZE, SIZE, generator=generator)
    try:
        with torch.no_grad():
            copy.deepcopy(model)(small)
    except (AssertionError, IndexError, RuntimeError, ValueError):
        return torch.randn(2, *own, generator=generator)
    return small


def passes(model: nn.Module, images: Tensor) -> tuple[Tensor, Gradients]:
    """Return the output, flat, and the gradients of a random projection of it."""
    output = model(images)
    tensors = output if isinstance(output, list | tuple) else [output]
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    generator = torch.Generator().manual_seed(2)
    flat.backward(torch.randn(flat.shape, generator=generator).to(flat.dtype))
    named = {name: p.grad.detach().double() for name, p in model.named_parameters() if p.grad is not None}
    return flat.detach().double(), named


class Errors:
    """How far a float32 network's output and gradients are from those of float64 in NCHW."""

    def __init__(self, model: nn.Module, images: Tensor, output: Tensor, gradients: Gradients) -> None:
        theirs, named = passes(model, images)
        assert named.keys() == gradients.keys()
        self.output = float((theirs - output).norm())
        self.layers = {key: float((named[key] - gradient).norm()) for key, gradient in gradients.items()}
        self.whole = sum(error**2 for error in self.layers.values()) ** 0.5


def compare(plain: nn.Module, images: Tensor) -> dict[str, float | str]:
    """Return plain PyTorch's errors, the greater of its two layouts', and how many times that the accelerated ones are.

    `gradient` is of all gradients as one vector, `layer` of the worst parameter. A parameter of which plain PyTorch
    happens to get more digits than of the whole is held to the whole's share, a vanishing one to a share of all.
    """
    fast, channels_last = copy.deepcopy(plain), copy.deepcopy(plain).to(memory_format=torch.channels_last)
    for name in accelerate_(fast).made_safe:  # which would end this process
        channels_last.set_submodule(name, copy.deepcopy(fast.get_submodule(name)))
    output, gradients = passes(copy.deepcopy(plain).double(), images.double())
    layouts = [Errors(model, images, output, gradients) for model in (copy.deepcopy(plain), channels_last)]
    ours = Errors(fast, images, output, gradients)

    norms = {key: float(gradient.norm()) for key, gradient in gradients.items()}
    scale, total = float(output.norm()), sum(norm**2 for norm in norms.values()) ** 0.5
    output_error = max(LEAST * scale, *(theirs.output for theirs in layouts))
    whole_error = max(LEAST * total, *(theirs.whole for theirs in layouts))
    times = {
        key: ours.layers[key]
        / max(whole_error / total * norm, LEAST * total, *(theirs.layers[key] for theirs in layouts))
        for key, norm in norms.items()
    }
    worst = max(times, key=lambda key: times[key])
    return {
        "plain output": output_error / scale,
        "plain gradient": whole_error / total,
        "output": ours.output / output_error,
        "gradient": ours.whole / whole_error,
        "layer": times[worst],
        "worst": worst,
    }


def compare_both(name: str) -> dict[str, dict[str, float | str]]:
    """Return the comparisons in training mode and, where there is BatchNorm, with its statistics frozen.

    Networks without depthwise layers, and very large ones, are not compared.
    """
    torch.manual_seed(0)
    model = build(name)
    if not any(map(is_depthwise, model.modules())) or sum(p.numel() for p in model.parameters()) > MOST_PARAMETERS:
        return {}
    images = images_for(model)
    results = {"training": compare(model, images)}
    norms = [module for module in model.modules() if isinstance(module, NORMS)]
    if norms:
        with torch.no_grad():
            model(images)  # running statistics that are not the initial ones
        for norm in norms:
            norm.eval()
        results["frozen"] = compare(model, images)
    return results


def main(names: list[str]) -> None:
    """Compare the networks one after the other."""
    torch.set_num_threads(1)
    for name in names:
        print(json.dumps({"name": name}), flush=True)
        print(json.dumps({"name": name, "results": compare_both(name)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
