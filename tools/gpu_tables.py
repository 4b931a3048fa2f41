"""Write the tables of docs/gpu.md: what the compiled kernels consist of, and a roofline estimate from that.

`python -m tools.gpu_tables`, in the environment of `make test-gpu`, compiles for minutes. The estimate is the largest
of four times, as if they overlapped: memory, multiply-adds, the first cache, and the issue of instructions. Memory and
arithmetic are NVIDIA's published figures. PyTorch's algorithms, from aten/src/ATen/native/cuda/DepthwiseConv2d.cu, are
written down below in Triton as loops over the same loads, tests and divisions, and counted in the same way.
"""

from __future__ import annotations

import sys
from functools import cache
from math import ceil, prod
from pathlib import Path
from typing import NamedTuple, get_args

import triton
import triton.language as tl

from filtercov.nn.gpu.tiles import Pass
from tools.gpu_machine_code import TARGETS, TYPES, Code, Layer, compile_for, compile_quickly, read_code

PAGE = Path(__file__).parent.parent / "docs" / "gpu.md"
KERNELS = {"float32": (7, 9, 15, 31), "float16": (7, 31)}
NAMES = {"forward": "forward", "input_grad": "input gradient", "weight_grad": "weight gradient"}


# PyTorch's algorithms. The loops are those that its threads run, one output (or one tap) to a lane.


@triton.jit
def forward_of_pytorch(image_ptr, filter_ptr, out_ptr, width, high, wide, BLOCK: tl.constexpr):
    """One output a lane; the generic kernel, whose loops leave out the padding, so that no tap is tested."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(high):
        for j in range(wide):
            pixel = tl.load(image_ptr + at + i * width + j).to(tl.float32)
            total += pixel * tl.load(filter_ptr + i * wide + j).to(tl.float32)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty))


@triton.jit
def input_grad_of_pytorch(
    image_ptr,
    filter_ptr,
    out_ptr,
    width,
    high,
    wide,
    height,
    out_width,
    top,
    left,
    BLOCK: tl.constexpr,
):
    """One pixel a lane; each tap is tested."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = at // width, at % width
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(high):
        for j in range(wide):
            y, x = row + top - i, column + left - j
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < out_width)
            pixel = tl.load(image_ptr + y * out_width + x, mask=inside, other=0.0).to(tl.float32)
            total += pixel * tl.load(filter_ptr + i * wide + j).to(tl.float32)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty))


