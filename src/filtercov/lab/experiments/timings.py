"""Timings of training steps, with the machine they were taken on: what an experiment has of them, as a file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from filtercov.errors import RunError


@dataclass(frozen=True)
class SpeedRecord:
    """The seconds of a training step of one network, medians, and what freezing saved of it in each repetition."""

    model: str
    kernel_size: int
    thawed: float
    frozen: float
    saved: tuple[float, ...] = ()  # percent


@dataclass(frozen=True)
class Timings:
    """Steps that were timed beside one another, several times over."""

    machine: str = ""  # processor, threads and versions
    steps: tuple[SpeedRecord, ...] = ()

    @property
    def repeats(self) -> int:
        """How often every step was measured, 0 without steps."""
        return min((len(step.saved) for step in self.steps), default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return what `parse` reads."""
        return {"machine": self.machine, "steps": [asdict(step) for step in self.steps]}

    @classmethod
    def parse(cls, values: Mapping[str, Any], path: Path) -> Self:
        """Return the timings that the values of a file are.

        >>> there = Timings("a machine", (SpeedRecord("net_k3", 3, 0.2, 0.1, (50.0,)),))
        >>> Timings.parse(there.as_dict(), Path("timings.json")) == there
        True
        """
        try:
            steps = tuple(SpeedRecord(**{**step, "saved": tuple(step["saved"])}) for step in values["steps"])
            return cls(str(values["machine"]), steps)
        except (KeyError, TypeError) as error:
            raise RunError(f"{path} does not hold timings ({error}); delete it to have them taken again") from error
