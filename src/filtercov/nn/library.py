"""The shared library of native kernels: find it, say what it can do, call it.

`FILTERCOV_NATIVE=0` turns the kernels off; `FILTERCOV_ISA` (portable, avx2, avx512 or neon) picks the instruction set
instead of the best one the machine has. Both are read once, at first use.
"""

import ctypes
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from filtercov.errors import NativeError

ISAS = ("portable", "avx2", "avx512", "neon")  # in the order of the C interface, and of what is better
ABI_VERSION = 6
PACKAGE = Path(__file__).parent.parent


# The C interface's `filtercov_geometry`: batch, channels, six triples, and five strides each of input and output.
Geometry = ctypes.c_int64 * 30


_POINTER, _INT32, _INT64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_SIGNATURES: dict[str, list[type]] = {
    "abi_version": [],
    "has_openmp": [],
    "isa_available": [_INT32],
    "depthwise_forward": [ctypes.POINTER(Geometry), *[_POINTER] * 4, _INT32, _INT32],
    "depthwise_input_grad": [ctypes.POINTER(Geometry), *[_POINTER] * 3, _INT32, _INT32],
    "depthwise_weight_grad": [ctypes.POINTER(Geometry), *[_POINTER] * 3, _INT32, _INT32],
    "channel_sum": [_INT64, _INT64, *[_POINTER] * 2, _INT32, _INT32],
    "gelu_batch_norm_forward": [_INT64, _INT64, *[_POINTER] * 4, ctypes.c_double, *[_POINTER] * 4, _INT32, _INT32],
    "gelu_batch_norm_backward": [_INT64, _INT64, *[_POINTER] * 8, _INT32, _INT32],
    "batch_norm_act_forward": [
        *(_INT64, _INT64, _INT32, *[_POINTER] * 3, ctypes.c_double, *[_POINTER] * 4, _INT32, _INT32),
    ],
    "batch_norm_act_backward": [_INT64, _INT64, _INT32, *[_POINTER] * 9, _INT32, _INT32],
    "settled_norm": [
        *(_INT64, _INT64, _INT32, _INT32, *[_POINTER] * 6, ctypes.c_double, _POINTER, _INT32, _INT32),
    ],
    "activation_forward": [_INT64, _INT32, *[_POINTER] * 2, _INT32, _INT32],
    "activation_backward": [_INT64, _INT32, *[_POINTER] * 3, _INT32, _INT32],
    "layer_norm_forward": [_INT64, _INT64, *[_POINTER] * 3, ctypes.c_double, *[_POINTER] * 3, _INT32, _INT32],
    "layer_norm_again": [_INT64, _INT64, *[_POINTER] * 6, _INT32, _INT32],
    "layer_norm_backward": [_INT64, _INT64, *[_POINTER] * 8, _INT32, _INT32],
    "bias_gelu_forward": [_INT64, _INT64, *[_POINTER] * 3, _INT32, _INT32],
    "bias_gelu_backward": [_INT64, _INT64, *[_POINTER] * 6, _INT32, _INT32],
    "scaled_residual": [_INT64, _INT64, *[_POINTER] * 5, _INT32, _INT32],
}
_REASONS = {1: "an argument out of range", 2: "out of memory", 3: "an instruction set this machine cannot run"}


@dataclass(frozen=True)
class NativeStatus:
    """Whether the native kernels are in use and, if not, why.

    `isas` are those this build and this machine can both run, `isa` is the one in use, `threads` what torch allows now.
    """

    available: bool
    reason: str
    isa: str | None
    isas: tuple[str, ...]
    openmp: bool
    threads: int
    library: str | None

    def __str__(self) -> str:
        """Return the one line that `filtercov info` prints."""
        if not self.available:
            return f"native kernels off: {self.reason}; convolutions run in PyTorch"
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}" if self.openmp else "1 thread (no OpenMP)"
        return f"native kernels on: {self.isa}, {threads} (can run: {', '.join(self.isas)})"


class _Loaded(NamedTuple):
    library: ctypes.CDLL | None
    path: Path | None
    isas: tuple[str, ...]
    isa: str | None
    reason: str
    by_request: bool  # off because the user said so: nothing to warn about


