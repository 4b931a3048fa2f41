"""Whether samples look drawn from a distribution, whichever framework drew them."""

import numpy as np
import scipy.stats

from tests.reference import usable_covariance


def kernel_faults(kernel, cov, negative="clip", mean=0.0):
    """How the filters of an array (*kernel_size, a, b) differ from what they should be drawn from."""
    filters = np.asarray(kernel, dtype=np.float64).reshape(-1, kernel.shape[-2] * kernel.shape[-1]).T
    return distribution_faults(filters - mean, usable_covariance(cov, negative))


def distribution_faults(samples, cov):
    """Name every way in which samples (N, n) do not look drawn from N(0, cov)."""
    trace, frobenius = np.trace(cov), np.linalg.norm(cov)
    r = trace**2 / frobenius**2
    S = samples.T @ samples / len(samples)
    faults = []
    T = np.linalg.norm(S - cov) / np.sqrt((frobenius**2 + trace**2) / len(samples))
    if 1 + 3 / np.sqrt(r) < T:
        faults.append(f"covariance: T = {T:.2f}")
    if abs(np.trace(S) - trace) > 5 * np.sqrt(2 * frobenius**2 / len(samples)):
        faults.append(f"trace: {np.trace(S):.4f} for {trace:.4f}")
    values, vectors = np.linalg.eigh(cov)
    kept = values > 1e-6 * values[-1]
    white = samples @ vectors[:, kept] / np.sqrt(values[kept])
    p = scipy.stats.kstest(white.ravel()[:200_000], "norm").pvalue
    if p < 1e-4:
        faults.append(f"whitened samples are not normal: p = {p:.1e}")
    return faults
