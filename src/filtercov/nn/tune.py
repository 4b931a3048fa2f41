"""Measure on this machine, with an example, which of a model's layers are faster as PyTorch's and which as ours.

First each layer alone, with inputs like those it gets from the example, in the model's own layout and in channels_last:
the alternatives of `swap.py` race. Then whole steps of the model race: as it was, in channels_last, and with the
winning layers in both layouts; and once more the best of these, also without one group of layers at a time. Where whole
steps contradict the layers' own times, the steps decide, by the rule in `timing.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from filtercov.layers.running import unchanged
from filtercov.nn import timing
from filtercov.nn.fused import FusedSequential
from filtercov.nn.layout import as_channels_last_image, tensors_in, to_channels_last_
from filtercov.nn.routing import BITS, BY_THRESHOLDS
from filtercov.nn.swap import Setting, Toggle, pass_choices
from filtercov.nn.timing import LEAST_GAIN, LEAST_TURNS, Call, Clock, Step
from filtercov.printable import aligned

SECONDS = 60.0
LAYERS_END, CANDIDATES_END = 0.4, 0.75  # shares of the time; what one leaves over goes to the next
OVERTIME = 0.5  # the share of the time by which whole steps may exceed it, if they are not yet told apart
# Maximum rounds of a race of layers and of whole steps; contestants slower than the best × LAGGARD drop out early.
LAYER_TURNS, LAYER_LAGGARD = 12, 1.5
STEP_TURNS, STEP_LAGGARD = 30, 1.1
PER_LAYER = 0.5  # seconds, at most, of a race between the alternatives of one layer

AS_IT_WAS, PLAIN_LAST = PLAIN = "as it was", "PyTorch's in channels_last"
TUNED_OWN, TUNED_LAST, DEFAULT = "tuned", "tuned in channels_last", "by thresholds in channels_last"

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
    """A way to run the whole model, its seconds turn by turn, and whether it is clearly faster than PyTorch's."""

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
    backward, or forward alone. `ended_early` says that the time given was used up. `spilling` names passes of layers
    whose kernels lack registers on this GPU.
    """

    kept: str
    layers: tuple[LayerTiming, ...]
    steps: tuple[StepTiming, ...]
    seconds: float
    ended_early: bool
    learns: bool
    spilling: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The choice and its reason, and tables of steps and layers."""
        early = "; the time was up before all was tried" if self.ended_early else ""
        steps = [("training step" if self.learns else "forward pass", *STEP_HEADING)]
        for step in self.steps:
            gain = str(timing.ratio(self.steps[0].seconds, step.seconds))
            steps.append((step.name, f"{step.best * 1e3:.2f}", gain, "yes" if step.clear else ""))
        lines = [
            f"kept: {self.kept}, after {self.seconds:.0f} s of timing{early}",
            "kept is the least ms (best turn) of those clearly faster than PyTorch's, or PyTorch's if none is",
            *aligned(steps),
            *aligned([LAYER_HEADING, *(row.cells() for row in self.layers)]),
            *(f"PyTorch's, since our kernel spills registers on this GPU: {name}" for name in self.spilling),
        ]
        return "\n".join(lines)


Seconds = dict[Setting, float]


def _alone(toggle: Toggle, modules: tuple[nn.Module, ...], setting: Setting) -> Any:
    """The forward pass of modules under a setting of their toggle, without hooks of the toggle itself."""
    if modules == (toggle.module,):
        return lambda x: toggle.module.forward(x)  # looked up at each call: the class will be another
    return (nn.Sequential if setting is None else FusedSequential)(*modules).forward


def _key(toggle: Toggle, calls: list[Call]) -> str:
    """A key that is equal for toggles that take equally long."""
    modules = [module for call in calls for module in call.modules]
    trained = [p.requires_grad for module in modules for p in module.parameters()]
    training = [m.training for module in modules for m in module.modules()]
    return repr((toggle.swap.kind, trained, training, calls))


def _fastest(toggle: Toggle, seconds: Seconds) -> Setting:
    """The fastest setting, PyTorch's unless another is clearly faster; the default where none was timed."""
    if not seconds:
        return toggle.default
    best = min(seconds, key=lambda setting: seconds[setting])
    return best if seconds[best] * (1 + LEAST_GAIN) < seconds[None] else None


class Candidate(NamedTuple):
    """A way to run the whole model: the setting of each toggle, and the layout."""

    settings: tuple[Setting, ...]
    channels_last: bool


