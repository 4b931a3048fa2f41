"""Searching for a schedule (σ0, v, a): the paper's grid, or Optuna's TPE over the same space for the same budget.

Every trial is a run of the sweep's directory, so a schedule that was tried before, by another search or on another
machine, costs nothing. Trials are judged on validation images: the best of many accuracies is too good to be true, so
the accuracy to report of the chosen schedule is that on test images, which had no part in the choice.

TPE's study lives in a journal file beside the runs; machines that see the file work on one study. What is proposed
depends on the seed, the number of the trial and what is known by then, so machines with the same seed propose
different schedules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from filtercov.errors import ConfigError, ExperimentError, SweepError
from filtercov.lab.experiments.attempt import Machine, attempt
from filtercov.lab.experiments.builder import Builder, Options
from filtercov.lab.experiments.catalogue.grids import GRIDS, Grid
from filtercov.lab.experiments.graph import Run
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.experiments.sweep import Engine, sweep
from filtercov.lab.training.rundir import storage_error

Values = tuple[float, float, float]
NAMES = ("sigma0", "v", "a")
LARGEST_STUDY = 100_000  # trials: seeds that far apart share no stream of random numbers


@dataclass(frozen=True)
class Trial:
    """A schedule and the accuracy it reached on the validation images, in percent."""

    schedule: str
    accuracy: float


@dataclass(frozen=True)
class Space:
    """What is searched: a grid of the paper's at a scale."""

    name: str
    grid: Grid
    build: Builder

    @property
    def axes(self) -> tuple[list[float], list[float], list[float]]:
        """The grid's values of σ0, v and a."""
        points = self.build.scale.grid_points
        return self.grid.axis(0, points), self.grid.axis(1, points), self.grid.axis(2, points)

    @property
    def budget(self) -> int:
        """How many schedules the grid has."""
        return len(list(product(*self.axes)))

    @property
    def study(self) -> str:
        """A name for all trials whose accuracies can be compared: those that differ in the schedule alone."""
        return f"{self.name}--{self.build.scale.name}--{self.run(self.grid.centre).key}"

    def run(self, values: Values) -> Run:
        """Return the run that tries a schedule."""
        inits = [self.grid.init(self.grid.schedule(*values))]
        cells = self.build.cells(
            "search", self.grid.model, inits, epochs=self.grid.epochs, filters=(self.grid.filters,), seeds=1
        )
        return cells[0].runs[0]


def space(name: str, *, scale: str, options: Options | None = None) -> Space:
    """Return the space of one of the paper's grid searches."""
    if name not in GRIDS:
        raise ExperimentError(f"no grid search is called {name!r}; there are {', '.join(GRIDS)}")
    build = Builder(find_scale(scale), options or Options(), GRIDS[name].family, evaluate="validation")
    return Space(name, GRIDS[name], build)


def search_grid(
    where: Space, root: Path, *, engine: Engine | None = None, machine: Machine | None = None
) -> list[Trial]:
    """Try every schedule of the grid; return them best first."""
    runs = Runs(root)
    wanted = {where.grid.schedule(*values): where.run(values) for values in product(*where.axes)}
    outcomes = sweep(list(wanted.values()), root, engine=engine, machine=machine)
    failed = [outcome for outcome in outcomes.values() if outcome.status == "failed"]
    if failed:
        raise SweepError(f"{len(failed)} of {len(outcomes)} runs failed, the first: {failed[0].detail}")
    return _best_first([Trial(schedule, _accuracy(run, runs)) for schedule, run in wanted.items()])


def search_tpe(
    where: Space,
    root: Path,
    *,
    trials: int | None = None,
    seed: int = 0,
    study: Path | None = None,
    machine: Machine | None = None,
    say: Callable[[str], None] = print,
) -> list[Trial]:
    """Try schedules that TPE proposes until the study has `trials` of them, by default as many as the grid.

    Values are drawn on logarithmic scales over the grid's ranges. `study` is the journal, by default under `root`. Each
    further machine that works on it at the same time may add one trial to the number asked for.
    """
    optuna = _optuna()
    runs = Runs(root)
    journal = study or root / "studies" / f"{where.study}.journal"
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend(str(journal))
    except OSError as error:
        raise storage_error(journal, error) from error
    opened = optuna.create_study(
        study_name=where.study,
        storage=optuna.storages.JournalStorage(backend),
        direction="maximize",
        load_if_exists=True,
    )
    full, budget, failures = _span(where), trials or where.budget, []
    complete = (optuna.trial.TrialState.COMPLETE,)
    for _ in range(2 * budget):  # if all fail, an end all the same
        if len(opened.get_trials(deepcopy=False, states=complete)) >= budget:
            break
        trial = opened.ask()
        opened.sampler = optuna.samplers.TPESampler(seed=_stream(seed, trial.number))
        sigma0, v, a = (trial.suggest_float(name, *full[name], log=True) for name in NAMES)
        run = where.run((sigma0, v, a))
        trial.set_user_attr("schedule", run.spec.schedule)
        outcome = attempt(run, runs, machine=machine, say=say)
        if outcome.status == "done":
            accuracy = _accuracy(run, runs)
            opened.tell(trial, accuracy)
            say(f"trial {trial.number + 1}: schedule {run.spec.schedule}, validation {accuracy:.2f} %")
        else:
            opened.tell(trial, state=optuna.trial.TrialState.PRUNED)
            failures.append(outcome.detail or "another process is doing this run")
            say(f"trial {trial.number + 1}: none, {failures[-1]}")
    done = opened.get_trials(deepcopy=False, states=complete)
    if failures and not done:
        raise SweepError(f"none of {len(failures)} trials gave an accuracy, the first: {failures[0]}")
    return _best_first([Trial(trial.user_attrs["schedule"], trial.value) for trial in done])


def _stream(seed: int, trial: int) -> int:
    """Return the seed of one proposal: far from those of another seed, and within the 32 bits that Optuna takes."""
    number = seed * LARGEST_STUDY + trial
    if number < 2**32:
        return number
    return int(np.random.SeedSequence((seed, trial)).generate_state(1)[0])


def _span(where: Space) -> dict[str, tuple[float, float]]:
    """Return the range of each value: the grid's, at least a factor of four wide."""
    spans = {}
    for index, name in enumerate(NAMES):
        axis = where.axes[index]
        spans[name] = (axis[0], axis[-1]) if len(axis) > 1 else (axis[0] / 2, axis[0] * 2)
    return spans


def _accuracy(run: Run, runs: Runs) -> float:
    result = runs.result(run)
    if result is None:
        raise SweepError(f"run {run.key} is not finished")
    return result.test_accuracy


def _best_first(trials: list[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda trial: -trial.accuracy)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("TPE needs Optuna; pip install 'filtercov[search]', or search the grid") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
