"""Thirty pickles that try to run code, and some that try to break things: none executes, each is refused."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data.pickles import read_array_pickle
from tests.lab.data.python2_pickle import array, dictionary, integer, name, string


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + pickle.MARK + b"".join(arguments) + pickle.TUPLE + pickle.REDUCE


def stack_name(module: str, attribute: str) -> bytes:
    """Protocol 4's way to name a function, from strings on the stack."""
    return b"".join(pickle.SHORT_BINUNICODE + bytes([len(s)]) + s.encode() for s in (module, attribute)) + b"\x93"


def whole(opcodes: bytes, protocol: int = 2) -> bytes:
    return pickle.PROTO + bytes([protocol]) + opcodes + pickle.STOP


def hostile_pickles(marker: Path) -> dict[str, bytes]:
    """Return pickles that would each create `marker` (or worse) in an ordinary unpickler."""
    shell = string(f"touch {marker}".encode())
    path, code = string(str(marker).encode()), string(f"open({str(marker)!r}, 'w')".encode())
    system = {
        "os.system": whole(call(name("os", "system"), shell)),
        "posix.system": whole(call(name("posix", "system"), shell)),
        "nt.system": whole(call(name("nt", "system"), shell)),
        "os.popen": whole(call(name("os", "popen"), shell)),
        "os.execv": whole(call(name("os", "execv"), string(b"/bin/true"), pickle.EMPTY_LIST)),
        "os.mkdir": whole(call(name("os", "mkdir"), path)),
        "os.remove": whole(call(name("os", "remove"), path)),
        "subprocess.Popen": whole(call(name("subprocess", "Popen"), shell)),
        "subprocess.getoutput": whole(call(name("subprocess", "getoutput"), shell)),
        "shutil.rmtree": whole(call(name("shutil", "rmtree"), path)),
        "commands.getoutput": whole(call(name("commands", "getoutput"), shell)),
    }
    evaluation = {
        "eval, Python 2's name": whole(call(name("__builtin__", "eval"), code)),
        "eval, Python 3's name": whole(call(name("builtins", "eval"), code)),
        "exec": whole(call(name("builtins", "exec"), code)),
        "compile": whole(call(name("builtins", "compile"), code, code, string(b"exec"))),
        "getattr": whole(call(name("builtins", "getattr"), name("os", "path"), string(b"os"))),
        "__import__": whole(call(name("builtins", "__import__"), string(b"antigravity"))),
        "open": whole(call(name("builtins", "open"), path, string(b"w"))),
        "runpy": whole(call(name("runpy", "_run_code"), code, pickle.EMPTY_DICT)),
        "pty.spawn": whole(call(name("pty", "spawn"), shell)),
        "webbrowser.open": whole(call(name("webbrowser", "open"), path)),
        "ctypes.CDLL": whole(call(name("ctypes", "CDLL"), path)),
        "nested pickle.loads": whole(call(name("pickle", "loads"), string(whole(call(name("os", "system"), shell))))),
    }
    numpys = {
        "numpy's test runner": whole(call(name("numpy.testing._private.utils", "runstring"), code, pickle.EMPTY_DICT)),
        "numpy.load": whole(call(name("numpy", "load"), path)),
        "numpy.memmap": whole(call(name("numpy", "memmap"), path)),
        "numpy.f2py": whole(call(name("numpy.f2py.crackfortran", "myeval"), code)),
    }
    opcodes = {
        "dotted name of protocol 4": whole(call(stack_name("os", "path.os.system"), shell), 4),
        "name from the stack": whole(call(stack_name("os", "system"), shell), 4),
        "dotted name below an allowed one": whole(call(stack_name("numpy", "dtype.__init__.__globals__"), shell), 4),
        "INST": whole(pickle.MARK + shell + pickle.INST + b"os\nsystem\n"),
        "OBJ": whole(pickle.MARK + name("os", "system") + shell + pickle.OBJ),
        "NEWOBJ": whole(name("subprocess", "Popen") + shell + pickle.TUPLE1 + pickle.NEWOBJ),
        "extension registry": whole(pickle.EXT1 + b"\x01"),
        "persistent id": whole(pickle.PERSID + b"anything\n"),
        "hidden behind data": dictionary(
            {b"data": array(np.zeros(3, np.uint8)), b"x": call(name("os", "system"), shell)}
        ),
    }
    return system | evaluation | numpys | opcodes


NAMES = list(hostile_pickles(Path("unused")))


@pytest.mark.parametrize("kind", NAMES)
def test_a_hostile_pickle_is_refused_and_nothing_runs(kind: str, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    modules = set(sys.modules)
    with pytest.raises(DataError):
        read_array_pickle(hostile_pickles(marker)[kind])
    assert not marker.exists()
    assert set(sys.modules) == modules  # not even an import


def test_the_oracle_can_fail_an_ordinary_unpickler_does_run_them(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    pickle.loads(hostile_pickles(marker)["os.system"], encoding="utf-8")
    assert marker.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        name("numpy", "dtype") + pickle.NONE + pickle.EMPTY_DICT + pickle.TUPLE2 + pickle.BUILD,
        name("numpy", "ndarray") + pickle.EMPTY_DICT + pickle.BUILD,
        name("numpy.core.multiarray", "_reconstruct") + pickle.EMPTY_DICT + pickle.BUILD,
        call(name("numpy", "ndarray"), integer(1 << 30)),
        dictionary({b"data": array(np.zeros(3, np.uint8), dtype=b"O8")})[2:-1],
        dictionary({b"data": array(np.zeros(3, np.uint8), dtype=b"f8")})[2:-1],
        dictionary({b"data": array(np.zeros(4, np.uint8))})[2:-1].replace(
            integer(4) + pickle.TUPLE1, integer(1 << 30) + pickle.TUPLE1
        ),
        pickle.MARK * 1000,
        pickle.BINSTRING + b"\xff\xff\xff\x7f",
        pickle.EMPTY_LIST,
    ],
)
def test_malformed_arrays_and_streams_are_refused_without_harm(opcodes: bytes) -> None:
    with pytest.raises(DataError):
        read_array_pickle(whole(opcodes))
    values = np.arange(6, dtype=np.uint8).reshape(2, 3)  # and nothing is left behind: the next reading works
    np.testing.assert_array_equal(read_array_pickle(dictionary({b"data": array(values)}))[b"data"], values)


def test_truncation_anywhere_is_an_error_of_ours() -> None:
    data = dictionary({b"data": array(np.arange(20, dtype=np.uint8)), b"labels": pickle.EMPTY_LIST})
    for length in range(len(data)):
        with pytest.raises(DataError):
            read_array_pickle(data[:length])


def test_flipped_bytes_never_raise_anything_else() -> None:
    data = dictionary({b"data": array(np.arange(20, dtype=np.uint8)), b"labels": pickle.EMPTY_LIST})
    rng = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(data)
        for position in rng.integers(0, len(data), 3):
            damaged[position] = rng.integers(256)
        try:
            content = read_array_pickle(bytes(damaged))
        except DataError:
            continue
        assert isinstance(content, dict)
