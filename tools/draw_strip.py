"""Draw README's picture: filters and covariance before and after `init_`, and what that is worth, from `evidence/`.

`python -m tools.draw_strip` writes docs/images/strip.png and docs/images/strip-dark.png.
"""

import json
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

import filtercov
from filtercov.covariance import gaussian_covariance

ROOT = Path(__file__).parents[1]
KERNEL, SIGMA, SHOWN = 9, 2.0, 9
INK = {"strip": "#24292f", "strip-dark": "#e6edf3"}
BACK = {"strip": "#ffffff", "strip-dark": "#0d1117"}
MODEL = "convmixer_64_8_k9_p2"
WHAT = ("ConvMixer-64/8, CIFAR-10,", "one epoch, filters frozen")


def accuracies() -> dict[str, list[float]]:
    """Test accuracies of the small runs with frozen filters, by initialisation, in the order of their seeds."""
    found: dict[str, dict[int, float]] = {"uniform": {}, "closed-form": {}}
    for path in sorted((ROOT / "evidence" / "runs").iterdir()):
        run = json.loads(path.read_text(encoding="utf-8"))
        config = run["config"]
        small = config["train"]["epochs"] == 1 and config.get("evaluate", "test") == "test" and config["freeze_filters"]
        if config["model"] == MODEL and small and config["init"] in found:
            found[config["init"]][config["train"]["seed"]] = run["result"]["test_accuracy"]
    return {init: [of_seed[seed] for seed in sorted(of_seed)] for init, of_seed in found.items()}


def draw(name: str) -> Path:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(SHOWN, SHOWN, KERNEL, groups=SHOWN)
    before = layer.weight.detach().numpy()[:, 0].copy()
    filtercov.covariance_normal_(layer.weight, gaussian_covariance(KERNEL, SIGMA))
    after = layer.weight.detach().numpy()[:, 0]
    figure = Figure(figsize=(8.4, 2.05), dpi=200, facecolor=BACK[name])
    grid = figure.add_gridspec(1, 5, width_ratios=[1, 1, 1, 1, 1.1], left=0.01, right=0.98, top=0.86, bottom=0.04)
    pictures = [
        ("PyTorch's filters", _sheet(before)),
        ("their covariance", _blocks(np.eye(KERNEL**2))),
        ("filtercov.init_", _sheet(after)),
        ("their covariance", _blocks(gaussian_covariance(KERNEL, SIGMA))),
    ]
    for column, (title, picture) in enumerate(pictures):
        axes = figure.add_subplot(grid[column])
        limit = np.nanmax(np.abs(picture))
        axes.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        axes.set_title(title, color=INK[name], fontsize=10)
        axes.set_axis_off()
    _points(figure.add_subplot(grid[4]), INK[name])
    path = ROOT / "docs" / "images" / f"{name}.png"
    figure.savefig(path, facecolor=BACK[name])
    return path


def _sheet(filters: NDArray[np.float32]) -> NDArray[np.float64]:
    """Nine filters side by side, each on its own scale, with a gap of one pixel."""
    side = KERNEL + 1
    sheet = np.full((3 * side - 1, 3 * side - 1), np.nan)
    for index, weights in enumerate(filters):
        top, left = divmod(index, 3)
        part = weights / np.abs(weights).max()
        sheet[top * side : top * side + KERNEL, left * side : left * side + KERNEL] = part
    return sheet


def _blocks(flat: NDArray[np.float64]) -> NDArray[np.float64]:
    """The covariance in the paper's block form: how each pixel goes with all others, as a picture at its place."""
    return flat.reshape((KERNEL,) * 4).transpose(0, 2, 1, 3).reshape(KERNEL**2, KERNEL**2)


def _points(axes, ink: str) -> None:  # type: ignore[no-untyped-def]
    """Mean accuracy of each initialisation with its standard deviation over seeds."""
    values = accuracies()
    colours = {"uniform": "#8c959f", "closed-form": "#2f81f7"}
    for place, (init, colour) in enumerate(colours.items()):
        mean, spread = float(np.mean(values[init])), float(np.std(values[init], ddof=1))
        axes.errorbar(place, mean, yerr=spread, color=colour, capsize=4, marker="o", markersize=9, linewidth=2)
        axes.text(place, mean + 0.9, f"{mean:.1f} ± {spread:.1f} %", ha="center", color=ink, fontsize=9.5)
    axes.set_xlim(-0.6, 1.6)
    lowest = min(map(np.mean, values.values())) - 4.5
    axes.set_ylim(lowest, lowest + 14)
    for line, words in enumerate((WHAT[0], f"{WHAT[1]}, n = {len(values['uniform'])}")):
        axes.text(0.5, lowest + 1.4 - 1.2 * line, words, color=ink, fontsize=7.6, ha="center")
    axes.set_title("accuracy", color=ink, fontsize=10)
    axes.set_axis_off()


if __name__ == "__main__":
    for name in INK:
        print(f"wrote {draw(name)}")
