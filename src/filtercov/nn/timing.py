"""Time contestants against each other, and decide which one to keep; contestants are steps of a model or of a layer.

Contestants take turns, so that whatever else the machine does slows all alike. A ratio is taken turn by turn, between
neighbours in time, and comes with the quartiles of those turns. The caller chooses the clock, a function that returns
seconds. On the CPU with one torch thread that is the time the thread ran, which other programs cannot lengthen; with
more threads, which wait for each other, it is the time that passed.
"""

import statistics
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass
from itertools import chain
from math import inf
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from filtercov.layers.running import call
from filtercov.nn.swap import Toggle

Name = TypeVar("Name", bound=Hashable)
Clock = Callable[[], float]

# What a contestant needs to replace another: see `clearly_faster`.
LEAST_TURNS = 5
LEAST_GAIN = 0.01
STANDARD_ERRORS = 2.0


def usual_clock() -> Clock:
    """The clock for torch's present number of threads."""
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def race(
    contestants: Mapping[Name, Callable[[], object]],
    *,
    seconds: float,
    turns: int,
    before: Callable[[Name], object] = lambda _: None,
    laggard: float = inf,
    grace: float = 0.0,
    clock: Clock | None = None,
) -> dict[Name, list[float]]:
    """Return the seconds of each contestant's turns: `turns` of each, or as many rounds as begin within `seconds`.

    An untimed round warms up caches, threads and code generators. While there are fewer turns than `LEAST_TURNS`, which
    decide little, rounds go on for `grace` seconds more. `before` is called with the contestant's name ahead of each
    turn, untimed. After `LEAST_TURNS`, contestants slower than the best times `laggard` drop out. Every other round
    goes backwards.

    >>> times = race({"a": lambda: sum(range(9)), "b": lambda: None}, seconds=1.0, turns=4)
    >>> {name: len(seconds) for name, seconds in times.items()}
    {'a': 4, 'b': 4}
    """
    clock = clock or usual_clock()
    times: dict[Name, list[float]] = {name: [] for name in contestants}
    racing = list(contestants)
    end = 0.0
    for turn in range(turns + 1):
        for name in racing if turn % 2 == 0 else reversed(racing):
            before(name)
            started = clock()
            contestants[name]()
            if turn > 0:
                times[name].append(clock() - started)
        if turn == 0:
            end = time.perf_counter() + seconds
        elif time.perf_counter() > end + (grace if turn < LEAST_TURNS else 0.0):
            break
        elif turn >= LEAST_TURNS:
            best = min(min(times[name]) for name in racing)
            racing = [name for name in racing if min(times[name]) <= laggard * best]
    return times


class Ratio(NamedTuple):
    """The median of the ratios of turns, and their quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.low:.2f} to {self.high:.2f})"


def ratio(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """How many times as fast `after` is as `before`, from the turns that both had.

    >>> ratio([2.0, 2.2, 2.1], [1.0, 1.0, 1.0]).median
    2.1
    """
    ratios = [a / b for a, b in zip(before, after, strict=False)]
    if len(ratios) < 2:
        return Ratio(*ratios * 3)
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(median, low, high)


def clearly_faster(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the best turn of `after` is at least 1 % shorter than that of `before`, and not by chance.

    Not by chance: its five best turns are all so much shorter than the best of `before`; or the median ratio of turns
    that ran side by side is 1 % and two standard errors above 1. The first sees through what disturbs single turns, for
    the shortest are free of it, the second through what lasts. Fewer than five turns prove nothing.

    >>> clearly_faster([1.0] * 6, [0.9, 0.9, 1.3, 0.9, 0.9, 0.9])
    True
    >>> clearly_faster([1.0] * 6, [0.8, 0.8, 0.9, 1.0, 1.1, 1.1])
    False
    >>> clearly_faster([1.0, 1.2, 1.4, 1.6, 1.8, 2.0], [0.9, 1.1, 1.3, 1.4, 1.6, 1.8])
    True
    """
    turns = min(len(before), len(after))
    if turns < LEAST_TURNS:
        return False
    enough = min(before) / (1 + LEAST_GAIN)
    if min(after) >= enough:
        return False
    gain = ratio(before, after)
    # Of normal numbers a quartile lies 0.674 deviations from the median, whose own error is 1.253 / sqrt(n) of one.
    error = 1.253 * (gain.high - gain.low) / (2 * 0.674) / turns**0.5
    return sorted(after)[LEAST_TURNS - 1] < enough or gain.median > 1 + max(LEAST_GAIN, STANDARD_ERRORS * error)


