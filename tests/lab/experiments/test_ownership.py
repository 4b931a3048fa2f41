"""A claim has one owner, whatever becomes of it."""

import errno
import fcntl
import multiprocessing

import pytest

from filtercov.errors import StorageError, SweepError
from filtercov.files import Lock
from filtercov.lab.experiments.ownership import claim
from tests.lab.experiments.children import hold

CONTEXT = multiprocessing.get_context("forkserver")


def test_a_claim_ends_with_its_owner_even_if_that_is_killed(tmp_path):
    held = CONTEXT.Event()
    child = CONTEXT.Process(target=hold, args=(tmp_path / "lock", held))
    child.start()
    assert held.wait(60)
    with claim(tmp_path / "lock") as mine:
        assert not mine
    assert f"process {child.pid} on " in Lock(tmp_path / "lock").owner()
    child.kill()
    child.join()
    with claim(tmp_path / "lock") as mine:
        assert mine


def test_a_process_does_not_get_a_claim_twice_and_keeps_the_first(tmp_path):
    with claim(tmp_path / "lock") as first:
        with claim(tmp_path / "lock") as second:
            assert first
            assert not second
        child = CONTEXT.Process(target=hold, args=(tmp_path / "lock", CONTEXT.Event()))
        child.start()
        child.join(60)
        assert child.exitcode == 1  # it found the lock still taken


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_filesystem_without_locks_is_refused_with_a_sentence(tmp_path, monkeypatch, code):
    def no_locks(*_):
        raise OSError(code, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(SweepError, match=r"No locks available.*only one process"), claim(tmp_path / "lock"):
        pass


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError), claim(tmp_path / "file" / "lock"):
        pass
