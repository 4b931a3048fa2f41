"""Files are written whole or not at all, have one owner at a time, and show any change by their checksum.

Text from files is shown so that it can be read, and does nothing to what shows it.
"""

import hashlib
import os
import re
import signal
import stat
import subprocess
import sys
import unicodedata
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from filtercov.errors import CheckpointError
from filtercov.files import (
    DESCRIPTION,
    Kind,
    Lock,
    atomic_write,
    cache_directory,
    open_checksummed,
    read_description,
    write_checksummed,
)
from filtercov.lab.report.page import text
from filtercov.printable import printable
from tests.processes import python


def write(path, data=b"new"):
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def test_the_cache_is_where_the_environment_says_or_in_the_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("FILTERCOV_CACHE", raising=False)
    assert cache_directory() == Path("/home/me/.cache/filtercov")
    monkeypatch.setenv("FILTERCOV_CACHE", "~/elsewhere")
    assert cache_directory() == Path("/home/me/elsewhere")


# --- Atomic writes ---


@pytest.mark.parametrize("there", [True, False])
def test_the_file_that_a_link_leads_to_is_replaced(tmp_path, there):
    (tmp_path / "files").mkdir()
    file, link, plain = tmp_path / "files" / "file", tmp_path / "link", tmp_path / "plain"
    link.symlink_to("files/file")
    if there:
        file.write_bytes(b"old")
    write(link)
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    plain.touch()  # which the umask gives its permissions
    assert file.stat().st_mode == plain.stat().st_mode
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "files", file, link, plain]


def test_the_old_contents_stay_until_the_new_are_whole_and_a_failure_leaves_nothing_else(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def fail():
        with atomic_write(file) as temporary:
            temporary.write_bytes(b"half")
            assert file.read_bytes() == b"old"  # as a writer that is killed now leaves it
            assert re.fullmatch(r"\.file\.\w+\.tmp", temporary.name)  # by which run directories clean up
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


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


# --- Locks ---


HOLDING = """
import os, sys, time
from pathlib import Path
from filtercov.files import Lock
lock = Lock(Path(sys.argv[1]))
assert lock.acquire()
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""


def test_a_lock_names_its_owner_and_dies_with_it_even_if_its_children_live(tmp_path):
    lock = Lock(tmp_path / "lock")
    (tmp_path / "lock").write_text(" process 1234567890 on a-host-with-a-long-name since long ago, and more words\n")
    with subprocess.Popen([sys.executable, "-c", HOLDING, lock.path], stdout=subprocess.PIPE, text=True) as owner:
        child = int(owner.stdout.readline())
        try:
            assert re.fullmatch(rf"process {owner.pid} on \S+ since \S+ \S+", lock.owner())
            assert not lock.acquire(timeout=0.1)  # reading did not drop the lock
            lock.release()  # nor does letting go of what it does not hold
            owner.kill()
            assert lock.acquire(timeout=5.0)
            lock.release()
        finally:
            os.kill(child, signal.SIGKILL)
    assert lock.path.exists()


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
        for damaged in (whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :], whole[:place]):
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError), open_checksummed(path, KIND, "pt"):
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
    for wrong, name in ((path, "y"), (tmp_path, "x"), (tmp_path / "missing", "x")):
        with pytest.raises(CheckpointError, match="cannot be"), open_checksummed(wrong, KIND, "pt") as (tensors, _):
            tensors.get_tensor(name)


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"__metadata__": {"filtercov": "[1]"}}', '{"__metadata__": 3}'])
def test_files_that_filtercov_did_not_write_say_nothing(tmp_path, text):
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text.encode())
    assert read_description(tmp_path / "a") == read_description(tmp_path / "missing") == {}


# --- Foreign text ---


HOSTILE = "\x1b[31m\n\u202e\x9b\0$\\nope$"


def test_every_character_is_either_kept_or_escaped_to_ascii():
    for code in (*range(0x3000), *range(0x3000, 0x110000, 13), 0xFEFF, 0xD800, 0xDFFF, 0xE0001):
        shown = printable(chr(code))
        dangerous = unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        assert (shown.isascii() and shown.isprintable() and shown[0] == "\\") if dangerous else shown == chr(code)


def test_errors_and_pages_show_foreign_text_on_one_line():
    assert str(CheckpointError(f"{HOSTILE}: bad")) == printable(f"{HOSTILE}: bad")
    assert text(f"<{HOSTILE}>") == f"&lt;{printable(HOSTILE)}&gt;"


def test_output_that_cannot_spell_sigma_is_no_error(tmp_path):
    code = "from filtercov.cli import main; main()"
    arguments = ["init", "convmixer_8_2_k5_p4", "--out", tmp_path / "a.safetensors"]
    assert "? = 0.15" in python(code, *arguments, PYTHONIOENCODING="ascii").stdout
