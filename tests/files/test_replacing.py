"""What `replacing` replaces: files and what links lead to, whole and by any number of writers; devices stay."""

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pytest
from torch import nn

import filtercov as fc
from filtercov.errors import CheckpointError
from filtercov.files.replacing import replacing
from filtercov.lab.training.rundir import remove_temporaries


def write(path, data=b"new"):
    with replacing(path) as temporary:
        temporary.write_bytes(data)


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
    assert not file.is_symlink()
    assert file.read_bytes() == b"new"
    assert [len(list(folder.iterdir())) for folder in tmp_path.iterdir()] == [1, 1]


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe, data = tmp_path / "pipe", os.urandom(200_000)
    os.mkfifo(pipe)
    received = []
    reader = Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe, data)
    reader.join(timeout=60)
    assert received == [data]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_device_is_written_to_and_stays(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        pytest.skip("making devices is not permitted here")
    fc.FilterStatistics.from_model(nn.Conv2d(8, 8, 5, groups=8)).save(device)
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_device_that_takes_nothing_is_told_of(tmp_path):
    statistics = fc.FilterStatistics.from_model(nn.Conv2d(8, 8, 5, groups=8))
    (tmp_path / "link").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match="No space left on device"):
        statistics.save(tmp_path / "link")


@pytest.mark.parametrize("name", ["", ".", "..", "folder"])
def test_a_directory_is_refused_before_anything_is_written(tmp_path, monkeypatch, name):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"cannot be written \(Is a directory\)"):
        fc.FilterStatistics.from_model(nn.Conv2d(8, 8, 5, groups=8)).save(name)
    assert list(tmp_path.rglob("*")) == [tmp_path / "folder"]


def test_a_name_with_a_null_byte_is_refused_as_the_system_refuses_names(tmp_path):
    with pytest.raises(OSError, match="null byte"):
        write(tmp_path / "a\0b")


def test_threads_that_write_one_file_at_once_leave_one_of_their_contents(tmp_path):
    path, writers = tmp_path / "file", 8
    together = Barrier(writers)

    def write_together(number):
        for _ in range(10):
            together.wait(timeout=60)
            with replacing(path) as temporary:
                temporary.write_bytes(bytes([number]) * 100_000)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write_together, range(writers)))
    data = path.read_bytes()
    assert data == data[:1] * 100_000
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_leaves_behind_is_recognised(tmp_path):
    with replacing(tmp_path / "file") as temporary:
        assert re.fullmatch(r"\.file\.\w+\.tmp", temporary.name)
        remove_temporaries(tmp_path)
        assert not temporary.exists()
        temporary.touch()


def test_a_name_may_be_as_long_as_names_can_be(tmp_path):
    path = tmp_path / ("n" * 255)
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
