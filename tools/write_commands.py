"""Write every command and every flag, as the command line explains them, to `docs/commands.md`.

`python -m tools.write_commands`; a test compares the page with what this returns.
"""

import inspect
from pathlib import Path
from typing import Any

from filtercov.cli.app import COMMANDS, _load

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
INTRODUCTION = """# Every command and flag

This page is what the commands say of themselves with `--help`, written by `python -m tools.write_commands`.
`filtercov --version` prints the version, `filtercov --install-completion` teaches your shell to complete commands.

A mistake is answered with one sentence and exit code 1, an unknown flag or a number out of range with exit code 2. A
run or sweep that Ctrl-C or SIGTERM stopped ends with 130 after it has written a checkpoint, and the same command
continues it.
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *map(_section, COMMANDS)])


def _section(name: str) -> str:
    command = _load(name)
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join(_word(argument) for argument in arguments)
    parts = [f"## `filtercov {name}`\n", f"{inspect.cleandoc(command.help)}\n"]
    if arguments:
        parts.append(f"`filtercov {name} {usage}`\n")
        parts += [f"* {_word(argument)}: {argument.help}{_unless_given(argument)}" for argument in arguments]
        parts.append("")
    if options := [parameter for parameter in command.params if parameter not in arguments]:
        parts += ["| flag | if not given | what it does |", "|---|---|---|", *map(_row, options)]
    return "\n".join(parts) + "\n"


def _word(argument: Any) -> str:
    word = argument.name.upper() + ("…" if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def _unless_given(argument: Any) -> str:
    return f" (`{argument.default}` if not given)" if argument.default else ""


def _row(option: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    if option.required:
        default = "needed"
    elif option.default is True:
        default = f"`{option.opts[0]}`"
    else:
        default = "" if option.default is None or option.default is False else f"`{option.default}`"
    text = option.help.replace("|", "\\|").replace("*", "\\*")
    return f"| {flags} | {default} | {text} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
