"""Measure on this machine, with an example, which of a model's layers are faster as PyTorch's and which as ours.

First each layer alone, as the example reaches it, in the model's own layout and in channels_last: the alternatives of
`nn/swaps.py` race. Then whole steps of the model: as it was, in channels_last, and with the layers that won, in
both layouts; and once more the best of these, also without one group of layers at a time. `nn/steps.py` says which is
kept. Where whole steps contradict the layers' own times, the steps decide.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from filtercov.errors import ModelError
from filtercov.layers.running import blaming_the_example, unchanged
from filtercov.nn.calls import Call, Recorder, runner
from filtercov.nn.images import is_channels_last
from filtercov.nn.layouts import BothLayouts
from filtercov.nn.routing import BITS, BY_THRESHOLDS
from filtercov.nn.sequential import FusedSequential
from filtercov.nn.steps import Step, kept, tensors_of
from filtercov.nn.strided_pointwise import StridedPointwiseConv2d
from filtercov.nn.swaps import Part, Setting, Toggle
from filtercov.nn.timing import LEAST_GAIN, LEAST_TURNS, race
from filtercov.nn.tuning_report import LayerTiming, StepTiming, Tuning

SECONDS = 60.0
# Shares of the time, if it is enough: what is left over by one goes to the next.
LAYERS_END, CANDIDATES_END = 0.4, 0.75
OVERTIME = 0.5  # for whole steps that are not yet told apart: more than was asked for, by this share of it
CANDIDATES = 5  # ways to run the whole model, at most
# Turns of a layer and of a whole step, at most, and who needs no more: who takes so many times as long as the best.
LAYER_TURNS, LAYER_LAGGARD = 12, 1.5
STEP_TURNS, STEP_LAGGARD = 30, 1.1
PER_LAYER = 0.5  # seconds, at most, of a race between the alternatives of one layer

AS_IT_WAS, PLAIN_LAST = PLAIN = "as it was", "PyTorch's in channels_last"
TUNED_OWN, TUNED_LAST, USUAL = "tuned", "tuned in channels_last", "by thresholds in channels_last"

_NAMES = {"forward": "forward", "input_grad": "input gradient", "weight_grad": "weight gradient"}


class Candidate(NamedTuple):
    """A way to run the whole model: how each toggle is set, and in which layout."""

    settings: tuple[Setting, ...]
    channels_last: bool


@dataclass
class Layers:
    """What was measured of the toggles in one layout, and what won."""

    settings: list[Setting] = field(default_factory=list)
    seconds: list[dict[Setting, float]] = field(default_factory=list)  # empty where a toggle was not timed


@dataclass
class Outcome:
    """What is to be kept, and the report about it."""

    candidate: Candidate
    report: Tuning


class Tuner:
    """A model, an example, and the toggles of the model, all PyTorch's at first."""

    def __init__(
        self, model: nn.Module, example: Any, toggles: list[Toggle], endangered: list[nn.Conv2d], *, seconds: float
    ) -> None:
        self.toggles = toggles
        self.endangered = endangered
        self.parts = {toggle.name: toggle.parts for toggle in toggles}
        self.layouts = BothLayouts(model)
        self.model = model
        self.step = Step(model, example)
        self.began = time.perf_counter()
        self.seconds = seconds
        self.plain = tuple(toggle.plain for toggle in toggles)
        self.usual = tuple(toggle.usual for toggle in toggles)
        # The fault that endangered layers have to be kept out of is of channels_last memory.
        self.harmless = not any(map(_lies_channels_last, tensors_of(example))) and not any(
            map(_lies_channels_last, model.parameters())
        )
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ended_early = False
        self.layers_end, self.candidates_end = LAYERS_END, CANDIDATES_END

    def run(self) -> Outcome:
        """Return the candidate to keep; the model is then as it was, bit for bit."""
        with unchanged(self.model), self._as_it_was_afterwards():
            self._set(Candidate(self.plain, channels_last=False))
            with blaming_the_example():
                self.step()
            self.layers_end, self.candidates_end = shares(self.seconds, self._step_seconds())
            layers = {False: self._tune_layers(channels_last=False)}
            if self.layouts.differ:
                layers[True] = self._tune_layers(channels_last=True)
            candidates = self._candidates(layers)
            times = self._race(candidates, self.candidates_end)
            winner, steps = kept(times, PLAIN), _timings(times)
            fastest = min(times, key=lambda name: min(times[name]))
            variants = self._variants(fastest, candidates)
            again = {name: candidates[name] for name in candidates if name in (*PLAIN, winner, fastest)} | variants
            if fastest not in PLAIN and self._left(1.0) > 0:
                times = self._race(again, 1.0)
                if _enough(times):  # or else what was found before stands
                    winner, steps, candidates = kept(times, PLAIN), steps | _timings(times), candidates | variants
        return Outcome(candidates[winner], self._report(winner, candidates[winner], layers, steps))

    def _step_seconds(self) -> float:
        began = time.perf_counter()
        self.step()
        return time.perf_counter() - began

    def _left(self, share: float) -> float:
        return self.began + share * self.seconds - time.perf_counter()

    @contextmanager
    def _as_it_was_afterwards(self) -> Iterator[None]:
        before = [toggle.setting for toggle in self.toggles]
        try:
            yield
        finally:
            self._set(Candidate(tuple(before), channels_last=False))
            for module in self.endangered:
                module.__class__ = nn.Conv2d

    def _set(self, candidate: Candidate) -> None:
        for toggle, setting in zip(self.toggles, candidate.settings, strict=True):
            toggle.set_(setting)
        self.layouts.lay_out_(channels_last=candidate.channels_last)
        for module in self.endangered:
            module.__class__ = nn.Conv2d if self.harmless and not candidate.channels_last else StridedPointwiseConv2d

    def _tune_layers(self, *, channels_last: bool) -> Layers:
        self._set(Candidate(self.plain, channels_last))
        recorder = Recorder()
        with recorder.watching(part for parts in self.parts.values() for part in parts):
            self.step()
        for name, made in recorder.calls.items():
            if made:
                self.shapes.setdefault(name, made[0].x.shape)
        known: dict[object, dict[Setting, float]] = {}
        settings, seconds = {}, {}
        end = self.layers_end if channels_last or not self.layouts.differ else self.layers_end / 2
        for toggle in reversed(self.toggles):  # what is inside another first, and set as it won
            calls = {part: recorder.calls[part.name] for part in self.parts[toggle.name]}
            key = toggle.swap.kind, _key(calls)
            if key not in known and any(calls.values()):
                if self._left(end) > 0:
                    known[key] = _race_of_settings(toggle, calls)
                else:
                    self.ended_early = True
            seconds[toggle.name] = known.get(key, {})
            settings[toggle.name] = _fastest(toggle, seconds[toggle.name])
            toggle.set_(settings[toggle.name])
        names = [toggle.name for toggle in self.toggles]
        return Layers([settings[name] for name in names], [seconds[name] for name in names])

    def _candidates(self, layers: Mapping[bool, Layers]) -> dict[str, Candidate]:
        """Return what to try, in the order of how much it changes, without what would be the same twice."""
        named = {AS_IT_WAS: Candidate(self.plain, channels_last=False)}
        last = True in layers
        if last:
            named[PLAIN_LAST] = Candidate(self.plain, channels_last=True)
        named[TUNED_OWN] = Candidate(tuple(layers[False].settings), channels_last=False)
        if last:
            named[TUNED_LAST] = Candidate(tuple(layers[True].settings), channels_last=True)
        named[USUAL] = Candidate(self.usual, channels_last=last)
        distinct: dict[Candidate, str] = {}
        for name, candidate in named.items():
            distinct.setdefault(candidate, name)
        return {name: candidate for candidate, name in distinct.items()}

    def _variants(self, name: str, tried: Mapping[str, Candidate]) -> dict[str, Candidate]:
        """Return candidates like one, each with another group of its layers that are ours made PyTorch's again."""
        winner = tried[name]
        groups: dict[str, set[int]] = {}
        for i, (toggle, setting) in enumerate(zip(self.toggles, winner.settings, strict=True)):
            if setting != toggle.plain:
                groups.setdefault(_group(toggle), set()).add(i)
        variants = {
            f"{name}, without {group}": winner._replace(
                settings=tuple(self.plain[i] if i in members else s for i, s in enumerate(winner.settings))
            )
            for group, members in groups.items()
        }
        return {name: candidate for name, candidate in variants.items() if candidate not in tried.values()}

    def _race(self, candidates: Mapping[str, Candidate], until: float) -> dict[str, list[float]]:
        times = race(
            dict.fromkeys(candidates, self.step),
            seconds=self._left(until),
            turns=STEP_TURNS,
            before=lambda name: self._set(candidates[name]),
            laggard=STEP_LAGGARD,
            grace=OVERTIME * self.seconds,
        )
        self.ended_early |= not _enough(times)
        return times

    def _report(
        self, winner: str, candidate: Candidate, layers: Mapping[bool, Layers], steps: Mapping[str, StepTiming]
    ) -> Tuning:
        own, now = layers[False].seconds, layers[candidate.channels_last].seconds
        last = layers.get(True, layers[False]).seconds
        rows = []
        for toggle, setting, before, moved, after in zip(self.toggles, candidate.settings, own, last, now, strict=True):
            part = next(part.name for part in self.parts[toggle.name])
            rows.append(
                LayerTiming(
                    toggle.name,
                    toggle.swap.kind,
                    self.shapes.get(part),
                    _described(toggle, setting),
                    before.get(toggle.plain),
                    moved.get(toggle.plain),
                    after.get(setting),
                )
            )
        return Tuning(
            winner,
            tuple(rows),
            tuple(steps.values()),
            time.perf_counter() - self.began,
            self.ended_early,
            self.step.learns,
        )