@triton.jit
def weight_grad_of_pytorch(
    image_ptr,
    filter_ptr,
    out_ptr,
    width,
    high,
    wide,
    height,
    out_width,
    top,
    left,
    BLOCK: tl.constexpr,
):
    """One tap a program, whose lanes divide to find their pixel; `filter_ptr` is the gradient of the output."""
    i, j = tl.program_id(0) // wide, tl.program_id(0) % wide
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, height * out_width, BLOCK):
        at = (start + tl.arange(0, BLOCK)).to(tl.uint32, bitcast=True)
        y = (at // out_width.to(tl.uint32, bitcast=True)).to(tl.int32, bitcast=True) + i - top
        x = (at % out_width.to(tl.uint32, bitcast=True)).to(tl.int32, bitcast=True) + j - left
        inside = (y >= 0) & (y < high) & (x >= 0) & (x < width)
        pixel = tl.load(image_ptr + y * width + x, mask=inside, other=0.0).to(tl.float32)
        total += pixel * tl.load(filter_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + tl.program_id(0) + tl.arange(0, BLOCK), total)


THEIRS = {
    "forward": forward_of_pytorch,
    "input_grad": input_grad_of_pytorch,
    "weight_grad": weight_grad_of_pytorch,
}


class Cost(NamedTuple):
    """What one output of one channel costs, in instructions of one lane."""

    multiply_adds: float
    loads: float
    load_clocks: float  # of 32 lanes: a load of 4 bytes or less takes one, of 16 bytes four
    instructions: float


def our_cost(layer: Layer, code: Code) -> Cost:
    """The cost of one output: the loop's, times its turns, over the outputs of a lane."""
    tile, ((high, wide), (rows, columns)) = layer.tile(), layer.shape()
    vector = tile.lanes * tile.channels // (32 * tile.warps)
    unrolled = code.multiply_adds / (tile.rows * high * vector * tile.columns)
    turns = ceil(wide / tile.columns) / unrolled
    used = rows * columns / (ceil(rows / tile.rows) * tile.rows * ceil(columns / tile.lanes) * tile.lanes)
    each = turns / (tile.rows * vector) / used
    return Cost(
        code.multiply_adds * each,
        len(code.loads) * each,
        sum(max(1, size / 4) for size in code.loads) * each,
        len(code.loop) * each,
    )


def their_cost(layer: Layer, target: str) -> Cost:
    """The cost of one output of PyTorch's algorithm; its forward pass leaves out taps in the padding."""
    function = THEIRS[layer.which]
    constants = {"BLOCK": 128}
    code = read_code(compile_for(function, constants, set(), TYPES[layer.dtype], target, {"num_warps": 4}), target)
    kernel, size = ((1 if layer.line else n, n) for n in (layer.kernel, layer.size))
    taps = kernel[0] * kernel[1]
    if layer.which == "forward":
        taps = prod(_visible(n, k) for n, k in zip(size, kernel, strict=True))
    each = taps / code.multiply_adds
    return Cost(taps, len(code.loads) * each, len(code.loads) * each, len(code.loop) * each)


def _visible(pixels: int, taps: int) -> float:
    """The mean number of taps that do not see padding, along one axis."""
    return sum(min(taps, pixels + taps // 2 - at) - max(0, taps // 2 - at) for at in range(pixels)) / pixels


class Card(NamedTuple):
    """A GPU's published figures."""

    target: str
    bandwidth: float  # bytes a second
    multiprocessors: int
    clock: float  # Hz, boost
    multiply_adds: int  # float32, of a multiprocessor in a clock

    def picoseconds(self, layer: Layer, cost: Cost) -> tuple[float, str]:
        """Return the time of one output, and what bounds it."""
        itemsize = 4 if layer.dtype == "float32" else 2
        second = 1 / self.multiprocessors / self.clock
        times = {
            "memory": 2 * itemsize / self.bandwidth,
            "multiply-adds": cost.multiply_adds / self.multiply_adds * second,
            "loads": cost.load_clocks / 32 * second,
            "issue": cost.instructions / 128 * second,
        }
        bound = max(times, key=lambda name: times[name])
        return times[bound] * 1e12, bound


CARDS = {
    "A100": Card("sm_80", 1.555e12, 108, 1.41e9, 64),
    "H100": Card("sm_90", 3.35e12, 132, 1.98e9, 128),
}


def settings(layouts: tuple[bool, ...] = (False, True)) -> list[tuple[str, int, bool]]:
    """Return types, kernel sizes and layouts, channels last or not, of the tables."""
    return [(dtype, k, last) for dtype, sizes in KERNELS.items() for k in sizes for last in layouts]


@cache
def codes_of(layer: Layer) -> dict[str, Code]:
    """The code of a layer for each target."""
    return {target: read_code(compiled, target) for target, compiled in compile_quickly(layer).items()}


def machine_code_table() -> str:
    """Return the table of registers, multiply-adds and loads; no kernel that spills registers has a place in it."""
    lines = [
        f"| pass | k | layout | type | tile | registers: {'/'.join(TARGETS)} | multiply-adds | loads | instructions |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for which in ("forward", "weight_grad"):  # the input gradient is the forward kernel
        for dtype, kernel, last in settings():
            layer = Layer(which, kernel, dtype, last)
            codes = codes_of(layer)
            assert not any(code.spilled for code in codes.values()), layer
            tile, cost = layer.tile(), our_cost(layer, codes["sm_90"])
            row = [
                "weights" if which == "weight_grad" else "images",
                kernel,
                "last" if last else "first",
                dtype,
                f"{tile.channels}×{tile.lanes}×{tile.rows}",
                "/".join(str(code.registers) for code in codes.values()),
                f"{cost.multiply_adds:.0f}",
                f"{cost.loads:.1f}",
                f"{cost.instructions:.0f}",
            ]
            lines.append(f"| {' | '.join(map(str, row))} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def estimate_table() -> str:
    """Return the table of the estimate: PyTorch's by loads alone and by all instructions, ours in both layouts."""
    cards = " | ".join(f"{name}: PyTorch's | ours, first/last | ratio" for name in CARDS)
    lines = [f"| pass | k | type | {cards} |", "|---|---|---|---|---|---|---|---|---|"]
    for which in get_args(Pass):
        for dtype, kernel, _ in settings(layouts=(False,)):
            layer = Layer(which, kernel, dtype)
            row = [NAMES[which], kernel, dtype]
            for card in CARDS.values():
                cost = their_cost(layer, card.target)
                loads_alone, _ = card.picoseconds(layer, cost._replace(instructions=0))
                everything, _ = card.picoseconds(layer, cost)
                ours = []
                for last in (False, True):
                    mine = layer._replace(channels_last=last, which="forward" if which == "input_grad" else which)
                    cost = our_cost(mine, codes_of(mine)[card.target])
                    ours.append(card.picoseconds(layer, cost)[0])
                row += [f"{loads_alone:.1f}–{everything:.1f}", "/".join(f"{time:.1f}" for time in ours)]
                row += [f"{loads_alone / ours[0]:.1f}"]
            lines.append(f"| {' | '.join(map(str, row))} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def write(page: Path, tables: dict[str, str]) -> None:
    """Replace what stands between a table's markers."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{table}{end}{after}"
    page.write_text(text, encoding="utf-8")


TABLES = {"estimate": estimate_table, "machine code": machine_code_table}

if __name__ == "__main__":
    write(PAGE, {name: TABLES[name]() for name in sys.argv[1:] or TABLES})
