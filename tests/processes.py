"""The command line in this process, and Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from filtercov.cli.app import app

ROOT = Path(__file__).parents[1]


def command(*words):
    """Run a command of filtercov and return what it prints; its errors propagate."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def python(code, *arguments, check=True, **environment):
    """Run code with arguments and more environment in a process of its own; return how it ended."""
    words = [sys.executable, "-c", code, *map(str, arguments)]
    ended = subprocess.run(words, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert not check or ended.returncode == 0, ended.stderr
    return ended
