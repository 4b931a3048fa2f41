"""The mean and covariance of one layer's filters, whichever framework they were measured in."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from filtercov.covariance.forms import Array, KernelSize, as_covariance, as_mean, kernel_shape, show_size
from filtercov.covariance.resize import Resizing, compare_resized, resize_covariance, resize_mean
from filtercov.errors import CovarianceError
from filtercov.printable import shortened


@dataclass(frozen=True)
class OfFilters:
    """What mean and covariance do not tell, and was measured while the filters were there; see `filtercov.structure`.

    How many are near zero; of the others, the mean squared cosine between two, and the share that is of each type of
    Gaussian derivative. None where there are no others, or no two.
    """

    near_zero: int
    mean_squared_cosine: float | None
    types: Mapping[str, float] | None


@dataclass(frozen=True, eq=False, repr=False)
class LayerStatistics:
    """The Gaussian that the `count` filters of one layer look drawn from: mean (n,) and covariance (n, n).

    `resized` says what is left of it, if they were measured at another kernel size, and `of_filters` what else was
    measured of the filters, if they were there and have this size.
    """

    name: str
    kernel_size: tuple[int, ...]
    count: int
    mean: Array
    covariance: Array
    resized: Resizing | None = None
    of_filters: OfFilters | None = None

    def __post_init__(self) -> None:
        name = str(self.name)
        try:
            kernel_size = kernel_shape(self.kernel_size)
            count, mean = _check_count(self.count), as_mean(self.mean, kernel_size)
            covariance = as_covariance(self.covariance, kernel_size=kernel_size)
        except CovarianceError as error:
            raise CovarianceError(f"{shortened(name)}: {error}") from None
        checked = {"name": name, "kernel_size": kernel_size, "count": count, "mean": mean, "covariance": covariance}
        for field, value in checked.items():
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        origin = "" if self.resized is None else f", resized from {show_size(self.resized.from_size)}"
        return (
            f"<LayerStatistics {shortened(self.name)}: {self.count} filters of {show_size(self.kernel_size)}{origin}>"
        )

    def resize(self, kernel_size: KernelSize) -> LayerStatistics:
        """Return these statistics for filters of another size."""
        new = kernel_shape(kernel_size)
        if new == self.kernel_size:
            return self
        covariance = resize_covariance(self.covariance, self.kernel_size, new)
        resizing = compare_resized(self.covariance, self.kernel_size, covariance, new)
        return replace(
            self,
            kernel_size=new,
            mean=resize_mean(self.mean, self.kernel_size, new),
            covariance=covariance,
            resized=resizing.after(self.resized),
            of_filters=None,
        )


def _check_count(count: object) -> int:
    try:
        number = operator.index(count)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1:
        raise CovarianceError(f"count: needed a whole number of at least one filter, got {count!r}")
    return number


def mix_resizings(layers: Sequence[LayerStatistics], weights: Sequence[float]) -> Resizing | None:
    """Return what is left in a weighted mean of layers, of which some may have been resized: the mean of each."""
    resized = [layer.resized for layer in layers if layer.resized is not None]
    if not resized:
        return None
    each = [(1.0, 0.0) if (r := layer.resized) is None else (r.survives, r.padding) for layer in layers]
    survives, padding = (
        sum(w * value for w, value in zip(weights, values, strict=True)) for values in zip(*each, strict=True)
    )
    return Resizing(resized[0].from_size, survives, padding)
