"""Ways to initialise depthwise filters, by name: the columns of every table.

One table, at the end, holds ours with what each needs; everything else asks it. Others join with `register`, or from an
installed package through the entry point group `filtercov.initialisations`.
"""

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

import filtercov as fc
from filtercov.depthwise.state_dict import read_depthwise_weights
from filtercov.errors import ConfigError
from filtercov.filters.assign import assign_filters_
from filtercov.filters.sample import check_drawing, check_weight, drawing
from filtercov.lab.experiments.fingerprint import fingerprint
from filtercov.schedule.schedules import Schedule

ENTRY_POINTS = "filtercov.initialisations"


@dataclass(frozen=True)
class InitContext:
    """What an initialisation may use besides the model."""

    generator: torch.Generator
    argument: str = ""  # what follows the colon in the name
    schedule: str | None = (
        None  # a preset, or "σ0,v,a", for those that have a σ; "sawtooth:" before it restarts by stage
    )
    negative: Literal["clip", "abs"] = "clip"
    root: Path = field(default_factory=Path)  # where relative file names start


Fill = Callable[[nn.Module, InitContext], object]


@dataclass(frozen=True)
class Initialisation:
    """A way to fill depthwise filters, and what it needs."""

    name: str
    fill: Fill
    about: str = ""
    schedule: Literal["none", "optional", "required"] = "none"  # whether it has a σ
    argument: Literal["", "FILE", "RUN"] = ""  # what must follow its name and a colon; others' may have one too
    ours: bool = True
    code: str | None = None  # the checksum of what others' code does, part of a run's identity

    def __call__(self, model: nn.Module, context: InitContext) -> object:
        """Fill a model's filters in place."""
        return self.fill(model, context)

    @property
    def usage(self) -> str:
        """The name as one writes it: `stats:FILE`."""
        return f"{self.name}:{self.argument}" if self.argument else self.name


_table: dict[str, Initialisation] = {}


def register(name: str, initialise: Fill, *, version: str | None = None) -> None:
    """Add an initialisation under a name of one's own: `initialise(model, context)` fills depthwise filters in place.

    Registering again replaces it. A run is known by what its initialisation does: by `version` if one is given, else by
    the function's source, its defaults and the numbers and text that it closes over. Functions that it calls are not
    looked at, so where those change, give a version.
    """
    if not name or ":" in name or (name in _table and _table[name].ours):
        raise ConfigError(
            f"an initialisation needs a name of its own without a colon, got {name!r}; ours are "
            f"{', '.join(entry.name for entry in _table.values() if entry.ours)}"
        )
    add(Initialisation(name, initialise, schedule="optional", ours=False, code=fingerprint(initialise, version)))


def add(*entries: Initialisation) -> None:
    """Put initialisations of ours into the table."""
    _table.update({entry.name: entry for entry in entries})


def names() -> tuple[str, ...]:
    """Return the names of all initialisations, installed ones included.

    >>> names()[:3]
    ('uniform', 'kaiming', 'trunc-normal')
    """
    return (*_table, *sorted(point.name for point in entry_points(group=ENTRY_POINTS) if point.name not in _table))


def others() -> tuple[str, ...]:
    """Return the names of those that are not ours: the columns that every table gets besides the paper's."""
    return tuple(name for name in names() if name not in _table or not _table[name].ours)


def find(name: str) -> Initialisation:
    """Return the initialisation of a name, whose argument after a colon is ignored.

    >>> find("stats:some.safetensors").usage, find("closed-form").schedule
    ('stats:FILE', 'required')
    """
    key = name.partition(":")[0]
    if key in _table:
        return _table[key]
    for point in entry_points(group=ENTRY_POINTS, name=key):
        fill: Fill = point.load()
        version = f"{point.dist.name} {point.dist.version}" if point.dist else None
        code = fingerprint(fill, version)
        return Initialisation(key, fill, schedule="optional", ours=False, code=code)
    near = difflib.get_close_matches(key, names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"unknown initialisation {name!r}, the known ones are {', '.join(names())}{hint}")


def parse_schedule(text: str, model: nn.Module | None = None) -> Schedule:
    """Return the schedule of a preset's name or of three numbers.

    >>> parse_schedule("0.5,0.5,3")
    QuadraticSchedule(sigma0=0.5, v=0.5, a=3.0)
    """
    kind, _, rest = text.rpartition(":")
    if kind not in ("", "sawtooth"):
        raise ConfigError(f"unknown schedule {text!r}; before the colon only 'sawtooth' is known")
    if rest in fc.PRESETS:
        schedule = fc.PRESETS[rest]
    else:
        try:
            schedule = fc.QuadraticSchedule(*(float(part) for part in rest.split(",")))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"cannot use the schedule {text!r} ({error}); give three numbers 'σ0,v,a' or one of "
                f"{', '.join(fc.PRESETS)}"
            ) from error
    if kind == "sawtooth" and model is not None:
        return fc.SawtoothSchedule(schedule, _stages(model))
    return schedule


def _stages(model: nn.Module) -> tuple[int, ...]:
    stages = getattr(model, "stages", None)
    if not isinstance(stages, nn.Sequential):
        raise ConfigError(f"a sawtooth schedule needs a network built in stages, which {type(model).__name__} is not")
    return tuple(len(fc.depthwise_layers(stage)) for stage in stages)


