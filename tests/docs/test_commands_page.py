"""Every command and flag is on the page of the command line, which is written from the commands themselves."""

from filtercov.cli.app import COMMANDS, _load
from tools.describe_commands import PAGE, page


def test_the_page_is_what_the_commands_say():
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(), "write it anew with `python -m tools.describe_commands`"


def test_every_flag_is_on_it_with_its_help():
    sections = dict(zip(COMMANDS, PAGE.read_text(encoding="utf-8").split("\n## filtercov ")[1:], strict=True))
    for command, section in sections.items():
        assert section.splitlines()[0] == command
        for parameter in _load(command).params:
            assert parameter.help
            for flag in (*parameter.opts, *parameter.secondary_opts):
                assert f"`{flag}`" in section or parameter.param_type_name == "argument"
