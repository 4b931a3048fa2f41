import errno
import io
from dataclasses import replace

import pytest

from filtercov.lab.training.progress import Lines, Progress, Snapshot, progress_on
from tests.lab.training.toys import fail_at, toy_fit

HALF = Snapshot(
    step=50,
    steps=100,
    epoch=1,
    epochs=10,
    loss=1.23456,
    accuracy=50.0,
    images_per_second=1234.5,
    seconds_left=75.0,
)
EPOCH = replace(HALF, step=100, test_accuracy=61.5)
STEP_LINE = "run 1  epoch 1/10  loss 1.2346  train 50.00 %  1,234 images/s  1:15 left"
EPOCH_LINE = "run 1  epoch 1/10  loss 1.2346  train 50.00 %  eval 61.50 %  1,234 images/s  1:15 left"


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
    lines.update(replace(EPOCH, images_per_second=None))
    lines.close()
    unknown_speed = EPOCH_LINE.replace("1,234 images/s  ", "")
    assert stream.getvalue().splitlines() == [STEP_LINE, STEP_LINE, EPOCH_LINE, unknown_speed]


@pytest.mark.parametrize("width", [60, 120])
def test_on_a_terminal_a_line_moves_that_leaves_room_behind_it_and_is_gone_at_the_end(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    stream, now = Terminal(), [0.0]
    lines = Lines(stream, label="run 1", clock=lambda: now[0])
    for seconds in (0.05, 0.1, 0.15):
        now[0] = seconds
        lines.update(HALF)
    lines.update(EPOCH)
    lines.close()
    assert stream.getvalue().split("\r\x1b[K") == ["", STEP_LINE[: width - 4], f"{EPOCH_LINE}\n", ""]


def test_a_run_shows_its_epochs_says_where_it_continues_and_closes_its_display(tmp_path):
    class Closing(Lines):
        closed = 0

        def close(self):
            self.closed += 1

    with pytest.raises(RuntimeError, match="crash"):
        toy_fit(tmp_path, before=fail_at(7, RuntimeError("crash")), recovery_interval=6)
    stream = io.StringIO()
    display = Closing(stream, label="run")
    toy_fit(tmp_path, progress=display)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "run  resuming at step 6 of 15"
    assert [line.split()[2] for line in lines[1:]] == ["2/3", "3/3"]
    assert display.closed == 1


def test_every_step_is_shown_with_the_time_left_by_the_pace_of_this_session(tmp_path):
    class Collecting(Progress):
        def __init__(self):
            self.seen = []

        def update(self, snapshot):
            self.seen.append(snapshot)

    display = Collecting()
    result = toy_fit(tmp_path, progress=display)
    steps = [snapshot for snapshot in display.seen if snapshot.test_accuracy is None]
    assert [(s.epoch, s.step) for s in steps] == [(1 + step // 5, step + 1) for step in range(15)]
    assert all((s.steps, s.epochs) == (15, 3) for s in display.seen)
    last = display.seen[-1]
    assert (last.test_accuracy, last.accuracy) == (result.test_accuracy, result.train_accuracy)
    assert last.seconds_left == 0
    assert 0 < steps[7].seconds_left < result.seconds  # seven to go, as many as were done but one


def test_a_stream_that_takes_nothing_more_does_not_end_the_training(monkeypatch):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(errno.ENOSPC, "No space left on device")

    progress_on(Full()).update(EPOCH)
    monkeypatch.setattr("sys.stderr", None)  # closed before the start
    progress_on().update(EPOCH)
