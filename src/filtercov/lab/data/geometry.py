"""Operations that move pixels: crops, flips and affine warps. Equal to Pillow's on every pixel, resized crops within 1.

Images are uint8 (N, C, H, W), contiguous. A box is (top, left, height, width).
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

BOX_TRIES = 10
BOX_DRAWS = 2 * BOX_TRIES + 2  # (area, aspect) of each try, then the place
_CACHED_IMAGES = 32
Range = tuple[float, float]
Values = float | Tensor
_ONE = 65536  # 1.0 in Pillow's 16.16 fixed point


def pick_pixels(images: Tensor, positions: Tensor) -> Tensor:
    """The pixels at `positions`, integers y·W + x, of each image: (N, h, w) → (N, C, h, w)."""
    n, c = images.shape[:2]
    flat = positions.flatten(1).long().unsqueeze(1).expand(-1, c, -1)
    return images.flatten(2).gather(2, flat).view(n, c, *positions.shape[1:])


def pad_and_crop(images: Tensor, draws: Tensor, *, padding: int) -> Tensor:
    """Pad with black, then crop the old size at a random place; the last two of the draws (N, ≥ 2) say where."""
    height, width = images.shape[-2:]
    padded = pad(images, (padding,) * 4)
    corner = (draws[:, -2:] * (2 * padding + 1)).long().to(images.device)
    rows = corner[:, :1] + torch.arange(height, device=images.device)  # (N, H)
    columns = corner[:, 1:] + torch.arange(width, device=images.device)  # (N, W)
    return pick_pixels(padded, rows.unsqueeze(2) * (width + 2 * padding) + columns.unsqueeze(1))


def flip(images: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror the images where `mirrored`, a boolean (N,), says so."""
    return torch.where(mirrored.to(images.device).view(-1, 1, 1, 1), images.flip(-1), images)


def random_boxes(draws: Tensor, height: int, width: int, *, scale: Range, ratio: Range) -> tuple[Tensor, Tensor]:
    """Random boxes (N, 4), and which rows found one that fits in their ten tries; draws is (N, 22).

    Areas are uniform in `scale` of the image's, aspects w/h log-uniform in `ratio`.
    """
    tries = draws[:, : 2 * BOX_TRIES].view(-1, BOX_TRIES, 2).double()
    area = height * width * (scale[0] + (scale[1] - scale[0]) * tries[..., 0])
    low, high = torch.log(torch.tensor(ratio, dtype=torch.float64))
    aspect = torch.exp(low + (high - low) * tries[..., 1])
    widths, heights = torch.round(torch.sqrt(area * aspect)), torch.round(torch.sqrt(area / aspect))
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)  # (N, 10)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    box_height = heights.gather(1, first).squeeze(1)
    box_width = widths.gather(1, first).squeeze(1)
    room = torch.stack([height - box_height + 1, width - box_width + 1], dim=1)
    corner = torch.floor(draws[:, -2:] * room)
    boxes = torch.stack([corner[:, 0], corner[:, 1], box_height, box_width], dim=1).long()
    return boxes, fits.any(1)


def crop_boxes(draws: Tensor, height: int, width: int, *, scale: Range, ratio: Range) -> Tensor:
    """Random boxes (N, 4), or the central one of an allowed aspect where no try fitted."""
    boxes, found = random_boxes(draws, height, width, scale=scale, ratio=ratio)
    aspect = min(max(width / height, ratio[0]), ratio[1])
    box_height, box_width = min(height, round(width / aspect)), min(width, round(height * aspect))
    central = torch.tensor([(height - box_height) // 2, (width - box_width) // 2, box_height, box_width])
    return torch.where(found.unsqueeze(1), boxes, central)


def resized_crop(images: Tensor, boxes: Tensor, *, size: tuple[int, int]) -> Tensor:
    """Crop each image's box and scale it to `size`, antialiased bilinear.

    Both passes round to whole values, horizontal first, as Pillow's `resize` does.
    """
    # A few images at a time, so that their floats stay in the cache: three times as fast.
    parts = zip(torch.split(images, _CACHED_IMAGES), torch.split(boxes.to(images.device), _CACHED_IMAGES), strict=True)
    return torch.cat([_resized_crop(part, part_boxes, size) for part, part_boxes in parts])


def _resized_crop(images: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    n, c, height, width = images.shape
    across = _triangle_weights(boxes[:, 1], boxes[:, 3], width, size[1])  # (N, w', W)
    down = _triangle_weights(boxes[:, 0], boxes[:, 2], height, size[0])  # (N, h', H)
    rows = images.view(n, c * height, width).float() @ across.transpose(1, 2)
    rows = rows.add_(0.5).floor_().view(n, c, height, size[1])
    # Weights are positive and sum to 1, so values stay within 0..255.
    return (down.unsqueeze(1) @ rows).add_(0.5).to(torch.uint8)


def _triangle_weights(start: Tensor, length: Tensor, old_size: int, new_size: int) -> Tensor:
    """The (N, new, old) weights by which `length` pixels from `start` become `new_size`."""
    step = length.double().view(-1, 1, 1) / new_size
    reach = step.clamp(min=1.0)  # when shrinking, the triangle widens: antialiasing
    centres = start.view(-1, 1, 1) + (torch.arange(new_size, device=start.device).view(1, -1, 1) + 0.5) * step
    pixels = torch.arange(old_size, device=start.device).view(1, 1, -1)
    weights = (1.0 - ((pixels + 0.5 - centres) / reach).abs()).clamp(min=0.0)
    inside = (pixels >= start.view(-1, 1, 1)) & (pixels < (start + length).view(-1, 1, 1))
    weights = weights * inside
    return (weights / weights.sum(2, keepdim=True)).float()


def warp(
    images: Tensor, a: Values = 1.0, b: Values = 0.0, c: Values = 0.0, d: Values = 0.0, e: Values = 1.0, f: Values = 0.0
) -> Tensor:
    """Move pixels, nearest neighbour, in integers: the same on every device. Arguments are numbers or float64 (N,).

    The output pixel centred at (x, y) shows the input at (a·x + b·y + c, d·x + e·y + f), and black outside it.

    >>> warp(torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8), c=-1.0).tolist()
    [[[[0, 1, 2]]]]
    """
    n, _, height, width = images.shape
    x = torch.arange(width, device=images.device, dtype=torch.int32).view(1, 1, width)
    y = torch.arange(height, device=images.device, dtype=torch.int32).view(1, height, 1)

    def source(a: Values, b: Values, c: Values) -> Tensor:
        # Pixel centres lie at half integers, which the offset takes in.
        across, down, offset = (
            torch.floor(torch.as_tensor(value, dtype=torch.float64, device=images.device) * _ONE + 0.5)
            .to(torch.int32)
            .view(-1, 1, 1)
            for value in (a, b, c + 0.5 * a + 0.5 * b)
        )
        return ((offset + x * across + y * down) >> 16).expand(n, height, width)

    source_x, source_y = source(a, b, c), source(d, e, f)
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    positions = (source_y * width + source_x).mul_(inside)
    return pick_pixels(images, positions).mul_(inside.unsqueeze(1))


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Rotate counter-clockwise about the images' centre."""
    radians = -torch.deg2rad(degrees.double())
    # Rounded as Pillow rounds, so that an exact right angle stays exact.
    cos, sin = torch.round(torch.cos(radians), decimals=15), torch.round(torch.sin(radians), decimals=15)
    cx, cy = images.shape[-1] / 2, images.shape[-2] / 2
    return warp(images, cos, sin, cx - cos * cx - sin * cy, -sin, cos, cy + sin * cx - cos * cy)
