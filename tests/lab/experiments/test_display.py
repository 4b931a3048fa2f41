"""The live table and the plain lines."""

import errno
import io

import pytest

from filtercov.lab.experiments.display import Display, Note, Step
from filtercov.lab.experiments.run_one import Outcome
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.training.progress import Snapshot
from tests.lab.experiments.tiny import spec

RUNS = [Run(spec(seed=seed)) for seed in range(4)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def snapshot(epoch: int) -> Snapshot:
    return Snapshot(epoch * 4, 12, epoch, 3, loss=1.0, accuracy=10.0, images_per_second=100.0, seconds_left=65.0)


def test_time_left_follows_the_pace_of_what_was_trained_and_the_size_of_what_is_left():
    clock = Clock()
    sizes = dict(zip((run.key for run in RUNS), (1.0, 1.0, 2.0, 3.0), strict=True))
    display = Display(RUNS, stream=io.StringIO(), weight=lambda run: sizes[run.key], clock=clock)
    display(Outcome(RUNS[0].key, "done"))  # it was done before: no pace yet
    assert display.time_left() is None
    clock.now = 5.0  # data were loaded
    display(Step(RUNS[1].key, snapshot(1)))
    assert display.time_left() is None
    clock.now = 15.0
    display(Outcome(RUNS[1].key, "done"))  # two thirds of it in 10 s
    assert display.time_left() == pytest.approx(75.0)


def test_a_run_that_continued_or_failed_counts_by_what_was_seen_of_it():
    clock = Clock()
    display = Display(RUNS, stream=io.StringIO(), clock=clock)
    display(Step(RUNS[0].key, snapshot(2)))
    clock.now = 10.0
    display(Outcome(RUNS[0].key, "done"))  # its last third
    assert display.time_left() == pytest.approx(90.0)
    display(Step(RUNS[1].key, snapshot(1)))
    clock.now = 20.0
    display(Step(RUNS[1].key, snapshot(2)))  # another third, and a third to go
    assert display.time_left() == pytest.approx(70.0)
    display(Outcome(RUNS[1].key, "failed", "because"))
    assert display.time_left() == pytest.approx(60.0)


def test_lines_without_a_terminal_tell_of_ends_failures_and_notes_only():
    stream = io.StringIO()
    display = Display(RUNS, stream=stream)
    with display.watching():
        display(Step(RUNS[0].key, snapshot(1)))
        display(Note("something happened"))
        display(Outcome(RUNS[0].key, "failed", "because"))
        display(Outcome(RUNS[1].key, "done"))
    first, second, third = stream.getvalue().splitlines()
    assert first == "something happened"
    assert second.startswith("0 of 4 done, 1 failed")
    assert second.endswith(f"{RUNS[0]}: because")
    assert third.startswith("1 of 4 done, 1 failed")


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_what_cannot_be_printed_is_taken_note_of(kind):
    class Full(kind):
        full = False

        def write(self, text):
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    stream = Full()
    display = Display(RUNS, stream=stream)
    with display.watching():
        stream.full = True
        display(Note("look here"))
        display(Outcome(RUNS[0].key, "done"))
    assert list(display.outcomes) == [RUNS[0].key]


def test_a_terminal_gets_a_table_of_what_is_running_and_a_count():
    stream = Terminal()
    display = Display(RUNS, stream=stream)
    with display.watching():
        display(Step(RUNS[0].key, snapshot(2)))
        display(Note("look here"))
        display(Outcome(RUNS[1].key, "failed", "because"))
    shown = stream.getvalue()
    assert "look here" in shown
    assert RUNS[0].key in shown
    assert "epoch 2/3" in shown
    assert "0 of 4 done, 1 failed, 1 running" in shown
