"""RandAugment: Cubuk et al., 2020 (arXiv 1909.13719), its 14 operations at torchvision's 31 strengths.

Every image draws its own operations. The five warps run as one, the six that change values alone share one table
look-up, so a batch costs a few dozen tensor operations however many images it has.
"""

import torch
from torch import Tensor

from filtercov.lab.data.augment import geometry, points
from filtercov.lab.data.augment.colour import saturate, sharpen
from filtercov.lab.data.augment.groups import Operation, apply_to_groups, each, through_tables

OPERATIONS = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
)
STRENGTHS = 31
_SIGNED = frozenset(OPERATIONS[1:10])

_NUMBER = {name: number for number, name in enumerate(OPERATIONS)}
_WARPS = range(_NUMBER["ShearX"], _NUMBER["Rotate"] + 1)
_TABLES: dict[int, Operation] = {
    _NUMBER["Brightness"]: lambda images, change: points.brightness(images, 1 + change),
    _NUMBER["Contrast"]: lambda images, change: points.contrast(images, 1 + change),
    _NUMBER["Posterize"]: points.posterize,
    _NUMBER["Solarize"]: points.solarize,
    _NUMBER["AutoContrast"]: lambda images, _: points.autocontrast(images),
    _NUMBER["Equalize"]: lambda images, _: points.equalize(images),
}


def randaugment(images: Tensor, operation: Tensor, sign: Tensor, *, magnitude: int, probability: float = 1.0) -> Tensor:
    """Apply to each uint8 (N, C, H, W) image the operations its uniform draws (N, operations) choose, in turn.

    Of all draws, `probability` choose an operation, the rest none.
    """
    for column in range(operation.shape[1]):
        chosen = operation[:, column] < probability
        drawn = torch.where(chosen, operation[:, column] / probability * len(OPERATIONS), _NUMBER["Identity"]).long()
        images = apply_operations(images, drawn, sign[:, column] < 0.5, magnitude=magnitude)
    return images


def apply_operations(images: Tensor, drawn: Tensor, negative: Tensor, *, magnitude: int) -> Tensor:
    """Apply operation number drawn[i] to image i at `magnitude` of 31, reversed where `negative` if it has a sign."""
    height, width = images.shape[-2:]
    strengths = torch.tensor([strength(name, magnitude, height, width) for name in OPERATIONS], dtype=torch.float64)
    signed = torch.tensor([name in _SIGNED for name in OPERATIONS])[drawn]
    parameters = strengths[drawn] * torch.where(signed & negative, -1.0, 1.0)
    groups = [
        (_WARPS, _warp),
        (tuple(_TABLES), through_tables(_TABLES)),
        ((_NUMBER["Color"],), each(lambda group, change: saturate(group, 1 + change))),
        ((_NUMBER["Sharpness"],), each(lambda group, change: sharpen(group, 1 + change))),
    ]
    return apply_to_groups(images, drawn, parameters, groups)


def strength(name: str, magnitude: int, height: int, width: int) -> float:
    """Return the parameter of an operation at `magnitude`, 0 to 30, for images of a size.

    >>> strength("Rotate", 10, 32, 32), strength("TranslateX", 30, 331, 331), strength("Posterize", 30, 32, 32)
    (10.0, 150.0, 4.0)
    """
    part = magnitude / (STRENGTHS - 1)
    match name:
        case "ShearX" | "ShearY":
            return 0.3 * part
        case "TranslateX":
            return float(int(150.0 / 331.0 * width * part))  # whole pixels
        case "TranslateY":
            return float(int(150.0 / 331.0 * height * part))
        case "Rotate":
            return 30.0 * part
        case "Brightness" | "Color" | "Contrast" | "Sharpness":
            return 0.9 * part
        case "Posterize":
            return float(8 - round(4 * part))
        case "Solarize":
            return 255.0 * (1.0 - part)
        case _:
            return 0.0


def _warp(images: Tensor, drawn: Tensor, parameters: Tensor) -> Tensor:
    zero = torch.zeros_like(parameters)
    choices = torch.stack(
        [
            geometry.shears(parameters, zero),
            geometry.shears(zero, parameters),
            geometry.translations(parameters, zero),
            geometry.translations(zero, parameters),
            geometry.rotations(parameters, *images.shape[-2:]),
        ]
    )  # (5, n, 6), in the order of OPERATIONS from ShearX
    matrices = choices[drawn - _WARPS.start, torch.arange(len(drawn))]
    return geometry.warp(images, matrices.to(images.device))
