"""Slow, obvious oracles, written from the paper's definitions and from textbooks, that share nothing with the package.

Loops over pixels, float64, no cleverness: where these and the library agree, two different roads led to one number.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import scipy.stats


def paper_block_covariance(k: int, sigma: float) -> np.ndarray:
    """The paper's Σ in block form for odd k: Z, Shift, C, S, M, and the symmetric part of M⊙(C - ½S)."""
    centre = k // 2
    Z = np.array(
        [[math.exp(-((i - centre) ** 2 + (j - centre) ** 2) / (2 * sigma)) for j in range(k)] for i in range(k)]
    )
    hat = np.zeros((k, k, k, k))  # [block row, block column, row inside, column inside]
    for i, j in itertools.product(range(k), repeat=2):
        C_ij = np.roll(Z, (i - centre, j - centre), axis=(0, 1))
        hat[i, j] = Z[i, j] * (C_ij - 0.5 * Z)
    symmetric = np.zeros_like(hat)
    for i, j, row, column in itertools.product(range(k), repeat=4):
        symmetric[i, j, row, column] = 0.5 * (hat[i, j, row, column] + hat[row, column, i, j])
    return np.block([[symmetric[i, j] for j in range(k)] for i in range(k)])


def brute_force_covariance(shape: tuple[int, ...], sigma: float) -> np.ndarray:
    """The same definition pixel by pixel, in flat form, for any kernel: even, rectangular, 1-D, 3-D."""
    pixels = list(itertools.product(*(range(k) for k in shape)))

    def bump(distances: list[float]) -> float:
        return math.exp(-sum(distance**2 for distance in distances) / (2 * sigma))

    def z(p: tuple[int, ...]) -> float:
        return bump([x - (k - 1) / 2 for x, k in zip(p, shape, strict=True)])

    def c(p: tuple[int, ...], q: tuple[int, ...]) -> float:
        return bump([min((x - y) % k, (y - x) % k) for x, y, k in zip(p, q, shape, strict=True)])

    def hat(p: tuple[int, ...], q: tuple[int, ...]) -> float:
        return z(p) * (c(p, q) - 0.5 * z(q))

    return np.array([[0.5 * (hat(p, q) + hat(q, p)) for q in pixels] for p in pixels])


def flat_from_block(block: np.ndarray, k: int) -> np.ndarray:
    """The paper's equation 1 for k×k filters, entry by entry."""
    flat = np.zeros((k * k, k * k))
    for i, j, row, column in itertools.product(range(k), repeat=4):
        flat[k * i + j, k * row + column] = block[k * i + row, k * j + column]
    return flat


def usable_covariance(cov: np.ndarray, negative: str) -> np.ndarray:
    """What `negative` makes of an indefinite covariance, from its eigenvalues one at a time."""
    total = np.zeros_like(cov)
    values, vectors = np.linalg.eigh(cov)
    for value, vector in zip(values, vectors.T, strict=True):
        kept = abs(value) if negative == "abs" else max(value, 0.0)
        total += kept * np.outer(vector, vector)
    return total


def slow_resize(cov: np.ndarray, old: tuple[int, ...], new: tuple[int, ...]) -> np.ndarray:
    """The paper's change of filter size, before the projection: pad or clip blocks, then interpolate between blocks.

    Where one side is even and the other odd, no pixels lie on each other: the mean of half a pixel to either side.
    """
    sides = list(zip(old, new, strict=True))
    old_pixels, new_pixels = (list(itertools.product(*map(range, shape))) for shape in (old, new))
    blocks = cov.reshape(old * 2)
    pictures = np.zeros(old + new)
    shifts = [(math.floor((n - o) / 2), math.ceil((n - o) / 2)) for o, n in sides]
    for p, q in itertools.product(old_pixels, new_pixels):
        for shift in itertools.product(*shifts):
            place = tuple(x - s for x, s in zip(q, shift, strict=True))
            inside = all(0 <= x < o for x, o in zip(place, old, strict=True))
            pictures[p + q] += (blocks[p + place] if inside else blocks[p].mean()) / 2 ** len(old)
    resized = np.zeros(new * 2)
    for p in new_pixels:
        between = [x * (o - 1) / (n - 1) if n > 1 else (o - 1) / 2 for x, (o, n) in zip(p, sides, strict=True)]
        for corner in itertools.product((0, 1), repeat=len(old)):
            place = tuple(math.floor(x) + c for x, c in zip(between, corner, strict=True))
            weight = math.prod(1 - abs(x - y) for x, y in zip(between, place, strict=True))
            if weight > 0:
                resized[p] += weight * pictures[place]
    flat = resized.reshape(len(new_pixels), len(new_pixels))
    return (flat + flat.T) / 2


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
