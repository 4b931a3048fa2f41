"""Slow, obvious oracles, written from the paper's definitions and from textbooks, that share nothing with the package.

Loops over pixels, float64, no cleverness: where these and the library agree, two different roads led to one number.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import scipy.linalg


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


def root_of(cov: np.ndarray, negative: str) -> np.ndarray:
    """The symmetric root by Schur decompositions: |Σ| = √(Σ²), and the positive part is (Σ + |Σ|)/2."""
    magnitude = np.real(scipy.linalg.sqrtm(cov @ cov))
    usable = magnitude if negative == "abs" else (cov + magnitude) / 2
    return np.real(scipy.linalg.sqrtm(usable))


def usable_covariance(cov: np.ndarray, negative: str) -> np.ndarray:
    """What `negative` makes of an indefinite covariance, from its eigenvalues one at a time."""
    total = np.zeros_like(cov)
    values, vectors = np.linalg.eigh(cov)
    for value, vector in zip(values, vectors.T, strict=True):
        kept = abs(value) if negative == "abs" else max(value, 0.0)
        total += kept * np.outer(vector, vector)
    return total


def slow_resize(cov: np.ndarray, old: int, new: int) -> np.ndarray:
    """The paper's change of filter size for k×k filters, before the projection: pad or clip blocks, then bilinear.

    Where one size is even and the other odd, no pixels lie on each other: the mean of half a pixel to either side.
    """
    blocks = cov.reshape(old, old, old, old)
    pictures = np.zeros((old, old, new, new))
    sides = [math.floor((new - old) / 2), math.ceil((new - old) / 2)]
    for i, j, row, column in itertools.product(range(old), range(old), range(new), range(new)):
        for down, right in itertools.product(sides, repeat=2):
            y, x = row - down, column - right
            inside = 0 <= y < old and 0 <= x < old
            pictures[i, j, row, column] += (blocks[i, j, y, x] if inside else blocks[i, j].mean()) / 4
    resized = np.zeros((new, new, new, new))
    for i, j in itertools.product(range(new), repeat=2):
        y = i * (old - 1) / (new - 1) if new > 1 else (old - 1) / 2
        x = j * (old - 1) / (new - 1) if new > 1 else (old - 1) / 2
        for dy, dx in itertools.product((0, 1), repeat=2):
            top, left = math.floor(y) + dy, math.floor(x) + dx
            weight = (1 - abs(y - top)) * (1 - abs(x - left))
            if weight > 0:
                resized[i, j] += weight * pictures[top, left]
    flat = resized.reshape(new * new, new * new)
    return (flat + flat.T) / 2
