"""The command line: each command parses its arguments, calls one library function and prints."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from filtercov.cli.app import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "filtercov":
            raise
        print(
            f"filtercov: the command line needs {error.name}, which is not installed; install it with "
            "pip install 'filtercov[lab]'",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    run()
