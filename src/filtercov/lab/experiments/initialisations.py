"""Ways to initialise depthwise filters, by name: the columns of every table.

    uniform          PyTorch's default, U(±1/√n) for filters of n pixels
    kaiming          N(0, 2/n)
    trunc-normal     normal of deviation .02 cut at two deviations, timm's default
    orthogonal       rows of a random semi-orthogonal matrix
    delta-gaussian   N(0, 1) at the centre, zero elsewhere
    dog              differences of centred Gaussians of random size and strength
    closed-form      the paper's covariance, σ by depth as the run's schedule says
    stats:FILE       drawn from the statistics of a trained model, resized where kernel sizes or depths differ
    filters:FILE     the very filters of a checkpoint

Others join with `register`, or from an installed package through the entry point group `filtercov.initialisations`.
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


Initialisation = Callable[[nn.Module, InitContext], object]

_table: dict[str, Initialisation] = {}


def register(name: str, initialise: Initialisation) -> None:
    """Add an initialisation under a new name: `initialise(model, context)` fills the depthwise filters in place."""
    if not name or ":" in name or name in _table:
        raise ConfigError(f"an initialisation needs a new name without a colon, got {name!r}")
    _table[name] = initialise


def forget(name: str) -> None:
    """Take back what `register` added."""
    del _table[name]


def names() -> tuple[str, ...]:
    """Return the names of all initialisations, installed ones included.

    >>> names()[:3]
    ('uniform', 'kaiming', 'trunc-normal')
    """
    return (*_table, *sorted(point.name for point in entry_points(group=ENTRY_POINTS) if point.name not in _table))


def find(name: str) -> Initialisation:
    """Return the initialisation of a name, whose argument after a colon is ignored."""
    key = name.partition(":")[0]
    if key in _table:
        return _table[key]
    for point in entry_points(group=ENTRY_POINTS, name=key):
        found: Initialisation = point.load()
        return found
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


def _filling(sample: Callable[[torch.Size, torch.Generator], Tensor]) -> Initialisation:
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


for _name, _sample in {
    "uniform": _uniform,
    "kaiming": _kaiming,
    "trunc-normal": _trunc_normal,
    "orthogonal": _orthogonal,
    "delta-gaussian": _delta_gaussian,
    "dog": _difference_of_gaussians,
}.items():
    register(_name, _filling(_sample))
register("closed-form", _closed_form)
register("stats", _statistics)
register("filters", _filters)
