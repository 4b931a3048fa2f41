"""Models by name: the grammar of ours, and timm's where it is installed."""

from __future__ import annotations

import difflib
import importlib
import re
from typing import Any

from torch import nn

from filtercov.errors import ModelError, naming
from filtercov.lab.models.convmixer import ConvMixer, ConvMixerSpec
from filtercov.lab.models.convnext import LAYER_SCALE, SIZES, ConvNeXt, ConvNeXtSpec

GRAMMAR = (
    "convmixer_WIDTH_DEPTH_kKERNEL_pPATCH (convmixer_256_8_k9_p2) or "
    f"convnext_{{{'|'.join(SIZES)}}}[_divN]_p{{1|2|4}}[_s2][_kKERNEL][_ls1] (convnext_atto_p1)"
)

_NUMBER = r"([1-9]\d*)"
_CONVMIXER = re.compile(rf"convmixer_{_NUMBER}_{_NUMBER}_k{_NUMBER}_p{_NUMBER}")
_CONVNEXT = re.compile(rf"convnext_({'|'.join(SIZES)})(?:_div{_NUMBER})?_p([124])(_s2)?(?:_k{_NUMBER})?(_ls1)?")


def parse(name: str) -> ConvMixerSpec | ConvNeXtSpec:
    """Read the architecture off one of our names, without building it.

    >>> parse("convmixer_256_8_k9_p2")
    ConvMixerSpec(width=256, depth=8, kernel_size=9, patch_size=2)
    >>> parse("convnext_atto_p1")
    ConvNeXtSpec(size='atto', patch_size=1, kernel_size=7, divide=1, first_stride=1, layer_scale=1e-06)
    """
    if match := _CONVMIXER.fullmatch(name):
        return ConvMixerSpec(*map(int, match.groups()))
    if match := _CONVNEXT.fullmatch(name):
        size, divide, patch, halved, kernel, unscaled = match.groups()
        layer_scale = 1.0 if unscaled else LAYER_SCALE
        spec = ConvNeXtSpec(size, int(patch), int(kernel or 7), int(divide or 1), 2 if halved else 1, layer_scale)
        width, _ = SIZES[size]
        if width % spec.divide:
            raise ModelError(f"{name!r}: {size}'s width {width} is not a multiple of {spec.divide}")
        return spec
    raise ModelError(f"unknown model {name!r}; a name is {GRAMMAR}")


def is_ours(name: str) -> bool:
    """True for one of our models, False for one of timm's; any other name is a `ModelError`.

    What follows `timm:` is left to timm, when the model is built.
    """
    if name.startswith("timm:"):
        return False
    if _CONVMIXER.fullmatch(name) or _CONVNEXT.fullmatch(name):
        parse(name)  # an error if a width cannot be divided
        return True
    with naming(f"unknown model {name!r}; ours are {GRAMMAR}"):
        if not import_timm().is_model(name):
            raise ModelError(f"timm has none of that name{_nearest(name)}")
    return False


def create(name: str, *, num_classes: int = 1000, in_channels: int = 3, drop_path_rate: float = 0.0) -> nn.Module:
    """Build the model called `name`, ours or timm's; `timm:NAME` asks for timm's even where the name could be ours.

    `drop_path_rate` is stochastic depth's rate at the last block.

    >>> create("convnext_atto_div8_p1", num_classes=10).spec.name
    'convnext_atto_div8_p1'
    """
    options: dict[str, Any] = {"num_classes": num_classes}
    if drop_path_rate:  # 0 is every model's default, and not every model of timm's has the argument
        options["drop_path_rate"] = drop_path_rate
    if is_ours(name):
        spec, options["in_channels"] = parse(name), in_channels
        return ConvMixer(spec, **options) if isinstance(spec, ConvMixerSpec) else ConvNeXt(spec, **options)
    timm, known = import_timm(), name.removeprefix("timm:")
    try:
        built: nn.Module = timm.create_model(known, in_chans=in_channels, **options)
    except Exception as error:  # timm raises whatever the model's own code raises
        hint = "" if timm.is_model(known) else _nearest(known)
        raise ModelError(f"{name}: timm cannot build it ({error}){hint}") from None
    return built


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, import_timm().list_models(), n=3, cutoff=0.4)
    return f"; nearest: {', '.join(near)}" if near else ""


def import_timm() -> Any:
    """Import timm, or say what keeps it from being imported."""
    try:
        return importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:  # the latter is torchvision's, if it was built for another torch
        what = f"timm's models need timm, which cannot be imported here ({error})"
        raise ModelError(f"{what}; `pip install timm`, and a torchvision from where torch came from") from None
