"""Accelerated timm networks against plain PyTorch: outputs and gradients no worse than its own float32 errors.

The oracle is float64 in NCHW.
"""

import copy

import pytest
import torch
from torch import nn

from filtercov.layers.find import is_depthwise
from filtercov.nn import accelerate_
from filtercov.nn.swap import SAFE
from tests.peers import import_peer

pytestmark = pytest.mark.filterwarnings("ignore")  # timm's own deprecations
MOST_PARAMETERS = 60_000_000
# What draws random numbers while training; those of float64 and float32 differ.
RANDOM = ("p", "drop_prob", "drop_rate", "drop_path", "drop_path_rate", "attn_drop_rate")
LEAST = 1e-6  # a relative error that float32 may always have
TIMES = 10.0  # plain PyTorch's two layouts differ as much where BatchNorm magnifies rounding errors
# The stem of the first is one that oneDNN's fault would corrupt.
SAMPLE = ["mobileone_s0", "mobilenetv3_small_050", "mixnet_s", "starnet_s050", "edgenext_xx_small"]
FAMILIES = """
byobnet coat convmixer convnext edgenext efficientformer_v2 efficientnet efficientvit_mit efficientvit_msra fasternet
fastvit ghostnet hgnet inception_next levit mambaout metaformer mobilenetv3 mobilevit mvitv2 nextvit pvt_v2 repghost
repvit rexnet starnet tiny_vit twins xception
""".split()


def build(name):
    """Return a network in training mode that draws no random numbers, with scales of layers that are not zero."""
    model = import_peer("timm").create_model(name, num_classes=5)
    for module in model.modules():
        for attribute in RANDOM:
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
        # Normalisations and layer scales that start at zero would hide whatever is before them.
        for weight_name, parameter in module.named_parameters(recurse=False):
            if parameter.dim() == 1 and not weight_name.endswith("bias") and parameter.detach().abs().max() < 0.1:
                nn.init.constant_(parameter, 0.5)
    return model.train()


def images_for(model, seed):
    """Return small images, or ones of the network's own size where it takes no other."""
    own = model.default_cfg["input_size"]
    generator = torch.Generator().manual_seed(seed)
    small = torch.randn(4, own[0], 64, 64, generator=generator)
    try:
        with torch.no_grad():
            copy.deepcopy(model)(small)
    except (AssertionError, IndexError, RuntimeError, ValueError):
        return torch.randn(2, *own, generator=generator)
    return small


def passes(model, images):
    """Return the output, and the gradients of a random projection of it, each as one vector."""
    output = model(images)
    tensors = output if isinstance(output, list | tuple) else [output]
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    generator = torch.Generator().manual_seed(2)
    flat.backward(torch.randn(flat.shape, generator=generator).to(flat.dtype))
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return flat.detach().double(), torch.cat(gradients).double()


def compare(plain, images):
    """Return how many times plain PyTorch's error, the greater of its two layouts', ours is: output, gradients."""
    fast, channels_last = copy.deepcopy(plain), copy.deepcopy(plain).to(memory_format=torch.channels_last)
    for name in accelerate_(fast).changed.get(SAFE.kind, ()):  # which would end this process
        channels_last.set_submodule(name, copy.deepcopy(fast.get_submodule(name)))
    exact = passes(copy.deepcopy(plain).double(), images.double())

    def errors(model):
        return [float((found - right).norm()) for found, right in zip(passes(model, images), exact, strict=True)]

    ours, *theirs = map(errors, (fast, copy.deepcopy(plain), channels_last))
    least = [LEAST * float(right.norm()) for right in exact]
    return [error / max(others) for error, *others in zip(ours, *theirs, least, strict=True)]


def errs_more(name):
    """Return whether a network errs more than it may.

    BatchNorm of a few values turns rounding errors into chaos layer by layer. One error that crosses the kink of an
    activation changes gradients at once, so other images are asked before a network is blamed. Networks without
    depthwise layers, and very large ones, are not compared.
    """
    torch.manual_seed(0)
    model = build(name)
    if not any(map(is_depthwise, model.modules())) or sum(p.numel() for p in model.parameters()) > MOST_PARAMETERS:
        return False
    return all(max(compare(model, images_for(model, seed))) > TIMES for seed in (1, 3))


@pytest.fixture
def in_earnest(monkeypatch):
    """Run as users do: by the thresholds, and on one thread."""
    monkeypatch.undo()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("in_earnest")
@pytest.mark.parametrize("name", [*SAMPLE, *(pytest.param(family, marks=pytest.mark.faults) for family in FAMILIES)])
def test_networks_with_depthwise_layers_err_no_more_than_plain_pytorch(name):
    """One of the sample, or all of a family."""
    names = [name] if name in SAMPLE else import_peer("timm").list_models(module=name)
    assert [each for each in names if errs_more(each)] == []
