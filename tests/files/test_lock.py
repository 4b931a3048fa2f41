"""A lock has one owner among objects, threads and processes, and dies with it."""

import errno
import fcntl
import multiprocessing
import os
import signal
import threading
import time

import pytest

from filtercov.files.lock import Lock
from tests.files.children import hold, hold_with_a_forked_child

CONTEXT = multiprocessing.get_context("forkserver")


def test_a_lock_has_one_owner_until_that_lets_go(tmp_path):
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.acquire()
    assert not second.acquire()
    assert not first.acquire()
    second.release()  # of what it does not hold
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_one_file_under_two_names_is_one_lock(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    there, here = Lock(tmp_path / "folder" / "lock"), Lock(tmp_path / "link" / "lock")
    assert there.acquire()
    assert not here.acquire()
    there.release()


def test_threads_exclude_each_other_and_may_release_for_one_another(tmp_path):
    lock, found = Lock(tmp_path / "lock"), []
    assert lock.acquire()

    def other():
        mine = Lock(tmp_path / "lock")
        found.append(mine.acquire())
        lock.release()
        found.append(mine.acquire())
        mine.release()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [False, True]
    assert lock.acquire()
    lock.release()


def test_of_many_threads_exactly_one_gets_it(tmp_path):
    barrier, won = threading.Barrier(16), []

    def compete():
        lock = Lock(tmp_path / "lock")
        barrier.wait()
        if lock.acquire():
            won.append(lock)

    threads = [threading.Thread(target=compete) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    won[0].release()


@pytest.mark.parametrize("target", [hold, hold_with_a_forked_child])
def test_a_lock_dies_with_a_killed_process_even_if_its_children_live(tmp_path, target):
    ours, theirs = CONTEXT.Pipe()
    child = CONTEXT.Process(target=target, args=(tmp_path / "lock", theirs))
    child.start()
    assert ours.poll(60)
    grandchild = ours.recv()
    try:
        assert not Lock(tmp_path / "lock").acquire()
        child.kill()
        child.join()
        lock = Lock(tmp_path / "lock")
        assert lock.acquire(timeout=5.0)
        lock.release()
    finally:
        if grandchild:
            os.kill(grandchild, signal.SIGKILL)


def test_the_file_names_its_owner_and_stays(tmp_path):
    lock, other = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert other.owner() == ""
    assert not other.held_here()
    (tmp_path / "lock").write_text(" process 1234567890 on a-host-with-a-long-name since long ago, and more words\n")
    assert not other.held_here()
    assert lock.acquire()
    assert other.owner().startswith(f"process {os.getpid()} on ")
    assert "long ago" not in other.owner()
    assert other.held_here()
    assert not other.acquire()  # reading did not drop the lock
    lock.release()
    assert (tmp_path / "lock").exists()


def test_waiting_ends_when_the_owner_lets_go(tmp_path):
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.acquire()
    assert not second.acquire(timeout=0.1)
    threading.Timer(0.2, first.release).start()
    assert second.acquire(timeout=60.0)
    second.release()


def test_the_first_byte_of_the_file_says_nothing(tmp_path):
    """Windows lets nobody else read the byte that is locked."""
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    assert (tmp_path / "lock").read_bytes()[:2] == b" p"
    lock.release()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_the_systems_locks_there_is_none(tmp_path, monkeypatch, code):
    def missing(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", missing)
    for _ in range(2):  # a refused lock leaves nothing that would pass for a held one
        with pytest.raises(OSError, match=os.strerror(code)):
            Lock(tmp_path / "lock").acquire()
    monkeypatch.undo()
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    lock.release()


def test_an_owner_that_cannot_sign_does_not_keep_the_lock(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(OSError, match="No space left"):
        Lock(tmp_path / "lock").acquire()
    monkeypatch.undo()
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    lock.release()
    assert time.strftime("%Y") in lock.owner()
