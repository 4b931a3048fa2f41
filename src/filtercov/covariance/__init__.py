"""The mathematics of filter covariances: pure functions on float64 NumPy arrays, without a deep-learning framework.

`forms` writes a covariance flat or in blocks, `closed_form` constructs it, `empirical` estimates it, `resize` and
`kronecker` change it, and `root` makes it ready to sample from.
"""

from filtercov.covariance.closed_form import ClosedForm, gaussian_covariance
from filtercov.covariance.empirical import empirical_covariance
from filtercov.covariance.forms import to_block, to_flat
from filtercov.covariance.kronecker import nearest_kronecker
from filtercov.covariance.resize import resize_covariance
from filtercov.covariance.root import symmetric_root

__all__ = [
    "ClosedForm",
    "empirical_covariance",
    "gaussian_covariance",
    "nearest_kronecker",
    "resize_covariance",
    "symmetric_root",
    "to_block",
    "to_flat",
]
