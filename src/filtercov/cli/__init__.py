"""The command line: each command parses its arguments, calls one library function and prints."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from filtercov.cli.app import main as run

        run()
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] == "filtercov":
            raise
        print(
            f"filtercov: this command needs {missing}, which is not installed; install it with "
            "pip install 'filtercov[lab]'",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
