"""Checks of settings whose errors say the name, the bounds and what came."""

import difflib
import math
from collections.abc import Mapping
from typing import Any

from filtercov.errors import ConfigError


def whole(name: str, value: object, *, least: int, most: int) -> None:
    """Refuse what is not an integer in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def number(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> None:
    """Refuse what is not a finite number within the bounds given."""
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    words = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not (least <= value <= most and above < value < below)
    ):
        raise ConfigError(f"{name} must be a number {words}, got {value!r}")


def text(name: str, value: object) -> None:
    """Refuse what is not a string with something in it."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be a text that is not empty, got {value!r}")


def flag(name: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false, got {value!r}")


def choice(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a word that is not one of the known ones."""
    if value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def refuse_unknown(values: Mapping[str, Any], known: list[str]) -> None:
    """Refuse a mapping with a name outside `known`, suggesting the nearest."""
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise ConfigError(f"unknown setting {name!r}{hint}")
