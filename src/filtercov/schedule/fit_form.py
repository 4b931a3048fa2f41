"""Fit the closed forms that are off the middle, or have a σ per axis, to a layer, and tell whether that says anything.

A form with more parameters always fits better. So the gain in likeness is set beside the gain that sampling alone
would bring: that of a layer of as many filters, of the same spread, to whose covariance the plain form is the nearest.

Write u(θ) = Σ′(θ)/‖Σ′(θ)‖, and A_i for its derivatives at the plain form that fits best. Sampling `count` Gaussian
filters moves the slope of the likeness along θ_i, ⟨S, A_i⟩/‖S‖, with the covariance

    V_ij = 2 tr(A_i S A_j S) / (m ‖S‖²)        m = count - 1

and the likeness c falls off around its maximum with the curvature H_ij = c ⟨A_i, A_j⟩. The maximum over all of θ is
then higher by ½ gᵀH⁻¹g for a slope g, and that of the plain form, which moves all σ together, by its part of it. So the
gain is a sum of squares of normal numbers, with the eigenvalues w of ½(H⁻¹ - P)V as weights, where P is the plain
form's part of the inverse curvature: Σw on average, with a spread of √(2 Σw²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from filtercov.covariance.closed_form import ClosedForm, gaussian_covariance
from filtercov.covariance.forms import Array
from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.covariance.likeness import SIGMAS, SPREADS, Likeness
from filtercov.schedule.fit_quality import SigmaFit, fit_layer

FINEST_STEP = 1e-4  # of log σ, and of the centre in pixels
DIFFERENCE = 1e-4  # over which derivatives are taken


@dataclass(frozen=True)
class FormFit:
    """The closed form most like a layer's covariance among those of one kind, beside the plain one.

    `chance_gain` is how much likeness its further parameters would gain on average by sampling alone, and `limit` what
    they would seldom gain. All numbers are nan, and `form` None, where the plain form does not fit either.
    """

    form: ClosedForm | None
    likeness: float
    plain: SigmaFit
    chance_gain: float
    limit: float

    @property
    def gain(self) -> float:
        """How much more like the layer it is than the plain form."""
        return self.likeness - self.plain.likeness

    @property
    def better(self) -> bool:
        """Whether it fits better than its further parameters would by chance, on a layer that has structure at all."""
        return self.plain.above_chance and self.gain > self.limit


def fit_form(layer: LayerStatistics, *, offset: bool = True, per_axis: bool = True) -> FormFit:
    """Return the closed form most like a layer's covariance with a free centre, with a σ per axis, or with both.

    `fit_layer` fits the plain one.

    >>> cov = gaussian_covariance(5, (0.4, 0.8), centre=(0.0, -0.5))
    >>> fit = fit_form(LayerStatistics("conv", (5, 5), 512, np.zeros(25), cov))
    >>> print(ClosedForm(np.round(fit.form.sigma, 2), centre=np.round(fit.form.centre, 2)), "better:", fit.better)
    σ = 0.4, 0.8, centre 0, -0.5 better: True
    """
    plain = fit_layer(layer)
    if math.isnan(plain.sigma):
        return FormFit(None, math.nan, plain, math.nan, math.nan)
    axes = len(layer.kernel_size)
    widths = np.eye(axes) if per_axis else np.ones((axes, 1))  # how log σ of each axis moves with the parameters
    shifts = np.eye(axes) if offset else np.zeros((axes, 0))
    like = Likeness(layer.covariance, layer.kernel_size)
    limits = np.array(layer.kernel_size) / 2

    def parameters(points: Array) -> tuple[Array, Array]:
        log_sigma, centre = points[:, : widths.shape[1]] @ widths.T, points[:, widths.shape[1] :] @ shifts.T
        return np.exp(np.clip(log_sigma, *np.log(SIGMAS[[0, -1]]))), np.clip(centre, -limits, limits)

    start = np.concatenate([np.full(widths.shape[1], math.log(plain.sigma)), np.zeros(shifts.shape[1])])
    best = _climb(start, lambda points: like(*parameters(points)))
    sigmas, centres = (values[0] for values in parameters(best[None]))
    found = float(like(sigmas[None], centres[None])[0])
    form = ClosedForm(
        tuple(sigmas.tolist()) if per_axis else float(sigmas[0]), tuple(centres.tolist()) if offset else 0.0
    )
    return FormFit(form, found, plain, *_chance_gain(layer, plain, widths, shifts))


def _climb(point: Array, height: object) -> Array:
    """Return the highest point that steps along the axes lead to, halved where none leads up.

    Besides those it tries all that lead up at once, and twice as far: along a ridge that is oblique to the axes.
    """
    assert callable(height)
    top, step = float(height(point[None])[0]), 0.25
    while step > FINEST_STEP:
        moves = step * np.vstack([np.eye(len(point)), -np.eye(len(point))])
        heights = height(point + moves)
        upward = (np.where(heights > top, heights - top, 0.0)[:, None] * moves).sum(axis=0)
        size = float(np.abs(upward).max())
        ridge = np.array([1.0, 2.0])[:, None] * (upward * (step / size) if size else upward)
        tried = point + np.vstack([moves, ridge])
        heights = np.concatenate([heights, height(point + ridge)])
        best = int(np.argmax(heights))
        if heights[best] > top:
            point, top = tried[best], float(heights[best])
        else:
            step /= 2
    return point


def _chance_gain(layer: LayerStatistics, plain: SigmaFit, widths: Array, shifts: Array) -> tuple[float, float]:
    """Return the gain to expect of sampling alone, and what it seldom exceeds."""
    S, size, m = layer.covariance, layer.kernel_size, layer.count - 1
    axes, norm = len(size), float(np.linalg.norm(layer.covariance))

    def unit(log_sigma: Array, centre: Array) -> Array:
        cov = gaussian_covariance(size, tuple(np.exp(log_sigma)), centre=tuple(centre))
        return cov / np.linalg.norm(cov)

    middle, still = np.full(axes, math.log(plain.sigma)), np.zeros(axes)
    directions = [(DIFFERENCE * w, still) for w in widths.T] + [(still, DIFFERENCE * s) for s in shifts.T]
    A = [(unit(middle + w, s) - unit(middle - w, -s)) / (2 * DIFFERENCE) for w, s in directions]
    AS = [a @ S for a in A]
    V = np.array([[2 * float((x * y.T).sum()) for y in AS] for x in AS]) / (m * norm * norm)
    H = plain.likeness * np.array([[float(np.vdot(x, y)) for y in A] for x in A])
    together = np.concatenate([np.ones(widths.shape[1]), np.zeros(shifts.shape[1])])  # how the plain form moves
    gained = np.linalg.pinv(H, hermitian=True) - np.outer(together, together) / max(together @ H @ together, 1e-300)
    weights = np.maximum(np.linalg.eigvals(0.5 * gained @ V).real, 0.0)
    mean = float(weights.sum())
    return mean, mean + SPREADS * math.sqrt(2 * float(np.square(weights).sum()))
