"""The native kernels: find their shared library, report what it can do, and call it with tensors.

`FILTERCOV_NATIVE=0` turns the kernels off; `FILTERCOV_ISA` (portable, avx2, avx512 or neon) picks the instruction set
instead of the best one the machine has. Both are read once, at first use.
"""

import ctypes
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from filtercov.errors import KernelError
from filtercov.nn.geometry import Geometry

ISAS = ("portable", "avx2", "avx512", "neon")  # in the order of the C interface, slowest first
ABI_VERSION = 7
PACKAGE = Path(__file__).parent.parent
OFF_BY_REQUEST = "FILTERCOV_NATIVE=0 is set"  # nothing to warn about

# The C interface's `filtercov_geometry`: batch, channels, six triples, and five strides each of input and output.
Struct = ctypes.c_int64 * 30

_TYPES = {
    "g": ctypes.POINTER(Struct),
    "p": ctypes.c_void_p,
    "n": ctypes.c_int64,
    "i": ctypes.c_int32,
    "d": ctypes.c_double,
}
# The arguments of each function: geometry, pointers, numbers of rows and channels, small integers, doubles. Functions
# that compute also take an instruction set and a number of threads.
_FUNCTIONS = {
    "abi_version": "",
    "has_openmp": "",
    "isa_available": "i",
    "depthwise_forward": "gpppp ii",
    "depthwise_input_grad": "gppp ii",
    "depthwise_weight_grad": "gppp ii",
    "channel_sum": "nn pp ii",
    "batch_norm_forward": "nn ii pppp d pppp ii",
    "batch_norm_backward": "nn ii pppppp ppp ii",
    "batch_norm_eval": "nn ii pppppp d p ii",
    "gelu_forward": "n pp ii",
    "gelu_backward": "n ppp ii",
    "layer_norm_forward": "nn ppp d ppp ii",
    "layer_norm_again": "nn pppppp ii",
    "layer_norm_backward": "nn ppppp ppp ii",
    "bias_gelu_forward": "nn ppp ii",
    "bias_gelu_backward": "nn pppppp ii",
    "scaled_residual": "nn ppppp ii",
}
_REASONS = {1: "an argument out of range", 2: "out of memory", 3: "an instruction set this machine cannot run"}


@dataclass(frozen=True)
class NativeStatus:
    """Whether the native kernels are in use and, if not, why.

    `isas` are those this build and this machine can both run, `isa` is the one in use, `threads` what torch allows now.
    """

    available: bool = False
    reason: str = ""
    isa: str | None = None
    isas: tuple[str, ...] = ()
    openmp: bool = False
    threads: int = 1

    def __str__(self) -> str:
        """The one line that `filtercov info` prints."""
        if not self.available:
            return f"native kernels off: {self.reason}; convolutions run in PyTorch"
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}" if self.openmp else "1 thread (no OpenMP)"
        return f"native kernels on: {self.isa}, {threads} (can run: {', '.join(self.isas)})"


def load(folder: Path, environment: Mapping[str, str]) -> tuple[ctypes.CDLL | None, NativeStatus]:
    """The library in `folder`, or None, and the status that says why."""

    def off(reason: str) -> tuple[None, NativeStatus]:
        return None, NativeStatus(reason=reason)

    if environment.get("FILTERCOV_NATIVE", "1") == "0":
        return off(OFF_BY_REQUEST)
    path = next((path for suffix in (".so", ".dll") if (path := folder / f"_native{suffix}").exists()), None)
    if path is None:
        record = folder / "_native_build.txt"
        built = record.read_text(encoding="utf-8").strip() if record.exists() else "no record of a build"
        return off(f"they were not built ({built}); install a C++17 compiler and reinstall filtercov")
    try:
        # torch is imported above: its libgomp.so.1 is already loaded, so both share one pool of threads.
        library = ctypes.CDLL(str(path))
        for name, types in _FUNCTIONS.items():
            function = getattr(library, f"filtercov_{name}")
            function.argtypes, function.restype = [_TYPES[kind] for kind in types.replace(" ", "")], ctypes.c_int32
    except (OSError, AttributeError) as error:
        return off(f"{path.name} does not load ({error}); reinstall filtercov")
    if (version := library.filtercov_abi_version()) != ABI_VERSION:
        return off(f"{path.name} has interface {version}, needed is {ABI_VERSION}; reinstall filtercov")
    isas = tuple(isa for code, isa in enumerate(ISAS) if library.filtercov_isa_available(code))
    isa = environment.get("FILTERCOV_ISA", isas[-1])
    if isa not in isas:
        return off(f"FILTERCOV_ISA={isa} is not one of those this machine runs: {', '.join(isas)}")
    return library, NativeStatus(available=True, isa=isa, isas=isas, openmp=bool(library.filtercov_has_openmp()))


