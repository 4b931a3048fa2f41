"""A different operation for each image of a batch: RandAugment and colour jitter.

Each operation runs once for all images that drew it, so a batch costs about as many tensor operations as there are
kinds, however many images it has. `drawn` and parameters are on the CPU, so that a GPU is never waited for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from filtercov.lab.data.augment import colour, geometry

STRENGTHS = 31

# Images (n, C, H, W) and one parameter (n,) for each.
_Apply = Callable[[Tensor, Tensor], Tensor]


class Operation(NamedTuple):
    """An operation of RandAugment, and its parameter at a share 0 to 1 of the full strength."""

    name: str
    strength: Callable[[float], float]
    apply: _Apply
    signed: bool = False  # whether half of the draws have the opposite parameter


def _translate_x(images: Tensor, share: Tensor) -> Tensor:
    return geometry.warp(images, c=-torch.trunc(150.0 / 331.0 * images.shape[-1] * share))  # by whole pixels


def _translate_y(images: Tensor, share: Tensor) -> Tensor:
    return geometry.warp(images, f=-torch.trunc(150.0 / 331.0 * images.shape[-2] * share))


# RandAugment: Cubuk et al., 2020 (arXiv 1909.13719), its 14 operations at torchvision's 31 strengths, in its order.
OPERATIONS = (
    Operation("Identity", lambda _: 0.0, lambda images, _: images),
    Operation("ShearX", lambda share: 0.3 * share, lambda images, x: geometry.warp(images, b=x), signed=True),
    Operation("ShearY", lambda share: 0.3 * share, lambda images, y: geometry.warp(images, d=y), signed=True),
    Operation("TranslateX", lambda share: share, _translate_x, signed=True),
    Operation("TranslateY", lambda share: share, _translate_y, signed=True),
    Operation("Rotate", lambda share: 30.0 * share, geometry.rotate, signed=True),
    Operation("Brightness", lambda share: 0.9 * share, lambda images, c: colour.brightness(images, 1 + c), signed=True),
    Operation("Color", lambda share: 0.9 * share, lambda images, c: colour.saturate(images, 1 + c), signed=True),
    Operation("Contrast", lambda share: 0.9 * share, lambda images, c: colour.contrast(images, 1 + c), signed=True),
    Operation("Sharpness", lambda share: 0.9 * share, lambda images, c: colour.sharpen(images, 1 + c), signed=True),
    Operation("Posterize", lambda share: 8 - round(4 * share), colour.posterize),
    Operation("Solarize", lambda share: 255.0 * (1.0 - share), colour.solarize),
    Operation("AutoContrast", lambda _: 0.0, lambda images, _: colour.autocontrast(images)),
    Operation("Equalize", lambda _: 0.0, lambda images, _: colour.equalize(images)),
)
_SIGNED = torch.tensor([operation.signed for operation in OPERATIONS])


def randaugment(images: Tensor, operation: Tensor, sign: Tensor, *, magnitude: int, probability: float = 1.0) -> Tensor:
    """Apply to each uint8 (N, C, H, W) image the operations its uniform draws (N, operations) choose, in turn.

    A share `probability` of all draws chooses an operation, the rest none.
    """
    for column in range(operation.shape[1]):
        chosen = operation[:, column] < probability
        drawn = torch.where(chosen, operation[:, column] / probability * len(OPERATIONS), 0.0).long()
        images = apply_operations(images, drawn, sign[:, column] < 0.5, magnitude=magnitude)
    return images


def apply_operations(images: Tensor, drawn: Tensor, negative: Tensor, *, magnitude: int) -> Tensor:
    """Apply operation number drawn[i] to image i at `magnitude` of 31, reversed where `negative` if it has a sign."""
    share = magnitude / (STRENGTHS - 1)
    strengths = torch.tensor([operation.strength(share) for operation in OPERATIONS], dtype=torch.float64)
    parameters = strengths[drawn] * torch.where(_SIGNED[drawn] & negative, -1.0, 1.0)
    return _apply(images, drawn, parameters, [operation.apply for operation in OPERATIONS])


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
        images = _apply(images, drawn, parameters, (colour.brightness, colour.contrast, colour.saturate))
    return images


def _apply(images: Tensor, drawn: Tensor, parameters: Tensor, operations: Sequence[_Apply]) -> Tensor:
    if not len(images):  # a rank's share of a last batch may be empty
        return images
    order = drawn.argsort(stable=True)  # images of an operation side by side
    counts = torch.bincount(drawn, minlength=len(operations)).tolist()
    parts = torch.split(images.index_select(0, order.to(images.device)), counts)
    values = torch.split(parameters[order].to(images.device), counts)
    changed = [
        operation(part, value) for operation, part, value in zip(operations, parts, values, strict=True) if len(part)
    ]
    return torch.cat(changed).index_select(0, order.argsort().to(images.device))
