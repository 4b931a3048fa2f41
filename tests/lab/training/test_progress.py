import io
import re

import pytest
from rich.console import Console

from filtercov.lab.training.progress import Lines, Snapshot, TerminalBar, progress_on
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
    assert "run  epoch 1/10  loss 1.2346  train 50.00 %  test 61.50 %  1,234 images/s  1:15 left" in text


def test_the_display_is_chosen_by_the_stream(terminal):
    display = progress_on(terminal)
    assert isinstance(display, TerminalBar)
    display.close()
    assert isinstance(progress_on(io.StringIO()), Lines)
