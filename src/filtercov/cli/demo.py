"""`filtercov demo`: the paper's effect in minutes."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from filtercov.cli import options
from filtercov.cli.say import say
from filtercov.lab.experiments.demo import DemoRun, demo_specs, run_demo
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.report.demo_page import demo_page, demo_rows
from filtercov.lab.report.page import Origin, write_output
from filtercov.printable import counted


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Where the runs and the page go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(callback=options.SEEDS, help="Seed of all four runs.")] = 0,
) -> None:
    """Train a small network four times on embedded data: uniform and closed-form filters, frozen and thawed."""
    started = time.monotonic()
    runs = run_demo(out, specs=demo_specs(seed=seed))
    source = Runs(out / "runs").source([Run(run.spec) for run in runs])
    path = write_output(out / "index.html", demo_page(runs, origin=Origin((source,), context.obj)))
    Console().print(results_table(runs))
    say(f"{counted(round(time.monotonic() - started), 'second')}; open {path} for curves, filters and covariances")


def results_table(runs: list[DemoRun]) -> Table:
    """Return test accuracies by initialisation, frozen and thawed, and what the closed form adds."""
    (first, *others), *rows = demo_rows(runs)
    table = Table(first, title="Test accuracy, %", caption="One seed: no interval, no verdict.")
    for name in others:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(escape, row))  # brackets are no markup
    return table
