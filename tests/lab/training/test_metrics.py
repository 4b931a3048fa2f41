import errno
import os

import pytest

from filtercov.errors import StorageError
from filtercov.lab.training.metrics import MetricsLog, read_metrics
from tests.lab.training.toys import toy_fit


def test_records_are_lines_that_can_be_read_back(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append({"event": "step", "step": 1, "loss": 0.1})
        log.append({"event": "epoch", "step": 1, "test_loss": None})
        size = log.size
    assert read_metrics(path) == [
        {"event": "step", "step": 1, "loss": 0.1},
        {"event": "epoch", "step": 1, "test_loss": None},
    ]
    assert size == path.stat().st_size


def test_a_line_cut_short_by_a_crash_is_left_out_and_then_overwritten(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]
    with MetricsLog(path, size=len('{"step": 1}\n')) as log:
        log.append({"step": 5})
    assert read_metrics(path) == [{"step": 1}, {"step": 5}]


def test_a_disk_that_fills_up_within_a_line_leaves_whole_lines(tmp_path, monkeypatch):
    path, write, room = tmp_path / "metrics.jsonl", os.write, [20]

    def filling(file, data):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = write(file, data[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", filling)
    with MetricsLog(path) as log:
        log.append({"step": 1})
        with pytest.raises(StorageError, match="free some space"):
            log.append({"step": 2})
        assert path.read_text() == '{"step": 1}\n'
        room[0] = 100
        log.append({"step": 2})
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]


def test_no_file_is_no_records(tmp_path):
    assert read_metrics(tmp_path / "none") == []


def test_tensorboard_gets_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    toy_fit(tmp_path, tensorboard=True, log_interval=5)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    expected = [(r["step"], r["test_loss"]) for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "epoch"]
    shown = [(e.step, e.value) for e in events.Scalars("test_loss")]
    assert [step for step, _ in shown] == [step for step, _ in expected]
    assert [value for _, value in shown] == pytest.approx([value for _, value in expected], rel=1e-6)
