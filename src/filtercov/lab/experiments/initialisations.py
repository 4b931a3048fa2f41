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

import numpy as np
import torch
from torch import Tensor, nn

import filtercov as fc
from filtercov.errors import ConfigError
from filtercov.filters import copy_weights_
from filtercov.lab.experiments import baselines
from filtercov.lab.experiments.adapting import interpolate_weights_, select_weights_
from filtercov.lab.experiments.baselines import Sample
from filtercov.lab.experiments.controls import CONTROLS, Control, control_covariance, total_variance
from filtercov.lab.experiments.fingerprint import fingerprint
from filtercov.layers.assign import assign_filters_
from filtercov.layers.checkpoint import read_depthwise_weights
from filtercov.layers.sample import check_weight, drawing, rounded
from filtercov.schedule import Schedule
from filtercov.statistics import shipped

ENTRY_POINTS = "filtercov.initialisations"
LEAST_VARIANCE = 1e-4  # pixels², from where down a bump is one pixel


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
    # What must follow its name and a colon; others' may have one too.
    argument: Literal["", "FILE", "RUN", "N", "VARIANCE"] = ""
    ours: bool = True
    # What tells it from others of its name, part of a run's identity: the checksum of others' code, of ours a word
    # where runs of that name have had other filters.
    code: str | None = None

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


def forget(name: str) -> None:
    """Take back what `register` added."""
    del _table[name]


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
    """Return the initialisation of a name; of its argument after a colon only a number is looked at.

    >>> find("stats:some.safetensors").usage, find("closed-form").schedule
    ('stats:FILE', 'required')
    """
    key, _, argument = name.partition(":")
    if key in _table:
        _check_number(name, argument, _table[key].argument)
        return _table[key]
    for point in entry_points(group=ENTRY_POINTS, name=key):
        fill: Fill = point.load()
        package = f"{point.dist.name} {point.dist.version}" if point.dist else None
        code = fingerprint(fill, package)
        return Initialisation(key, fill, schedule="optional", ours=False, code=code)
    near = difflib.get_close_matches(key, names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"unknown initialisation {name!r}, the known ones are {', '.join(names())}{hint}")


def _check_number(name: str, argument: str, kind: str) -> None:
    """Refuse what follows a name that needs a number, if that is none."""
    if not argument or kind not in ("N", "VARIANCE"):
        return
    try:
        number = float(argument)
    except ValueError:
        number = math.nan
    if kind == "N" and not (number >= 1 and argument.isdecimal()):
        raise ConfigError(f"needed a whole number of pixels, 1 or more, after the colon of {name!r}; write box:9")
    if kind == "VARIANCE" and not LEAST_VARIANCE <= number < math.inf:
        raise ConfigError(
            f"needed a variance in pixels², {LEAST_VARIANCE:g} or more, after the colon of {name!r}; write "
            "gaussian-bump:1"
        )


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


def _filling(sample: Sample) -> Fill:
    """Return the initialisation that fills each depthwise weight (channels, 1, *kernel) with independent samples."""
    return lambda model, context: _fill(model, context, sample)


def _numbered(make: Callable[[float], Sample]) -> Fill:
    """Return the initialisation whose samples depend on the number after its name."""
    return lambda model, context: _fill(model, context, make(float(_required(context, "number"))))


def _fill(model: nn.Module, context: InitContext, sample: Sample) -> None:
    layers = fc.depthwise_layers(model)
    for layer in layers:
        check_weight(layer.weight, layer.name)
    with drawing():
        filters = []
        for layer in layers:
            try:
                drawn = sample(layer.weight.shape, context.generator)
            except ConfigError as error:
                raise ConfigError(f"{layer.name}: {error}") from None
            exact = drawn.dtype == torch.float64
            filters.append(rounded(drawn.numpy(), layer.weight.dtype) if exact else drawn)
        assign_filters_(layers, filters)


def _closed_form(model: nn.Module, context: InitContext) -> object:
    schedule = parse_schedule(context.schedule or "cifar-p2", model)
    return fc.init_(
        model,
        lambda layer: schedule(layer.depth),
        min_kernel_size=2,  # a run that asks for the closed form gets it for every filter that has a shape
        negative=context.negative,
        generator=context.generator,
    )


def _control(control: Control) -> Fill:
    """Return the closed form without one of its properties, its variance kept; see `controls`."""

    def fill(model: nn.Module, context: InitContext) -> object:
        sigma = parse_schedule(context.schedule or "cifar-p2", model)
        mean_sigma = float(np.mean([sigma(layer.depth) for layer in fc.depthwise_layers(model)]))
        seed = int(torch.randint(2**62, (), generator=context.generator))
        random = np.random.default_rng(seed)
        return fc.init_(
            model,
            lambda layer: control_covariance(
                control,
                layer.kernel_size,
                sigma=sigma(layer.depth),
                mean_sigma=mean_sigma,
                negative=context.negative,
                random=random,
            ),
            min_kernel_size=2,
            negative=context.negative,
            generator=context.generator,
        )

    return fill


