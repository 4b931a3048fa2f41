"""The structure numbers on the inspect page: each beside what chance gives, and quiet where it is no more than that."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from filtercov.lab.report.inspect_numbers import Inspection, LayerNumbers, show
from filtercov.lab.report.inspect_pictures import variance_picture
from filtercov.lab.report.page import figure, table, text
from filtercov.statistics.receptive_field import ReceptiveField
from filtercov.structure import Number

COLUMNS = {
    "sparsity": ("near zero", "share of filters none of whose weights exceeds 1 % of the layer's largest"),
    "effective_rank": (
        "rank",
        "e to the power of the entropy of the covariance's spectrum, in how many directions the filters vary",
    ),
    "orthogonality": ("orthogonal", "1 − the root-mean-square cosine between two filters; 1 if all are orthogonal"),
    "even": ("even", "share of the filters' power that half a turn leaves as it is; the rest is odd"),
    "off_centre": (
        "off centre",
        "distance in pixels from the middle of the kernel to the centre of the filters' variance",
    ),
    "gaussian_derivatives": (
        "derivatives",
        "share of filters of which a Gaussian or one of its derivatives up to the second order, eight types, explains "
        "four fifths of the power",
    ),
}
FIELD = 262  # pixels across


def structure_section(inspection: Inspection) -> str:
    """Return the table of structure numbers, and which of them are beyond chance in how many layers."""
    head = ["layer", *(name for name, _ in COLUMNS.values())]
    rows = [
        [_link(layer), *(_cell(layer.structure.numbers()[key], key) for key in COLUMNS)] for layer in inspection.layers
    ]
    meanings = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in COLUMNS.values())
    return (
        "<h2>Structure beside chance</h2><p>In brackets what as many filters of independent Gaussian weights show; "
        "what they would show themselves in 1 of 100 layers or more is grey.</p>"
        f"<p>{_beyond(inspection)}</p>"
        f'<div id="structure">{table(head, rows)}</div>'
        f"<details><summary>What the numbers mean</summary><dl>{meanings}</dl></details>"
    )


def _beyond(inspection: Inspection) -> str:
    """Say which numbers are beyond chance, and in how many layers."""
    count, found = len(inspection.layers), []
    for key, (name, _) in COLUMNS.items():
        layers = sum(layer.structure.numbers()[key].beyond_chance for layer in inspection.layers)
        if layers:
            found.append(f"{name} in {layers}")
    if not found:
        return "No number of any layer is beyond chance."
    return f"Beyond chance, of {count} layer{'s' if count > 1 else ''}: {', '.join(found)}."


def types_line(layer: LayerNumbers) -> str:
    """Say of which types the filters are, if that is beyond chance, and which way they are off centre."""
    structure, parts = layer.structure, []
    if structure.types and structure.gaussian_derivatives.beyond_chance:
        found = sorted(((share, kind) for kind, share in structure.types.items() if share >= 0.005), reverse=True)
        parts.append("Gaussian derivatives: " + ", ".join(f"{kind} {share:.0%}" for share, kind in found))
    if structure.offset and structure.off_centre.beyond_chance:
        axes = {1: "x", 2: "yx", 3: "zyx"}[len(structure.offset)]
        way = ", ".join(f"{axis} {_signed(o)}" for axis, o in zip(axes, structure.offset, strict=True))
        parts.append(f"centre of variance: {way} px")
    return f'<p class="quiet">{text("; ".join(parts))}</p>' if parts else ""


def field_section(fields: Sequence[tuple[str, ReceptiveField | None]]) -> str:
    """Return the effective receptive field of each network that has one, by name."""
    shown = [_field(name, field) for name, field in fields if field is not None]
    if not shown:
        return ""
    how = (
        "Which pixels of an example input the centre of the last feature map depends on: its squared gradient, as a "
        "root so that faint parts show. The radius is the root-mean-square distance from the field's own centre."
    )
    return f'<h2>Effective receptive field</h2><p>{how}</p><div class="pictures" id="field">{"".join(shown)}</div>'


def _field(name: str, field: ReceptiveField) -> str:
    drawn = np.sqrt(field.shares)
    if drawn.ndim == 1:
        drawn = np.repeat(drawn[None], max(1, len(drawn) // 8), axis=0)
    picture = variance_picture(drawn, size=FIELD).html(f"effective receptive field of {name}")
    radius = field.radius
    words = (
        f"{text(name)}: radius {show(radius.value or 0.0, digits=1)} of at most {show(field.widest, digits=1)} pixels"
    )
    if radius.chance is not None:
        beside = "against the" if radius.beyond_chance else "no other than the"
        words += f", {beside} {show(radius.chance, digits=1)} of independent filters"
    elif radius.reason:
        words += f"; {text(radius.reason)}"
    return figure(picture, words)


def _cell(number: Number, key: str) -> str:
    if number.value is None:
        return f'<span class="quiet" title="{text(number.reason)}">–</span>'
    digits = 1 if key == "effective_rank" else 2
    chance = math.nan if number.chance is None else number.chance
    shown = f"{show(number.value, digits=digits)} ({show(chance, digits=digits)})"
    return shown if number.beyond_chance else f'<span class="quiet">{shown}</span>'


def _link(layer: LayerNumbers) -> str:
    return f'<a href="#layer-{layer.index}">{layer.index + 1}. {text(layer.name)}</a>'


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{abs(value):.2f}"
