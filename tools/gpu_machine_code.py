"""Compile the Triton kernels for GPUs that need not be present, and count what is in their machine code.

`python -m tools.gpu_machine_code [float32 float16 bfloat16]` compiles every shipped configuration, kernels 3 to 31,
and fails if one spills registers or needs too much shared memory. It takes hours the first time; Triton keeps the
results. `python -m tools.gpu_tables` writes what this counts into docs/gpu.md. Triton's wheel brings the compilers:
NVIDIA's ptxas and nvdisasm, and LLVM for AMD.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from filtercov.nn.gpu import kernels
from filtercov.nn.gpu.estimate import LEAST_OF_A_LINE, Pass, Tile, as_image, choose_tile

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SHARED_MEMORY = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 64 * 1024}  # bytes
TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
BINARIES = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Layer(NamedTuple):
    """A pass of a convolution with padding "same", as compilers see it: over square images or lines."""

    which: Pass
    kernel: int
    dtype: str = "float32"
    channels_last: bool = False
    size: int = 56
    line: bool = False
    channels: int = 96

    def shape(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Taps and pixels, down and across, as `launch.py` would see them."""
        if not self.line:
            return (self.kernel,) * 2, (self.size,) * 2
        return ((self.kernel, 1), (self.size, 1)) if self.channels_last else as_image(self.kernel, self.size)

    def tile(self) -> Tile:
        """The tile that `launch.py` would choose."""
        return choose_tile(self.which, *self.shape(), channels_last=self.channels_last)

    def compile(self, target: str) -> Any:
        """`triton.compile`'s result for the kernel as `launch.py` would call it."""
        tile, last = self.tile(), self.channels_last
        (high, wide), (_, across) = self.shape()
        pixel = self.channels if last else 1
        row, filter_row = across * pixel, wide * pixel
        constants = {"KH": high, "KW": wide, "image_h": row, "ROWS": tile.rows, "LANES": tile.lanes}
        constants |= {"TAPS": self.kernel ** (1 if self.line else 2), "CHANNELS": tile.channels}
        constants |= {"STEP": across if self.line and not last else 1}
        if self.which == "weight_grad":
            function, more = kernels.correlate, {"grad_h": row, "COLUMNS": tile.columns}
        else:
            function, more = kernels.convolve, {"filter_h": filter_row, "BIAS": self.which == "forward"}
        # Strides of 1 and multiples of 16 are what Triton itself would see in the arguments.
        axis, others = ("c", "w") if last else ("w", "c")
        more |= {f"{name}_{axis}": 1 for name in ("image", "filter", "out", "grad")}
        constants |= {name: value for name, value in more.items() if name in function.arg_names}
        sixteens = {"channels", *(f"{name}_{a}" for name in ("image", "out", "grad") for a in ("n", others, "line"))}
        if last:
            sixteens |= {"filter_w", "out_h"}
        return compile_for(function, constants, sixteens, TYPES[self.dtype], target, warps=tile.warps)


def shipped(dtype: str) -> Iterator[Layer]:
    """One layer for each configuration of a type, with the largest tiles, which need the most registers."""
    for kernel in range(31, 2, -1):
        for which in ("forward", "weight_grad"):  # the input gradient is the forward kernel
            for last in (False, True):
                yield Layer(which, kernel, dtype, last, size=64)
                if kernel >= LEAST_OF_A_LINE:
                    yield Layer(which, kernel, dtype, last, size=512, line=True)


