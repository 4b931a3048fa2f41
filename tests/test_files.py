"""Files are written whole or not at all, have one owner at a time, and show any change by their checksum."""

import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from torch import nn

from filtercov.errors import CheckpointError, ConfigError
from filtercov.files import (
    DESCRIPTION,
    Kind,
    Lock,
    as_path,
    atomic_write,
    cache_directory,
    files_sha256,
    open_checksummed,
    read_description,
    write_checksummed,
)
from filtercov.lab.costs import kept_speed
from filtercov.lab.data.cifar10 import load_cifar10
from filtercov.lab.training.rundir import remove_temporaries
from tests.lock_children import hold, hold_with_a_forked_child

CONTEXT = multiprocessing.get_context("forkserver")


def write(path, data=b"new"):
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


# --- Paths and sources ---


@pytest.mark.parametrize("wrong", [b"net.pth", {"a": 1}, nn.Identity(), 3], ids=repr)
def test_what_is_no_path_is_refused(wrong):
    with pytest.raises(CheckpointError, match="load: needed the path of a file"):
        as_path(wrong, "load")
    assert as_path("a/b", "load") == as_path(Path("a/b"), "load") == Path("a/b")


def test_several_files_have_the_sum_that_sha256sum_prints(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("c", "b/a"):
        (tmp_path / name).write_text(name)
    printed = subprocess.run("sha256sum b/a c | sha256sum", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert files_sha256(tmp_path, [tmp_path / "c", tmp_path / "b" / "a"]) == printed.stdout.split()[0]


def test_the_cache_is_where_the_environment_says_or_in_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FILTERCOV_CACHE", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "filtercov"
    monkeypatch.setenv("FILTERCOV_CACHE", "~/elsewhere")
    assert cache_directory() == tmp_path / "elsewhere"
    monkeypatch.setenv("FILTERCOV_CACHE", "~nobody-of-that-name/cache")
    with pytest.raises(ConfigError, match=r"got FILTERCOV_CACHE=~nobody-of-that-name/cache, .*; set FILTERCOV_CACHE"):
        load_cifar10()
    assert kept_speed() is None  # what only looks into the cache does without one


# --- Atomic writes ---


@pytest.mark.parametrize("there", [True, False])
def test_the_file_that_a_link_leads_to_is_replaced(tmp_path, there):
    (tmp_path / "files").mkdir()
    (tmp_path / "links").mkdir()
    file, link = tmp_path / "files" / "file", tmp_path / "links" / "link"
    link.symlink_to("../files/file")
    if there:
        file.write_bytes(b"old")
    write(link)
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert [len(list(folder.iterdir())) for folder in tmp_path.iterdir()] == [1, 1]


def test_a_failure_leaves_the_old_contents_and_nothing_else(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(TypeError), atomic_write(tmp_path / "file") as temporary:
        temporary.write_bytes(b"half" + temporary.write_bytes(b"half"))
    assert (tmp_path / "file").read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


KILLED = """
import os, signal, sys
from pathlib import Path
from filtercov.files import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_the_old_contents_and_what_is_cleaned_up(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "file"], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (tmp_path / "file").read_bytes() == b"old"
    [left] = [path.name for path in tmp_path.iterdir() if path.name != "file"]
    assert re.fullmatch(r"\.file\.\w+\.tmp", left)
    remove_temporaries(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_names_that_cannot_be_written_are_refused_before_anything_is(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "null").symlink_to("/dev/null")
    monkeypatch.chdir(tmp_path)
    for name in ("", "..", "folder"):
        with pytest.raises(IsADirectoryError):
            write(Path(name))
    with pytest.raises(OSError, match="Invalid argument"):
        write(tmp_path / "null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "folder", tmp_path / "null"]
    write(tmp_path / ("n" * 255))  # as long as names can be


# In a process of its own, because the umask is the whole process's.
WITH_UMASK = """
import os, sys
from pathlib import Path
from filtercov.files import atomic_write
for mask in sys.argv[2:]:
    os.umask(int(mask, 8))
    with atomic_write(Path(sys.argv[1]) / mask) as temporary:
        temporary.write_text("new")
"""


def test_files_have_the_permissions_that_the_umask_gives(tmp_path):
    masks = ("022", "027", "077")
    subprocess.run([sys.executable, "-c", WITH_UMASK, tmp_path, *masks], check=True)
    for mask in masks:
        assert (tmp_path / mask).stat().st_mode & 0o777 == 0o666 & ~int(mask, 8)


# --- Locks ---


def test_a_lock_has_one_owner_until_that_lets_go(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    first, second = Lock(tmp_path / "folder" / "lock"), Lock(tmp_path / "link" / "lock")
    assert first.acquire()
    assert not second.acquire()
    assert not first.acquire()
    second.release()  # of what it does not hold
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


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
    (tmp_path / "lock").write_text(" process 1234567890 on a-host-with-a-long-name since long ago, and more words\n")
    assert lock.acquire()
    assert (tmp_path / "lock").read_bytes()[:2] == b" p"  # Windows lets nobody else read the byte that is locked
    assert re.fullmatch(rf"process {os.getpid()} on \S+ since {time.strftime('%Y')}-\S+ \S+", other.owner())
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


@pytest.mark.parametrize(
    ("module", "function", "code"),
    [(fcntl, "flock", errno.ENOLCK), (os, "ftruncate", errno.ENOSPC)],
)
def test_where_the_system_refuses_a_lock_there_is_none(tmp_path, monkeypatch, module, function, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module, function, refuse)
    for _ in range(2):  # a refused lock leaves nothing that would pass for a held one
        with pytest.raises(OSError, match=os.strerror(code)):
            Lock(tmp_path / "lock").acquire()
    monkeypatch.undo()
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    lock.release()


# --- Checksummed files ---

KIND = Kind("test-format", 2, "test file", "make another", largest=10_000)


def write_arrays(path, arrays, description, kind=KIND):
    return write_checksummed(path, kind, partial(safetensors.numpy.save, arrays), description)


def test_a_checksummed_file_is_what_the_module_says_and_any_reader_reads_it(tmp_path):
    path, arrays = tmp_path / "a", {"x": np.arange(5.0)}
    checksum = write_arrays(path, arrays, {"note": "größe"})
    with open_checksummed(path, KIND, "numpy") as (tensors, about):
        assert tensors.get_tensor("x").tolist() == arrays["x"].tolist()
    assert about == {"format": "test-format", "schema": 2, "sha256": checksum, "note": "größe"}
    assert read_description(path) == about
    assert safetensors.numpy.load_file(path)["x"].tolist() == arrays["x"].tolist()
    blank = path.read_bytes().replace(checksum.encode(), b"0" * 64)
    assert hashlib.sha256(blank).hexdigest() == checksum
    assert write_arrays(tmp_path / "b", arrays, {"note": "größe"}) == checksum
    assert (tmp_path / "b").read_bytes() == path.read_bytes()


def test_any_changed_or_missing_byte_is_noticed(tmp_path):
    path = tmp_path / "a"
    write_arrays(path, {"x": np.arange(5.0)}, {})
    whole = path.read_bytes()
    for place in [*range(0, len(whole) - 8, 3), *range(len(whole) - 8, len(whole))]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match=r"make another|update filtercov"), open_checksummed(path, KIND, "pt"):
            pass
        path.write_bytes(whole[:place])
        with pytest.raises(CheckpointError, match="make another"), open_checksummed(path, KIND, "pt"):
            pass


def test_files_of_other_kinds_versions_and_sizes_are_refused(tmp_path):
    path = tmp_path / "a"
    for other, size, message in (
        (Kind("other", 2, "", ""), 5, "not a filtercov test file"),
        (Kind("test-format", 3, "", ""), 5, "schema 3, this filtercov reads up to 2; update"),
        (KIND, (10_000 + DESCRIPTION) // 8, "of at most 10 kB, got one of 8.4 MB"),
    ):
        write_arrays(path, {"x": np.zeros(size)}, {}, other)
        with pytest.raises(CheckpointError, match=message), open_checksummed(path, KIND, "numpy"):
            pass
    write_arrays(path, {"x": np.zeros(5)}, {}, Kind("test-format", 1, "", ""))
    with (
        pytest.raises(CheckpointError, match="its tensors cannot be read"),
        open_checksummed(path, KIND, "numpy") as (tensors, _),
    ):
        tensors.get_tensor("y")
    for wrong in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CheckpointError, match="cannot be read"), open_checksummed(wrong, KIND, "numpy"):
            pass
    with pytest.raises(CheckpointError, match="needed tensors that are described in at most"):
        write_arrays(path, {"x": np.zeros(5)}, {"long": "x" * DESCRIPTION})


def test_a_file_that_is_replaced_while_it_is_checked_is_checked_again(tmp_path, monkeypatch):
    path, open_safetensors = tmp_path / "a", safetensors.safe_open
    write_arrays(path, {"x": np.zeros(5)}, {})

    def replace_first(*arguments, **options):
        monkeypatch.setattr(safetensors, "safe_open", open_safetensors)
        write_arrays(path, {"x": np.ones(5)}, {"second": True})
        return open_safetensors(*arguments, **options)

    monkeypatch.setattr(safetensors, "safe_open", replace_first)
    with open_checksummed(path, KIND, "numpy") as (tensors, about):
        assert about["second"]
        assert tensors.get_tensor("x").all()


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"__metadata__": {"filtercov": "[1]"}}', '{"__metadata__": 3}'])
def test_files_that_filtercov_did_not_write_say_nothing(tmp_path, text):
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text.encode())
    assert read_description(tmp_path / "a") == {}
    assert read_description(tmp_path / "missing") == {}
    (tmp_path / "b").write_text(json.dumps(text))
    assert read_description(tmp_path / "b") == {}
