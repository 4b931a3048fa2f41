"""Measure on this machine, with an example, which of a model's layers are faster as PyTorch's and which as ours.

First each layer alone, with inputs like those it gets from the example, in the model's own layout and in channels_last:
the alternatives of `swap.py` race. Then whole steps of the model race: as it was, in channels_last, and with the
winning layers in both layouts; and once more the best of these, also without one group of layers at a time. Where whole
steps contradict the layers' own times, the steps decide, by the rule in `timing.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from filtercov.layers.running import blaming_the_example, unchanged
from filtercov.nn.fused import FusedSequential
from filtercov.nn.layout import BothLayouts, Layout, is_channels_last
from filtercov.nn.pointwise import StridedPointwiseConv2d
from filtercov.nn.report import LayerTiming, StepTiming, Tuning
from filtercov.nn.routing import BITS, BY_THRESHOLDS
from filtercov.nn.step import Step, tensors_of
from filtercov.nn.swap import Part, Setting, Toggle, pass_choices
from filtercov.nn.timing import LEAST_GAIN, LEAST_TURNS, Clock, best_to_keep, race, usual_clock

SECONDS = 60.0
# Shares of the time, if it is enough: what one leaves over goes to the next.
LAYERS_END, CANDIDATES_END = 0.4, 0.75
OVERTIME = 0.5  # the share of the time by which whole steps may exceed it, if they are not yet told apart
CANDIDATES = 5  # ways to run the whole model, at most
# Maximum rounds of a race of layers and of whole steps; contestants slower than the best × LAGGARD drop out early.
LAYER_TURNS, LAYER_LAGGARD = 12, 1.5
STEP_TURNS, STEP_LAGGARD = 30, 1.1
PER_LAYER = 0.5  # seconds, at most, of a race between the alternatives of one layer

AS_IT_WAS, PLAIN_LAST = PLAIN = "as it was", "PyTorch's in channels_last"
TUNED_OWN, TUNED_LAST, DEFAULT = "tuned", "tuned in channels_last", "by thresholds in channels_last"

_PASS_NAMES = {"forward": "forward", "input_grad": "input gradient", "weight_grad": "weight gradient"}


# The calls that layers get from the example, repeated by each layer alone.


@dataclass
class Call:
    """One call of a part of a model: layouts of its input and of the gradient that came back, if one did."""

    x: Layout
    dtype: torch.dtype
    needs_grad: bool
    grad: Layout | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for calls that take equally long."""
        return self.x, self.dtype, self.needs_grad, self.grad

    def input(self) -> Tensor:
        """Return an input of random numbers like the one recorded."""
        return self.x.random(self.dtype).requires_grad_(self.needs_grad)

    def repeated(self, forward: Callable[[Tensor], Tensor], modules: Iterable[nn.Module]) -> Callable[[], object]:
        """Return a function that repeats the call: forward, and backward if a gradient came back."""
        x = self.input()
        if self.grad is None:
            return torch.no_grad()(lambda: forward(x))
        inputs = [tensor for tensor in (x, *(p for m in modules for p in m.parameters())) if tensor.requires_grad]
        grad_y = self.grad.random(self.dtype)
        return lambda: torch.autograd.grad(forward(x), inputs, grad_y, allow_unused=True)


@contextmanager
def recorded_calls(parts: Iterable[Part]) -> Iterator[dict[str, list[Call]]]:
    """Record the calls of parts of a model, by name, by hooks that are gone afterwards."""
    recorded: dict[str, list[Call]] = {}
    with ExitStack() as stack:
        for part in parts:
            calls = recorded.setdefault(part.name, [])
            first, last = part.modules[0], part.modules[-1]
            stack.callback(first.register_forward_pre_hook(_input_recorder(calls), with_kwargs=True).remove)
            stack.callback(last.register_forward_hook(_gradient_recorder(calls)).remove)
        yield recorded


