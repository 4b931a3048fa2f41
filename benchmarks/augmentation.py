"""Images per second of our batched augmentation against torchvision's per-image PIL pipeline, at 32×32, one core each.

    OMP_NUM_THREADS=1 python benchmarks/augmentation.py

Both contestants run the same operations with the same probabilities from uint8 images to normalised float batches, in
one process on one thread, taking turns; the best of the turns counts. torchvision gets its images as PIL images (as
its CIFAR-10 dataset hands them out) and its batches by `torch.stack`.
"""

import argparse
import time
from collections.abc import Callable
from math import inf
from unittest import mock

import torch
from PIL import Image

from filtercov.lab.data import Augment
from filtercov.lab.data.augment import Draws
from filtercov.nn.timing import race

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
SIZE, BATCH = 32, 512
RECIPES = {
    "flip + crop": Augment.preset("light"),
    "flip + crop + RandAugment(2, 9)": Augment(crop_padding=4, flip=0.5, randaugment=(2, 9)),
    "cifar preset": Augment.preset("cifar"),
}


def torchvision_pipeline(recipe: Augment) -> Callable[[Image.Image], torch.Tensor]:
    """Return torchvision's transforms for a recipe (its compiled operators are not needed, nor always present)."""
    register_fake = torch.library.register_fake

    def register(op: str, *args: object, **kwargs: object) -> object:
        return (lambda f: f) if op.startswith("torchvision::") else register_fake(op, *args, **kwargs)

    with mock.patch.object(torch.library, "register_fake", register):
        from torchvision import transforms

    steps = []
    if recipe.random_resized_crop:
        steps.append(transforms.RandomResizedCrop(SIZE, scale=recipe.random_resized_crop, ratio=recipe.crop_ratio))
    if recipe.crop_padding:
        steps.append(transforms.RandomCrop(SIZE, padding=recipe.crop_padding))
    steps.append(transforms.RandomHorizontalFlip(recipe.flip))
    if recipe.randaugment:
        steps.append(transforms.RandAugment(*recipe.randaugment))
    if recipe.colour_jitter:
        steps.append(transforms.ColorJitter(*recipe.colour_jitter))
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    if recipe.erasing:
        steps.append(transforms.RandomErasing(recipe.erasing))
    return transforms.Compose(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    # Smooth pictures: noise would be unusually hard on nothing here, but looks like no photograph.
    small = torch.rand(BATCH, 3, 8, 8)
    images = torch.nn.functional.interpolate(small, size=SIZE, mode="bilinear").mul(255).byte()
    pil = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    targets = torch.zeros(BATCH, dtype=torch.int64)

    print(f"batch {BATCH}, {SIZE}x{SIZE}, 1 thread, best of {turns} turns")
    print(f"{'recipe':34} {'torchvision':>12} {'filtercov':>12} {'ratio':>7}   (images per second)")
    for name, recipe in RECIPES.items():
        pipeline = torchvision_pipeline(recipe)
        contestants = {
            "theirs": lambda p=pipeline: torch.stack([p(image) for image in pil]),
            "ours": lambda r=recipe: r(images, targets, Draws(r, BATCH, generator), num_classes=10, mean=MEAN, std=STD),
        }
        times = race(contestants, seconds=inf, turns=turns, clock=time.perf_counter)
        theirs, ours = (BATCH / min(times[name]) for name in contestants)
        print(f"{name:34} {theirs:12,.0f} {ours:12,.0f} {ours / theirs:6.1f}x")


if __name__ == "__main__":
    main()
