"""What an initialisation did as it was asked to, and its user should know: notes for the report, doubts as warnings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence

from filtercov.covariance.forms import show_size
from filtercov.covariance.transfer import Resizing
from filtercov.errors import FiltercovWarning
from filtercov.prescription.init_report import InitRow
from filtercov.printable import counted
from filtercov.schedule import FittedSchedule

# A pixel counts as filled if its standard deviation is above this share of the largest in the filter.
FILLED = 0.01

# From here on a kernel is large: the paper's schedules were found with 9x9 filters.
LARGE = 11

Note = tuple[str, bool]  # a sentence, and whether it says that something is doubtful


def tell(rows: Sequence[InitRow], source: object, *, who: str, stacklevel: int) -> tuple[str, ...]:
    """Return the notes of an initialisation, and give a `FiltercovWarning` for each that is doubtful."""
    sizes = [(row.kernel_size, row.resized) for row in rows]
    notes = [*_fit_note(source), *resizing_notes(sizes), *_empty_notes(rows)]
    for note, doubtful in notes:
        if doubtful:
            warnings.warn(f"{who}: {note}", FiltercovWarning, stacklevel=stacklevel + 1)
    return tuple(note for note, _ in notes)


def resizing_notes(layers: Iterable[tuple[tuple[int, ...], Resizing | None]]) -> list[Note]:
    """Return a note on each pair of kernel sizes that statistics were resized between.

    >>> resizing_notes([((7, 7), Resizing((3, 3), survives=0.2, padding=0.5)), ((7, 7), None)])[0][0]
    '1 layer resized from 3x3 to 7x7: 20% of the covariance survives, 50% of the variance lies in the padding; ...'
    """
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Resizing]] = {}
    for size, resized in layers:
        if resized is not None:
            groups.setdefault((resized.from_size, size), []).append(resized)
    notes = []
    for (old, new), group in groups.items():
        doubtful = any(resizing.doubtful for resizing in group)
        survives = _percent([resizing.survives for resizing in group])
        padding = _percent([resizing.padding for resizing in group])
        advice = "; statistics of filters nearer in size carry over better" if doubtful else ""
        note = (
            f"{counted(len(group), 'layer')} resized from {show_size(old)} to {show_size(new)}: {survives} of the "
            f"covariance survives, {padding} of the variance lies in the padding{advice}"
        )
        notes.append((note, doubtful))
    return notes


def _fit_note(source: object) -> list[Note]:
    if not isinstance(source, FittedSchedule):
        return []
    return [(f"σ is of a fitted schedule; {source.fit}", not source.fit.usable)]


def _empty_notes(rows: Sequence[InitRow]) -> list[Note]:
    """Return a note on each large kernel size of which even the fullest layer is mostly empty."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        if row.sigma is not None and row.filled is not None and max(row.kernel_size) >= LARGE:
            groups.setdefault(row.kernel_size, []).append(row.filled)
    notes = []
    for size, filled in groups.items():
        n = math.prod(size)
        if 2 * max(filled) < n:
            span = f"{min(filled)} to {max(filled)}" if min(filled) < max(filled) else str(filled[0])
            layers = counted(len(filled), "layer")
            note = (
                f"σ leaves most of the {show_size(size)} filters empty in {layers}: {span} of {n} pixels vary by more "
                f"than {FILLED:.0%} of what the centre does; the presets were found with 9x9 filters, pass a schedule "
                "with larger σ to use larger ones"
            )
            notes.append((note, True))
    return notes


def _percent(shares: Sequence[float]) -> str:
    low, high = round(100 * min(shares)), round(100 * max(shares))
    return f"{low}%" if low == high else f"{low} to {high}%"
