"""`Augment`: which augmentations a batch gets and in which order, and `Draws`, all the randomness of one batch.

What changes uint8 pixels is in `geometry` and `operations`; erasing and mixing, which change normalised floats, are at
the end of this file.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from filtercov.errors import DataError
from filtercov.lab.data import geometry
from filtercov.lab.data.operations import STRENGTHS, colour_jitter, randaugment

Preset = Literal["none", "light", "randaugment", "cifar", "a1"]


class Draws:
    """The randomness of a batch of `count` images: uniform in [0, 1), a row per image; `*_weight` are Beta-distributed.

    They are drawn for the whole (global) batch on the CPU, before any image is touched, and do not depend on which
    operations are on. So a seed gives the same draws on any device, for any rank's share of the batch, and any setting.
    """

    def __init__(self, augment: "Augment", count: int, generator: torch.Generator) -> None:
        # torch has no Beta with a generator; NumPy's is seeded from ours.
        rng = np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator)))

        def uniform(*shape: int) -> Tensor:
            return torch.from_numpy(rng.random((count, *shape)))

        def beta(alpha: float) -> Tensor:
            return torch.from_numpy(rng.beta(alpha, alpha, count)) if alpha > 0 else torch.ones(count).double()

        # What a seed gives depends on the order of these calls and on how many numbers they draw, used or not.
        operations = augment.randaugment[0] if augment.randaugment else 0
        self.crop = uniform(geometry.BOX_DRAWS)
        self.flip = uniform()
        self.jitter_order = uniform(4)  # three of them used
        self.jitter = uniform(4)
        self.erase = uniform()
        self.erase_box = uniform(geometry.BOX_DRAWS)
        uniform()  # not used
        self.mix_kind = uniform()  # cutmix or mixup
        self.mix_centre = uniform(2)
        self.operation = uniform(operations)  # (B, operations): which RandAugment operation
        self.sign = uniform(operations)
        self.mixup_weight = beta(augment.mixup)
        self.cutmix_weight = beta(augment.cutmix)

    def take(self, rows: Tensor) -> "Draws":
        """The draws of some of the images."""
        taken = copy(self)
        for name, values in vars(self).items():
            setattr(taken, name, values[rows])
        return taken


@dataclass(frozen=True)
class Augment:
    """Seeded, per-image augmentation of batches. What is 0 or None is off.

    >>> augment = Augment.preset("cifar")
    >>> images = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
    >>> draws = Draws(augment, 8, torch.Generator().manual_seed(0))
    >>> out, targets = augment(images, torch.arange(8), draws, num_classes=10)
    >>> out.shape, out.dtype, targets.dtype
    (torch.Size([8, 3, 32, 32]), torch.float32, torch.int64)
    """

    crop_padding: int = 0
    random_resized_crop: geometry.Range | None = None  # range of the area
    crop_ratio: geometry.Range = (3 / 4, 4 / 3)  # range of width / height of the resized crop
    flip: float = 0.0  # probability
    randaugment: tuple[int, int] | None = None  # operations, magnitude of 0..30
    operation_probability: float = 1.0  # of each operation of RandAugment
    colour_jitter: tuple[float, float, float] | None = None  # brightness, contrast, saturation
    erasing: float = 0.0  # probability
    mixup: float = 0.0  # α of the Beta distribution
    cutmix: float = 0.0  # α; where both are on, each image draws one

    def __post_init__(self) -> None:
        shares = (self.flip, self.operation_probability, self.erasing)
        low, high = self.random_resized_crop or (1.0, 1.0)
        _, magnitude = self.randaugment or (0, 0)
        if not (all(0 <= share <= 1 for share in shares) and 0 < low <= high <= 1 and 0 <= magnitude < STRENGTHS):
            raise DataError(f"probabilities lie in [0, 1], areas in (0, 1], magnitudes in 0 … 30, got {self}")
        if self.crop_padding and self.random_resized_crop:
            raise DataError(f"crop_padding must be 0 with random_resized_crop, got {self}")

    @classmethod
    def preset(cls, name: Preset) -> "Augment":
        """Augmentation by name: `none`; `light`, crop and flip; `randaugment`, these and one operation; `cifar`; `a1`.

        `cifar` is the ConvMixer authors' script for CIFAR-10. `a1` is the recipe of that name for ImageNet (Wightman et
        al., arXiv 2110.00476): its `rand-m7` is strength 21 of our 30, each operation applied with probability ½.

        >>> Augment.preset("light")
        Augment(crop_padding=4, ..., flip=0.5, ...)
        """
        presets = {
            "none": cls(),
            "light": cls(crop_padding=4, flip=0.5),
            "randaugment": cls(crop_padding=4, flip=0.5, randaugment=(1, 8)),
            "cifar": cls(
                random_resized_crop=(0.75, 1.0),
                crop_ratio=(1.0, 1.0),
                flip=0.5,
                randaugment=(1, 8),
                colour_jitter=(0.1, 0.1, 0.1),
                erasing=0.25,
            ),
            "a1": cls(
                random_resized_crop=(0.08, 1.0),
                flip=0.5,
                randaugment=(2, 21),
                operation_probability=0.5,
                mixup=0.2,
                cutmix=1.0,
            ),
        }
        if name not in presets:
            raise DataError(f"unknown augmentation {name!r}; choose one of {', '.join(presets)}")
        return presets[name]

    @property
    def mixes(self) -> bool:
        """Whether targets become (N, num_classes) distributions."""
        return self.mixup > 0 or self.cutmix > 0

    def __call__(
        self,
        images: Tensor,
        targets: Tensor,
        draws: Draws,
        *,
        num_classes: int,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        own: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Augment and normalise uint8 (N, C, H, W) images by their draws: float32 channels_last images, and targets.

        Mixing pairs each image with the one as far from the other end. A rank, which has a part of the batch, passes
        its `own` first images and then as many partners in their order, and gets its own.
        """
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
            raise DataError(f"needed uint8 images (N, 1 or 3, H, W), got {images.dtype} {tuple(images.shape)}")
        values = normalise(self._change_pixels(images.contiguous(), draws), mean, std)
        if self.erasing > 0:
            erase_(values, draws.erase < self.erasing, draws.erase_box)
        if not self.mixes:
            return values, targets
        mine = torch.arange(len(values) if own is None else own)
        partners = mine.flip(0) if len(mine) == len(values) else mine + len(mine)
        return self._mix(values, targets, draws.take(mine), mine, partners, num_classes=num_classes)

    def _change_pixels(self, images: Tensor, draws: Draws) -> Tensor:
        """The uint8 images cropped, flipped, randaugmented and jittered."""
        height, width = images.shape[-2:]
        if self.random_resized_crop is not None:
            scale, ratio = self.random_resized_crop, self.crop_ratio
            boxes = geometry.crop_boxes(draws.crop, height, width, scale=scale, ratio=ratio)
            images = geometry.resized_crop(images, boxes, size=(height, width))
        if self.crop_padding:
            images = geometry.pad_and_crop(images, draws.crop, padding=self.crop_padding)
        if self.flip:
            images = geometry.flip(images, draws.flip < self.flip)
        if self.randaugment is not None:
            magnitude, probability = self.randaugment[1], self.operation_probability
            images = randaugment(images, draws.operation, draws.sign, magnitude=magnitude, probability=probability)
        if self.colour_jitter is not None:
            images = colour_jitter(images, draws.jitter_order, draws.jitter, strengths=self.colour_jitter)
        return images

    def _mix(
        self, values: Tensor, targets: Tensor, draws: Draws, own: Tensor, partners: Tensor, *, num_classes: int
    ) -> tuple[Tensor, Tensor]:
        """Mix values[own] with values[partners]; `draws` are those of `own`.

        Mixup: Zhang et al., 2018 (arXiv 1710.09412). Cutmix: Yun et al., 2019 (arXiv 1905.04899).
        """
        mine, theirs = values[own], values[partners]
        height, width = values.shape[-2:]
        cut_share = 0.0 if self.cutmix == 0 else 1.0 if self.mixup == 0 else 0.5
        cutting = draws.mix_kind < cut_share
        blended_weight = torch.where(cutting, 1.0, draws.mixup_weight)

        boxes = cut_boxes(draws.cutmix_weight, draws.mix_centre, height, width) * cutting.view(-1, 1)
        inside = _rectangles(boxes, height, width).unsqueeze(1).to(values.device)
        weight = blended_weight.to(values).view(-1, 1, 1, 1)
        result = torch.where(inside, theirs, mine) * weight + theirs * (1.0 - weight)
        kept = (1.0 - boxes[:, 2].double() * boxes[:, 3] / (height * width)) * blended_weight
        kept = kept.to(targets.device, torch.float32).view(-1, 1)
        soft = one_hot(targets[own], num_classes) * kept + one_hot(targets[partners], num_classes) * (1.0 - kept)
        return result.contiguous(memory_format=torch.channels_last), soft


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(x / 255 − mean) / std of uint8 (N, C, H, W) images, as float32 in channels_last memory.

    >>> normalise(torch.tensor([[[[255]]]], dtype=torch.uint8), (0.5,), (0.25,)).item()
    2.0
    """
    n, c, height, width = images.shape
    scale = 1.0 / (255.0 * torch.tensor(std, dtype=torch.float64).expand(c))
    shift = -255.0 * torch.tensor(mean, dtype=torch.float64).expand(c) * scale
    # Whole rows of interleaved channels: a plain vector operation, ten times as fast as broadcasting over channels.
    rows = images.permute(0, 2, 3, 1).reshape(n, height * width * c).float()
    rows.mul_(scale.to(rows).repeat(height * width)).add_(shift.to(rows).repeat(height * width))
    return rows.view(n, height, width, c).permute(0, 3, 1, 2)


def erase_(images: Tensor, chosen: Tensor, box_draws: Tensor) -> Tensor:
    """Set a random rectangle (2 to 33 % of the area, aspect 0.3 to 3.3) to zero, the mean, where `chosen`, (N,).

    Random erasing: Zhong et al., 2020 (arXiv 1708.04896).
    """
    height, width = images.shape[-2:]
    boxes, found = geometry.random_boxes(box_draws, height, width, scale=(0.02, 0.33), ratio=(0.3, 3.3))
    inside = _rectangles(boxes, height, width) & (chosen & found).view(-1, 1, 1)
    return images.masked_fill_(inside.unsqueeze(1).to(images.device), 0.0)


def cut_boxes(weight: Tensor, centre: Tensor, height: int, width: int) -> Tensor:
    """Cutmix's boxes (N, 4), top, left, height, width: 1 − weight of the area about a centre, clipped to the image."""
    side = torch.sqrt(1.0 - weight)
    half_height, half_width = (height * side).long() // 2, (width * side).long() // 2
    y, x = (centre[:, 0] * height).long(), (centre[:, 1] * width).long()
    top, bottom = (y - half_height).clamp(0, height), (y + half_height).clamp(0, height)
    left, right = (x - half_width).clamp(0, width), (x + half_width).clamp(0, width)
    return torch.stack([top, left, bottom - top, right - left], dim=1)


def _rectangles(boxes: Tensor, height: int, width: int) -> Tensor:
    """Boolean (N, H, W) masks of the insides of boxes."""
    top, left, box_height, box_width = (boxes[:, i].view(-1, 1, 1) for i in range(4))
    y, x = torch.arange(height).view(1, -1, 1), torch.arange(width).view(1, 1, -1)
    return (y >= top) & (y < top + box_height) & (x >= left) & (x < left + box_width)
