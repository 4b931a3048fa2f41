"""Initialisations from a finished run of the same sweep: the edges of an experiment's graph.

    statistics-of:KEY   drawn from the means and covariances of the run's filters
    covariances-of:KEY  the same, each mean taken as zero
    kronecker-of:KEY    as statistics-of, each covariance replaced by its nearest Kronecker square
    filters-of:KEY      the run's very filters
    interpolated-of:KEY the run's filters, enlarged by linear interpolation
    selected-of:KEY     evenly spaced filters of the first layers of each of the run's stages

KEY is the run's name in the directory of all runs. As it is a hash of all that decides the reference run, the key of
a run that starts from it depends on that too.
"""

from pathlib import Path

import torch
from torch import nn

import filtercov as fc
from filtercov.errors import ConfigError
from filtercov.filters import copy_weights_
from filtercov.lab import models
from filtercov.lab.experiments.adapting import Weights, interpolate_weights_, select_weights_
from filtercov.lab.experiments.initialisations import InitContext, Initialisation, add, draw, find
from filtercov.lab.training import load_checkpoint
from filtercov.lab.training.rundir import RunDirectory, read_json


def reference_key(init: str) -> str | None:
    """Return the key of the run that an initialisation starts from, None if it starts from none.

    >>> reference_key("filters-of:0123456789abcdef"), reference_key("closed-form")
    ('0123456789abcdef', None)
    """
    return init.partition(":")[2] if find(init).argument == "RUN" else None


def shown_init(init: str, schedule: str | None) -> str:
    """Return an initialisation for people: with its schedule, files by their last names, runs without their keys.

    >>> shown_init("box:9", None), shown_init("filters-of:0123456789abcdef", None), shown_init("closed-form", "plain")
    ('box:9', 'filters-of', 'closed-form plain')
    """
    kind, colon, argument = init.partition(":")
    words = kind if find(init).argument == "RUN" else f"{kind}{colon}{Path(argument).name}"
    return f"{words} {schedule}" if schedule else words


def _statistics(model: nn.Module, context: InitContext) -> object:
    return draw(model, context, _statistics_of(context))


def _covariances(model: nn.Module, context: InitContext) -> object:
    return draw(model, context, _statistics_of(context).centred())


def _kronecker(model: nn.Module, context: InitContext) -> object:
    return draw(model, context, _statistics_of(context).kronecker())


def _filters(model: nn.Module, context: InitContext) -> object:
    return copy_weights_(model, _weights(context))


def _interpolated(model: nn.Module, context: InitContext) -> object:
    return interpolate_weights_(model, _weights(context))


def _selected(model: nn.Module, context: InitContext) -> object:
    return select_weights_(model, _weights(context))


def _statistics_of(context: InitContext) -> fc.FilterStatistics:
    return fc.FilterStatistics.load(_run(context).path / "statistics.safetensors")


def _weights(context: InitContext) -> Weights:
    run = _run(context)
    tensors, _ = load_checkpoint(run.checkpoint)
    # Shapes alone cannot tell a depthwise weight from the stem of one-channel images: the architecture can.
    name = read_json(run.config)["model"]
    with torch.device("meta"):
        reference = models.create(name, num_classes=1)
    return [(layer.name, tensors[f"{layer.name}.weight"]) for layer in fc.depthwise_layers(reference)]


def _run(context: InitContext) -> RunDirectory:
    run = RunDirectory(context.root / context.argument)
    if not (context.argument and run.done):
        raise ConfigError(f"the run to start from, {run.path}, is not finished; finish it first")
    return run


add(
    Initialisation("statistics-of", _statistics, "drawn from the statistics of a run's filters", argument="RUN"),
    Initialisation("covariances-of", _covariances, "the same, means taken as zero", argument="RUN"),
    Initialisation("kronecker-of", _kronecker, "as statistics-of, each covariance its nearest A⊗A", argument="RUN"),
    Initialisation("filters-of", _filters, "a run's very filters", argument="RUN"),
    Initialisation("interpolated-of", _interpolated, "a run's filters, enlarged", argument="RUN"),
    Initialisation("selected-of", _selected, "a selection of a larger run's filters", argument="RUN"),
)
