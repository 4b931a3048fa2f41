"""Contestants in processes of their own: what they answer, raise and leave behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from filtercov.errors import ConfigError, FiltercovError
from filtercov.lab.bench import Rival, race_of, rivals_of

ROOT = Path(__file__).parents[2]
WAITING = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background may ignore it
from filtercov.lab.bench import Rival
from tests.lab.test_rivals import Sleeper
rival = Rival(Sleeper, 1.0)
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""


class Sleeper:
    """Says that a turn took what it was told, and can do what goes wrong."""

    def __init__(self, seconds: float) -> None:
        if seconds < 0:
            raise ConfigError("seconds must not be negative")
        self.seconds = seconds

    def turn(self) -> float:
        return self.seconds

    def process(self) -> int:
        return os.getpid()

    def threads(self) -> int:
        return torch.get_num_threads()

    def fail(self) -> None:
        raise ConfigError("as asked for")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_turns_count_what_the_rivals_say_and_not_what_passes_here() -> None:
    with rivals_of(Sleeper, {"slow": (3.0,), "fast": (1.0,)}) as rivals:
        began = time.perf_counter()
        times = race_of(rivals, seconds=60, turns=4)
        assert time.perf_counter() - began < 10
        assert len({os.getpid(), *(rival.ask("process") for rival in rivals.values())}) == 3
        assert rivals["slow"].ask("threads") == torch.get_num_threads()
    assert times["slow"] == pytest.approx([3.0] * 4)
    assert times["fast"] == pytest.approx([1.0] * 4)
    assert not any(child.is_alive() for child in multiprocessing.active_children())


def test_what_is_raised_there_is_raised_here() -> None:
    with pytest.raises(ConfigError, match="negative"), rivals_of(Sleeper, {"good": (1.0,), "bad": (-1.0,)}):
        pass
    rival = Rival(Sleeper, 1.0)
    with pytest.raises(ConfigError, match="as asked for"):
        rival.ask("fail")


def test_a_process_that_dies_is_one_sentence() -> None:
    rival = Rival(Sleeper, 1.0)
    with pytest.raises(FiltercovError, match="exit code -9"):
        rival.ask("die")


@pytest.mark.skipif(os.name != "posix", reason="a terminal's Ctrl-C goes to a process group")
def test_ctrl_c_ends_all_of_them_without_a_word() -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "ready\n"
    os.killpg(waiting.pid, signal.SIGINT)
    assert waiting.communicate(timeout=60)[1] == ""
    assert waiting.returncode == 130
