"""Compile the Triton kernels for GPUs that need not be present, and count what is in their machine code.

`python -m tools.gpu_machine_code [FILE]` compiles every shipped configuration and writes its registers into
docs/gpu-registers.csv, or into another file. It takes hours, may be stopped at any time, and goes on where it was; it
fails if a configuration spills registers or needs too much shared memory. `python -m tools.gpu_tables` writes the
tables of docs/gpu.md. Triton's wheel brings the compilers: NVIDIA's ptxas and nvdisasm, and LLVM for AMD.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import triton
from triton._C.libtriton import passes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from filtercov.nn.gpu import kernels
from filtercov.nn.gpu.tiles import ALL_REGISTERS, Pass, Tile, as_image, choose_tile

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SHARED_MEMORY = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 64 * 1024}  # bytes
TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
TABLE = Path(__file__).parent.parent / "docs" / "gpu-registers.csv"
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
        return choose_tile(self.which, *self.shape(), channels_last=self.channels_last, line=self.line)

    def key(self) -> tuple[str, ...]:
        """What tells configurations apart."""
        tile = self.tile()
        layout = ("last" if self.channels_last else "first") + " line" * self.line
        return self.which, layout, str(self.kernel), self.dtype, "x".join(map(str, tile))

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
            sign = -1 if self.which == "input_grad" else 1  # which reads filters backwards
            function, more = kernels.convolve, {"filter_h": sign * filter_row, "BIAS": sign == 1}
        # Strides of 1 and multiples of 16 are what Triton itself would see in the arguments.
        axis, others = ("c", "w") if last else ("w", "c")
        more |= {f"{name}_{axis}": 1 for name in ("image", "filter", "out", "grad")}
        if self.which == "input_grad" and not last:
            del more["filter_w"]  # -1
        constants |= {name: value for name, value in more.items() if name in function.arg_names}
        sixteens = {"channels", *(f"{name}_{a}" for name in ("image", "out", "grad") for a in ("n", others, "line"))}
        if last:
            sixteens |= {"filter_w", "out_h"}
        return compile_for(function, constants, sixteens, TYPES[self.dtype], target, self.options(target))

    def options(self, target: str) -> dict[str, int]:
        """Triton's options, as `launch.py` gives them."""
        large = self.channels_last or self.which == "weight_grad"
        everything = target == "sm_100" or (large and target.startswith("sm"))
        return {"num_warps": self.tile().warps} | (ALL_REGISTERS if everything else {})


def shipped() -> Iterator[Layer]:
    """One layer for each configuration: first the largest tile for every size of filters, odd ones first.

    Filters of any shape are among them: the kernels unroll a filter's height (or the longer side, channels last) and
    loop over its width; a line of channels-first pixels is unrolled in 2 to 4 rows of 4 or 8 taps. bfloat16 compiles as
    float16 does, with another conversion.
    """
    sizes, kinds, dtypes = (*range(3, 32, 2), *range(2, 31, 2)), get_args(Pass), ("float32", "float16")
    every = [(which, last, dtype) for which in kinds for last in (False, True) for dtype in dtypes]
    layers = [Layer(which, k, dtype, last, 64) for k in sizes for which, last, dtype in every]
    for which, last, dtype in every:
        lines = sizes if last else (8, 12, 15, 16, 24, 31)
        layers += [Layer(which, k, dtype, last, 512, line=True) for k in lines]
    for size in (56, 16, 14, 8):
        layers += [Layer(which, k, dtype, last, size) for k in sizes for which, last, dtype in every]
    known = set()
    for layer in layers:
        if layer.key() not in known:
            known.add(layer.key())
            yield layer