def _input_recorder(calls: list[Call]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def record(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        if x is not None and x.is_floating_point():
            calls.append(Call(Layout.of(x), x.dtype, x.requires_grad))

    return record


def _gradient_recorder(calls: list[Call]) -> Callable[[nn.Module, Any, Any], None]:
    def record(_module: nn.Module, _args: Any, output: Any) -> None:
        if calls and isinstance(output, Tensor) and output.requires_grad:
            last = calls[-1]
            output.register_hook(lambda grad: setattr(last, "grad", Layout.of(grad)))  # type: ignore[no-untyped-call]

    return record


Calls = Mapping[Part, list[Call]]
Seconds = dict[Setting, float]


def race_of_settings(toggle: Toggle, calls: Calls, *, clock: Clock) -> Seconds:
    """Return the best seconds of each setting of a toggle, summed over its calls."""
    made = list(chain.from_iterable(calls.values()))
    if toggle.swap.only_last and not any(one.x.is_channels_last_image for one in made):
        return _seconds(toggle, calls, [toggle.plain], clock)
    choices = pass_choices(toggle, made[0].input())
    first = toggle.ours._replace(passes=choices[0])
    flipped = {toggle.ours._replace(passes=choice): choice ^ choices[0] for choice in choices[1:]}
    seconds = _seconds(toggle, calls, [toggle.plain, first, *flipped], clock)
    better = sum(bit for setting, bit in flipped.items() if seconds[setting] < seconds[first])
    if first.passes != BY_THRESHOLDS and (combined := first._replace(passes=first.passes ^ better)) not in seconds:
        seconds |= _seconds(toggle, calls, [toggle.plain, combined], clock)
    seconds.setdefault(toggle.ours, seconds[first])
    return seconds


def _seconds(toggle: Toggle, calls: Calls, settings: list[Setting], clock: Clock) -> Seconds:
    totals = dict.fromkeys(settings, 0.0)
    for part, made in calls.items():
        for one in made:
            contestants = {s: one.repeated(_alone(toggle, part, s), part.modules) for s in settings}
            times = race(
                contestants,
                seconds=PER_LAYER,
                turns=LAYER_TURNS,
                before=toggle.set_,
                laggard=LAYER_LAGGARD,
                clock=clock,
            )
            for setting in settings:
                totals[setting] += min(times[setting])
    return totals


def _alone(toggle: Toggle, part: Part, setting: Setting) -> Any:
    """Return the forward pass of a part under a setting of its toggle, without hooks of the toggle itself."""
    if part.modules == (toggle.module,):
        return lambda x: toggle.module.forward(x)  # looked up at each call: the class will be another
    return (nn.Sequential if setting == toggle.plain else FusedSequential)(*part.modules).forward


def _key(toggle: Toggle, calls: Calls) -> object:
    """Return a key that is equal for toggles that take equally long."""
    parts = tuple(
        (
            tuple(repr(module) for module in part.modules),
            tuple(p.requires_grad for module in part.modules for p in module.parameters()),
            tuple(m.training for module in part.modules for m in module.modules()),
            tuple(one.key for one in made),
        )
        for part, made in calls.items()
    )
    return toggle.swap.kind, parts


def _fastest(toggle: Toggle, seconds: Seconds) -> Setting:
    """Return the fastest setting, PyTorch's unless another is clearly faster; the default where none was timed."""
    if not seconds:
        return toggle.default
    best = min(seconds, key=lambda setting: seconds[setting])
    return best if seconds[best] * (1 + LEAST_GAIN) < seconds[toggle.plain] else toggle.plain


# Whole steps.


class Candidate(NamedTuple):
    """A way to run the whole model: the setting of each toggle, and the layout."""

    settings: tuple[Setting, ...]
    channels_last: bool


class Tuner:
    """A model, an example, and the toggles of the model, all PyTorch's at first."""

    def __init__(
        self, model: nn.Module, example: Any, toggles: list[Toggle], endangered: list[nn.Conv2d], *, seconds: float
    ) -> None:
        self.model, self.toggles, self.endangered = model, toggles, endangered
        self.parts = {toggle.name: toggle.parts for toggle in toggles}
        self.plain = tuple(toggle.plain for toggle in toggles)
        self.layouts = BothLayouts(model)
        self.step = Step(model, example)
        self.clock = usual_clock()
        self.began, self.seconds = time.perf_counter(), seconds
        # The fault that endangered layers are kept out of is in channels_last memory.
        tensors = (*tensors_of(example), *model.parameters())
        self.harmless = not any(tensor.dim() == 4 and is_channels_last(tensor) for tensor in tensors)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ended_early = False

    def run(self) -> tuple[Candidate, Tuning]:
        """Return the candidate to keep, and the report; the model is then as it was, bit for bit."""
        with unchanged(self.model), self._settings_restored():
            self._set(Candidate(self.plain, channels_last=False))
            with blaming_the_example():
                self.step()
            layers_end, candidates_end = shares(self.seconds, self._step_seconds())
            both = self.layouts.differ
            layers = {False: self._tune_layers(channels_last=False, until=layers_end / 2 if both else layers_end)}
            if both:
                layers[True] = self._tune_layers(channels_last=True, until=layers_end)
            candidates = self._candidates(layers)
            times = self._race(candidates, candidates_end)
            winner, steps = best_to_keep(times, PLAIN), _timings(times)
            fastest = min(times, key=lambda name: min(times[name]))
            variants = self._variants(fastest, candidates)
            again = {name: candidates[name] for name in candidates if name in (*PLAIN, winner, fastest)} | variants
            if fastest not in PLAIN and self._left(1.0) > 0:
                times = self._race(again, 1.0)
                if _enough(times):  # or else the first race stands
                    winner, steps = best_to_keep(times, PLAIN), steps | _timings(times)
                    candidates |= variants
        return candidates[winner], self._report(winner, candidates[winner], layers, steps)

    def _step_seconds(self) -> float:
        began = time.perf_counter()
        self.step()
        return time.perf_counter() - began

    def _left(self, share: float) -> float:
        return self.began + share * self.seconds - time.perf_counter()

    @contextmanager
    def _settings_restored(self) -> Iterator[None]:
        before = tuple(toggle.setting for toggle in self.toggles)
        try:
            yield
        finally:
            self._set(Candidate(before, channels_last=False))
            for module in self.endangered:
                module.__class__ = nn.Conv2d

    def _set(self, candidate: Candidate) -> None:
        for toggle, setting in zip(self.toggles, candidate.settings, strict=True):
            toggle.set_(setting)
        self.layouts.set_(channels_last=candidate.channels_last)
        for module in self.endangered:
            module.__class__ = nn.Conv2d if self.harmless and not candidate.channels_last else StridedPointwiseConv2d

    def _tune_layers(self, *, channels_last: bool, until: float) -> list[Seconds]:
        """Return the seconds of each toggle's settings in one layout; none where it was not timed."""
        self._set(Candidate(self.plain, channels_last))
        with recorded_calls(part for parts in self.parts.values() for part in parts) as recorded:
            self.step()
        for name, made in recorded.items():
            if made:
                self.shapes.setdefault(name, made[0].x.shape)
        known: dict[object, Seconds] = {}
        measured: list[Seconds] = []
        for toggle in reversed(self.toggles):  # so that what is inside another is timed first, and set as it won
            calls = {part: recorded[part.name] for part in self.parts[toggle.name]}
            key = _key(toggle, calls)
            if key not in known and any(calls.values()):
                if self._left(until) > 0:
                    known[key] = race_of_settings(toggle, calls, clock=self.clock)
                else:
                    self.ended_early = True
            measured.append(known.get(key, {}))
            toggle.set_(_fastest(toggle, measured[-1]))
        return measured[::-1]

    def _candidates(self, layers: Mapping[bool, list[Seconds]]) -> dict[str, Candidate]:
        """Return the candidates, from the least change to the most, without duplicates."""
        tuned = {
            last: tuple(_fastest(toggle, seconds) for toggle, seconds in zip(self.toggles, measured, strict=True))
            for last, measured in layers.items()
        }
        both = True in layers
        named = {AS_IT_WAS: Candidate(self.plain, channels_last=False)}
        if both:
            named[PLAIN_LAST] = Candidate(self.plain, channels_last=True)
        named[TUNED_OWN] = Candidate(tuned[False], channels_last=False)
        if both:
            named[TUNED_LAST] = Candidate(tuned[True], channels_last=True)
        named[DEFAULT] = Candidate(tuple(toggle.default for toggle in self.toggles), channels_last=both)
        distinct: dict[Candidate, str] = {}
        for name, candidate in named.items():
            distinct.setdefault(candidate, name)
        return {name: candidate for candidate, name in distinct.items()}

    def _variants(self, name: str, tried: Mapping[str, Candidate]) -> dict[str, Candidate]:
        """Return copies of a candidate, each with one group of its layers PyTorch's again."""
        winner = tried[name]
        groups: dict[str, set[int]] = {}
        for i, (toggle, setting) in enumerate(zip(self.toggles, winner.settings, strict=True)):
            if setting != toggle.plain:
                size = "x".join(map(str, getattr(toggle.module, "kernel_size", ())))
                groups.setdefault(f"{toggle.swap.kind} {size}".strip(), set()).add(i)
        variants = {}
        for group, members in groups.items():
            settings = tuple(self.plain[i] if i in members else s for i, s in enumerate(winner.settings))
            variants[f"{name}, without {group}"] = winner._replace(settings=settings)
        return {name: candidate for name, candidate in variants.items() if candidate not in tried.values()}

    def _race(self, candidates: Mapping[str, Candidate], until: float) -> dict[str, list[float]]:
        times = race(
            dict.fromkeys(candidates, self.step),
            seconds=self._left(until),
            turns=STEP_TURNS,
            before=lambda name: self._set(candidates[name]),
            laggard=STEP_LAGGARD,
            grace=OVERTIME * self.seconds,
            clock=self.clock,
        )
        self.ended_early |= not _enough(times)
        return times

    def _report(
        self, winner: str, kept: Candidate, layers: Mapping[bool, list[Seconds]], steps: Mapping[str, StepTiming]
    ) -> Tuning:
        own, last, now = layers[False], layers.get(True, layers[False]), layers[kept.channels_last]
        rows = tuple(
            LayerTiming(
                toggle.name,
                toggle.swap.kind,
                self.shapes.get(self.parts[toggle.name][0].name),
                _described(toggle, kept.settings[i]),
                own[i].get(toggle.plain),
                last[i].get(toggle.plain),
                now[i].get(kept.settings[i]),
            )
            for i, toggle in enumerate(self.toggles)
        )
        spent = time.perf_counter() - self.began
        return Tuning(winner, rows, tuple(steps.values()), spent, self.ended_early, self.step.learns)


def shares(seconds: float, step: float) -> tuple[float, float]:
    """Return at which shares of the time layers end, and then candidates, if a step takes `step` seconds.

    Where time is short, whole steps get what they need to be told apart, and layers the rest.

    >>> shares(60.0, 0.2), shares(8.0, 0.2), shares(2.0, 0.2)
    ((0.4, 0.75), (0.25, 1.0), (0.0, 1.0))
    """
    needed = min(1.0, (LEAST_TURNS + 1) * CANDIDATES * step / seconds) if seconds > 0 else 1.0
    layers = min(LAYERS_END, 1 - needed)
    return layers, max(CANDIDATES_END, min(1.0, layers + needed))


def _enough(times: Mapping[str, list[float]]) -> bool:
    return min(map(len, times.values())) >= LEAST_TURNS


def _timings(times: Mapping[str, list[float]]) -> dict[str, StepTiming]:
    before = tuple(times[AS_IT_WAS])
    return {name: StepTiming(name, tuple(seconds), before) for name, seconds in times.items()}


def _described(toggle: Toggle, setting: Setting) -> str:
    if setting == toggle.plain:
        return "PyTorch's"
    if setting.passes == BY_THRESHOLDS:
        return "ours"
    return f"ours: {', '.join(_PASS_NAMES[which] for which, bit in BITS.items() if setting.passes & bit) or 'no pass'}"