def shares(seconds: float, step: float) -> tuple[float, float]:
    """Return by which shares of the time layers have been timed, and then candidates, if a step takes `step` seconds.

    Where time is short whole steps have what they need to be told apart, and layers what is left.

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


def check_on_cpu(model: nn.Module) -> None:
    """Raise for a model whose layers have no alternatives to time."""
    elsewhere = next((p.device for p in model.parameters() if p.device.type != "cpu"), None)
    if elsewhere is not None:
        raise ModelError(
            f"example_input: layers are timed on the CPU, but the model has parameters on {elsewhere}; leave the "
            "example out, or move the model"
        )


def _race_of_settings(toggle: Toggle, calls: Mapping[Part, list[Call]]) -> dict[Setting, float]:
    """Return the best seconds of each way a toggle can be set, all its calls together."""
    if toggle.swap.only_last and not any(call.x.is_channels_last for made in calls.values() for call in made):
        return _seconds(toggle, calls, [toggle.plain])
    first = next(call for made in calls.values() for call in made)
    choices = toggle.swap.passes(toggle.module, first.x.filled().requires_grad_(first.needs_grad))
    usual = toggle.ours._replace(passes=choices[0])
    flipped = {toggle.ours._replace(passes=choice): choice ^ choices[0] for choice in choices[1:]}
    seconds = _seconds(toggle, calls, [toggle.plain, usual, *flipped])
    better = sum(bit for setting, bit in flipped.items() if seconds[setting] < seconds[usual])
    if usual.passes != BY_THRESHOLDS and (combined := usual._replace(passes=usual.passes ^ better)) not in seconds:
        seconds |= _seconds(toggle, calls, [toggle.plain, combined])
    seconds.setdefault(toggle.ours, seconds[usual])
    return seconds


def _seconds(toggle: Toggle, calls: Mapping[Part, list[Call]], settings: list[Setting]) -> dict[Setting, float]:
    totals = dict.fromkeys(settings, 0.0)
    for part, made in calls.items():
        for call in made:
            contestants = {setting: runner(call, _alone(toggle, part, setting), part.modules) for setting in settings}
            times = race(contestants, seconds=PER_LAYER, turns=LAYER_TURNS, before=toggle.set_, laggard=LAYER_LAGGARD)
            for setting in settings:
                totals[setting] += min(times[setting])
    return totals


def _alone(toggle: Toggle, part: Part, setting: Setting) -> Any:
    """Return the forward pass of a part as a toggle's setting makes it, without the hooks of the toggle itself."""
    if part.modules == (toggle.module,):
        return lambda x: toggle.module.forward(x)  # looked up at each call: the class will be another
    return (nn.Sequential if setting == toggle.plain else FusedSequential)(*part.modules).forward


