"""The `filtercov` command: its subcommands, and how a user's mistake is told from a defect."""

from __future__ import annotations

import io
import sys

import typer

from filtercov.cli import core, data, demo, look, reproduce, train
from filtercov.errors import FiltercovError, TrainingInterrupted

INTERRUPTED = 130  # the exit code shells give to what Ctrl-C ended

app = typer.Typer(
    name="filtercov",
    help="Study, transfer and construct the covariance of convolutional filters, and initialise networks with it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
COMMANDS = (
    core.init,
    core.stats,
    train.train,
    reproduce.reproduce,
    reproduce.plan,
    reproduce.search,
    reproduce.report,
    look.inspect,
    look.explore,
    look.figures,
    data.scan,
    demo.demo,
    core.info,
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run the command line; an error of filtercov's own is one sentence on standard error and exit code 1."""
    # Where the output's encoding has no σ, as Windows' files and pipes, it is a question mark and not an error.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except FiltercovError as error:
        print(f"filtercov: {error}", file=sys.stderr)
        raise SystemExit(INTERRUPTED if isinstance(error, TrainingInterrupted) else 1) from None
