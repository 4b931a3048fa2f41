"""What `accelerate_` did to a model, and what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from filtercov.nn.timing import ratio
from filtercov.printable import counted

STEP_HEADING = ("ms", "times as fast as it was, median (quartiles)", "clearly faster")
LAYER_HEADING = ("layer", "kind", "input", "now", "ms before", "ms channels_last", "ms now")


@dataclass(frozen=True)
class LayerTiming:
    """One layer: the shape it gets, what was chosen, and its seconds alone; None where they were not timed.

    `before` and `channels_last` are PyTorch's own, in the model's layout and in that; `after` is what was chosen.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    chosen: str
    before: float | None
    channels_last: float | None
    after: float | None

    def cells(self) -> tuple[str, ...]:
        """The row of a table with `LAYER_HEADING`."""
        shape = "not reached" if self.shape is None else "x".join(map(str, self.shape))
        times = ["" if s is None else f"{s * 1e3:.2f}" for s in (self.before, self.channels_last, self.after)]
        return self.name or "(the model)", self.kind, shape, self.chosen, *times


@dataclass(frozen=True)
class StepTiming:
    """A way to run the whole model, and its seconds turn by turn.

    `clear` says whether it is clearly faster than PyTorch's, by the rule in `timing.py`.
    """

    name: str
    seconds: tuple[float, ...]
    clear: bool

    @property
    def best(self) -> float:
        """The shortest turn."""
        return min(self.seconds)


@dataclass(frozen=True)
class Tuning:
    """Which way to run the model was kept, what each layer is now, and the times that decided it.

    `steps` is the race that decided, and begins with the model as it was. `learns` says whether a step was forward and
    backward, or forward alone. `ended_early` says that the time given was used up.
    """

    kept: str
    layers: tuple[LayerTiming, ...]
    steps: tuple[StepTiming, ...]
    seconds: float
    ended_early: bool
    learns: bool

    def __str__(self) -> str:
        """Which way was kept and why, and tables of steps and layers."""
        early = "; the time was up before all was tried" if self.ended_early else ""
        before = self.steps[0].seconds
        steps = [
            (step.name, f"{step.best * 1e3:.2f}", str(ratio(before, step.seconds)), "yes" if step.clear else "")
            for step in self.steps
        ]
        lines = [
            f"kept: {self.kept}, after {self.seconds:.0f} s of timing{early}",
            "kept is the least ms (best turn) of those clearly faster than PyTorch's, or PyTorch's if none is",
            *_aligned([("training step" if self.learns else "forward pass", *STEP_HEADING), *steps]),
            *_aligned([LAYER_HEADING, *(row.cells() for row in self.layers)]),
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate_` did, by name: layers swapped, norms and blocks fused, layers left alone and why, made safe.

    `fused` are norms with their activations, in a row or as one module, `residuals` those that the pair before them
    adds, `activations` the GELUs that stand alone. With an example to measure with, `tuning` has what was measured, and
    `products` are the 1x1 convolutions that became products of matrices. `keeps_memory` says whether the process was
    told to keep what it frees, `needs_example` that the model is on a GPU, where nothing changes without an example.
    """

    swapped: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    made_safe: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    tuning: Tuning | None = None
    residuals: tuple[str, ...] = ()
    activations: tuple[str, ...] = ()
    keeps_memory: bool = False
    needs_example: bool = False

    def __str__(self) -> str:
        """One line, one more for each kind of change and each layer left alone, and what was measured."""
        if self.needs_example:
            return "unchanged: on a GPU only a measurement tells; accelerate_(model, example_input=images) makes it"
        lines = [
            f"{counted(len(self.swapped), 'depthwise convolution')} swapped, "
            f"{counted(len(self.fused), 'norm')} fused with activations"
        ]
        for names, kind, what in (
            (self.blocks, "ConvNeXt block", "fused"),
            (self.residuals, "residual", "added by the operator before"),
            (self.activations, "GELU", "computed by filtercov's kernels"),
            (self.products, "1x1 convolution", "run as products of matrices"),
            (self.made_safe, "strided 1x1 convolution", "kept out of a memory fault of PyTorch's"),
        ):
            lines += [f"{counted(len(names), kind)} {what}"] * bool(names)
        lines += ["this process keeps the memory it frees, for the next step"] * self.keeps_memory
        lines += [f"left alone: {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join([*lines, *([str(self.tuning)] if self.tuning else [])])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