def compile_for(
    function: Any, constants: dict[str, Any], sixteens: set[str], element: str, target: str, *, warps: int
) -> Any:
    signature, attributes = {}, {}
    for i, name in enumerate(function.arg_names):
        pointer = name.endswith("_ptr")
        kind = ("*fp32" if name == "partial_ptr" else f"*{element}") if pointer else "i32"
        signature[name] = "constexpr" if name in constants else kind
        if pointer or (name in sixteens and name not in constants):
            attributes[i,] = [["tt.divisibility", 16]]
    places = {(function.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=function, signature=signature, constexprs=places, attrs=attributes)
    return triton.compile(source, target=TARGETS[target], options={"num_warps": warps})


class Code(NamedTuple):
    """What a compiled kernel needs, and the instructions of its innermost loop."""

    registers: int
    spilled: int  # bytes
    shared: int  # bytes
    loop: list[str]

    @property
    def multiply_adds(self) -> int:
        """Their number in the loop, of one lane."""
        return sum(2 if PAIRS.match(name) else 1 for name in self.loop if MULTIPLIES.match(name))

    @property
    def loads(self) -> list[int]:
        """Bytes of each load from global memory in the loop, of one lane."""
        return [_bytes(name) for name in self.loop if LOADS.match(name)]


MULTIPLIES = re.compile(r"FH?FMA|v_(pk_)?fma")  # FHFMA: of 16-bit numbers, into float32
PAIRS = re.compile(r"FFMA2|v_pk_fma")
LOADS = re.compile(r"LDG|global_load|buffer_load")


def _bytes(load: str) -> int:
    for suffix, size in {"128": 16, "dwordx4": 16, "64": 8, "dwordx2": 8, "16": 2, "short": 2}.items():
        if suffix in load:
            return size
    return 4


def read_code(compiled: Any, target: str) -> Code:
    """The numbers that stand in a compiled kernel."""
    if target.startswith("gfx"):
        text = compiled.asm["amdgcn"]
        registers = max(int(n) for n in re.findall(r"\.vgpr_count:\s+(\d+)", text))
        spilled = sum(4 * int(n) for n in re.findall(r"\.[sv]gpr_spill_count:\s+(\d+)", text))
        loop = _innermost_loop(text, r"(\.LBB\w+):", r"\t([a-z]\w+)(?:\s+(\.LBB\w+))?")
        return Code(registers, spilled, compiled.metadata.shared, loop)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(compiled.asm["cubin"])
        usage = _run("cuobjdump", "-res-usage", file.name)
        listing = _run("nvdisasm", "-c", file.name)
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    instruction = r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][.\w]*)(?:.*`\((\.L_\w+)\))?"
    return Code(registers, stack, compiled.metadata.shared, _innermost_loop(listing, r"(\.L_\w+):", instruction))


def _run(*command: str) -> str:
    return subprocess.run([BINARIES / command[0], *command[1:]], capture_output=True, text=True, check=True).stdout


def _innermost_loop(listing: str, label: str, instruction: str) -> list[str]:
    """The instructions from a label to a branch back to it: of such loops, the one that multiplies most."""
    labels: dict[str, int] = {}
    names: list[str] = []
    loops: list[list[str]] = [[]]
    for line in listing.splitlines():
        if found := re.match(label, line):
            labels[found[1]] = len(names)
        elif found := re.match(instruction, line):
            names.append(found[1])
            if found[2] in labels:
                loops.append(names[labels[found[2]] :])
    best = max(loops, key=lambda loop: sum(bool(MULTIPLIES.match(name)) for name in loop))
    return best or names  # compilers unroll short loops


def sweep(dtypes: list[str]) -> int:
    """Compile every shipped configuration of these types for every target, and return how many do not fit."""
    bad = 0
    for layer in (layer for dtype in dtypes for layer in shipped(dtype)):
        for target in TARGETS:
            code = read_code(layer.compile(target), target)
            fits = code.spilled == 0 and code.shared <= SHARED_MEMORY[target]
            bad += not fits
            where = f"{target} {layer.which} {layer.kernel} {layer.dtype}"
            layout = f"{'last' if layer.channels_last else 'first'}{' line' if layer.line else ''}"
            print(where, layout, f"registers {code.registers} spilled {code.spilled} shared {code.shared}", flush=True)
    print(f"{bad} do not fit")
    return bad


if __name__ == "__main__":
    sys.exit(sweep(sys.argv[1:] or list(TYPES)) > 0)
