"""An unpickler that can build arrays of bytes and plain containers, and nothing else.

CIFAR-10's batches are Python 2 pickles of NumPy arrays. A pickle names the functions to call while it is read, which is
how a hostile one runs code. Here the three names an array needs are bound to inert stand-ins (not even NumPy's own
code sees the stream's parameters), and every other name is refused.
"""

import io
import pickle
from typing import Any

import numpy as np

from filtercov.errors import DataError


# Each stand-in is a class with `__setstate__`, so that a stream that tries to change the class itself fails.
class _Bytes:
    """Stands for numpy.dtype: only unsigned bytes, whose state carries nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.name = arguments[0] if arguments else None

    def __setstate__(self, _state: Any) -> None:
        pass


class _Array:
    """Stands for the array that numpy's _reconstruct begins; its state is checked before NumPy sees it."""

    array: np.ndarray[Any, np.dtype[np.uint8]]

    def __init__(self, *_arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        version, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Bytes) or dtype.name != b"u1" or version != 1 or fortran or type(data) is not bytes:
            raise DataError("only C-ordered arrays of unsigned bytes are expected")
        self.array = np.frombuffer(data, np.uint8).reshape([int(length) for length in shape])


class _Marker:
    """Stands for numpy.ndarray, an argument of the reconstruction; it can be named but not built."""

    def __new__(cls, *_arguments: Any) -> "_Marker":
        raise DataError("an array may not be built this way")

    def __setstate__(self, _state: Any) -> None:
        pass


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Marker,
    ("numpy", "dtype"): _Bytes,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(f"the pickle asks for {module}.{name}, which no array needs")
        return _ALLOWED[module, name]

    def persistent_load(self, _identifier: Any) -> Any:
        raise DataError("the pickle refers to objects outside itself")


def read_array_pickle(data: bytes) -> dict[bytes, Any]:
    """Return the dictionary a pickle holds, with its arrays as uint8; raise `DataError` for anything but data.

    >>> read_array_pickle(b"(dS'labels'\\n(lI1\\naI2\\nas.")
    {b'labels': [1, 2]}
    >>> read_array_pickle(b"cos\\nsystem\\n(S'true'\\ntR.")
    Traceback (most recent call last):
    filtercov.errors.DataError: the pickle asks for os.system, which no array needs
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except DataError:
        raise
    except Exception as error:  # a damaged stream can raise nearly anything, from EOFError to AttributeError
        raise DataError(f"the pickle cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"the pickle should hold a dictionary, not {type(content).__name__}")
    return {key: value.array if isinstance(value, _Array) else value for key, value in content.items()}
