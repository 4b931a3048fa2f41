"""The command line: each command parses its arguments, calls one library function and prints."""

from filtercov.cli.app import main

__all__ = ["main"]