def _filling(sample: Callable[[torch.Size, torch.Generator], Tensor]) -> Fill:
    """Return the initialisation that fills each depthwise weight (channels, 1, *kernel) with independent samples."""

    def initialise(model: nn.Module, context: InitContext) -> None:
        check_drawing("initialise")
        layers = fc.depthwise_layers(model)
        for layer in layers:
            check_weight(layer.weight, layer.name)
        with drawing():
            assign_filters_(layers, [sample(layer.weight.shape, context.generator) for layer in layers])

    return initialise


def _empty(shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Return a tensor to fill, of the same type and in the same place whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _pixels(shape: torch.Size) -> int:
    return math.prod(shape[2:])


def _normal(shape: torch.Size | tuple[int, ...], generator: torch.Generator) -> Tensor:
    return _empty(shape).normal_(generator=generator)


def _uniform(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return (2.0 * _empty(shape).uniform_(generator=generator) - 1.0) / math.sqrt(_pixels(shape))


def _kaiming(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return _normal(shape, generator) * math.sqrt(2.0 / _pixels(shape))


def _trunc_normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return nn.init.trunc_normal_(_empty(shape), std=0.02, a=-0.04, b=0.04, generator=generator)


def _orthogonal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return nn.init.orthogonal_(_empty(shape), generator=generator)


def _delta_gaussian(shape: torch.Size, generator: torch.Generator) -> Tensor:
    filters = _empty((shape[0], _pixels(shape))).zero_()
    centre = sum(size // 2 * math.prod(shape[3 + axis :]) for axis, size in enumerate(shape[2:]))
    filters[:, centre] = _normal((shape[0],), generator)
    return filters.reshape(shape)


def _difference_of_gaussians(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Each filter: a narrow Gaussian less one 1.6 times as wide (a near-Laplacian), of unit norm times N(0, 1)."""
    axes = [torch.arange(size, dtype=torch.float32, device="cpu") - (size - 1) / 2 for size in shape[2:]]
    squared = torch.stack(torch.meshgrid(*[axis**2 for axis in axes], indexing="ij")).sum(0).unsqueeze(0)
    per_filter = (shape[0], *[1] * len(axes))
    width = 0.5 + (max(shape[2:]) / 4 - 0.5) * _empty(per_filter).uniform_(generator=generator)

    def gaussian(deviation: Tensor) -> Tensor:
        values = torch.exp(squared / (-2 * deviation.square()))
        return values / values.flatten(1).sum(1).view(per_filter)

    filters = gaussian(width) - gaussian(1.6 * width)
    norm = filters.square().flatten(1).sum(1).sqrt().clamp_min(1e-12).view(per_filter)
    strength = _normal(per_filter, generator)
    return (strength * filters / norm).reshape(shape)


def _closed_form(model: nn.Module, context: InitContext) -> object:
    schedule = parse_schedule(context.schedule or "cifar-p2", model)
    return fc.init_(
        model,
        lambda layer: schedule(layer.depth),
        min_kernel_size=2,  # a run that asks for the closed form gets it for every filter that has a shape
        negative=context.negative,
        generator=context.generator,
    )


def _statistics(model: nn.Module, context: InitContext) -> object:
    statistics = fc.FilterStatistics.load(context.root / _required(context, "statistics file"))
    return fc.init_(
        model,
        lambda layer: statistics.at(layer.depth, layer.kernel_size),
        min_kernel_size=2,
        negative=context.negative,
        generator=context.generator,
    )


def _filters(model: nn.Module, context: InitContext) -> object:
    weights = read_depthwise_weights(context.root / _required(context, "checkpoint")).tensors.values()
    # By shape alone the stem of a network for one-channel images looks depthwise too, but has another shape.
    wanted = {layer.weight.shape for layer in fc.depthwise_layers(model)}
    fitting = [weight for weight in weights if weight.shape in wanted] or weights
    return fc.copy_filters_(model, nn.Sequential(*[_carrier(weight) for weight in fitting]))


def _carrier(weight: Tensor) -> nn.Module:
    """Return a depthwise layer that only holds a weight (channels, 1, *kernel)."""
    kinds: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
    channels, kernel_size = weight.shape[0], tuple(weight.shape[2:])
    layer = kinds[len(kernel_size)](channels, channels, kernel_size, groups=channels, bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


def _required(context: InitContext, what: str) -> str:
    if not context.argument:
        raise ConfigError(f"this initialisation needs a {what} after its name, as in stats:FILE or filters:FILE")
    return context.argument


add(
    Initialisation("uniform", _filling(_uniform), "PyTorch's default, U(±1/√n) for filters of n pixels"),
    Initialisation("kaiming", _filling(_kaiming), "N(0, 2/n)"),
    Initialisation(
        "trunc-normal", _filling(_trunc_normal), "normal of deviation .02 cut at two deviations, timm's default"
    ),
    Initialisation("orthogonal", _filling(_orthogonal), "rows of a random semi-orthogonal matrix"),
    Initialisation("delta-gaussian", _filling(_delta_gaussian), "N(0, 1) at the centre, zero elsewhere"),
    Initialisation(
        "dog", _filling(_difference_of_gaussians), "differences of centred Gaussians of random size and strength"
    ),
    Initialisation("closed-form", _closed_form, "the paper's covariance, σ by depth as a schedule says", "required"),
    Initialisation(
        "stats",
        _statistics,
        "drawn from the statistics of a trained model, resized where kernel sizes or depths differ",
        argument="FILE",
    ),
    Initialisation("filters", _filters, "the very filters of a checkpoint", argument="FILE"),
)
