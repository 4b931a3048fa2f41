"""All structure numbers of a layer, from its filters or from what was kept of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.empirical import empirical_covariance
from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.covariance.numbers import as_array
from filtercov.structure.number import Number, absent
from filtercov.structure.singly import gaussian_derivatives, measure_filters, orthogonality, sparsity
from filtercov.structure.spread import entropy_numbers, off_centre, symmetry_numbers

NO_FILTERS = "the statistics hold no filters, nor what was measured of them"


@dataclass(frozen=True)
class Structure:
    """What a layer's filters are like, each number beside what as many independent filters show.

    * `sparsity`: share of filters none of whose weights exceeds 1 % of the layer's largest;
    * `variance_entropy`: entropy of the covariance's spectrum over that of independent filters; 1 for those, 0 for one
      direction;
    * `effective_rank`: e^entropy, in how many directions the filters vary;
    * `orthogonality`: 1 - the root-mean-square cosine between two filters;
    * `even`, `odd`: shares of the power that half a turn leaves as it is, and negates;
    * `rotated`: share of the power that quarter turns leave as it is;
    * `off_centre`: distance in pixels of the centre of variance from the middle; `offset` is the way, by axis;
    * `gaussian_derivatives`: share of filters of which a Gaussian derivative explains four fifths; `types` by type.
    """

    sparsity: Number
    variance_entropy: Number
    effective_rank: Number
    orthogonality: Number
    even: Number
    odd: Number
    rotated: Number
    off_centre: Number
    gaussian_derivatives: Number
    offset: tuple[float, ...] | None
    types: Mapping[str, float] | None

    def numbers(self) -> dict[str, Number]:
        """Return the numbers by name."""
        return {field.name: value for field in fields(self) if isinstance(value := getattr(self, field.name), Number)}

    def as_record(self) -> dict[str, Any]:
        """Return everything in one flat dictionary of plain numbers; None where there is none, `absent` says why.

        Beside each number stand what chance gives, `_chance`, and whether it is beyond that, `_beyond_chance`.
        """
        record: dict[str, Any] = {}
        for name, number in self.numbers().items():
            record[name] = number.value
            record[f"{name}_chance"] = number.chance
            record[f"{name}_beyond_chance"] = None if number.value is None else number.beyond_chance
        for axis, letter in enumerate("zyx"):
            offset = None if self.offset is None else (None,) * (3 - len(self.offset)) + self.offset
            record[f"offset_{letter}"] = None if offset is None else offset[axis]
        reasons = {name: number.reason for name, number in self.numbers().items() if number.value is None}
        record["absent"] = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return record


def structure_of(filters: ArrayLike) -> Structure:
    """Return the structure of filters (count, *kernel_size) with one to three axes of pixels.

    >>> spot = np.outer([1, 2, 1], [1, 2, 1])
    >>> structure = structure_of(np.random.default_rng(0).normal(size=(64, 1, 1)) * spot)  # multiples of a Gaussian
    >>> round(structure.effective_rank.value, 6), round(structure.effective_rank.chance, 2)
    (1.0, 8.31)
    >>> structure.even.value, structure.gaussian_derivatives.value, structure.types["G"]
    (1.0, 1.0, 1.0)
    """
    mean, cov = empirical_covariance(filters)
    stack = as_array(filters, "structure_of")
    layer = LayerStatistics("", stack.shape[1:], len(stack), mean, cov, of_filters=measure_filters(stack))
    return structure_of_layer(layer)


def structure_of_layer(layer: LayerStatistics) -> Structure:
    """Return what the statistics of a layer tell of its structure; what they do not hold is None, with the reason."""
    size, count, cov = layer.kernel_size, layer.count, layer.covariance
    pixels = math.prod(size)
    entropy, rank = entropy_numbers(cov, count)
    power = cov * ((count - 1) / count) + np.outer(layer.mean, layer.mean)
    even, odd, rotated = symmetry_numbers(power, size, count)
    distance, offset = off_centre(cov, size, count)
    measured = layer.of_filters
    return Structure(
        sparsity=absent(NO_FILTERS) if measured is None else sparsity(measured, pixels, count),
        variance_entropy=entropy,
        effective_rank=rank,
        orthogonality=absent(NO_FILTERS) if measured is None else orthogonality(measured, pixels, count),
        even=even,
        odd=odd,
        rotated=rotated,
        off_centre=distance,
        gaussian_derivatives=absent(NO_FILTERS) if measured is None else gaussian_derivatives(measured, size, count),
        offset=offset,
        types=None if measured is None else measured.types,
    )
