import errno
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from filtercov.lab.training.progress import Lines, Silent, Snapshot, TerminalBar, progress_on
from tests.lab.training.toys import toy_fit


def snapshot(step, test_accuracy=None):
    return Snapshot(
        step=step,
        steps=100,
        epoch=1,
        epochs=10,
        loss=1.23456,
        accuracy=50.0,
        images_per_second=1234.5,
        seconds_left=75.0,
        test_accuracy=test_accuracy,
    )


def test_lines_appear_at_the_end_of_epochs_and_once_a_minute_in_long_ones():
    stream, now = io.StringIO(), [0.0]
    lines = Lines(stream, label="run 1", clock=lambda: now[0])
    for step, seconds in enumerate((10, 59, 60, 90, 121)):
        now[0] = seconds
        lines.update(snapshot(step))
    lines.update(snapshot(10, test_accuracy=61.5))
    assert stream.getvalue().splitlines() == [
        "run 1  epoch 1/10  loss 1.2346  train 50.00 %  1,234 images/s  1:15 left",
        "run 1  epoch 1/10  loss 1.2346  train 50.00 %  1,234 images/s  1:15 left",
        "run 1  epoch 1/10  loss 1.2346  train 50.00 %  test 61.50 %  1,234 images/s  1:15 left",
    ]


def test_a_speed_that_was_not_measured_is_not_shown(terminal):
    unknown = replace(snapshot(50, test_accuracy=61.5), images_per_second=None)
    assert str(unknown) == "epoch 1/10  loss 1.2346  train 50.00 %  test 61.50 %  1:15 left"
    bar = TerminalBar(Console(file=terminal, force_terminal=True, width=160))
    bar.update(unknown)
    bar.close()
    assert "1:15 left" in terminal.getvalue()
    assert "images/s" not in terminal.getvalue()


def test_a_stream_that_is_no_terminal_gets_plain_lines(tmp_path):
    stream = io.StringIO()
    toy_fit(tmp_path, progress=progress_on(stream))
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]
    assert "\x1b" not in stream.getvalue()
    assert lines[-1].endswith("0:00 left")


@pytest.fixture
def terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    return Terminal()


def test_a_terminal_gets_a_bar_with_loss_accuracy_speed_and_time_left(terminal):
    bar = TerminalBar(Console(file=terminal, force_terminal=True, width=160), label="run")
    bar.update(snapshot(50))
    bar.update(snapshot(100, test_accuracy=61.5))
    bar.close()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert "━" in text
    assert re.search(r"run  epoch 1/10  loss 1.2346  train 50.00 % +━+.*1,234 images/s  1:15 left", text)
    assert "run  epoch 1/10  loss 1.2346  train 50.00 %  test 61.50 %  1,234 images/s" in text
    assert text.count("61.50 %") == 1


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_bar_takes_one_line_with_room_for_what_a_terminal_writes_behind_it(terminal, width):
    bar = TerminalBar(Console(file=terminal, force_terminal=True, width=width))
    bar.update(snapshot(50))
    bar.close()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    drawn = [line for line in re.split(r"[\r\n]", text) if line]
    assert drawn
    for line in drawn:
        assert line.startswith("epoch 1/10")
        assert line.rstrip().endswith("1:15 left")
        assert len(line) <= width - 4


def test_a_run_that_continues_says_where_and_closes_its_display(tmp_path):
    class Crash(Silent):
        def update(self, snapshot):
            if snapshot.step == 7:
                raise RuntimeError("crash")

    class Watched(Lines):
        closed = 0

        def close(self):
            self.closed += 1

    with pytest.raises(RuntimeError, match="crash"):
        toy_fit(tmp_path, progress=Crash(), recovery_interval=5)
    stream = io.StringIO()
    watched = Watched(stream, label="run")
    result = toy_fit(tmp_path, progress=watched)
    assert stream.getvalue().splitlines()[0] == f"run  resuming at step 5 of {result.steps}"
    assert stream.getvalue().count("resuming") == 1
    assert watched.closed == 1


@pytest.mark.parametrize("kind", ["lines", "bar"])
def test_a_stream_that_takes_nothing_more_ends_the_words_and_not_the_training(tmp_path, kind):
    class Full(io.StringIO):
        tried = 0

        def write(self, _text):
            self.tried += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    stream = Full()
    display = Lines(stream) if kind == "lines" else TerminalBar(Console(file=stream, force_terminal=True))
    assert toy_fit(tmp_path, progress=display).epochs == 3
    tried = stream.tried
    display.note("another word")
    assert tried == stream.tried
    if kind == "lines":
        assert tried == 1


def test_a_closed_standard_error_gets_nothing(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert isinstance(progress_on(), Silent)


def test_a_run_that_was_finished_before_it_could_be_watched_says_so(tmp_path):
    stream = io.StringIO()
    toy_fit(tmp_path / "plain")
    toy_fit(tmp_path / "plain", progress=Lines(stream), watch_interval=1)
    assert stream.getvalue() == "the run is finished and was not watched; to watch it, train in another run directory\n"
    toy_fit(tmp_path / "watched", watch_interval=1)
    toy_fit(tmp_path / "watched", progress=Lines(stream), watch_interval=1)
    toy_fit(tmp_path / "plain", progress=Lines(stream))
    assert stream.getvalue().count("\n") == 1


def test_the_display_is_chosen_by_the_stream(terminal):
    display = progress_on(terminal)
    assert isinstance(display, TerminalBar)
    display.close()
    assert isinstance(progress_on(io.StringIO()), Lines)
