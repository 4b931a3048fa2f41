"""Controls for the closed form: covariances that share its variance in every layer and lack one thing each.

Whoever doubts the paper's construction asks what in it does the work. Each control answers for one part. All of them
have the total variance (trace) of the closed form of the layer's σ, after negative eigenvalues were dealt with, so that
scale is never what differs.

| name         | keeps                                              | lacks                                       |
|--------------|----------------------------------------------------|---------------------------------------------|
| `diagonal`   | the variance of every pixel                        | all covariance between pixels               |
| `scrambled`  | the eigenvalues                                    | their eigenvectors: a random basis per layer|
| `power`      | the total variance                                 | everything else: independent uniform noise  |
| `no-static`  | Σ̂ = M ⊙ C                                          | S, the static negative component            |
| `no-mask`    | Σ̂ = C − ½S                                         | M, the higher variance at the centre        |
| `no-dynamic` | Σ̂ = M ⊙ (I − ½S)                                   | C, the covariance with neighbours           |
| `one-sigma`  | the closed form of the schedule's mean σ           | the growth of σ with depth                  |

C cannot simply be left out: −½ M ⊙ S is negative definite and no covariance. The identity in its place leaves every
pixel its variance and takes away what C says of its neighbours.
"""

from typing import Literal, get_args

import numpy as np

from filtercov.covariance import gaussian_covariance, symmetric_root
from filtercov.covariance.closed_form import axis_gaussians
from filtercov.covariance.forms import Array, kron
from filtercov.covariance.root import Negative

Control = Literal["diagonal", "scrambled", "no-static", "no-mask", "no-dynamic", "one-sigma"]
CONTROLS: tuple[Control, ...] = get_args(Control)


def control_covariance(
    control: Control,
    kernel_size: tuple[int, ...],
    *,
    sigma: float,
    mean_sigma: float,
    negative: Negative,
    random: np.random.Generator,
) -> Array:
    """The (n, n) covariance of a control for a layer whose closed form has `sigma`.

    >>> same = {"sigma": 1.0, "mean_sigma": 0.5, "negative": "clip", "random": np.random.default_rng(0)}
    >>> traces = [np.trace(control_covariance(control, (5, 5), **same)) for control in CONTROLS]
    >>> bool(np.allclose(traces, total_variance((5, 5), 1.0, negative="clip")))
    True
    """
    closed_form = _usable(gaussian_covariance(kernel_size, sigma), negative)
    if control == "diagonal":
        return np.diag(np.diag(closed_form))
    if control == "scrambled":
        return _scrambled(closed_form, random)
    if control == "one-sigma":
        other = _usable(gaussian_covariance(kernel_size, mean_sigma), negative)
    else:
        other = _usable(_without(control, kernel_size, sigma), negative)
    scaled: Array = other * (np.trace(closed_form) / np.trace(other))
    return scaled


def total_variance(kernel_size: tuple[int, ...], sigma: float, *, negative: Negative) -> float:
    """The mean squared norm of filters drawn from the closed form."""
    return float(np.trace(_usable(gaussian_covariance(kernel_size, sigma), negative)))


def _without(control: Control, kernel_size: tuple[int, ...], sigma: float) -> Array:
    """The symmetric part of the paper's Σ̂ = M ⊙ (C − ½S) without one of its components, in flat form.

    There M_pq = z_p, S_pq = z_q, and C_pq is the Gaussian of the wrap-around distance of p and q.
    """
    z, C = (kron(factors) for factors in zip(*(axis_gaussians(k, sigma) for k in kernel_size), strict=True))
    M, S = np.broadcast_to(z[:, None], C.shape), np.broadcast_to(z, C.shape)
    if control == "no-static":
        one_sided = M * C
    elif control == "no-mask":
        one_sided = C - 0.5 * S
    else:
        one_sided = M * (np.eye(len(z)) - 0.5 * S)
    symmetric: Array = 0.5 * (one_sided + one_sided.T)
    return symmetric


def _scrambled(covariance: Array, random: np.random.Generator) -> Array:
    """A covariance with the same eigenvalues in a basis drawn uniformly (Haar)."""
    gaussian = random.standard_normal(covariance.shape)
    basis, triangle = np.linalg.qr(gaussian)
    basis = basis * np.sign(np.diag(triangle))
    scrambled: Array = (basis * np.linalg.eigvalsh(covariance).clip(min=0.0)) @ basis.T
    return 0.5 * (scrambled + scrambled.T)


def _usable(covariance: Array, negative: Negative) -> Array:
    """The positive semi-definite covariance that filters are drawn from."""
    root = symmetric_root(covariance, negative=negative)
    usable: Array = root @ root
    return usable
