"""The results of an experiment, ready for a report: only runs that finished and verified."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Self

from filtercov.lab.experiments.catalogue import Cell, Experiment, Heading, Options
from filtercov.lab.experiments.paper import CellName, PaperNumber, paper_numbers
from filtercov.lab.experiments.runs import KeptRun, Runs
from filtercov.lab.experiments.runspec import RunSpec, in_order
from filtercov.lab.experiments.timings import SpeedRecord
from filtercov.lab.training import FitResult
from filtercov.printable import counted


@dataclass(frozen=True)
class Trained:
    """The network, its images and the number of epochs."""

    model: str
    data: str
    epochs: int

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        """What a run trains.

        >>> str(Trained.of(RunSpec(model="convmixer_8_2_k5_p2", data="embedded", data_limit=5000)))
        'convmixer_8_2_k5_p2 on 5,000 images of the embedded data, 20 epochs'
        """
        kind, _, place = spec.data.partition(":")
        name = Path(place).name or {"embedded": "the embedded data"}.get(kind, kind)
        images = f"{spec.data_limit:,} images of " if spec.data_limit else ""
        return cls(spec.model, f"{images}{name}", spec.train.epochs)

    def __str__(self) -> str:
        return f"{self.model} on {self.data}, {counted(self.epochs, 'epoch')}"


@dataclass(frozen=True, kw_only=True)
class CellRecord(CellName):
    """One number of a table: the learning curves it is the mean of, or which runs are missing for it.

    A mean over some of the seeds would pass for one over all of them, so a cell with a run missing has no curves.
    """

    trained: Trained
    curves: dict[int, tuple[float, ...]]  # by seed, the test accuracy after each epoch
    missing: tuple[str, ...]  # descriptions of runs
    paper: PaperNumber | None

    @property
    def by_seed(self) -> dict[int, float]:
        """The accuracy of each seed after the last epoch, by which columns are compared."""
        return {seed: curve[-1] for seed, curve in self.curves.items()}


@dataclass(frozen=True)
class DrawingRecord:
    """A figure to draw, from the run in `directory` where it shows one; None there means that run is missing."""

    kind: str
    title: str
    directory: Path | None = None
    trained: Trained | None = None  # None: it shows no run

    @property
    def missing(self) -> bool:
        """Whether it shows a run that is not there."""
        return self.trained is not None and self.directory is None


@dataclass(frozen=True)
class ExperimentRecord(Heading):
    """All of an experiment that a report shows."""

    command: str  # that makes it again
    versions: dict[str, str]
    cells: tuple[CellRecord, ...]
    drawings: tuple[DrawingRecord, ...]
    speeds: tuple[SpeedRecord, ...]
    damaged: tuple[str, ...]  # what was found and not used
    missing: tuple[str, ...]  # runs, with those that they start from
    seconds: float  # that all runs together, references included, took to train

    @property
    def trained(self) -> str:
        """The networks and images of all cells and pictures, in words; empty if there are none."""
        parts: list[CellRecord | DrawingRecord] = [*self.cells, *self.drawings]
        found = [part.trained for part in parts if part.trained]
        models = list(dict.fromkeys([*(trained.model for trained in found), *(speed.model for speed in self.speeds)]))
        words = " and ".join(models) if len(models) < 3 else f"{models[0]} and {len(models) - 1} more networks"
        if not found:
            return words
        epochs = sorted({trained.epochs for trained in found})
        first = f"{epochs[0]} to " if len(epochs) > 1 else ""
        data = " and ".join(dict.fromkeys(trained.data for trained in found))
        return f"{words} on {data}, {first}{counted(epochs[-1], 'epoch')}"


def collect(experiment: Experiment, runs: Runs) -> ExperimentRecord:
    """Read an experiment's runs, checking each; what is damaged is named and counts as missing.

    Evidence has no weights, so of it pictures of filters are left out.
    """
    if not runs.has_weights:
        experiment = replace(experiment, drawings=tuple(each for each in experiment.drawings if not each.run))
    found, damaged = runs.usable(run.key for run in experiment.runs)
    missing = in_order(run for run in experiment.shown if run.key not in found)
    timings = runs.timings(experiment.name, experiment.scale)
    return ExperimentRecord(
        **{field.name: getattr(experiment, field.name) for field in fields(Heading)},
        command=command(experiment),
        versions=versions([run.result for run in found.values()])
        | ({"timed on": timings.machine} if timings.steps else {}),
        cells=tuple(_cell(experiment.name, cell, found) for cell in experiment.cells),
        drawings=tuple(
            DrawingRecord(
                drawing.kind,
                drawing.title,
                runs.root / drawing.run.key if drawing.run and drawing.run.key in found else None,
                Trained.of(drawing.run.spec) if drawing.run else None,
            )
            for drawing in experiment.drawings
        ),
        speeds=timings.steps,
        damaged=damaged,
        missing=tuple(str(run) for run in missing if run.key not in found),
        seconds=sum(run.result.seconds for run in found.values()),
    )


def command(experiment: Experiment) -> str:
    """The command that makes an experiment again."""
    options = experiment.options
    words = ["filtercov", "reproduce", experiment.name, "--scale", experiment.scale]
    words += ["--data", options.cifar] if options.cifar != Options.cifar else []
    words += ["--imagenet", options.imagenet] if options.imagenet else []
    words += [word for name in options.also for word in ("--also", name)]
    words += ["--seeds", str(options.seeds)] if options.seeds else []
    return shlex.join(words)


def versions(results: Sequence[FitResult]) -> dict[str, str]:
    """The versions and the threads that the runs were done with, several where runs differ."""
    used = [{**result.extra["versions"], "threads per run": str(result.extra["threads"])} for result in results]
    names = dict.fromkeys(name for run in used for name in run)
    return {
        "filtercov": version("filtercov"),
        **{name: ", ".join(sorted({run[name] for run in used})) for name in names},
    }


def _cell(table: str, cell: Cell, found: Mapping[str, KeptRun]) -> CellRecord:
    missing = tuple(str(run) for run in cell.runs if run.key not in found)
    return CellRecord(
        row=cell.row,
        column=cell.column,
        epochs=cell.epochs,
        trained=Trained.of(cell.runs[0].spec),
        curves={} if missing else {run.spec.train.seed: found[run.key].curve for run in cell.runs},
        missing=missing,
        paper=paper_numbers().get((table, cell.row, cell.column, cell.epochs)),
    )
