"""The learning rate as a function of how much of training is done."""

import math
from itertools import pairwise

from filtercov.lab.training.config import TrainConfig

# The triangle of the ConvMixer authors' CIFAR-10 recipe, which the paper follows: up for two fifths of training, down
# to a twentieth by four fifths, and on to zero.
_TRIANGLE = ((0.0, 0.0), (0.4, 1.0), (0.8, 0.05), (1.0, 0.0))


def learning_rate(config: TrainConfig, done: float) -> float:
    """Return the learning rate when the fraction `done` in [0, 1] of all steps is complete.

    >>> config = TrainConfig(lr=0.01)
    >>> [round(learning_rate(config, done), 6) for done in (0.0, 0.2, 0.4, 0.8, 1.0)]
    [0.0, 0.005, 0.01, 0.0005, 0.0]
    """
    if config.sched == "triangular":
        return config.lr * _interpolate(done)
    warmup = config.warmup_epochs / config.epochs
    if done < warmup:
        return config.lr * done / warmup
    if config.sched == "constant":
        return config.lr
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * (done - warmup) / (1.0 - warmup)))


def _interpolate(done: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(_TRIANGLE):
        if done <= x1:
            return y0 + (y1 - y0) * (done - x0) / (x1 - x0)
    return _TRIANGLE[-1][1]