class Tuner:
    """A model, an example, the toggles of the model, all PyTorch's at first, and the clock that times them."""

    def __init__(self, model: nn.Module, example: Any, toggles: list[Toggle], *, seconds: float, clock: Clock) -> None:
        self.model, self.toggles, self.clock = model, toggles, clock
        self.plain: tuple[Setting, ...] = (None,) * len(toggles)
        self.step = Step(model, example)
        # Images and filters in their own layout and in channels_last, to switch at no cost; nobody writes to them.
        tensors = {id(t): t for module in model.modules() for _, t in tensors_in(module) if t.dim() == 4}
        self.layouts = [(tensor, tensor.data, as_channels_last_image(tensor.data)) for tensor in tensors.values()]
        self.began, self.seconds, self.ended_early = time.perf_counter(), seconds, False
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.spilling: set[str] = set()

    def run_(self) -> Tuning:
        """Make the model what is fastest, and nothing else of it; return the report."""
        with unchanged(self.model), ExitStack() as stack:
            stack.callback(self._restore)
            both = any(own.stride() != last.stride() for _, own, last in self.layouts)
            layers = {False: self._tune_layers(channels_last=False, until=LAYERS_END / (1 + both))}
            if both:
                layers[True] = self._tune_layers(channels_last=True, until=LAYERS_END)
            candidates = self._candidates(layers)
            times = self._race(candidates, CANDIDATES_END)
            fastest = min(times, key=lambda name: min(times[name]))
            if fastest not in PLAIN and self._left(1.0) > 0:
                best = {*PLAIN, timing.best_to_keep(times, PLAIN)[0], fastest}
                finalists = {name: candidate for name, candidate in candidates.items() if name in best}
                finalists |= self._variants(fastest, candidates)
                again = self._race(finalists, 1.0)
                if _enough(again):  # or else the first race stands
                    times, candidates = again, finalists
        winner, clear = timing.best_to_keep(times, PLAIN)
        kept = candidates[winner]
        self._set_classes(kept.settings)
        if kept.channels_last:
            to_channels_last_(self.model)
        steps = tuple(StepTiming(name, tuple(seconds), name in clear) for name, seconds in times.items())
        spent = time.perf_counter() - self.began
        rows, spilling = self._rows(kept, layers), tuple(sorted(self.spilling))
        return Tuning(winner, rows, steps, spent, self.ended_early, self.step.learns, spilling)

    def _left(self, share: float) -> float:
        return self.began + share * self.seconds - time.perf_counter()

    def _restore(self) -> None:
        self._set_layout(channels_last=False)
        self._set_classes(self.plain)

    def _set(self, candidate: Candidate) -> None:
        self._set_classes(candidate.settings)
        self._set_layout(channels_last=candidate.channels_last)

    def _set_layout(self, *, channels_last: bool) -> None:
        for tensor, own, last in self.layouts:
            tensor.data = last if channels_last else own

    def _set_classes(self, settings: tuple[Setting, ...]) -> None:
        for toggle, setting in zip(self.toggles, settings, strict=True):
            toggle.set_(setting)

    # Layers.

    def _tune_layers(self, *, channels_last: bool, until: float) -> list[Seconds]:
        """The seconds of each toggle's settings in one layout; none where it was not timed."""
        self._set(Candidate(self.plain, channels_last))
        recorded = timing.record_calls(self.toggles, self.step)
        self.shapes |= {name: calls[0].x.shape for name, calls in recorded.items() if calls}
        known: dict[str, Seconds] = {}
        measured: list[Seconds] = []
        for toggle in reversed(self.toggles):  # so that what is inside another is timed first, and set as it won
            calls = recorded[toggle.name]
            key = _key(toggle, calls)
            if calls and key not in known:
                if self._left(until) > 0:
                    known[key] = self._time_toggle(toggle, calls)
                else:
                    self.ended_early = True
            measured.append(known.get(key, {}))
            toggle.set_(_fastest(toggle, measured[-1]))
        return measured[::-1]

    def _time_toggle(self, toggle: Toggle, calls: list[Call]) -> Seconds:
        """The best seconds of each setting of a toggle, summed over its calls; passes that spill are left out."""
        x = calls[0].input()
        differs = not toggle.swap.only_last or x.is_contiguous(memory_format=torch.channels_last)
        choices, spilled = pass_choices(toggle, x) if differs else ((), ())
        self.spilling |= {f"{toggle.name}, {_in_words(which)}" for which in spilled}
        seconds = self._time_settings(toggle, calls, [None, *choices])
        if choices:
            first, *others = choices
            better = sum(first ^ choice for choice in others if seconds[choice] < seconds[first])
            if first ^ better not in seconds:
                seconds |= self._time_settings(toggle, calls, [None, first ^ better])
            seconds.setdefault(BY_THRESHOLDS, seconds[first])
        return seconds

    def _time_settings(self, toggle: Toggle, calls: list[Call], settings: list[Setting]) -> Seconds:
        totals = dict.fromkeys(settings, 0.0)
        for call in calls:
            times = timing.race(
                {setting: call.repeated(_alone(toggle, call.modules, setting)) for setting in settings},
                seconds=PER_LAYER,
                turns=LAYER_TURNS,
                laggard=LAYER_LAGGARD,
                before=toggle.set_,
                clock=self.clock,
            )
            for setting in settings:
                totals[setting] += min(times[setting])
        return totals

    # Whole steps.

    def _candidates(self, layers: Mapping[bool, list[Seconds]]) -> dict[str, Candidate]:
        """The candidates, from the least change to the most, without duplicates."""
        named = {name: Candidate(self.plain, last) for last, name in zip(layers, PLAIN, strict=False)}
        for (last, measured), name in zip(layers.items(), (TUNED_OWN, TUNED_LAST), strict=False):
            named[name] = Candidate(tuple(map(_fastest, self.toggles, measured)), last)
        named[DEFAULT] = Candidate(tuple(toggle.default for toggle in self.toggles), channels_last=True in layers)
        distinct: dict[str, Candidate] = {}
        for name, candidate in named.items():
            if candidate not in distinct.values():
                distinct[name] = candidate
        return distinct

    def _variants(self, name: str, tried: Mapping[str, Candidate]) -> dict[str, Candidate]:
        """Copies of a candidate, each with one group of its layers PyTorch's again."""
        winner = tried[name]
        grouped = [(_group(toggle), setting) for toggle, setting in zip(self.toggles, winner.settings, strict=True)]
        variants = {}
        for group in dict.fromkeys(group for group, setting in grouped if setting is not None):
            settings = tuple(None if other == group else setting for other, setting in grouped)
            variants[f"{name}, without {group}"] = winner._replace(settings=settings)
        return {name: candidate for name, candidate in variants.items() if candidate not in tried.values()}

    def _race(self, candidates: Mapping[str, Candidate], until: float) -> dict[str, list[float]]:
        times = timing.race(
            dict.fromkeys(candidates, self.step),
            clock=self.clock,
            seconds=self._left(until),
            turns=STEP_TURNS,
            before=lambda name: self._set(candidates[name]),
            laggard=STEP_LAGGARD,
            grace=OVERTIME * self.seconds,
        )
        self.ended_early |= not _enough(times)
        return times

    def _rows(self, kept: Candidate, layers: Mapping[bool, list[Seconds]]) -> tuple[LayerTiming, ...]:
        own, last, now = layers[False], layers.get(True, layers[False]), layers[kept.channels_last]
        return tuple(
            LayerTiming(
                toggle.name,
                toggle.swap.kind,
                self.shapes.get(toggle.name),
                _described(setting),
                own[i].get(None),
                last[i].get(None),
                now[i].get(setting),
            )
            for i, (toggle, setting) in enumerate(zip(self.toggles, kept.settings, strict=True))
        )


def _group(toggle: Toggle) -> str:
    size = "x".join(map(str, getattr(toggle.module, "kernel_size", ())))
    return f"{toggle.swap.kind} {size}".strip()


def _enough(times: Mapping[str, list[float]]) -> bool:
    return min(map(len, times.values())) >= LEAST_TURNS


def _described(setting: Setting) -> str:
    """Who computes a layer, in words.

    >>> _described(None), _described(BY_THRESHOLDS), _described(BITS["weight_grad"])
    ("PyTorch's", 'ours', 'ours: weight gradient')
    """
    if setting is None:
        return "PyTorch's"
    if setting == BY_THRESHOLDS:
        return "ours"
    passes = [_in_words(which) for which, bit in BITS.items() if setting & bit]
    return f"ours: {', '.join(passes) or 'no pass'}"


def _in_words(which: str) -> str:
    return which.replace("_grad", " gradient")
