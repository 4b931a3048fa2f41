"""The mean and covariance of one layer's filters, whichever framework they were measured in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from filtercov.covariance.forms import Array, KernelSize, kernel_shape
from filtercov.covariance.resize import resize_covariance, resize_mean


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """The Gaussian that the `count` filters of one layer look drawn from: mean (n,) and covariance (n, n)."""

    name: str
    kernel_size: tuple[int, ...]
    count: int
    mean: Array
    covariance: Array

    def resize(self, kernel_size: KernelSize) -> LayerStatistics:
        """Return these statistics for filters of another size."""
        new = kernel_shape(kernel_size)
        if new == self.kernel_size:
            return self
        return replace(
            self,
            kernel_size=new,
            mean=resize_mean(self.mean, self.kernel_size, new),
            covariance=resize_covariance(self.covariance, self.kernel_size, new),
        )
