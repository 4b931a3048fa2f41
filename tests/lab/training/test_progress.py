import errno
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from filtercov.lab.training.progress import Lines, Silent, Snapshot, TerminalBar, progress_on
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


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drawn(width, *snapshots, label=""):
    """What a terminal of this width is sent, without its control sequences."""
    stream = Terminal()
    bar = TerminalBar(Console(file=stream, force_terminal=True, width=width), label=label)
    for snapshot in snapshots:
        bar.update(snapshot)
    bar.close()
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())


def test_lines_appear_at_the_end_of_epochs_and_once_a_minute_in_long_ones():
    stream, now = io.StringIO(), [0.0]
    lines = Lines(stream, label="run 1", clock=lambda: now[0])
    for seconds in (10, 59, 60, 90, 121):
        now[0] = seconds
        lines.update(HALF)
    lines.update(EPOCH)
    lines.update(replace(EPOCH, images_per_second=None, judged_on="validation"))
    assert stream.getvalue().splitlines() == [
        "run 1  epoch 1/10  loss 1.2346  train 50.00 %  1,234 images/s  1:15 left",
        "run 1  epoch 1/10  loss 1.2346  train 50.00 %  1,234 images/s  1:15 left",
        "run 1  epoch 1/10  loss 1.2346  train 50.00 %  test 61.50 %  1,234 images/s  1:15 left",
        "run 1  epoch 1/10  loss 1.2346  train 50.00 %  validation 61.50 %  1:15 left",
    ]


def test_a_terminal_gets_a_bar_with_loss_accuracy_speed_and_time_left():
    text = drawn(160, HALF, EPOCH, label="run")
    assert re.search(r"run  epoch 1/10  loss 1.2346  train 50.00 % +━+.*1,234 images/s  1:15 left", text)
    assert text.count("run  epoch 1/10  loss 1.2346  train 50.00 %  test 61.50 %  1,234 images/s") == 1
    assert text.count("61.50 %") == 1
    unknown = drawn(160, replace(HALF, images_per_second=None))
    assert "1:15 left" in unknown
    assert "images/s" not in unknown


@pytest.mark.parametrize("width", [60, 99, 100])
def test_the_bar_takes_one_line_with_room_for_what_a_terminal_writes_behind_it(width):
    lines = [line for line in re.split(r"[\r\n]", drawn(width, HALF)) if line]
    assert lines
    for line in lines:
        assert line.startswith("epoch 1/10")
        assert line.rstrip().endswith("1:15 left")
        assert ("images/s" in line) == (width >= 100)
        assert width - 10 <= len(line) <= width - 4


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
    assert lines[-1].endswith("0:00 left")
    assert display.closed == 1


def test_every_step_is_shown_with_the_time_left_by_the_pace_of_this_session(tmp_path):
    class Collecting(Silent):
        def __init__(self):
            self.seen = []

        def update(self, snapshot):
            self.seen.append(snapshot)

    display = Collecting()
    result = toy_fit(tmp_path, progress=display)
    steps = [snapshot for snapshot in display.seen if snapshot.test_accuracy is None]
    assert [(s.epoch, s.step) for s in steps] == [(1 + step // 5, step + 1) for step in range(15)]
    assert all((s.steps, s.epochs) == (15, 3) for s in display.seen)
    assert display.seen[-1].test_accuracy == result.test_accuracy
    assert display.seen[-1].accuracy == result.train_accuracy
    assert display.seen[-1].seconds_left == 0
    middle = steps[7]  # of 15: seven to go, as many as were done but one
    assert 0 < middle.seconds_left < result.seconds


@pytest.mark.parametrize("kind", ["lines", "bar"])
def test_a_stream_that_takes_nothing_more_does_not_end_the_training(tmp_path, kind):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(errno.ENOSPC, "No space left on device")

    display = Lines(Full()) if kind == "lines" else TerminalBar(Console(file=Full(), force_terminal=True))
    assert toy_fit(tmp_path, progress=display).epochs == 3


def test_the_display_is_chosen_by_the_stream(monkeypatch):
    assert isinstance(progress_on(Terminal()), TerminalBar)
    assert isinstance(progress_on(io.StringIO()), Lines)
    monkeypatch.setattr("sys.stderr", None)  # closed before the start
    assert isinstance(progress_on(), Silent)


def test_a_run_that_was_finished_before_it_could_be_watched_says_so(tmp_path):
    stream = io.StringIO()
    toy_fit(tmp_path / "plain")
    toy_fit(tmp_path / "watched", watch_interval=1)
    for name, interval in (("plain", 1), ("plain", None), ("watched", 1)):
        toy_fit(tmp_path / name, progress=Lines(stream), watch_interval=interval)
    assert stream.getvalue() == "the run is finished and was not watched; to watch it, train in another run directory\n"