def _power(model: nn.Module, context: InitContext) -> None:
    """Fill with uniform noise that has the closed form's variance in each layer."""
    sigma = parse_schedule(context.schedule or "cifar-p2", model)
    layers = fc.depthwise_layers(model)
    variances = [total_variance(layer.kernel_size, sigma(layer.depth), negative=context.negative) for layer in layers]
    noise = [baselines.uniform(layer.weight.shape, context.generator).double() for layer in layers]
    factors = [math.sqrt(variance / baselines.POWER) for variance in variances]
    filters = [
        rounded((drawn * factor).numpy(), layer.weight.dtype)
        for layer, drawn, factor in zip(layers, noise, factors, strict=True)
    ]
    assign_filters_(layers, filters)


def _statistics(model: nn.Module, context: InitContext) -> object:
    path = shipped.find(_required(context, "statistics file or name"), context.root)
    return draw(model, context, fc.FilterStatistics.load(path))


def draw(model: nn.Module, context: InitContext, statistics: fc.FilterStatistics) -> object:
    """Draw the filters of a model from statistics, resized where kernel sizes or depths differ."""
    return fc.init_(
        model,
        lambda layer: statistics.at(layer.depth, layer.kernel_size),
        min_kernel_size=2,  # the paper transfers 3x3 filters too
        negative=context.negative,
        generator=context.generator,
    )


def _filters(model: nn.Module, context: InitContext) -> object:
    weights = _stored_weights(context)
    # By shape alone the stem of a network for one-channel images looks depthwise too, but has another shape.
    wanted = {layer.weight.shape for layer in fc.depthwise_layers(model)}
    fitting = {name: weight for name, weight in weights.items() if weight.shape in wanted}
    return copy_weights_(model, list((fitting or weights).items()))


def _interpolated(model: nn.Module, context: InitContext) -> object:
    return interpolate_weights_(model, list(_stored_weights(context).items()))


def _selected(model: nn.Module, context: InitContext) -> object:
    return select_weights_(model, list(_stored_weights(context).items()))


def _stored_weights(context: InitContext) -> dict[str, Tensor]:
    return read_depthwise_weights(context.root / _required(context, "checkpoint")).tensors


def _required(context: InitContext, what: str) -> str:
    if not context.argument:
        raise ConfigError(f"this initialisation needs a {what} after its name, as in stats:FILE, filters:FILE or box:9")
    return context.argument


add(
    Initialisation("uniform", _filling(baselines.uniform), "PyTorch's default, U(±1/√n) for filters of n pixels"),
    Initialisation("kaiming", _filling(baselines.kaiming), "N(0, 2/n)"),
    Initialisation(
        "trunc-normal",
        _filling(baselines.trunc_normal),
        "normal of deviation .02, timm's default for ConvNeXt",
        code="cut at 2",
    ),
    Initialisation("orthogonal", _filling(baselines.orthogonal), "rows of a random semi-orthogonal matrix"),
    Initialisation("identity", _filling(baselines.identity), "1 at the centre, zero elsewhere"),
    Initialisation("delta-gaussian", _filling(baselines.delta_gaussian), "N(0, 1) at the centre, zero elsewhere"),
    Initialisation(
        "dog",
        _filling(baselines.difference_of_gaussians),
        "differences of centred Gaussians of random size and strength",
    ),
    Initialisation("impulse", _filling(baselines.impulse), "one random pixel"),
    Initialisation("box", _numbered(baselines.box), "N random pixels, all equal", argument="N"),
    Initialisation(
        "gaussian-bump",
        _numbered(baselines.gaussian_bump),
        "a Gaussian of a variance in pixels² around a random pixel",
        argument="VARIANCE",
    ),
    Initialisation(
        "master-keys", _filling(baselines.master_keys), "one of eight discrete Gaussian derivatives, at random"
    ),
    Initialisation("closed-form", _closed_form, "the paper's covariance, σ by depth as a schedule says", "required"),
    Initialisation("power", _power, "uniform noise of the closed form's variance in each layer", "required"),
    *(
        Initialisation(control, _control(control), "a control: the closed form without one property", "required")
        for control in CONTROLS
    ),
    Initialisation(
        "stats",
        _statistics,
        "drawn from the statistics of a trained model, a file or a shipped name, resized where kernel sizes or depths "
        "differ",
        argument="FILE",
    ),
    Initialisation("filters", _filters, "the very filters of a checkpoint", argument="FILE"),
    Initialisation(
        "interpolated", _interpolated, "a checkpoint's filters, enlarged by linear interpolation", argument="FILE"
    ),
    Initialisation(
        "selected", _selected, "evenly spaced filters of the first layers of a larger checkpoint", argument="FILE"
    ),
)
