"""The command line in this process, and programs, Python among them, in processes of their own."""

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


def run(*words, check=True, **environment):
    """Run a program in the repository with more environment; return how it ended, which `check` wants to be well."""
    words, environment = [str(word) for word in words], os.environ | environment
    ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert not check or ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended


def python(code, *arguments, **options):
    """Run code with arguments, as `run` does."""
    return run(sys.executable, "-c", code, *arguments, **options)
