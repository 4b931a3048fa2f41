"""Operations that mix a pixel's channels or its neighbours: saturation, hue, sharpness. The arithmetic is Pillow's."""

import torch
from torch import Tensor


def blend(start: Tensor, end: Tensor, factor: Tensor) -> Tensor:
    """Return start + factor · (end − start) in float32, clipped and truncated to uint8; factor may exceed 1.

    >>> blend(torch.tensor([0.0]), torch.tensor([201.0]), torch.tensor([0.5])).tolist()
    [100]
    """
    return (start + factor.float() * (end - start)).clamp_(0, 255).to(torch.uint8)


def luminance(images: Tensor) -> Tensor:
    """Return the uint8 (N, 1, H, W) luma (ITU-R 601) of RGB images; grey images are their own.

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
    return blend(luminance(images).float(), images.float(), factor.view(-1, 1, 1, 1))


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
    return blend(smooth.float(), images.float(), factor.view(-1, 1, 1, 1))


def shift_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue of RGB images by `turn` (−0.5 to 0.5 of the circle), through 8-bit HSV as Pillow does."""
    if images.shape[1] == 1:
        return images
    hue, saturation, value = _to_hsv(images)
    steps = torch.trunc(turn.double() * 255).to(torch.int32).view(-1, 1, 1)  # a byte, wrapping round
    return _to_rgb((hue + steps) & 255, saturation, value)


def _to_hsv(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return hue, saturation and value, each int32 (N, H, W) in 0..255.

    The changes between float and double are those of Pillow's C: whole hues lie on the edge between two levels.
    """
    red, green, blue = images.float().unbind(1)
    value = images.amax(1).float()
    spread = value - images.amin(1).float()
    safe = spread.clamp(min=1)
    from_red, from_green, from_blue = (value - red) / safe, (value - green) / safe, (value - blue) / safe
    sector = torch.where(
        red == value,
        from_blue - from_green,
        torch.where(
            green == value,
            (2.0 + from_red.double() - from_blue).float(),
            (4.0 + from_green.double() - from_red).float(),
        ),
    )
    hue = torch.fmod(sector.double() / 6.0 + 1.0, 1.0).float()
    grey = spread == 0
    hue = torch.where(grey, 0.0, (hue.double() * 255.0).clamp(0, 255))
    saturation = torch.where(grey, 0.0, ((spread / value.clamp(min=1)).double() * 255.0).clamp(0, 255))
    return hue.to(torch.int32), saturation.to(torch.int32), value.to(torch.int32)


def _to_rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    sixths = hue.double() * 6.0 / 255.0
    sector = torch.floor(sixths)
    fraction = (sixths - sector).float().double()
    strength = (saturation.float() / 255.0).double()
    v = value.double()
    low = _round(v * (1.0 - strength))
    falling = _round(v * (1.0 - strength * fraction))
    rising = _round(v * (1.0 - strength * (1.0 - fraction)))
    # The channels in the order red, green, blue for each sixth of the circle.
    sixth = torch.stack(
        [
            torch.stack([v, rising, low], 1),
            torch.stack([falling, v, low], 1),
            torch.stack([low, v, rising], 1),
            torch.stack([low, falling, v], 1),
            torch.stack([rising, low, v], 1),
            torch.stack([v, low, falling], 1),
        ]
    )  # (6, N, 3, H, W)
    chosen = (sector.long() % 6).unsqueeze(1).expand(-1, 3, -1, -1).unsqueeze(0)
    rgb = sixth.gather(0, chosen).squeeze(0)
    return torch.where(saturation.unsqueeze(1) == 0, v.unsqueeze(1), rgb).clamp_(0, 255).to(torch.uint8)


def _round(values: Tensor) -> Tensor:
    return torch.floor(values + 0.5)  # C's round() for values that are not negative
