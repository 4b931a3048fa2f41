"""The command line: each command parses its arguments, calls one function of the library or laboratory, and prints."""

import errno
import io
import os
import sys
import warnings
from typing import Any

from filtercov.errors import FiltercovError, FiltercovWarning, TrainingInterrupted
from filtercov.printable import printable

INTERRUPTED = 130  # the exit code shells give to what Ctrl-C ended

_formatwarning = warnings.formatwarning


def main() -> None:
    """Run the command line; an error of filtercov's own is one sentence on standard error and exit code 1."""
    # Where the output's encoding has no σ, as Windows' files and pipes, it is a question mark and not an error.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _one_line
    try:
        from filtercov.cli.app import app  # which needs typer

        app()
    except FiltercovError as error:
        from filtercov.cli.options import say

        say(f"filtercov: {error}", err=True)
        raise SystemExit(INTERRUPTED if isinstance(error, TrainingInterrupted) else 1) from None
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] == "filtercov":
            raise
        install = "which is not installed; install it with pip install 'filtercov[lab]'"
        print(f"filtercov: this command needs {missing}, {install}", file=sys.stderr)
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        where = printable(str(error.filename or "standard output"))
        print(f"filtercov: {where}: cannot be used ({error.strerror})", file=sys.stderr, flush=True)
        os._exit(1)  # at a usual end Python would try to write what is left


def _one_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
    """A warning of filtercov's own without the line of code it came from, which no user wrote."""
    if issubclass(category, FiltercovWarning):
        return f"note: {message}\n"
    return _formatwarning(message, category, *where, **more)
