"""Disks that are full or read-only: a typed error, the last checkpoint intact, and the run continues afterwards."""

import errno
import os
import subprocess
from contextlib import suppress

import pytest

from filtercov.errors import StorageError
from filtercov.lab.training import TrainConfig, fit, load_checkpoint, read_metrics
from tests.lab.training.test_resume import untimed
from tests.lab.training.toys import ToyBatches, toy_fit, toy_model

CONFIG = TrainConfig(epochs=3, batch_size=8)


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 512 KiB, where mounting is allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_stops_with_the_last_checkpoint_kept_and_the_run_continues_with_room(tmp_path, small_disk):
    run_dir, ballast = small_disk / "run", small_disk / "ballast"

    class Filling(ToyBatches):
        def epoch(self, epoch, start_batch=0):
            if epoch == 1:
                with ballast.open("wb", buffering=0) as file, suppress(OSError):
                    while True:
                        file.write(b"0" * 4096)
            return super().epoch(epoch, start_batch)

    with pytest.raises(StorageError, match=r"No space left.*free some space"):
        fit(toy_model(), Filling(), ToyBatches(seed=1), CONFIG, run_dir, log_interval=1)
    assert load_checkpoint(run_dir / "state.safetensors")[1]["epoch"] == 1
    assert not list(run_dir.glob(".*.tmp"))
    read_metrics(run_dir / "metrics.jsonl")
    ballast.unlink()
    assert toy_fit(run_dir, CONFIG, log_interval=1).weights_sha256 == toy_fit(tmp_path / "a", CONFIG).weights_sha256


def test_a_read_only_directory_is_refused_before_training(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StorageError, match=r"Read-only.*writable"):
        toy_fit(small_disk / "run", CONFIG)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "replace", "write"])
def test_every_failing_call_is_a_storage_error_and_the_run_continues(tmp_path, monkeypatch, call, code):
    working = getattr(os, call)
    expected = toy_fit(tmp_path / "expected", CONFIG, log_interval=2).weights_sha256
    for at in range(2, 6):
        remaining = at

        def failing(*args, **kwargs):
            nonlocal remaining
            remaining -= 1
            if remaining == 0:
                raise OSError(code, os.strerror(code))
            return working(*args, **kwargs)

        run_dir = tmp_path / str(at)
        monkeypatch.setattr(os, call, failing)
        with pytest.raises(StorageError, match=os.strerror(code)):
            toy_fit(run_dir, CONFIG, log_interval=2)
        monkeypatch.setattr(os, call, working)
        assert toy_fit(run_dir, CONFIG, log_interval=2).weights_sha256 == expected
        assert untimed(run_dir) == untimed(tmp_path / "expected")
