"""Colour jitter: brightness, contrast, saturation and hue changed by random amounts, in an order drawn per image."""

import torch
from torch import Tensor

from filtercov.lab.data.augment import points
from filtercov.lab.data.augment.colour import saturate, shift_hue
from filtercov.lab.data.augment.groups import apply_to_groups, each, through_tables

_GROUPS = [  # operations by their place among the strengths
    ((0, 1), through_tables({0: points.brightness, 1: points.contrast})),
    ((2,), each(saturate)),
    ((3,), each(shift_hue)),
]


def colour_jitter(
    images: Tensor, order: Tensor, amount: Tensor, *, strengths: tuple[float, float, float, float]
) -> Tensor:
    """Jitter uint8 (N, C, H, W) images; `order` and `amount` are uniform draws (N, 4).

    The first three strengths s scale by a factor uniform in [max(0, 1 − s), 1 + s]; hue turns by at most its strength.
    What has strength 0 is left out.
    """
    low = torch.tensor([max(0.0, 1.0 - s) for s in strengths[:3]] + [-strengths[3]], dtype=torch.float64)
    high = torch.tensor([1.0 + s for s in strengths[:3]] + [strengths[3]], dtype=torch.float64)
    factors = low + (high - low) * amount  # (N, 4)
    used = torch.tensor([kind for kind, strength in enumerate(strengths) if strength > 0], dtype=torch.int64)
    turns = used[order[:, used].argsort(1)]  # (N, used): which comes first, second, …
    for drawn in turns.unbind(1):
        parameters = factors.gather(1, drawn.unsqueeze(1)).squeeze(1)
        images = apply_to_groups(images, drawn, parameters, _GROUPS)
    return images