def best_to_keep(times: Mapping[str, Sequence[float]], plain: Collection[str]) -> tuple[str, list[str]]:
    """The contestant to keep, and those that are clearly faster than PyTorch's, given the seconds of all turns.

    To beat is the first, the model as it was, or another of those in `plain`, PyTorch's alone, that is clearly faster.
    Of those that beat it, the one with the best turn is kept; so it never has a longer best turn than what it replaced.

    >>> times = {"as it was": [1.0] * 5, "moved": [0.99] * 5, "ours": [0.8] * 5, "more": [0.7] * 5}
    >>> best_to_keep(times, {"as it was", "moved"})
    ('more', ['ours', 'more'])
    """
    kept, *others = times
    for name in others:
        if name in plain and clearly_faster(times[kept], times[name]):
            kept = name
    clear = [name for name in others if name not in plain and clearly_faster(times[kept], times[name])]
    return min(clear, key=lambda name: min(times[name]), default=kept), clear


class Step:
    """Forward and backward of the mean square of all outputs; in evaluation mode, or without gradients, forward alone.

    Gradients are computed and dropped: parameters keep theirs, and hooks on their accumulation are not called.
    """

    def __init__(self, model: nn.Module, example: Any) -> None:
        self.model, self.example = model, example
        self.inputs = [t for t in (*model.parameters(), *tensors_of(example)) if t.requires_grad]
        self.learns = model.training and torch.is_grad_enabled() and bool(self.inputs)

    def __call__(self) -> None:
        """Take the step, always with the same random numbers."""
        torch.default_generator.manual_seed(0)  # whose state `unchanged` restores
        torch.clear_autocast_cache()  # or weights would be cast in the first of several steps alone
        with torch.set_grad_enabled(self.learns):
            outputs = [t for t in tensors_of(call(self.model, self.example)) if t.requires_grad]
            if outputs:
                loss = torch.stack([tensor.float().square().mean() for tensor in outputs]).sum()
                torch.autograd.grad(loss, self.inputs, allow_unused=True)


def tensors_of(nested: Any) -> Iterator[Tensor]:
    """Yield the floating-point tensors in what a model takes or returns: tuples, lists, dicts and dataclasses.

    >>> [t.item() for t in tensors_of({"logits": torch.tensor(1.0), "all": [torch.tensor(2.0), None]})]
    [1.0, 2.0]
    """
    if isinstance(nested, Tensor) and nested.is_floating_point():
        yield nested
    elif isinstance(nested, Mapping):
        yield from tensors_of(list(nested.values()))
    elif isinstance(nested, list | tuple):
        for value in nested:
            yield from tensors_of(value)
    elif is_dataclass(nested):
        yield from tensors_of(vars(nested))


# The calls that layers get in a step, to be repeated by each layer alone.


class Layout(NamedTuple):
    """The memory layout and device of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")

    @classmethod
    def of(cls, tensor: Tensor) -> "Layout":
        """The layout of a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    def random(self) -> Tensor:
        """A tensor of normal numbers in this layout, which may overlap itself."""
        reach = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        numbers = torch.randn(max(reach, 0) + 1, device=self.device).to(self.dtype)
        return numbers.as_strided(self.shape, self.strides)


@dataclass
class Call:
    """One call of modules that run in turn: layouts of their input and of the gradient that came back, if one did."""

    modules: tuple[nn.Module, ...]
    x: Layout
    needs_grad: bool
    grad: Layout | None = None  # of another dtype, perhaps, under autocast

    def input(self) -> Tensor:
        """An input of random numbers like the one recorded."""
        return self.x.random().requires_grad_(self.needs_grad)

    def repeated(self, forward: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        """A function that repeats the call: forward, and backward if a gradient came back."""
        x = self.input()
        if self.grad is None:
            return torch.no_grad()(lambda: forward(x))
        parameters = (p for module in self.modules for p in module.parameters())
        inputs = [tensor for tensor in (x, *parameters) if tensor.requires_grad]
        grad_y = self.grad.random()

        def repeat() -> None:
            torch.clear_autocast_cache()  # each step casts weights once
            torch.autograd.grad(forward(x), inputs, grad_y, allow_unused=True)

        return repeat


def record_calls(toggles: Iterable[Toggle], step: Step) -> dict[str, list[Call]]:
    """Take a step and return the calls in it of each toggle's parts, by its name."""
    with ExitStack() as hooks:
        recorded = {toggle.name: [_record(part, hooks) for part in toggle.parts.values()] for toggle in toggles}
        step()
    return {name: list(chain.from_iterable(calls)) for name, calls in recorded.items()}


def _record(modules: tuple[nn.Module, ...], hooks: ExitStack) -> list[Call]:
    """A list of the calls of modules that run in turn, which hooks will fill."""
    calls: list[Call] = []

    def note_input(_first: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        if x is not None and x.is_floating_point():
            calls.append(Call(modules, Layout.of(x), x.requires_grad))

    def note_gradient(_last: nn.Module, _args: Any, output: Any) -> None:
        if calls and isinstance(output, Tensor) and output.requires_grad:
            call = calls[-1]
            output.register_hook(lambda grad: setattr(call, "grad", Layout.of(grad)))  # type: ignore[no-untyped-call]

    hooks.callback(modules[0].register_forward_pre_hook(note_input, with_kwargs=True).remove)
    hooks.callback(modules[-1].register_forward_hook(note_gradient).remove)
    return calls
