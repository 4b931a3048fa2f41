"""Every augmentation operation against Pillow, RandAugment's as torchvision calls them, image by image.

Stated tolerance: equal on every pixel, but for the resized crop, which may be 1 level off.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from filtercov.lab.data import geometry
from filtercov.lab.data.operations import OPERATIONS, Operation, apply_operations, colour_jitter, randaugment
from tests.peers import import_peer


def golden_images(channels: int, height: int = 32, width: int = 32) -> Tensor:
    """Noise, ramps, flat fields, two levels, a few bright pixels, smooth blobs: differing roundings show."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (6, height, width, channels))
    ramp = np.broadcast_to(np.linspace(0, 255, width).astype(int)[None, :, None], (1, height, width, channels))
    narrow = rng.integers(100, 108, (4, height, width, channels))
    flat = np.full((1, height, width, channels), 77)
    black = np.zeros((1, height, width, channels), int)
    two = rng.integers(0, 2, (1, height, width, channels)) * 255
    sparse = np.where(rng.random((2, height, width, channels)) < 0.02, 255, 3)
    y, x = np.mgrid[:height, :width] / max(height, width)
    blobs = np.stack([127 + 127 * np.sin(6 * x + c) * np.cos(5 * y - c) for c in range(channels)], -1)[None]
    dominated = np.where(rng.random((1, height, width, channels)) < 0.7, 200, noise[:1])
    stack = np.concatenate([noise, ramp, narrow, flat, black, two, sparse, blobs.astype(int), dominated])
    return torch.from_numpy(stack.astype(np.uint8)).permute(0, 3, 1, 2).contiguous()


def to_pil(image: Tensor) -> Image.Image:
    array = image.permute(1, 2, 0).numpy()
    return Image.fromarray(array if array.shape[2] == 3 else array[..., 0])


def from_pil(image: Image.Image) -> Tensor:
    array = np.array(image)
    return torch.from_numpy(array if array.ndim == 3 else array[..., None]).permute(2, 0, 1)


def each(images: Tensor, function: Callable[[Image.Image], Image.Image]) -> Tensor:
    return torch.stack([from_pil(function(to_pil(image))) for image in images])


def assert_equal(ours: Tensor, reference: Tensor, levels: int = 0) -> None:
    assert ours.dtype == torch.uint8
    assert (ours.int() - reference.int()).abs().max().item() <= levels


def all_drawing(images: Tensor, operation: Operation, negative: bool, magnitude: int) -> Tensor:
    drawn = torch.full((len(images),), OPERATIONS.index(operation))
    return apply_operations(images, drawn, torch.full((len(images),), negative), magnitude=magnitude)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_randaugment_operation_equals_torchvisions_on_pillows_pictures_at_every_strength(
    operation: Operation,
) -> None:
    autoaugment = import_peer("torchvision.transforms.autoaugment")
    interpolation = import_peer("torchvision.transforms").InterpolationMode.NEAREST
    for magnitude, negative, channels, height, width in (
        (0, True, 3, 17, 40),
        (7, True, 1, 28, 28),
        (9, False, 3, 32, 32),
        (30, False, 3, 17, 40),
        (30, True, 1, 331, 331),
    ):
        images = golden_images(channels, height, width)
        magnitudes, signed = autoaugment.RandAugment()._augmentation_space(31, (height, width))[operation.name]
        value = float(magnitudes[magnitude]) if magnitudes.ndim else 0.0
        theirs = partial(
            autoaugment._apply_op,
            op_name=operation.name,
            magnitude=-value if signed and negative else value,
            interpolation=interpolation,
            fill=None,
        )
        assert_equal(all_drawing(images, operation, negative, magnitude), each(images, theirs))


def test_a_mixed_batch_equals_each_image_by_itself_operation_by_operation() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.cat([golden_images(3)] * 5)
    operation, sign = torch.rand(2, len(images), 2, generator=generator)
    together = randaugment(images, operation, sign, magnitude=9)
    drawn, negative = (operation * 14).long(), sign < 0.5
    assert len(drawn.unique()) == 14
    for i, alone in enumerate(images.split(1)):
        for turn in range(2):
            alone = apply_operations(alone, drawn[i, turn : turn + 1], negative[i, turn : turn + 1], magnitude=9)
        assert_equal(together[i : i + 1], alone)


def test_jitter_changes_each_image_in_its_drawn_order_by_its_drawn_factors() -> None:
    images = golden_images(3)[:6]
    generator = torch.Generator().manual_seed(0)
    order, amount = torch.rand(6, 4, generator=generator), torch.rand(6, 4, generator=generator)
    ours = colour_jitter(images, order, amount, strengths=(0.4, 0.3, 1.5))
    for image, turns, amounts, out in zip(images, order, amount.tolist(), ours, strict=True):
        picture = to_pil(image)
        for kind in turns[:3].argsort().tolist():
            low, high = ((0.6, 1.4), (0.7, 1.3), (0.0, 2.5))[kind]
            enhancer = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[kind]
            picture = enhancer(picture).enhance(low + (high - low) * amounts[kind])
        assert_equal(out, from_pil(picture), levels=1)  # the factors are sums in another order


@pytest.mark.parametrize("channels", [1, 3])
def test_the_resized_crop_is_pillows_within_one_level(channels: int) -> None:
    torch.manual_seed(0)
    images = torch.cat([golden_images(channels, 32, 40)] * 3)
    boxes = geometry.crop_boxes(torch.rand(len(images), 22), 32, 40, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
    ours = geometry.resized_crop(images, boxes, size=(28, 36))
    for image, (top, left, height, width), out in zip(images, boxes.tolist(), ours, strict=True):
        cropped = to_pil(image).crop((left, top, left + width, top + height))
        reference = from_pil(cropped.resize((36, 28), Image.Resampling.BILINEAR))
        assert_equal(out, reference, levels=1)


def test_pad_and_crop_equals_cutting_the_padded_picture() -> None:
    images = golden_images(3)
    draws = torch.rand(len(images), 22, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = geometry.pad_and_crop(images, draws, padding=4)
    corners = set()
    for image, draw, out in zip(images, draws, ours, strict=True):
        top, left = int(draw[-2] * 9), int(draw[-1] * 9)
        corners.add((top, left))
        padded = ImageOps.expand(to_pil(image), border=4, fill=0)
        assert_equal(out, from_pil(padded.crop((left, top, left + 32, top + 32))))
    assert len(corners) > 10


def test_flip_equals_pillows_mirror_where_asked() -> None:
    images = golden_images(3)
    mirrored = torch.arange(len(images)) % 2 == 0
    out = geometry.flip(images, mirrored)
    assert_equal(out[mirrored], each(images[mirrored], ImageOps.mirror))
    assert_equal(out[~mirrored], images[~mirrored])