@cache
def _loaded() -> tuple[ctypes.CDLL | None, NativeStatus]:
    return load(PACKAGE, os.environ)


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"filtercov's native kernels are off: {reason}. PyTorch's are used.", stacklevel=3)


def native_status() -> NativeStatus:
    """Whether the native kernels are in use, and which.

    >>> status = native_status()
    >>> status.available or bool(status.reason)
    True
    """
    return replace(_loaded()[1], threads=torch.get_num_threads())


def available() -> bool:
    """Whether kernels can be called; if not, and nobody asked for that, warn once with the reason."""
    library, status = _loaded()
    if library is None and status.reason != OFF_BY_REQUEST:
        _warn_once(status.reason)
    return library is not None


def takes(x: Tensor) -> bool:
    """Whether the kernels can compute with a tensor: float32, on the CPU."""
    return x.dtype == torch.float32 and x.is_cpu and available()


def check(name: str, x: Tensor) -> None:
    """Raise unless the kernels can compute with a tensor."""
    if not takes(x):
        raise KernelError(
            f"{name}: needs float32 on the CPU and the native kernels, got {x.dtype} on {x.device}; {native_status()}"
        )


_other_isa: int | None = None  # tests set it, to compare instruction sets


@cache
def _function(name: str) -> tuple[Callable[..., int], int]:
    """One function of the C interface, and the code of the instruction set in use."""
    library, status = _loaded()
    return getattr(library, f"filtercov_{name}"), ISAS.index(cast(str, status.isa))


def call(name: str, *arguments: object) -> None:
    """Call one function of the C interface, `filtercov_native.h`, with torch's number of threads.

    Tensors are passed as pointers to their numbers, None as a null pointer. Nothing is checked here: that there are
    kernels, and that tensors are float32 on the CPU in the layout that the function expects.
    """
    function, isa = _function(name)
    plain = [argument.data_ptr() if isinstance(argument, Tensor) else argument for argument in arguments]
    status = function(*plain, isa if _other_isa is None else _other_isa, torch.get_num_threads())
    if status != 0:
        raise KernelError(f"{name}: the native kernel met {_REASONS.get(status, f'status {status}')}")


def geometry_of(x: Tensor, kernel: Sequence[int], geometry: Geometry, y: Tensor) -> Any:
    """The C interface's geometry of a convolution from x to y, each in either layout, perhaps with gaps."""
    return _geometry_of(x.shape, x.stride(), tuple(kernel), geometry, y.shape, y.stride())


@lru_cache(maxsize=4096)
def _geometry_of(
    x_shape: tuple[int, ...],
    x_strides: tuple[int, ...],
    kernel: tuple[int, ...],
    geometry: Geometry,
    y_shape: tuple[int, ...],
    y_strides: tuple[int, ...],
) -> Any:
    """A pointer to a `Struct`; kept, because making one takes longer than a small kernel."""
    padding, stride, dilation = geometry.padding[::2], geometry.stride, geometry.dilation
    triples = ((x_shape[2:], 1), (kernel, 1), (padding, 0), (stride, 1), (dilation, 1), (y_shape[2:], 1))
    numbers = [*x_shape[:2], *(number for values, missing in triples for number in _triple(values, missing))]
    for strides in (x_strides, y_strides):
        numbers += [*strides[:2], *_triple(strides[2:], 0)]
    return ctypes.pointer(Struct(*numbers))


def _triple(values: Sequence[int], missing: int) -> list[int]:
    return [missing] * (3 - len(values)) + list(values)


def channel_sum(x: Tensor) -> Tensor:
    """The (C,) sums of a channels-last (N, C, *size) over images and pixels."""
    sums = x.new_empty(x.shape[1])
    call("channel_sum", x.numel() // x.shape[1], x.shape[1], x, sums)
    return sums