def _fastest(toggle: Toggle, seconds: Mapping[Setting, float]) -> Setting:
    """Return the fastest setting, PyTorch's unless another is clearly faster; by thresholds where none was timed."""
    if not seconds:
        return toggle.usual
    best = min(seconds, key=lambda setting: seconds[setting])
    return best if seconds[best] * (1 + LEAST_GAIN) < seconds[toggle.plain] else toggle.plain


def _key(calls: Mapping[Part, list[Call]]) -> object:
    """Return what parts that take equally long have in common."""
    return tuple(
        (
            tuple(repr(module) for module in part.modules),
            tuple(p.requires_grad for module in part.modules for p in module.parameters()),
            tuple(m.training for module in part.modules for m in module.modules()),
            tuple(call.key for call in made),
        )
        for part, made in calls.items()
    )


def _group(toggle: Toggle) -> str:
    size = getattr(toggle.module, "kernel_size", ())
    return f"{toggle.swap.kind} {'x'.join(map(str, size))}".strip()


def _described(toggle: Toggle, setting: Setting) -> str:
    if setting == toggle.plain:
        return "PyTorch's"
    if setting.passes == BY_THRESHOLDS:
        return "ours"
    return f"ours: {', '.join(_NAMES[which] for which, bit in BITS.items() if setting.passes & bit) or 'no pass'}"


def _lies_channels_last(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and is_channels_last(tensor)
