"""The mathematics of filter covariances: pure functions on float64 NumPy arrays, without a deep-learning framework.

`closed_form` constructs a covariance, `transfer` measures and resizes one, `root` makes it ready to sample from,
`forms` writes it flat or in blocks, and `likeness` compares it with the closed form.
"""

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.forms import to_block, to_flat
from filtercov.covariance.root import symmetric_root
from filtercov.covariance.transfer import LayerStatistics, empirical_covariance, nearest_kronecker, resize_covariance

__all__ = [
    "LayerStatistics",
    "empirical_covariance",
    "gaussian_covariance",
    "nearest_kronecker",
    "resize_covariance",
    "symmetric_root",
    "to_block",
    "to_flat",
]
