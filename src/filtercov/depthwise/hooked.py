"""Weights that a hook computes before each call, from the tensors that a state dict has instead of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from filtercov.files.limits import LAYER

PARTS = ("weight_orig", "weight_mask", "weight_g", "weight_v", "weight_u")


def hooked_weight(tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return what torch.nn.utils.weight_norm, spectral_norm or prune would make of a layer's tensors, by their names.

    None if these are no such tensors, do not belong together or are too large to be measured. It is computed, and
    returned, in double precision.

    >>> hooked_weight({"weight_g": torch.tensor([[10.0]]), "weight_v": torch.tensor([[3.0, 4.0]])})
    tensor([[6., 8.]], dtype=torch.float64)
    """
    held = {name: tensor for name, tensor in tensors.items() if not tensor.is_complex() and 8 * tensor.numel() <= LAYER}
    original, mask, g, v, u = (held[name].double() if name in held else None for name in PARTS)
    if original is not None and mask is not None:
        return original * mask if original.shape == mask.shape else None
    if g is not None and v is not None:
        return _normed(g, v)
    if original is not None and original.ndim > 1 and u is not None and v is not None:
        rows = original.flatten(1)
        return original / (u @ rows @ v) if u.shape == rows.shape[:1] and v.shape == rows.shape[1:] else None
    return None


def _normed(g: Tensor, v: Tensor) -> Tensor | None:
    """Return v with the norms g, which are over those axes where g has one number, or over all if it has no axes."""
    if g.ndim == 0:
        norms: Tensor = torch.linalg.vector_norm(v)
        return v * (g / norms)
    if g.ndim != v.ndim or any(side not in (1, along) for side, along in zip(g.shape, v.shape, strict=True)):
        return None
    norms = torch.linalg.vector_norm(v, dim=[axis for axis, side in enumerate(g.shape) if side == 1], keepdim=True)
    return v * (g / norms)
