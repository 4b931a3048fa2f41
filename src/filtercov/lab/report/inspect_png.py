"""What `filtercov inspect` shows, as PNG sheets for slides and papers."""

from __future__ import annotations

import numpy as np

from filtercov.covariance.forms import show_size
from filtercov.lab.report import style
from filtercov.lab.report.figures_panels import save_figure, show_covariance, show_filters, show_schedule, show_variance
from filtercov.lab.report.inspect_numbers import Inspection, LayerNumbers, show
from filtercov.lab.report.inspect_pictures import shown_filters
from filtercov.printable import shortened

ACROSS = 8  # covariances in a row of the overview


def overview_sheet(inspection: Inspection) -> bytes:
    """Return a PNG of all covariances by depth, above σ of every layer with the fitted schedule."""
    layers = inspection.layers
    rows = -(-len(layers) // ACROSS)
    with style.styled():
        sheet = style.new_figure(7.0, 1.0 * rows + 2.4)
        parts = sheet.subfigures(2, 1, squeeze=False, height_ratios=[1.0 * rows, 2.2])
        axes = parts[0, 0].subplots(rows, ACROSS, squeeze=False).ravel()
        for axis in axes[len(layers) :]:
            axis.set_axis_off()
        for axis, layer in zip(axes, layers, strict=False):
            show_covariance(axis, layer.statistics.covariance, layer.kernel_size, f"{layer.index + 1}")
        show_schedule(
            parts[1, 0].subplots(),
            inspection.schedule,
            [layer.depth for layer in layers],
            [layer.sigma for layer in layers],
        )
        style.show_heading(sheet, inspection.target.label)
        return save_figure(sheet, "png", dpi=150)


def layer_sheet(inspection: Inspection, layer: LayerNumbers) -> bytes:
    """Return a PNG of one layer: covariance, closed form, filters, variance by pixel and spectrum."""
    cov, size = layer.statistics.covariance, layer.kernel_size
    limit = style.covariance_limit(cov)
    (caption, filters), *_ = shown_filters(inspection, layer, np.random.default_rng(0))
    with style.styled():
        sheet = style.new_figure(10.0, 2.5)
        learned, closed, drawn, variance, spectrum = sheet.subplots(1, 5)
        show_covariance(learned, cov, size, f"covariance, ±{limit:.2g}", limit=limit)
        show_covariance(closed, layer.closed_form(), size, f"closed form, σ = {show(layer.sigma)}", limit=limit)
        show_filters(drawn, filters, caption)
        show_variance(variance, layer.pixel_variance, "variance by pixel")
        top = max(float(layer.eigenvalues[0]), np.finfo(float).tiny)
        for values, label in ((layer.eigenvalues, "layer"), (layer.closed_form_eigenvalues, "closed form")):
            spectrum.semilogy(
                np.arange(1, len(values) + 1), np.where(values > 1e-4 * top, values / top, np.nan), label=label
            )
        spectrum.set(title="spectrum, λ/λ₁", xlabel="rank", xlim=(0, len(cov) + 1), ylim=(1e-4, 2))
        spectrum.legend()
        name = shortened(layer.name)
        heading = f"{layer.index + 1}. {name}, {show_size(size)}, {layer.statistics.count} filters"
        style.show_heading(sheet, heading)
        return save_figure(sheet, "png", dpi=150)
