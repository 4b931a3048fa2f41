"""Two targets, layer by layer: the second carried over to the depth and the kernel sizes of the first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtercov.covariance.forms import show_size
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, TargetError
from filtercov.lab.report.inspect_numbers import Inspection, LayerNumbers, number_or_none
from filtercov.lab.report.inspect_target import Target
from filtercov.schedule import fit_layer


@dataclass(frozen=True, eq=False)
class LayerComparison:
    """The layer of another target at the same depth, resized to this layer's kernel, and how alike they are.

    `cosine` is that between the two covariances as vectors, 1 if one is a multiple of the other; `scale` is the
    root-mean-square size of the other's weights over this one's, their means left out.
    """

    other: LayerStatistics
    resized: bool
    cosine: float
    scale: float
    sigma: float

    def as_json(self) -> dict[str, Any]:
        """Return every number shown."""
        return {
            "other": self.other.name,
            "resized": self.resized,
            "cosine": number_or_none(self.cosine),
            "scale": number_or_none(self.scale),
            "sigma": number_or_none(self.sigma),
        }


def compare(inspection: Inspection, against: Target) -> tuple[LayerComparison, ...]:
    """Return, for every layer of the first target, the second one's at that depth and how alike the two are."""
    return tuple(_compare(layer, against) for layer in inspection.layers)


def _compare(layer: LayerNumbers, against: Target) -> LayerComparison:
    size = layer.kernel_size
    try:
        other = against.statistics.at(layer.depth, size)
    except CovarianceError as error:
        raise TargetError(
            f"{against.label}: cannot be compared with {layer.name}, which has {show_size(size)} filters ({error})"
        ) from None
    own, theirs = layer.statistics.covariance, other.covariance
    norms = float(np.linalg.norm(own) * np.linalg.norm(theirs))
    spread = float(np.trace(own))
    return LayerComparison(
        other=other,
        resized=_sizes_near(against, layer.depth) != {size},
        cosine=float(np.vdot(own, theirs)) / norms if norms else math.nan,
        scale=math.sqrt(max(float(np.trace(theirs)), 0.0) / spread) if spread else math.nan,
        sigma=fit_layer(other).sigma,
    )


def _sizes_near(target: Target, depth: float) -> set[tuple[int, ...]]:
    """Return the kernel sizes of the layers that lie on either side of a depth."""
    layers = target.statistics.layers
    position = depth * (len(layers) - 1)
    return {layers[math.floor(position + 1e-9)].kernel_size, layers[math.ceil(position - 1e-9)].kernel_size}
