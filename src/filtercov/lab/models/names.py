"""Model names: a small grammar, the sizes the paper uses, and an error that helps when a name is wrong."""

import difflib
import re

from filtercov.errors import ModelError
from filtercov.lab.models.convmixer import ConvMixerSpec
from filtercov.lab.models.convnext import LAYER_SCALE, SIZES, ConvNeXtSpec

GRAMMAR = (
    "convmixer_WIDTH_DEPTH_kKERNEL_pPATCH (convmixer_256_8_k9_p2) or "
    f"convnext_{{{'|'.join(SIZES)}}}[_divN]_p{{1|2|4}}[_s2][_kKERNEL][_ls1] (convnext_atto_p1)"
)

_NUMBER = r"([1-9]\d*)"
_CONVMIXER = re.compile(rf"convmixer_{_NUMBER}_{_NUMBER}_k{_NUMBER}_p{_NUMBER}")
_CONVNEXT = re.compile(rf"convnext_({'|'.join(SIZES)})(?:_div{_NUMBER})?_p([124])(_s2)?(?:_k{_NUMBER})?(_ls1)?")

# Beyond these a name is a slip of the finger, not a network: it would exhaust memory before it said so.
_LARGEST_WIDTH, _LARGEST_DEPTH, _LARGEST_KERNEL, _LARGEST_PATCH = 8192, 512, 255, 128


def names() -> tuple[str, ...]:
    """Return the networks of the paper and their common neighbours; any name of the grammar works.

    >>> "convmixer_256_8_k9_p2" in names()
    True
    """
    cifar = [f"convmixer_256_{depth}_k{k}_p{p}" for p in (1, 2) for depth in (8, 16, 24) for k in (3, 7, 9, 15)]
    narrow = [f"convmixer_32_8_k9_p{p}" for p in (1, 2)]
    imagenet = [f"convmixer_512_{depth}_k9_p{p}" for depth in (12, 24, 32) for p in (7, 14)]
    large = ["convmixer_1024_12_k9_p14", "convmixer_1024_20_k9_p14", "convmixer_1536_24_k9_p14"]
    convnext = [f"convnext_{size}_p{p}" for size in SIZES for p in (1, 2, 4)]
    eighths = [f"convnext_{size}_div8_p{p}" for size in SIZES for p in (1, 2, 4)]
    return (*narrow, *cifar, *imagenet, *large, *convnext, *eighths)


def parse(name: str) -> ConvMixerSpec | ConvNeXtSpec:
    """Return the architecture a name describes, without building it.

    >>> parse("convmixer_256_8_k9_p2")
    ConvMixerSpec(width=256, depth=8, kernel_size=9, patch_size=2)
    >>> parse("convnext_atto_p1")
    ConvNeXtSpec(size='atto', patch_size=1, kernel_size=7, divide=1, first_stride=1, layer_scale=1e-06)
    """
    if match := _CONVMIXER.fullmatch(name):
        mixer = ConvMixerSpec(*map(int, match.groups()))
        _check_ranges(name, mixer.width, mixer.depth, mixer.kernel_size, mixer.patch_size)
        return mixer
    if match := _CONVNEXT.fullmatch(name):
        size, divide, patch, halved, kernel, unscaled = match.groups()
        convnext = ConvNeXtSpec(
            size,
            int(patch),
            int(kernel or 7),
            int(divide or 1),
            first_stride=2 if halved else 1,
            layer_scale=1.0 if unscaled else LAYER_SCALE,
        )
        _check_ranges(name, 1, 1, convnext.kernel_size, convnext.patch_size)
        if SIZES[size].width % convnext.divide:
            raise ModelError(f"{name!r}: {size}'s width {SIZES[size].width} is not a multiple of {convnext.divide}")
        return convnext
    near = difflib.get_close_matches(name, names(), n=3, cutoff=0.4)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise ModelError(f"unknown model {name!r}; a name is {GRAMMAR}{hint}")


def _check_ranges(name: str, width: int, depth: int, kernel_size: int, patch_size: int) -> None:
    limits = {
        "width": (width, _LARGEST_WIDTH),
        "depth": (depth, _LARGEST_DEPTH),
        "kernel": (kernel_size, _LARGEST_KERNEL),
        "patch": (patch_size, _LARGEST_PATCH),
    }
    for what, (value, largest) in limits.items():
        if value > largest:
            raise ModelError(f"{name!r}: {what} {value} is more than the {largest} that is supported")
