"""Files of records: whole or not there, after any interruption and while others read."""

import hashlib
import subprocess
import sys

import pytest

from filtercov.errors import CheckpointError
from filtercov.statistics import records
from tests.statistics.appending_child import body

FORMAT = "test 1"


def read(path):
    return records.read(path, FORMAT, called="test", advice="make one")


def child(path, enough, largest=0):
    command = [sys.executable, "-m", "tests.statistics.appending_child", str(path), str(enough), str(largest)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_records_come_back_in_order_and_the_file_is_what_the_module_says(tmp_path):
    path = tmp_path / "file"
    size = records.create(path, FORMAT, [b"first"])
    for text in (b"", b"third\n"):
        size = records.append(path, text, size)
    assert read(path) == ([b"first", b"", b"third\n"], 0)
    assert path.stat().st_size == size
    data = path.read_bytes()
    assert data.startswith(b"test 1\n\x05\0\0\0\0\0\0\0")
    assert data.endswith(hashlib.sha256(b"third\n").digest() + b"third\n")
    assert records.is_of(path, FORMAT)
    assert not records.is_of(path, "test 2")
    assert not records.is_of(tmp_path / "none", FORMAT)


def test_a_record_cut_short_at_any_byte_is_passed_over_and_then_replaced(tmp_path):
    path = tmp_path / "file"
    before = records.create(path, FORMAT, [b"first", b"second"])
    records.append(path, b"a third record", before)
    whole = path.read_bytes()
    for end in range(before, len(whole)):
        path.write_bytes(whole[:end])
        assert read(path) == ([b"first", b"second"], end - before)
        size = records.shorten(path, FORMAT, 2)
        assert size == before
        records.append(path, b"a third record", size)
        assert path.read_bytes() == whole


def test_zeros_that_a_power_cut_left_are_passed_over(tmp_path):
    path = tmp_path / "file"
    size = records.create(path, FORMAT, [b"first"])
    for zeros in (1, 43, 44, 45, 5000):
        path.write_bytes(path.read_bytes()[:size] + bytes(zeros))
        assert read(path) == ([b"first"], zeros)


def test_a_changed_byte_before_the_last_record_is_an_error_wherever_it_is(tmp_path):
    path = tmp_path / "file"
    size = records.create(path, FORMAT, [b"first", b"second"])
    records.append(path, b"third", size)
    whole = path.read_bytes()
    for place in range(size):
        for flip in (1, 128):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            with pytest.raises(CheckpointError, match=r"damaged|not a filtercov test"):
                read(path)


def test_a_second_writer_is_noticed_and_nothing_is_lost(tmp_path):
    path = tmp_path / "file"
    size = records.create(path, FORMAT, [b"first"])
    records.append(path, b"theirs", size)
    with pytest.raises(CheckpointError, match="someone else writes to it"):
        records.append(path, b"ours", size)
    assert read(path) == ([b"first", b"theirs"], 0)


def test_readers_find_a_beginning_of_the_records_while_the_file_grows(tmp_path):
    path = tmp_path / "file"
    records.create(path, FORMAT, [])
    enough, counts = 300, []
    with child(path, enough) as writer:
        while writer.poll() is None:
            found, _ = read(path)
            assert found == [body(number) for number in range(len(found))]
            counts.append(len(found))
    assert writer.returncode == 0
    assert counts == sorted(counts)
    assert len(set(counts)) > 2  # it was read while it grew
    assert read(path) == ([body(number) for number in range(enough)], 0)


def test_a_killed_writer_is_continued_without_a_gap_or_a_repetition(tmp_path):
    path = tmp_path / "file"
    records.create(path, FORMAT, [])
    reached = 0
    for _ in range(4):
        with child(path, 10**6) as writer:
            while len(read(path)[0]) < reached + 10:
                assert writer.poll() is None, writer.stderr.read()
            writer.kill()
        found, _ = read(path)
        reached = len(found)
        assert found == [body(number) for number in range(reached)]
    with child(path, reached + 3) as writer:
        assert writer.wait(60) == 0
    assert read(path) == ([body(number) for number in range(reached + 3)], 0)


def test_a_full_disk_is_said_and_leaves_the_records_that_fitted(tmp_path):
    path = tmp_path / "file"
    records.create(path, FORMAT, [])
    with child(path, 100, largest=5000) as writer:
        said = writer.stderr.read()
        assert writer.wait(60) == 1
    assert said.startswith(f"{path}: cannot be written (File too large)")
    found, torn = read(path)
    assert torn == 0
    assert found == [body(number) for number in range(len(found))]
    assert len(found) >= 1
