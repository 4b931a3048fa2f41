"""A different operation for each image of a batch: RandAugment and colour jitter.

Each kind of operation runs once for all images that drew it. The five warps count as one kind, and so do all
operations that are tables, so a batch costs a few dozen tensor operations however many images it has.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from filtercov.lab.data.augment import colour, geometry

# RandAugment: Cubuk et al., 2020 (arXiv 1909.13719), its 14 operations at torchvision's 31 strengths.
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
_SIGNED = torch.tensor([1 <= number <= 9 for number in range(len(OPERATIONS))])  # ShearX … Sharpness
_NUMBER = {name: number for number, name in enumerate(OPERATIONS)}

# Images (n, C, H, W) and one parameter (n,) for each; for a group, also the number (n,) of each image's operation.
_Operation = Callable[[Tensor, Tensor], Tensor]
_Group = tuple[Sequence[int], Callable[[Tensor, Tensor, Tensor], Tensor]]


def randaugment(images: Tensor, operation: Tensor, sign: Tensor, *, magnitude: int, probability: float = 1.0) -> Tensor:
    """Apply to each uint8 (N, C, H, W) image the operations its uniform draws (N, operations) choose, in turn.

    A share `probability` of all draws chooses an operation, the rest none.
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
    parameters = strengths[drawn] * torch.where(_SIGNED[drawn] & negative, -1.0, 1.0)
    return _apply_groups(images, drawn, parameters, _RANDAUGMENT)


def strength(name: str, magnitude: int, height: int, width: int) -> float:
    """Return the parameter of an operation at `magnitude`, 0 to 30, for images of a size.

    >>> strength("Rotate", 10, 32, 32), strength("TranslateX", 30, 32, 331), strength("TranslateY", 30, 331, 32)
    (10.0, 150.0, 150.0)
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


def colour_jitter(images: Tensor, order: Tensor, amount: Tensor, *, strengths: tuple[float, float, float]) -> Tensor:
    """Change brightness, contrast and saturation by random factors, in an order drawn per image.

    Images are uint8 (N, C, H, W); `order` and `amount` are uniform draws (N, ≥ 3). A strength s scales by a factor
    uniform in [max(0, 1 − s), 1 + s]. What has strength 0 is left out.
    """
    low = torch.tensor([max(0.0, 1.0 - s) for s in strengths], dtype=torch.float64)
    high = torch.tensor([1.0 + s for s in strengths], dtype=torch.float64)
    factors = low + (high - low) * amount[:, :3]
    used = torch.tensor([kind for kind, s in enumerate(strengths) if s > 0], dtype=torch.int64)
    turns = used[order[:, used].argsort(1)]  # (N, used): which comes first, second, …
    for drawn in turns.unbind(1):
        parameters = factors.gather(1, drawn.unsqueeze(1)).squeeze(1)
        images = _apply_groups(images, drawn, parameters, _JITTER)
    return images


def _apply_groups(images: Tensor, drawn: Tensor, parameters: Tensor, groups: Sequence[_Group]) -> Tensor:
    """Apply to image i the operation of the group that lists drawn[i]; each number is listed once.

    `drawn` and `parameters` are on the CPU, so that a GPU is never waited for.
    """
    if not len(images):  # a rank's share of a last batch may be empty
        return images
    listed = torch.tensor([number for numbers, _ in groups for number in numbers])  # 0, 1, … in another order
    order = listed.argsort()[drawn].argsort(stable=True)  # images of a group, and in it of an operation, side by side
    drawn, parameters = drawn[order], parameters[order]
    images = images.index_select(0, order.to(images.device))
    start = 0
    for numbers, operation in groups:
        stop = start + int(torch.isin(drawn, torch.tensor(numbers)).sum())
        if stop > start:
            part = slice(start, stop)
            images[part] = operation(images[part], drawn[part], parameters[part])
        start = stop
    return images.index_select(0, order.argsort().to(images.device))


def _single(number: int, operation: _Operation) -> _Group:
    return (number,), lambda images, _, parameters: operation(images, parameters.to(images.device))


def _tables(operations: dict[int, _Operation]) -> _Group:
    """Return the group of operations that are tables: made one by one, looked up all at once."""

    def apply(images: Tensor, drawn: Tensor, parameters: Tensor) -> Tensor:
        numbers, counts = (runs.tolist() for runs in torch.unique_consecutive(drawn, return_counts=True))
        parameters = parameters.to(images.device)
        runs = zip(numbers, torch.split(images, counts), torch.split(parameters, counts), strict=True)
        tables = [operations[number](part, values).expand(*part.shape[:2], 256) for number, part, values in runs]
        return colour.apply_tables(images, torch.cat(tables))

    return tuple(operations), apply


def _warps(images: Tensor, drawn: Tensor, parameters: Tensor) -> Tensor:
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
    matrices = choices[drawn - _NUMBER["ShearX"], torch.arange(len(drawn))]
    return geometry.warp(images, matrices.to(images.device))


_RANDAUGMENT = (
    _single(_NUMBER["Identity"], lambda images, _: images),
    (range(_NUMBER["ShearX"], _NUMBER["Rotate"] + 1), _warps),
    _tables(
        {
            _NUMBER["Brightness"]: lambda images, change: colour.brightness_table(images, 1 + change),
            _NUMBER["Contrast"]: lambda images, change: colour.contrast_table(images, 1 + change),
            _NUMBER["Posterize"]: colour.posterize_table,
            _NUMBER["Solarize"]: colour.solarize_table,
            _NUMBER["AutoContrast"]: colour.autocontrast_table,
            _NUMBER["Equalize"]: colour.equalize_table,
        }
    ),
    _single(_NUMBER["Color"], lambda images, change: colour.saturate(images, 1 + change)),
    _single(_NUMBER["Sharpness"], lambda images, change: colour.sharpen(images, 1 + change)),
)
_JITTER = (  # operations by their place among the strengths
    _tables({0: colour.brightness_table, 1: colour.contrast_table}),
    _single(2, colour.saturate),
)
