"""The three sizes of every experiment: as in the paper, for hours on two cores, and for seconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from filtercov.lab import models
from filtercov.lab.models import ConvMixerSpec, ConvNeXtSpec
from filtercov.lab.training.config import choice

Network = ConvMixerSpec | ConvNeXtSpec


@dataclass(frozen=True, kw_only=True)
class Family:
    """The sizes of runs on one kind of data. Epochs map the paper's to ours; others are left out."""

    recipe: str
    seeds: int
    reference_epochs: int
    epochs: Mapping[int, int] | None = None  # None: the paper's
    references: int = 1  # networks that those of 9x9 filters and 2x2 patches rotate over, seed by seed
    train: Mapping[str, Any] = field(default_factory=dict)  # what differs from the recipe's training
    run: Mapping[str, Any] = field(default_factory=dict)  # other settings of a `RunSpec`; `data` is else the user's


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One of the three sizes."""

    name: str
    reduced: str  # what is smaller than in the paper, in words; empty if nothing is
    cifar: Family
    imagenet: Family
    shrink: Callable[[Network], Network]
    kernels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # in a "table" or "figure", else all
    grid_points: int | None = None  # values on each axis of a grid search; None: all of them
    claim_seeds: int = 3  # of what settles a claim
    judges: bool = True  # whether its accuracies can speak for or against the paper's

    def model(self, name: str) -> str:
        """The network that stands for one of the paper's.

        >>> find_scale("small").model("convmixer_256_8_k9_p2")
        'convmixer_64_8_k9_p2'
        """
        return self.shrink(models.parse(name)).name


def _small(network: Network) -> Network:
    fine = network.patch_size == 1  # whose layers have four times the pixels
    if isinstance(network, ConvMixerSpec):
        # A reference needs filters to have a covariance: those of the paper's narrow ones are kept.
        divided, kept = network.width // (8 if fine else 4), min(network.width, 16 if fine else 32)
        return replace(network, width=max(divided, kept))
    divisors = {("atto", 1): 2, ("atto", 8): 4, ("tiny", 1): 4, ("tiny", 8): 8}
    return replace(network, divide=divisors[network.size, network.divide] * (2 if fine else 1))


def _smoke(network: Network) -> Network:
    if isinstance(network, ConvMixerSpec):
        patch = {1: 4, 2: 7}.get(network.patch_size, network.patch_size)
        return replace(network, width=max(1, network.width // 32), depth=max(2, network.depth // 8), patch_size=patch)
    # The embedded images, 28 pixels, are too small for patches of 2 and more.
    return replace(network, size="atto", divide={1: 20, 8: 40}[network.divide], patch_size=1)


_EMBEDDED: dict[str, Any] = {"train": {"batch_size": 128}, "run": {"data": "embedded", "data_limit": 256}}
_PAPER = Scale(
    name="paper",
    reduced="",
    cifar=Family(recipe="cifar", seeds=3, reference_epochs=200),
    imagenet=Family(recipe="imagenet", seeds=1, reference_epochs=150, run={"image_size": 224}),
    shrink=lambda network: network,
)
_SMALL = Scale(
    name="small",
    reduced="ConvMixer's width divided by 4, ConvNeXt-Atto's by 2, Tiny's by 4, all by twice that with 1x1 patches; "
    "narrow references half as wide, those of ImageNet's ConvMixers a quarter, not an eighth; for 20 epochs of the "
    "paper 50,000 images in batches of 32, tables for 20 only; references of 20 epochs, of which those of 9x9 filters "
    "are three, rotated over the seeds; ImageNet at 112 pixels in batches of 128; figures for 9x9 filters only, grids "
    "of 3 values an axis",
    cifar=Family(
        recipe="cifar",
        seeds=3,
        reference_epochs=20,
        epochs={20: 1, 40: 2, 100: 5},
        references=3,
        train={"batch_size": 32},
        run={"augment": "light"},
    ),
    imagenet=Family(
        recipe="imagenet",
        seeds=1,
        reference_epochs=15,
        epochs={10: 1, 50: 5, 150: 15},
        train={"batch_size": 128},
        run={"data_limit": 10_000, "image_size": 112, "augment": "light"},
    ),
    shrink=_small,
    kernels={"figure": (9,)},
    grid_points=3,
    claim_seeds=10,
)
_SMOKE = Scale(
    name="smoke",
    reduced="everything: 256 images of the embedded data, one epoch, a few channels and layers, patches of 4 and 7 for "
    "1 and 2; it shows that the code runs, its accuracies mean nothing",
    cifar=Family(recipe="cifar", seeds=2, reference_epochs=1, epochs=dict.fromkeys((5, 10, 20, 40), 1), **_EMBEDDED),
    imagenet=Family(
        recipe="imagenet", seeds=1, reference_epochs=1, epochs=dict.fromkeys((10, 50, 150), 1), **_EMBEDDED
    ),
    shrink=_smoke,
    kernels={"table": (9,), "figure": (9,)},
    grid_points=1,
    claim_seeds=1,
    judges=False,
)
SCALES = {scale.name: scale for scale in (_PAPER, _SMALL, _SMOKE)}


def find_scale(name: str) -> Scale:
    """One of the three scales."""
    choice("scale", name, tuple(SCALES))
    return SCALES[name]
