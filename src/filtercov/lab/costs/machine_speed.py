"""How fast this machine trains: measured once, when asked, and kept; read without torch."""

from __future__ import annotations

import json
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filtercov.files import atomic_write, cache_directory


@dataclass(frozen=True)
class MachineSpeed:
    """The training throughput of the network that plans are made with, on the CPU, and how it was measured."""

    images_per_second: float
    threads: int
    measured: str  # the day, as in 2026-01-31


def kept_speed() -> MachineSpeed | None:
    """Return what was measured on this machine, None if nothing was, or nothing that can be read."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        speed = MachineSpeed(**json.loads(_path().read_text(encoding="utf-8")))
        if speed.images_per_second > 0:
            return speed
    return None


def keep_speed(speed: MachineSpeed) -> None:
    """Keep a measurement for the commands that follow; where the cache cannot be written they do without."""
    with suppress(OSError):
        _path().parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(_path()) as temporary:
            temporary.write_text(json.dumps(asdict(speed)) + "\n", encoding="utf-8")


def _path() -> Path:
    """Return where it is kept: home directories are shared by machines that differ."""
    return cache_directory() / f"speed-{platform.node() or 'here'}.json"
