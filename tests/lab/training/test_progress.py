"""Lines on a terminal and elsewhere; SIGTERM and Ctrl-C as requests to stop."""

import errno
import io
import os
import re
import signal
import sys
import threading

import pytest

from filtercov.errors import TrainingInterrupted
from filtercov.lab.training import read_result
from filtercov.lab.training.progress import Lines, Progress, Snapshot, StopRequest, progress_on
from tests.lab.training.toys import interrupt_at, toy_fit

HALF, EPOCH = Snapshot(50, 100, "half of the epoch"), Snapshot(100, 100, "an epoch", test_accuracy=61.5)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_appear_at_the_end_of_epochs_and_once_a_minute_in_long_ones():
    stream, now = io.StringIO(), [0.0]
    lines = Lines(stream, label="run 1", clock=lambda: now[0])
    for seconds in (10, 59, 60, 90, 121):
        now[0] = seconds
        lines.update(HALF)
    lines.update(EPOCH)
    lines.close()
    assert stream.getvalue().splitlines() == [*["run 1  half of the epoch"] * 2, "run 1  an epoch"]


@pytest.mark.parametrize("width", [20, 120])
def test_on_a_terminal_a_line_moves_that_leaves_room_behind_it_and_is_gone_at_the_end(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    stream, now = Terminal(), [0.0]
    lines = Lines(stream, label="run 1", clock=lambda: now[0])
    for seconds in (0.05, 0.1, 0.15):
        now[0] = seconds
        lines.update(HALF)
    lines.update(EPOCH)
    lines.close()
    shown = ["", "run 1  half of the epoch"[: width - 4], "run 1  an epoch\n", ""]
    assert stream.getvalue().split("\r\x1b[K") == shown


class Collecting(Progress):
    def __init__(self):
        self.seen, self.said = [], []

    def update(self, snapshot):
        self.seen.append(snapshot)

    def note(self, text):
        self.said.append(text)

    def close(self):
        self.said.append("closed")


def test_a_run_says_where_it_continues_and_shows_its_steps_and_epochs_with_the_time_left(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def take_two_seconds(batch):
        now[0] += 2.0
        interrupt_at(5)(batch)

    with pytest.raises(TrainingInterrupted):
        toy_fit(tmp_path, before=take_two_seconds)
    display = Collecting()
    result = toy_fit(tmp_path, before=take_two_seconds, progress=display)
    assert display.said == ["resuming at step 6 of 15", "closed"]
    steps = [snapshot for snapshot in display.seen if snapshot.test_accuracy is None]
    assert [(snapshot.step, snapshot.steps) for snapshot in steps] == [(step, 15) for step in range(7, 16)]
    assert "4 images/s  0:16 left" in steps[0].line
    form = r"epoch (\d)/3  loss (\S+)  train +(\S+) %  eval +(\S+) %  4 images/s  0:(\d\d) left"
    epochs = [re.fullmatch(form, snapshot.line).groups() for snapshot in display.seen if snapshot.test_accuracy]
    assert [(epoch, left) for epoch, *_, left in epochs] == [("2", "10"), ("3", "00")]
    assert [float(shown) for shown in epochs[1][1:4]] == pytest.approx(
        [result.train_loss, result.train_accuracy, result.test_accuracy], abs=0.006
    )


def test_a_stream_that_takes_nothing_more_does_not_end_the_training(monkeypatch):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(errno.ENOSPC, "No space left on device")

    progress_on(Full()).update(EPOCH)
    monkeypatch.setattr(sys, "stderr", None)  # closed before the start
    progress_on().update(EPOCH)


@pytest.fixture
def ctrl_c_interrupts():
    """As in a terminal; what runs in the background of a script ignores Ctrl-C from the start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_the_first_signal_is_a_request_and_the_second_is_delivered():
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == signal.SIGINT
        assert signal.getsignal(signal.SIGINT) is before
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_patient_request_outlasts_further_signals():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(patient=True) as stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert stop.requested
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_a_signal_after_the_last_step_is_delivered_when_the_run_is_whole(tmp_path):
    def interrupt(_model, _path):
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    with pytest.raises(KeyboardInterrupt):
        toy_fit(tmp_path, on_finish=interrupt)
    assert read_result(tmp_path).steps == 15


def test_training_works_outside_the_main_thread(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(toy_fit(tmp_path)))
    thread.start()
    thread.join()
    assert results[0].steps == 15
