"""Operations that change a pixel's value by that value alone: each is a table of 256 entries per image and channel.

Every function takes uint8 images (N, C, H, W), and a parameter per image where it has one, and returns uint8 tables
(N, C or 1, 256) for `apply_tables`. The arithmetic (float32 blends truncated, float64 contrast stretch) is Pillow's.
"""

import torch
from torch import Tensor

from filtercov.lab.data.augment.colour import blend, luminance


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Scale towards (factor < 1) or away from black."""
    return blend(torch.zeros(1, device=images.device), _levels(images), factor.view(-1, 1, 1))


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Scale towards or away from the image's mean luminance."""
    grey = luminance(images).flatten(1)  # (N, H·W)
    mean = torch.floor(grey.sum(1, dtype=torch.int64).double() / grey.shape[1] + 0.5)
    return blend(mean.float().view(-1, 1, 1), _levels(images), factor.view(-1, 1, 1))


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` (0 to 8) bits of each value."""
    dropped = (8 - bits.to(torch.int32)).view(-1, 1, 1)
    levels = _levels(images).to(torch.int32)
    return ((levels >> dropped) << dropped).to(torch.uint8)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the values at or above the threshold."""
    levels = _levels(images)
    table = torch.where(levels < threshold.view(-1, 1, 1), levels, 255 - levels)
    return table.to(torch.uint8)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value becomes 0 and its brightest 255."""
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True).double(), flat.amax(2, keepdim=True).double()  # (N, C, 1)
    flat_channel = high <= low
    scale = 255.0 / torch.where(flat_channel, 1.0, high - low)
    levels = _levels(images).double()
    stretched = (levels * scale + -low * scale).clamp(0, 255)
    return torch.where(flat_channel, levels, stretched).to(torch.uint8)


def equalize(images: Tensor) -> Tensor:
    """Spread each channel's values so that they are about equally frequent."""
    n, c = images.shape[:2]
    rows = torch.arange(n * c, device=images.device).view(n, c, 1) * 256
    counts = torch.bincount((images.flatten(2) + rows).view(-1), minlength=n * c * 256).view(n, c, 256)
    brightest = images.flatten(2).amax(2, keepdim=True).long()  # (N, C, 1)
    step = (counts.sum(2, keepdim=True) - counts.gather(2, brightest)) // 255
    below = counts.cumsum(2) - counts  # how many pixels are darker than each level
    spread = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step == 0, _levels(images).long(), spread).to(torch.uint8)


def _levels(images: Tensor) -> Tensor:
    return torch.arange(256, device=images.device, dtype=torch.float32).view(1, 1, 256)
