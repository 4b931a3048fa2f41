"""The settings that determine the result of a training run, their validation, and the learning rate they give."""

import dataclasses
import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Self, get_args

from filtercov.errors import ConfigError

# Raised whenever equal settings come to mean another training, so that no old run is mistaken for a new one.
FORMAT = 2

Optimizer = Literal["adamw", "sgd"]
Schedule = Literal["triangular", "cosine", "constant"]
Amp = Literal["none", "bfloat16", "float16"]
WORD = 2**63 - 1  # the largest integer that files and generators hold


def whole(name: str, value: object, *, least: int, most: int = WORD) -> None:
    """Require an integer in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def number(name: str, value: Any, *, least: float = 0.0, below: float = math.inf) -> None:
    """Require a finite number in [least, below)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < below:
        bound = f" and below {below:g}" if math.isfinite(below) else ""
        raise ConfigError(f"{name} must be a number of at least {least:g}{bound}, got {value!r}")


def flag(name: str, value: object) -> None:
    """Require a bool."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false, got {value!r}")


def choice(name: str, value: object, known: tuple[str, ...]) -> None:
    """Require one of the known words."""
    if value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def parsed(name: str, written: str, kind: Any) -> Any:
    """A setting from the text of a command line, by the type of its field.

    >>> [parsed("clip_grad", text, float | None) for text in ("1", "none")], parsed("compile", "true", bool)
    ([1.0, None], True)
    """
    kinds, words = get_args(kind) or (kind,), {"none": None, "true": True, "false": False}
    if written in words and type(words[written]) in kinds:
        return words[written]
    for number_kind in (int, float):
        if number_kind in kinds:
            try:
                return number_kind(written)
            except ValueError:
                raise ConfigError(f"{name}: needed a number, got {written!r}") from None
    return written


def refuse_unknown(values: Mapping[str, Any], known: Collection[str]) -> None:
    """Require every name in `values` to be known; the error suggests the nearest one that is."""
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise ConfigError(f"unknown setting {name!r}{hint}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The settings of one training run; the defaults are the paper's CIFAR-10 recipe. Names are timm's.

    Two runs with equal configurations, data, initial weights and thread counts end in identical weights: whatever
    changes the weights is here, and whatever does not (logging, checkpoint intervals) is an argument of `fit`.

    >>> TrainConfig(epochs=50).lr
    0.01
    >>> TrainConfig(lr=-1.0)
    Traceback (most recent call last):
    filtercov.errors.ConfigError: lr must be a number of at least 0, got -1.0
    """

    epochs: int = 20
    batch_size: int = 512  # of all processes together
    lr: float = 0.01
    filter_lr: float = 1.0  # the depthwise filters' learning rate, as a fraction of lr
    weight_decay: float = 0.01
    decay_norms: bool = True  # also decay norms, biases and other parameters of at most one dimension
    opt: Optimizer = "adamw"
    opt_eps: float = 1e-8
    momentum: float = 0.9  # of sgd
    sched: Schedule = "triangular"
    warmup_epochs: float = 0.0
    smoothing: float = 0.0
    clip_grad: float | None = None
    amp: Amp = "none"
    ema_decay: float | None = None
    compile: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            whole(name, getattr(self, name), least=1)
        whole("seed", self.seed, least=0)
        for name in ("lr", "filter_lr", "weight_decay", "opt_eps", "clip_grad", "momentum", "smoothing", "ema_decay"):
            if (value := getattr(self, name)) is not None:
                number(name, value, below=1.0 if name in ("momentum", "smoothing", "ema_decay") else math.inf)
        number("warmup_epochs", self.warmup_epochs, below=float(self.epochs))
        for name, kind in {"opt": Optimizer, "sched": Schedule, "amp": Amp}.items():
            choice(name, getattr(self, name), get_args(kind))
        for name in ("decay_norms", "compile"):
            flag(name, getattr(self, name))
        if self.warmup_epochs and self.sched == "triangular":
            raise ConfigError(
                f"warmup_epochs must be 0 where sched is 'triangular', which rises by itself, got {self.warmup_epochs}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-ready values, without a `filter_lr` of 1, which older runs do not name."""
        values = dataclasses.asdict(self)
        if self.filter_lr == 1.0:
            del values["filter_lr"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a configuration from the output of `to_dict`.

        >>> TrainConfig.from_dict({"epoch": 3})
        Traceback (most recent call last):
        filtercov.errors.ConfigError: unknown setting 'epoch', did you mean 'epochs'?
        """
        refuse_unknown(values, [field.name for field in dataclasses.fields(cls)])
        return cls(**values)


RECIPES: Mapping[str, TrainConfig] = {
    # The ConvMixer authors' script for CIFAR-10 hands all parameters to AdamW alike: norms and biases decay too.
    "cifar": TrainConfig(),
    # A1's weight decay and smoothing with cross-entropy and AdamW. ε and clipping are those of ConvMixer's training on
    # ImageNet, by timm's script, which does not decay norms and biases unless told to.
    "imagenet": TrainConfig(epochs=50, batch_size=640, smoothing=0.1, opt_eps=1e-3, clip_grad=1.0, decay_norms=False),
}

# (share of training, share of the highest learning rate): the triangle of the ConvMixer authors' CIFAR-10 recipe.
_TRIANGLE = ((0.0, 0.0), (0.4, 1.0), (0.8, 0.05), (1.0, 0.0))


def learning_rate(config: TrainConfig, done: float) -> float:
    """The learning rate when the fraction `done` in [0, 1] of all steps is complete.

    >>> config = TrainConfig(lr=0.01)
    >>> [round(learning_rate(config, done), 6) for done in (0.0, 0.2, 0.4, 0.8, 1.0)]
    [0.0, 0.005, 0.01, 0.0005, 0.0]
    """
    if config.sched == "triangular":
        (x0, y0), (x1, y1) = next((low, high) for low, high in pairwise(_TRIANGLE) if done <= high[0])
        return config.lr * (y0 + (y1 - y0) * (done - x0) / (x1 - x0))
    warmup = config.warmup_epochs / config.epochs
    if done < warmup:
        return config.lr * done / warmup
    if config.sched == "constant":
        return config.lr
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * (done - warmup) / (1.0 - warmup)))
