"""Processes that train together fail together: with one error and one exit code, wherever and on whichever it arose."""

import multiprocessing
import socket

import pytest

from filtercov.errors import DataError
from filtercov.lab.training.failures import portable
from tests.lab.training.failing_child import UnspeakableError, main

DATA_ERROR = "DataError: rank {} cannot read its images"


def train_together(run_dir, where, failing=(), *, kind="data", size=2):
    """Run `size` gloo processes to their end; return each one's exit code and last words."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    children = [
        context.Process(target=main, args=(rank, size, port, run_dir, where, failing, kind)) for rank in range(size)
    ]
    for child in children:
        child.start()
    try:
        for child in children:
            child.join(120)
            assert not child.is_alive(), "hangs"
    finally:
        for child in children:
            child.kill()
    words = [(run_dir.parent / f"{run_dir.name}-{rank}.txt").read_text().strip() for rank in range(size)]
    return [child.exitcode for child in children], words


@pytest.mark.parametrize("where", ["start", "batch"])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_of_one_process_is_that_of_all(tmp_path, where, failing):
    codes, words = train_together(tmp_path / "run", where, (failing,))
    assert codes == [1, 1]
    assert words == [DATA_ERROR.format(failing)] * 2


@pytest.mark.parametrize("where", ["start", "batch"])
def test_of_two_failures_all_processes_report_the_same_one(tmp_path, where):
    codes, words = train_together(tmp_path / "run", where, (0, 1))
    assert codes == [1, 1]
    assert words[0] == words[1]
    assert words[0] in (DATA_ERROR.format(0), DATA_ERROR.format(1))


@pytest.mark.parametrize(
    ("where", "beginning"), [("open", "StorageError: cannot write"), ("checkpoint", "StorageError: cannot write")]
)
def test_what_the_writing_process_cannot_write_fails_all(tmp_path, where, beginning):
    codes, words = train_together(tmp_path / "run", where)
    assert codes == [1, 1]
    assert words[0] == words[1]
    assert words[0].startswith(beginning)


def test_processes_that_read_different_files_do_not_train_together(tmp_path):
    codes, words = train_together(tmp_path / "run", "identity")
    assert codes == [1, 1]
    assert "inputs.data is 'content 0' there and 'content 1' here" in words[0]
    assert words[0] == words[1]
    assert not (tmp_path / "run").exists()


def test_a_defect_at_the_end_is_told_to_all_even_if_it_cannot_be_pickled(tmp_path):
    codes, words = train_together(tmp_path / "run", "finish", (0,), kind="defect")
    assert codes == [2, 2]
    assert words == ["RuntimeError: UnspeakableError: a defect of rank 0"] * 2


def test_three_processes_leave_with_the_error_of_the_last(tmp_path):
    codes, words = train_together(tmp_path / "run", "batch", (2,), size=3)
    assert codes == [1, 1, 1]
    assert words == [DATA_ERROR.format(2)] * 3


def test_without_a_failure_all_finish(tmp_path):
    assert train_together(tmp_path / "run", "nowhere") == ([0, 0], ["finished"] * 2)


def test_an_error_reaches_another_process_as_itself_or_in_its_words():
    error = DataError("no images")
    assert portable(error) is error
    assert repr(portable(UnspeakableError("a", "b"))) == "RuntimeError('UnspeakableError: a b')"
