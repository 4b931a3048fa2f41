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
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from filtercov.covariance.closed_form import ClosedForm, gaussian_covariance
from filtercov.covariance.forms import Array
from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.covariance.likeness import SIGMAS, SPREADS, Likeness
from filtercov.schedule.fit import NOTICEABLE
from filtercov.schedule.fit_quality import SigmaFit, fit_layer

COARSE, FINE = 0.06, 1e-3  # steps of log σ, and of the centre in pixels, that a climb ends with
CLIMBS = 2  # from the best of several starts, besides the plain form
DIFFERENCE = 1e-4  # over which derivatives are taken


@dataclass(frozen=True)
class FormFit:
    """The closed form most like a layer's covariance among those of one kind, beside the plain one.

    `chance_gain` is how much likeness its further parameters would gain on average by sampling alone, and `limit` what
    they would seldom gain. All numbers are nan, and `form` None, where the plain form does not fit either, and for a
    single filter.
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
        """Whether its further parameters gain more than by chance, and it is more like the layer than noise is."""
        return self.likeness > self.plain.limit and self.gain > self.limit + NOTICEABLE


def fit_form(layer: LayerStatistics, *, offset: bool = True, per_axis: bool = True) -> FormFit:
    """Return the closed form most like a layer's covariance with a free centre, with a σ per axis, or with both.

    `fit_layer` fits the plain one.

    >>> cov = gaussian_covariance(5, (0.4, 0.8), centre=(0.0, -0.5))
    >>> fit = fit_form(LayerStatistics("conv", (5, 5), 512, np.zeros(25), cov))
    >>> print(ClosedForm(np.round(fit.form.sigma, 2), centre=np.round(fit.form.centre, 2)), "better:", fit.better)
    σ = 0.4, 0.8, centre 0, -0.5 better: True
    """
    return _Fitting(layer).fit(offset=offset, per_axis=per_axis)


def fit_forms(layer: LayerStatistics) -> dict[str, FormFit]:
    """Return the fit of every kind of form by its name; filters along a single axis have no second σ."""
    fitting = _Fitting(layer)
    kinds = {"off centre": (True, False), "σ per axis": (False, True), "both": (True, True)}
    if fitting.axes == 1:
        kinds = {"off centre": (True, False)}
    return {name: fitting.fit(offset=offset, per_axis=per_axis) for name, (offset, per_axis) in kinds.items()}


class _Fitting:
    """One layer, and what all kinds of fits to it have in common.

    Parameters are (log σ by axis, centre by axis); a kind of form is a matrix, the directions in which these may move.
    An axis of one pixel has neither σ nor centre: the layer is fitted without it.
    """

    def __init__(self, layer: LayerStatistics) -> None:
        self.long = [k > 1 for k in layer.kernel_size]
        layer = replace(layer, kernel_size=tuple(k for k in layer.kernel_size if k > 1) or (1,))
        self.layer, self.axes = layer, len(layer.kernel_size)
        self.plain = fit_layer(layer)
        self.tells = layer.count > 1 and not math.isnan(self.plain.sigma)
        if self.tells:
            self.covariance = layer.covariance / np.abs(layer.covariance).max()
            self.like = Likeness(self.covariance, layer.kernel_size)
            self.V, self.H = self._sensitivity()

    def fit(self, *, offset: bool, per_axis: bool) -> FormFit:
        if not self.tells:
            return FormFit(None, math.nan, self.plain, math.nan, math.nan)
        if not offset and (self.axes == 1 or not per_axis):
            return FormFit(ClosedForm(self.plain.sigma), self.plain.likeness, self.plain, 0.0, 0.0)
        every, none = np.eye(self.axes), np.zeros((self.axes, self.axes))
        together = np.ones((self.axes, 1))
        widths = np.vstack([every, none]) if per_axis else np.vstack([together, 0 * together])
        shifts = np.vstack([none, every]) if offset else np.zeros((2 * self.axes, 0))
        directions = np.hstack([widths, shifts])  # (2 axes, parameters)

        def height(steps: Array) -> Array:
            return self.like(*self._parameters(steps @ directions.T))

        starts: Array = np.linalg.lstsq(directions, self._starts(offset=offset).T, rcond=None)[0].T.astype(np.float64)
        highest = np.argsort(-height(starts), kind="stable")[:CLIMBS]
        tops = np.stack([_climb(starts[i], height, COARSE) for i in {0, *highest.tolist()}])
        best = _climb(tops[int(np.argmax(height(tops)))], height, FINE)
        [sigmas], [centres] = self._parameters((directions @ best)[None])
        found = float(self.like(sigmas[None], centres[None])[0])
        form = ClosedForm(
            self._all_axes(sigmas, self.plain.sigma) if per_axis else float(sigmas[0]),
            self._all_axes(centres, 0.0) if offset else 0.0,
        )
        return FormFit(form, found, self.plain, *self._chance_gain(directions))

    def _all_axes(self, values: Array, otherwise: float) -> tuple[float, ...]:
        """Return the values of the axes that were fitted, in their places among all."""
        fitted = iter(values.tolist())
        return tuple(next(fitted) if long else otherwise for long in self.long)

    def _starts(self, *, offset: bool) -> Array:
        """Return the plain form, and forms of several σ at the middle, the centre and the peak of the variance.

        A layer far off the middle has a plain form so wide that no way leads from it to the best one.
        """
        size = self.layer.kernel_size
        variance = np.diagonal(self.covariance).reshape(size)
        middle = (np.array(size) - 1) / 2
        centroid = np.array([float((variance * place).sum()) for place in np.indices(size)]) / variance.sum() - middle
        peak = np.array(np.unravel_index(int(np.argmax(variance)), size)) - middle
        widths = np.log(np.geomspace(0.1, 6.4, 7) / self.plain.sigma)
        places = [np.zeros(self.axes), centroid, peak] if offset else [np.zeros(self.axes)]
        rows = [np.concatenate([np.full(self.axes, width), place]) for place in places for width in widths]
        return np.stack([np.zeros(2 * self.axes), *rows])

    def _parameters(self, steps: Array) -> tuple[Array, Array]:
        """Return σ and centres (s, axes) at steps (s, 2 axes) from the plain form."""
        log_sigma = math.log(self.plain.sigma) + steps[:, : self.axes]
        limits = np.array(self.layer.kernel_size) / 2
        return np.exp(np.clip(log_sigma, *np.log(SIGMAS[[0, -1]]))), np.clip(steps[:, self.axes :], -limits, limits)

    def _sensitivity(self) -> tuple[Array, Array]:
        """Return V and H for all 2 axes parameters."""
        S, size = self.covariance, self.layer.kernel_size

        def unit(step: Array) -> Array:
            cov = gaussian_covariance(
                size, tuple(self.plain.sigma * np.exp(step[: self.axes])), centre=tuple(step[self.axes :])
            )
            return cov / np.linalg.norm(cov)

        steps = DIFFERENCE * np.eye(2 * self.axes)
        A = [(unit(step) - unit(-step)) / (2 * DIFFERENCE) for step in steps]
        AS = [a @ S for a in A]
        V = np.array([[2 * float((x * y.T).sum()) for y in AS] for x in AS])
        H = np.array([[float(np.vdot(x, y)) for y in A] for x in A])
        return V / ((self.layer.count - 1) * float(np.linalg.norm(S)) ** 2), self.plain.likeness * H

    def _chance_gain(self, directions: Array) -> tuple[float, float]:
        """Return the gain to expect of sampling alone, and what it seldom exceeds."""
        V, H = directions.T @ self.V @ directions, directions.T @ self.H @ directions
        plainly = np.concatenate([np.ones(self.axes), np.zeros(self.axes)])  # all σ together
        along = np.linalg.lstsq(directions, plainly, rcond=None)[0]
        P = np.outer(along, along) / (along @ H @ along)
        weights = np.maximum(np.linalg.eigvals(0.5 * (np.linalg.pinv(H, hermitian=True) - P) @ V).real, 0.0)
        mean = float(weights.sum())
        return mean, mean + SPREADS * math.sqrt(2 * float(np.square(weights).sum()))


def _climb(point: Array, height: Callable[[Array], Array], finest: float) -> Array:
    """Return the highest point that steps along the axes lead to, halved where none leads up until they are `finest`.

    Besides those it tries all that lead up at once, and twice as far: along a ridge that is oblique to the axes.
    """
    top, step = float(height(point[None])[0]), 4 * COARSE
    while step > finest:
        moves = step * np.vstack([np.eye(len(point)), -np.eye(len(point))])
        heights = height(point + moves)
        upward = (np.maximum(heights - top, 0.0)[:, None] * moves).sum(axis=0)
        size = float(np.abs(upward).max())
        ridge = np.array([[1.0], [2.0]]) * (upward * (step / size) if size else upward)
        tried = point + np.vstack([moves, ridge])
        heights = np.concatenate([heights, height(point + ridge)])
        best = int(np.argmax(heights))
        if heights[best] > top:
            point, top = tried[best], float(heights[best])
        else:
            step /= 2
    return point
