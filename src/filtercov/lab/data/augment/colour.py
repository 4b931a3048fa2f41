"""Operations that change pixels' values, with Pillow's arithmetic: equal to Pillow's on every pixel.

Images are uint8 (N, C, H, W), parameters (N,). Where a new value depends on the old value alone, it is looked up in a
table of 256 entries per image and perhaps channel.
"""

import torch
from torch import Tensor

from filtercov.lab.data.augment.geometry import plane_starts


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Scale towards (factor < 1) or away from black."""
    return _look_up(images, _blend(torch.zeros(1, device=images.device), _levels(images), factor.view(-1, 1, 1)))


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Scale towards or away from the image's mean luminance."""
    grey = luminance(images).flatten(1)  # (N, H·W)
    mean = torch.floor(grey.sum(1, dtype=torch.int64).double() / grey.shape[1] + 0.5)
    return _look_up(images, _blend(mean.float().view(-1, 1, 1), _levels(images), factor.view(-1, 1, 1)))


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` (0 to 8) bits of each value."""
    mask = 256 - (256 >> bits.to(torch.int32))  # 8 bits: 255, 1 bit: 128
    return images & mask.to(torch.uint8).view(-1, 1, 1, 1)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the values at or above the threshold."""
    return torch.where(images < threshold.ceil().to(torch.uint8).view(-1, 1, 1, 1), images, 255 - images)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value becomes 0 and its brightest 255."""
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True).double(), flat.amax(2, keepdim=True).double()  # (N, C, 1)
    constant = high <= low
    scale = 255.0 / torch.where(constant, 1.0, high - low)
    levels = _levels(images).double()
    stretched = (levels * scale + -low * scale).clamp(0, 255)
    return _look_up(images, torch.where(constant, levels, stretched).to(torch.uint8))


def equalize(images: Tensor) -> Tensor:
    """Spread each channel's values so that they are about equally frequent."""
    n, c = images.shape[:2]
    rows = torch.arange(n * c, device=images.device).view(n, c, 1) * 256
    counts = torch.bincount((images.flatten(2) + rows).view(-1), minlength=n * c * 256).view(n, c, 256)
    brightest = images.flatten(2).amax(2, keepdim=True).long()  # (N, C, 1)
    step = (counts.sum(2, keepdim=True) - counts.gather(2, brightest)) // 255
    below = counts.cumsum(2) - counts  # how many pixels are darker than each level
    spread = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return _look_up(images, torch.where(step == 0, _levels(images).long(), spread).to(torch.uint8))


def luminance(images: Tensor) -> Tensor:
    """The uint8 (N, 1, H, W) luma (ITU-R 601) of RGB images; grey images are their own.

    >>> luminance(torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)).item()
    76
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.to(torch.int32).unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).to(torch.uint8).unsqueeze(1)


def saturate(images: Tensor, factor: Tensor) -> Tensor:
    """Blend each image with its luminance: 0 is grey, 1 the image, more is more colourful."""
    if images.shape[1] == 1:
        return images
    return _blend(luminance(images).float(), images.float(), factor.view(-1, 1, 1, 1))


def sharpen(images: Tensor, factor: Tensor) -> Tensor:
    """Blend each image with its 3×3 smoothing: 0 is smooth, 1 the image, more is sharper; borders stay as they are."""
    if min(images.shape[-2:]) < 3:
        return images
    values = images.to(torch.int32)
    rows = values[:, :, :-2] + values[:, :, 1:-1] + values[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    weighted = box + 4 * values[:, :, 1:-1, 1:-1]  # the centre weighs 5, its eight neighbours 1: 13 in all
    smooth = images.clone()
    smooth[:, :, 1:-1, 1:-1] = ((2 * weighted + 13) // 26).to(torch.uint8)  # rounded; no sum of 13ths is a tie
    return _blend(smooth.float(), images.float(), factor.view(-1, 1, 1, 1))


def _blend(start: Tensor, end: Tensor, factor: Tensor) -> Tensor:
    """Compute start + factor · (end − start) in float32, clipped and truncated to uint8; factor may exceed 1."""
    return (start + factor.float() * (end - start)).clamp_(0, 255).to(torch.uint8)


def _levels(images: Tensor) -> Tensor:
    return torch.arange(256, device=images.device, dtype=torch.float32).view(1, 1, 256)


def _look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Map every value through its image's and channel's table; tables are uint8 (N, C or 1, 256)."""
    starts = plane_starts(images, 256)
    flat = (images.to(starts.dtype) + starts).view(-1)
    return tables.expand(*images.shape[:2], 256).reshape(-1).index_select(0, flat).view(images.shape)
