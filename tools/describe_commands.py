"""Write docs/api/cli.md: every command and every flag of the command line, from what the commands themselves say.

python -m tools.describe_commands
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filtercov.cli.app import COMMANDS, _load

PAGE = Path(__file__).parents[1] / "docs" / "api" / "cli.md"

HEAD = """# The command line

Every command and every flag, as `filtercov COMMAND --help` has them too. This page is written by
`python -m tools.describe_commands`; `filtercov --version` prints the version, `filtercov --help` the commands.
"""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([HEAD, *(section(name) for name in COMMANDS)])


def section(name: str) -> str:
    """Return what a command does, and its arguments and flags in a table."""
    command = _load(name)
    arguments = [_argument(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join(["filtercov", name, *arguments, "[flags]" * (len(arguments) < len(command.params))])
    rows = [row(parameter) for parameter in command.params]
    table = ["| | by default | |", "|---|---|---|", *rows] if rows else []
    return "\n".join([f"## filtercov {name}", "", f"`{usage.strip()}`", "", one_line(command.help), "", *table, ""])


def _argument(parameter: Any) -> str:
    return str(parameter.name).upper() + ("..." if parameter.nargs == -1 else "")


def row(parameter: Any) -> str:
    """Return the line of a table for an argument or a flag."""
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = [_argument(parameter)]
    needed = "needed" if parameter.required else default(parameter)
    return f"| {', '.join(f'`{name}`' for name in names)} | {needed} | {one_line(parameter.help)} |"


def default(parameter: Any) -> str:
    """Return what holds if a flag is not given; nothing where the help says it."""
    value = parameter.default
    if value is None or callable(value) or value in ((), []):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{getattr(value, 'value', value)}`"


def one_line(text: str | None) -> str:
    """Return help as one line that a table can hold."""
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
