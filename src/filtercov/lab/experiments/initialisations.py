"""Ways to initialise depthwise filters, by name: the columns of every table. docs/rivals.md describes them.

The table at the end holds ours: the network's own filters, formulas and controls (`baselines`), the closed form, what a
FILE has to give (drawn from its statistics, or its very filters), and what a finished RUN of the sweep has, which is
named by its key. Others join with `register`, or from an installed package through the entry point group
`filtercov.initialisations`.
"""

import ast
import difflib
import hashlib
import inspect
import math
import textwrap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import filtercov as fc
from filtercov.errors import ConfigError
from filtercov.filters import copy_weights_
from filtercov.lab.experiments import baselines
from filtercov.lab.experiments.baselines import CONTROLS, Control, Sample
from filtercov.lab.training import load_checkpoint
from filtercov.lab.training.rundir import RunDirectory
from filtercov.layers.checkpoint import read_depthwise_weights
from filtercov.layers.find import DepthwiseLayer
from filtercov.schedule import Schedule
from filtercov.statistics.filter_statistics import find_statistics
from filtercov.statistics.shipped import REFERENCES

ENTRY_POINTS = "filtercov.initialisations"
DEFAULT_SCHEDULE = "imagenet-thawed"  # as of `init_`


@dataclass(frozen=True)
class InitContext:
    """The inputs of an initialisation besides the model."""

    generator: torch.Generator
    argument: str = ""  # what follows the colon in the name
    schedule: str | None = None  # of σ: a preset or "σ0,v,a"; "sawtooth:" before it restarts by stage
    negative: Literal["clip", "abs"] = "clip"
    root: Path = field(default_factory=Path)  # where relative file names start
    min_kernel_size: int | None = None  # as of `init_`


Fill = Callable[[nn.Module, InitContext], object]


@dataclass(frozen=True)
class Initialisation:
    """A way to fill depthwise filters, and what it needs."""

    name: str
    fill: Fill
    schedule: Literal["none", "optional", "required"] = "none"  # whether it has a σ
    argument: Literal["", "FILE", "RUN", "N", "VARIANCE"] = ""  # what must follow its name and a colon
    ours: bool = True
    # Part of a run's identity: the checksum of others' code; of ours a word, where the name once meant other filters.
    code: str | None = None

    def __call__(self, model: nn.Module, context: InitContext) -> object:
        """Fill a model's filters in place; ours return an `InitReport` where they have one."""
        if self.argument and not context.argument:
            raise ConfigError(f"{self.name} needs a {self.argument} after its name; write {self.usage}")
        return self.fill(model, context)

    @property
    def usage(self) -> str:
        """The name as one writes it: `stats:FILE`."""
        return f"{self.name}:{self.argument}" if self.argument else self.name


_table: dict[str, Initialisation] = {}


def register(name: str, initialise: Fill, *, version: str | None = None) -> None:
    """Add an initialisation under a name of one's own: `initialise(model, context)` fills depthwise filters in place.

    Registering again replaces it. A run is known by its initialisation's `version` if one is given, else by the
    function's source. Functions that it calls are not looked at, so where those change, give a version.
    """
    if not name or ":" in name or (name in _table and _table[name].ours):
        raise ConfigError(f"an initialisation needs a name of its own without a colon, got {name!r}; choose another")
    _table[name] = Initialisation(name, initialise, "optional", ours=False, code=fingerprint(initialise, version))


def fingerprint(function: Callable[..., Any], version: str | None = None) -> str:
    """The checksum of a version, or without one of the source text of a function or class.

    Its defaults and what it closes over count too, and must be plain values: a tensor, say, looks different in every
    process, and would make each one's run another one.
    """
    described = f"version {version}"
    if version is None:
        written = inspect.unwrap(function)
        try:
            keywords = getattr(written, "__kwdefaults__", None) or {}
            cells = tuple(cell.cell_contents for cell in getattr(written, "__closure__", None) or ())
            values = (getattr(written, "__defaults__", None) or (), tuple(keywords.items()), cells)
            ast.literal_eval(repr(values))  # raises unless they are numbers, text and the like
            described = repr((textwrap.dedent(inspect.getsource(written)), *values))
        except (OSError, TypeError, ValueError, SyntaxError):
            raise ConfigError(
                f"cannot tell when {function!r} changes: needed a function from a file whose defaults and closure are "
                'numbers and text; write it so, or give its version, as in register(name, function, version="1")'
            ) from None
    return hashlib.sha256(described.encode()).hexdigest()


