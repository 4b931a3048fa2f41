"""`filtercov demo`: the paper's effect in minutes."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from filtercov.experiments.demo import DemoRun, demo_specs, run_demo
from filtercov.report.demo_page import demo_page
from filtercov.report.page import write_output


def demo(
    out: Annotated[Path, typer.Option(help="Where the runs and the page go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of all four runs.")] = 0,
) -> None:
    """Train a small network four times on embedded data: uniform and closed-form filters, frozen and thawed."""
    started = time.monotonic()
    runs = run_demo(out, specs=demo_specs(seed=seed))
    path = write_output(out / "index.html", demo_page(runs))
    Console().print(results_table(runs))
    typer.echo(f"{time.monotonic() - started:.0f} seconds; open {path} for curves, filters and covariances")


def results_table(runs: list[DemoRun]) -> Table:
    """Return test accuracies by initialisation, frozen and thawed, and what the closed form adds."""
    table = Table("filters", title="Test accuracy, %")
    for name in ("frozen", "thawed"):
        table.add_column(name, justify="right")
    accuracy = {(run.spec.init, run.frozen): run.result.test_accuracy for run in runs}
    for init in ("uniform", "closed-form"):
        table.add_row(init, *(f"{accuracy[init, frozen]:.1f}" for frozen in (True, False)))
    gains = [accuracy["closed-form", frozen] - accuracy["uniform", frozen] for frozen in (True, False)]
    table.add_row("difference", *(f"{gain:+.1f}" for gain in gains), style="bold")
    return table
