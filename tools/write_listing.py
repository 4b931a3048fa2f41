"""Write what `filtercov reproduce --list` shows to `src/filtercov/lab/costs.csv`.

`python -m tools.write_listing`; a test compares the file with what this counts, without running anything.
"""

import csv
import io
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

import filtercov as fc
from filtercov.lab import models
from filtercov.lab.costs import COLUMNS, FILE, SCALES, YARDSTICK
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.runspec import Run, RunSpec, in_order
from filtercov.layers.running import run_once

# Networks are slower or faster than the yardstick by their multiply-adds.
TRAINING_PASSES = 3  # a step costs a forward pass and, for two gradients, twice that again
# Narrow networks wait for memory. On a CPU core a step takes about 0.07 ns per multiply-add and 5.3 ns per output
# value, fitted to ConvMixer-256/8 and -32/8.
VALUE_COST = 80  # multiply-adds' worth of time for one output value


class Images(NamedTuple):
    """What costs depend on: how many images are trained on in an epoch and judged after it, and their shape."""

    training: int
    judged: int
    shape: tuple[int, int, int]  # size, channels, classes


IMAGES = {"cifar10": Images(50_000, 10_000, (32, 3, 10)), "embedded": Images(10_000, 2_000, (28, 1, 10))}
IMAGENET = Images(1_281_167, 50_000, (224, 3, 1000))


def _images_of(spec: RunSpec) -> Images:
    """The images of a run; a folder is taken for CIFAR-10 or, if its images are resized, ImageNet.

    >>> _images_of(RunSpec(model=YARDSTICK, data="folder:images", image_size=112)).shape
    (112, 3, 1000)
    """
    images = IMAGES.get(spec.data, IMAGES["cifar10"])
    if spec.data not in IMAGES and spec.image_size is not None:
        images = IMAGENET._replace(shape=(spec.image_size, *IMAGENET.shape[1:]))
    return images._replace(training=spec.data_limit or images.training)


class Cost(NamedTuple):
    """What one image's forward pass through convolutions and linear layers takes, and what a finished run weighs."""

    multiply_adds: int
    values: int  # that the layers put out
    bytes: int  # of weights and statistics

    @property
    def time(self) -> float:
        """Time, in units of a multiply-add's."""
        return self.multiply_adds + VALUE_COST * self.values


@cache
def forward_cost(model: str, image_size: int, channels: int, classes: int) -> Cost:
    """The cost of one image, counted without allocating the network.

    >>> forward_cost("convmixer_256_8_k9_p2", 32, 3, 10)
    Cost(multiply_adds=177474048, values=1114122, bytes=3260584)
    """
    with torch.device("meta"):
        shell = models.create(model, num_classes=classes, in_channels=channels)
    outputs: list[tuple[int, int]] = []  # values that a layer puts out, and multiply-adds for each

    def count(module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        outputs.append((output.numel(), module.weight[0].numel()))

    for module in shell.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    run_once(shell, torch.zeros(1, channels, image_size, image_size, device="meta"))
    pixels = [prod(layer.kernel_size) for layer in fc.depthwise_layers(shell)]
    weights = 4 * sum(parameter.numel() for parameter in shell.parameters())
    return Cost(sum(map(prod, outputs)), sum(n for n, _ in outputs), weights + sum(8 * (n * n + n) for n in pixels))


def costs(wanted: Sequence[Run]) -> dict[str, float]:
    """Count what runs and all they start from take."""
    ordered, yardstick = in_order(wanted), forward_cost(YARDSTICK, *IMAGES["cifar10"].shape).time
    images = operations = size = 0.0
    for run in ordered:
        data, epochs = _images_of(run.spec), run.spec.train.epochs
        cost = forward_cost(run.spec.model, *data.shape)
        images += cost.time / yardstick * (data.training + data.judged / TRAINING_PASSES) * epochs
        operations += 2.0 * TRAINING_PASSES * cost.multiply_adds * data.training * epochs
        size += cost.bytes
    epochs = sum(run.spec.train.epochs for run in ordered)
    numbers = len(ordered), epochs, round(images), operations / 1e15, size / 1e6
    return dict(zip(COLUMNS, numbers, strict=True))


def listing(names: Sequence[str] = tuple(catalogue.PLACES)) -> str:
    """Return the table of experiments, counted anew."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["name", "place", "shows", *(f"{scale}_{column}" for scale in SCALES for column in COLUMNS)])
    options = catalogue.Options(imagenet="folder:imagenet")
    for name in names:
        sized = [catalogue.experiment(name, scale=scale, options=options) for scale in SCALES]
        counted = [costs(experiment.runs) for experiment in sized]
        numbers = [
            f"{count[column]:.4g}" if column in ("petaflops", "megabytes") else count[column]
            for count in counted
            for column in COLUMNS
        ]
        writer.writerow([name, catalogue.PLACES[name], sized[0].shows, *numbers])
    return stream.getvalue()


if __name__ == "__main__":
    FILE.write_text(listing(), encoding="utf-8")
