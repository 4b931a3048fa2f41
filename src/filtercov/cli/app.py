"""The `filtercov` command: its subcommands, loaded when they are asked for.

`filtercov --help` does not wait for torch: the line it prints for each command is read from the command's source.
"""

from __future__ import annotations

import ast
import shlex
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from filtercov.errors import ConfigError

# The commands in the order of the help, and the module of this package that has the function of that name.
COMMANDS = {
    "init": "core",
    "stats": "core",
    "train": "train",
    "compare": "experiments",
    "reproduce": "reproduce",
    "report": "experiments",
    "keep": "experiments",
    "inspect": "look",
    "explore": "look",
    "figures": "look",
    "bench": "look",
    "demo": "experiments",
    "info": "core",
}


class Deferred(TyperCommand):
    """A command known by its name and one line of help; the rest is imported when it is called or completed."""

    def __init__(self, name: str) -> None:
        source = Path(__file__).with_name(f"{COMMANDS[name]}.py").read_text(encoding="utf-8")
        functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
        summary = str(ast.get_docstring(functions[name])).partition("\n")[0]
        super().__init__(name=name, callback=None, help=summary, short_help=summary)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which is then what runs; its `obj` is the command as it was typed."""
        typed = shlex.join(["filtercov", str(self.name), *args])
        return _load(str(self.name)).make_context(info_name, args, parent, obj=typed, **extra)


class Commands(TyperGroup):
    """The group of all commands."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _ctx: Any, name: str) -> Deferred:
        """A command that is not loaded yet."""
        if name in COMMANDS:
            return Deferred(name)
        near = get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean `filtercov {near[0]}`?" if near else "filtercov --help lists them"
        raise ConfigError(f"there is no command {name!r}; {hint}")


app = typer.Typer(name="filtercov", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"filtercov {import_module('filtercov').__version__}")
        raise typer.Exit


@app.callback()
def filtercov(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Study, transfer and construct the covariance of convolutional filters, and initialise networks with it."""


def _load(name: str) -> Any:
    """Import a command and return it as typer makes it."""
    module = import_module(f"filtercov.cli.{COMMANDS[name]}")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(getattr(module, name))
    return get_command(alone)