def compile_for(
    function: Any, constants: dict[str, Any], sixteens: set[str], element: str, target: str, options: dict[str, int]
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
    return triton.compile(source, target=TARGETS[target], options=options)


def compile_quickly(layer: Layer) -> dict[str, Any]:
    """The same machine code for each target as `layer.compile`'s, in a third of the time.

    Triton's slowest pass chooses which lane computes what. For these kernels we know: neighbouring lanes have
    neighbouring columns, channels first, as without that pass; and neighbouring channels, a few to a lane, channels
    last (but for lines). The first stages are the same for all targets, the middle ones for sm_80 and sm_90.
    `tests/gpu/test_machine_code.py` compares.
    """
    with tempfile.TemporaryDirectory() as folder:  # these are not what Triton would compile
        coalesce, cache = passes.ttgpuir.add_coalesce, triton.knobs.cache.dir
        if not (layer.line and layer.channels_last):
            passes.ttgpuir.add_coalesce, triton.knobs.cache.dir = lambda _manager: None, folder
        codes = {"sm_80": layer.compile("sm_80")}
        for target in ("sm_100", "gfx942"):
            codes[target] = _compile_again(layer, codes["sm_80"].asm["ttir"], "ttir", target)
        passes.ttgpuir.add_coalesce, triton.knobs.cache.dir = coalesce, cache
    if layer.channels_last and not layer.line:
        for target, code in codes.items():
            codes[target] = _compile_again(layer, _coalesced(code, layer.tile(), target), "ttgir", target)
    middle = codes["sm_80"].asm["ttgir"].replace("cuda:80", "cuda:90")
    codes["sm_90"] = _compile_again(layer, middle, "ttgir", "sm_90")
    return {target: codes[target] for target in TARGETS}


def _coalesced(code: Any, tile: Tile, target: str) -> str:
    """A kernel's code between the passes, with neighbouring channels in neighbouring lanes."""
    threads = TARGETS[target].warp_size
    vector = tile.channels * tile.lanes // (tile.warps * threads)
    across = min(threads, tile.channels // vector)
    layout = f"[{vector}, 1], threadsPerWarp = [{across}, {threads // across}], warpsPerCTA = [1, {tile.warps}]"
    layout = f"#blocked = #ttg.blocked<{{sizePerThread = {layout}, order = [0, 1]}}>"
    return re.sub(r"#blocked = .*", layout, code.asm["ttgir"], count=1)


def _compile_again(layer: Layer, middle: str, stage: str, target: str) -> Any:
    """A kernel compiled from its code between two stages."""
    with tempfile.NamedTemporaryFile(suffix=f".{stage}") as file:
        Path(file.name).write_text(middle, encoding="utf-8")
        return triton.compile(file.name, target=TARGETS[target], options=layer.options(target))


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


def resources(compiled: Any, target: str) -> tuple[int, int, int]:
    """The registers of a lane, the bytes that it spills, and the bytes of shared memory."""
    shared = compiled.metadata.shared
    if target.startswith("gfx"):
        text = compiled.asm["amdgcn"]
        registers = max(int(n) for n in re.findall(r"\.vgpr_count:\s+(\d+)", text))
        return registers, sum(4 * int(n) for n in re.findall(r"\.[sv]gpr_spill_count:\s+(\d+)", text)), shared
    usage = _run("cuobjdump", "-res-usage", cubin=compiled.asm["cubin"])
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    return registers, stack, shared


def read_code(compiled: Any, target: str) -> Code:
    """The numbers that stand in a compiled kernel."""
    if target.startswith("gfx"):
        loop = _innermost_loop(compiled.asm["amdgcn"], r"(\.LBB\w+):", r"\t([a-z]\w+)(?:\s+(\.LBB\w+))?")
    else:
        listing = _run("nvdisasm", "-c", cubin=compiled.asm["cubin"])
        instruction = r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][.\w]*)(?:.*`\((\.L_\w+)\))?"
        loop = _innermost_loop(listing, r"(\.L_\w+):", instruction)
    return Code(*resources(compiled, target), loop)


def _run(program: str, option: str, *, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        command = [BINARIES / program, option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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


def sweep(path: Path) -> int:
    """Add the configurations that the table lacks, and return how many of all spill, or exceed shared memory.

    A cell is the number of registers, after a minus if the kernel does not fit.
    """
    heading = ["pass", "layout", "k", "type", "rows x lanes x channels x columns x warps", *TARGETS]
    if not path.exists():
        path.write_text(",".join(heading) + "\n", encoding="utf-8")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    done = {tuple(row[:5]) for row in rows}
    for layer in (layer for layer in shipped() if layer.key() not in done):
        row = list(layer.key())
        codes = compile_quickly(layer)
        for target in TARGETS:
            registers, spilled, shared = resources(codes[target], target)
            row.append(str(registers if spilled == 0 and shared <= SHARED_MEMORY[target] else -registers))
        rows.append(row)
        with path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(row)
        print(*row, flush=True)
    bad = [row for row in rows if any(int(cell) < 0 for cell in row[5:])]
    print(f"{len(rows)} configurations, {len(bad)} do not fit", *bad, sep="\n")
    return len(bad)


if __name__ == "__main__":
    sys.exit(sweep(Path(sys.argv[1]) if sys.argv[1:] else TABLE) > 0)
