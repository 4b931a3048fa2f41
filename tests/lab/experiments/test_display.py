"""What a sweep's display tells, on a terminal and elsewhere, and how it estimates the time left."""

import errno
import io

import pytest

from filtercov.lab.experiments.engines import Step
from filtercov.lab.experiments.execute import Outcome
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.experiments.sweep import Display
from tests.lab.experiments.tiny import spec

RUNS = [Run(spec(seed=seed, epochs=epochs)) for seed, epochs in enumerate((3, 3, 6, 9))]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_time_left_follows_the_pace_of_what_was_seen_and_the_epochs_that_are_left():
    clock = Clock()
    display = Display(RUNS, stream=io.StringIO(), clock=clock)
    display(Outcome(RUNS[0].key, "done"))  # it was done before: no pace yet
    clock.now = 5.0  # data were loaded
    display(Step(RUNS[1].key, 1 / 3))  # it continues: its first third is no sign of speed
    assert display.time_left() is None
    clock.now = 15.0
    display(Outcome(RUNS[1].key, "done"))  # two epochs in 10 s, and fifteen to go
    assert display.time_left() == pytest.approx(75.0)
    display(Step(RUNS[2].key, 1 / 3))
    display(Outcome(RUNS[2].key, "failed", "because"))
    assert display.time_left() == pytest.approx(45.0)


def events(display):
    with display.watching():
        display(Step(RUNS[0].key, 1 / 3))
        display("something happened")
        display(Outcome(RUNS[0].key, "failed", "because"))
        display(Outcome(RUNS[1].key, "done"))


def test_lines_without_a_terminal_tell_of_ends_failures_and_notes_only():
    stream = io.StringIO()
    events(Display(RUNS, stream=stream))
    first, second, third = stream.getvalue().splitlines()
    assert first == "something happened"
    assert second.startswith("0 of 4 done, 1 failed")
    assert second.endswith(f"{RUNS[0]}: because")
    assert third.startswith("1 of 4 done, 1 failed")


def test_a_terminal_gets_notes_failures_and_a_count_that_stays():
    stream = Terminal()
    events(Display(RUNS, stream=stream))
    for shown in ("something happened", "because", "0 of 4 done, 1 running"):
        assert shown in stream.getvalue()
    assert stream.getvalue().endswith("1 of 4 done, 1 failed\n")


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_what_cannot_be_printed_is_taken_note_of(kind):
    class Full(kind):
        def write(self, _text):
            raise OSError(errno.ENOSPC, "No space left on device")

    display = Display(RUNS, stream=Full())
    events(display)
    assert list(display.outcomes) == [RUNS[0].key, RUNS[1].key]