def names() -> tuple[str, ...]:
    """The names of all initialisations, installed ones included."""
    return (*_table, *sorted(point.name for point in entry_points(group=ENTRY_POINTS) if point.name not in _table))


def find(name: str) -> Initialisation:
    """The initialisation of a name; an argument after a colon is checked where it must be a number.

    >>> find("stats:some.safetensors").usage, find("closed-form").schedule
    ('stats:FILE', 'required')
    """
    key, _, argument = name.partition(":")
    for point in entry_points(group=ENTRY_POINTS, name=key) if key not in _table else ():
        register(key, point.load(), version=f"{point.dist.name} {point.dist.version}" if point.dist else None)
    if key not in _table:
        near = difflib.get_close_matches(key, names(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown initialisation {name!r}, the known ones are {', '.join(names())}{hint}")
    entry = _table[key]
    if argument and entry.argument in ("N", "VARIANCE"):
        number = math.nan
        with suppress(ValueError):
            number = float(argument)
        if not (0 < number < math.inf and (entry.argument == "VARIANCE" or number % 1 == 0)):
            needed = "whole number of pixels" if entry.argument == "N" else "variance in pixels²"
            raise ConfigError(f"needed a {needed}, above 0, after the colon of {name!r}; write {key}:9")
    return entry


def reference_key(init: str) -> str | None:
    """The key of the run that an initialisation starts from, None if it starts from none.

    >>> reference_key("filters-of:0123456789abcdef"), reference_key("closed-form")
    ('0123456789abcdef', None)
    """
    return init.partition(":")[2] if find(init).argument == "RUN" else None


def shown_init(init: str, schedule: str | None = None) -> str:
    """An initialisation for people: with its schedule, files by their last names, runs without their keys.

    >>> shown_init("stats:there/net.pth"), shown_init("filters-of:0123456789abcdef"), shown_init("closed-form", "plain")
    ('stats:net.pth', 'filters-of', 'closed-form plain')
    """
    kind, colon, argument = init.partition(":")
    words = kind if kind.endswith("-of") else f"{kind}{colon}{Path(argument).name}"
    return f"{words} {schedule}" if schedule else words


def located(init: str) -> str:
    """Make the file that an initialisation names absolute: runs look for files under their own directory."""
    kind, _, file = init.partition(":")
    shipped = kind == "stats" and file in REFERENCES and not Path(file).exists()
    return init if find(init).argument != "FILE" or shipped else f"{kind}:{Path(file).absolute()}"


def parse_schedule(text: str, model: nn.Module | None = None) -> Schedule:
    """The schedule of a preset's name or of three numbers; of a sawtooth, `model` tells the stages.

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
            sigma0, v, a = (float(part) for part in rest.split(","))
        except ValueError:
            known = ", ".join(fc.PRESETS)
            raise ConfigError(f"needed three numbers 'σ0,v,a' or one of {known} as schedule, got {text!r}") from None
        schedule = fc.QuadraticSchedule(sigma0, v, a)
    if kind == "" or model is None:
        return schedule
    stages = getattr(model, "stages", None)
    if not isinstance(stages, nn.Sequential):
        raise ConfigError(f"a sawtooth schedule needs a network built in stages, which {type(model).__name__} is not")
    return fc.SawtoothSchedule(schedule, tuple(len(fc.depthwise_layers(stage)) for stage in stages))


def _formula(sample: Sample) -> Fill:
    """Fill each depthwise weight (channels, 1, *kernel) with independent samples."""
    return lambda model, context: baselines.fill_(model, lambda layer: sample(layer.weight.shape, context.generator))


def _numbered(sample: Callable[..., Tensor]) -> Fill:
    """Fill with samples that depend on the number after the name."""
    return lambda model, context: _formula(partial(sample, float(context.argument)))(model, context)


def _drawn(source: Callable[[nn.Module, InitContext], Any]) -> Fill:
    """Draw filters from a source that `init_` takes."""
    return lambda model, context: fc.init_(
        model,
        source(model, context),
        min_kernel_size=context.min_kernel_size,
        negative=context.negative,
        generator=context.generator,
    )


def _closed_form(model: nn.Module, context: InitContext) -> Any:
    sigma = parse_schedule(context.schedule or DEFAULT_SCHEDULE, model)
    return lambda layer: sigma(layer.depth)


def _control(control: Control, model: nn.Module, context: InitContext) -> Any:
    """The closed form without one of its properties."""
    sigma = parse_schedule(context.schedule or DEFAULT_SCHEDULE, model)
    shared: dict[str, Any] = {
        "mean_sigma": float(np.mean([sigma(layer.depth) for layer in fc.depthwise_layers(model)])),
        "negative": context.negative,
        "random": np.random.default_rng(int(torch.randint(2**62, (), generator=context.generator))),
    }
    return lambda layer: baselines.control_covariance(control, layer.kernel_size, sigma=sigma(layer.depth), **shared)


def _run_statistics(_model: nn.Module, context: InitContext) -> fc.FilterStatistics:
    return fc.FilterStatistics.load(_run(context).path / "statistics.safetensors")


def _power(model: nn.Module, context: InitContext) -> None:
    """Fill with uniform noise that has the closed form's variance in each layer."""
    sigma = parse_schedule(context.schedule or DEFAULT_SCHEDULE, model)

    def sample(layer: DepthwiseLayer) -> Tensor:
        variance = baselines.total_variance(layer.kernel_size, sigma(layer.depth), negative=context.negative)
        noise = baselines.uniform(layer.weight.shape, context.generator).double()
        return noise * math.sqrt(variance / baselines.POWER)

    baselines.fill_(model, sample)


def _file_filters(model: nn.Module, context: InitContext) -> object:
    """Copy the filters whose shape the model has: by shape alone the stem of a network for grey images is depthwise."""
    weights = list(read_depthwise_weights(context.root / context.argument).tensors.items())
    wanted = {layer.weight.shape for layer in fc.depthwise_layers(model)}
    fitting = [(name, weight) for name, weight in weights if weight.shape in wanted]
    return copy_weights_(model, fitting or weights)


def _run_filters(model: nn.Module, context: InitContext) -> object:
    tensors, _ = load_checkpoint(_run(context).checkpoint)
    names = [layer.name for layer in _run_statistics(model, context).layers]
    return copy_weights_(model, [(name, tensors[f"{name}.weight"]) for name in names])


def _run(context: InitContext) -> RunDirectory:
    run = RunDirectory(context.root / context.argument)
    if not run.done:
        raise ConfigError(f"the run to start from, {run.path}, is not finished; it failed, or was never begun")
    return run


_table |= {
    entry.name: entry
    for entry in (
        Initialisation("default", lambda _model, _context: None),
        Initialisation("uniform", _formula(baselines.uniform)),
        Initialisation("kaiming", _formula(baselines.kaiming)),
        Initialisation("trunc-normal", _formula(baselines.trunc_normal), code="cut at 2"),
        Initialisation("orthogonal", _formula(baselines.orthogonal)),
        Initialisation("identity", _formula(baselines.identity)),
        Initialisation("delta-gaussian", _formula(baselines.delta_gaussian)),
        Initialisation("impulse", _formula(baselines.impulse)),
        Initialisation("box", _numbered(baselines.box), argument="N"),
        Initialisation("gaussian-bump", _numbered(baselines.gaussian_bump), argument="VARIANCE"),
        Initialisation("master-keys", _formula(baselines.master_keys)),
        Initialisation("closed-form", _drawn(_closed_form), "required"),
        Initialisation("power", _power, "required"),
        *(Initialisation(control, _drawn(partial(_control, control)), "required") for control in CONTROLS),
        Initialisation(
            "stats", _drawn(lambda _, context: find_statistics(context.argument, context.root)), argument="FILE"
        ),
        Initialisation("filters", _file_filters, argument="FILE"),
        Initialisation("statistics-of", _drawn(_run_statistics), argument="RUN"),
        Initialisation("covariances-of", _drawn(lambda *of: _run_statistics(*of).centred()), argument="RUN"),
        Initialisation("kronecker-of", _drawn(lambda *of: _run_statistics(*of).kronecker()), argument="RUN"),
        Initialisation("filters-of", _run_filters, argument="RUN"),
    )
}
