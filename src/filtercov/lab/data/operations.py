"""RandAugment and colour jitter: the operations on pixels' values, and a different operation for each image of a batch.

Images are uint8 (N, C, H, W), parameters (N,). Results are equal to Pillow's on every pixel. Where a new value depends
on the old value alone, it is looked up in a table of 256 entries per image and perhaps channel.

Each operation runs once for all images that drew it, so a batch costs about as many tensor operations as there are
kinds, however many images it has. `drawn` and its parameters are on the CPU, so that a GPU is never waited for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from filtercov.lab.data import geometry

STRENGTHS = 31


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
    """The uint8 (N, 1, H, W) luma (ITU-R 601) of RGB images; grey images are their own."""
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
    return tables.expand(*images.shape[:2], 256).gather(2, images.flatten(2).long()).view(images.shape)


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
    Operation("Brightness", lambda share: 0.9 * share, lambda images, c: brightness(images, 1 + c), signed=True),
    Operation("Color", lambda share: 0.9 * share, lambda images, c: saturate(images, 1 + c), signed=True),
    Operation("Contrast", lambda share: 0.9 * share, lambda images, c: contrast(images, 1 + c), signed=True),
    Operation("Sharpness", lambda share: 0.9 * share, lambda images, c: sharpen(images, 1 + c), signed=True),
    Operation("Posterize", lambda share: 8 - round(4 * share), posterize),
    Operation("Solarize", lambda share: 255.0 * (1.0 - share), solarize),
    Operation("AutoContrast", lambda _: 0.0, lambda images, _: autocontrast(images)),
    Operation("Equalize", lambda _: 0.0, lambda images, _: equalize(images)),
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
    uniform in [max(0, 1 − s), 1 + s].
    """
    low = torch.tensor([max(0.0, 1.0 - s) for s in strengths], dtype=torch.float64)
    high = torch.tensor([1.0 + s for s in strengths], dtype=torch.float64)
    factors = low + (high - low) * amount[:, :3]
    for drawn in order[:, :3].argsort(1).unbind(1):  # which comes first, second, third
        parameters = factors.gather(1, drawn.unsqueeze(1)).squeeze(1)
        images = _apply(images, drawn, parameters, (brightness, contrast, saturate))
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