def _off(reason: str, *, by_request: bool = False) -> _Loaded:
    return _Loaded(None, None, (), None, reason, by_request)


def _library_path(folder: Path) -> Path | None:
    return next((path for suffix in (".so", ".dll") if (path := folder / f"_native{suffix}").exists()), None)


def _bind(library: ctypes.CDLL) -> None:
    for name, argument_types in _SIGNATURES.items():
        function = getattr(library, f"filtercov_{name}")
        function.argtypes = argument_types
        function.restype = _INT32


def load(folder: Path, environment: dict[str, str]) -> _Loaded:
    """Return the library in `folder`, or the reason there is none to use."""
    if environment.get("FILTERCOV_NATIVE", "1") == "0":
        return _off("FILTERCOV_NATIVE=0 is set", by_request=True)
    path = _library_path(folder)
    if path is None:
        record = folder / "_native_build.txt"
        built = record.read_text(encoding="utf-8").strip() if record.exists() else "no record of a build"
        return _off(f"they were not built ({built}); install a C++17 compiler and reinstall filtercov")
    try:
        # torch is imported above: its libgomp.so.1 is already loaded, so both share one pool of threads.
        library = ctypes.CDLL(str(path))
        _bind(library)
    except (OSError, AttributeError) as error:
        return _off(f"{path.name} does not load ({error}); reinstall filtercov")
    if (version := library.filtercov_abi_version()) != ABI_VERSION:
        return _off(f"{path.name} has interface {version}, needed is {ABI_VERSION}; reinstall filtercov")
    isas = tuple(isa for code, isa in enumerate(ISAS) if library.filtercov_isa_available(code))
    isa = environment.get("FILTERCOV_ISA", isas[-1])
    if isa not in isas:
        return _off(f"FILTERCOV_ISA={isa} is not one of those this machine runs: {', '.join(isas)}")
    return _Loaded(library, path, isas, isa, "", False)


@cache
def _loaded() -> _Loaded:
    return load(PACKAGE, dict(os.environ))


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"filtercov's native kernels are off: {reason}. PyTorch's are used.", stacklevel=3)


def native_status() -> NativeStatus:
    """Return whether the native kernels are in use, and which.

    >>> status = native_status()
    >>> status.available or bool(status.reason)
    True
    """
    loaded = _loaded()
    return NativeStatus(
        available=loaded.library is not None,
        reason=loaded.reason,
        isa=loaded.isa,
        isas=loaded.isas,
        openmp=loaded.library is not None and bool(loaded.library.filtercov_has_openmp()),
        threads=torch.get_num_threads(),
        library=None if loaded.path is None else loaded.path.name,
    )


def available() -> bool:
    """Return whether calls can succeed; if they cannot, and nobody asked for that, warn once with the reason."""
    loaded = _loaded()
    if loaded.library is None and not loaded.by_request:
        _warn_once(loaded.reason)
    return loaded.library is not None


def takes(x: torch.Tensor) -> bool:
    """Return whether a tensor is of the kind the kernels compute with, and they can.

    >>> takes(torch.zeros(1, dtype=torch.float64))
    False
    """
    return x.dtype == torch.float32 and x.device.type == "cpu" and available()


@cache
def _function(name: str) -> tuple[Callable[..., int], int]:
    """Return one function of the C interface, and which instruction set is in use."""
    loaded = _loaded()
    if loaded.library is None or loaded.isa is None:
        raise NativeError(f"{name}: the native kernels are off ({loaded.reason}); check native_status() first")
    return getattr(loaded.library, f"filtercov_{name}"), ISAS.index(loaded.isa)


def call(name: str, *arguments: object, isa: str | None = None) -> None:
    """Call one function of the C interface with torch's number of threads; `isa` overrides the one in use."""
    function, code = _function(name)
    status = function(*arguments, code if isa is None else ISAS.index(isa), torch.get_num_threads())
    if status != 0:
        raise NativeError(f"{name}: the native kernel met {_REASONS.get(status, f'status {status}')}")
