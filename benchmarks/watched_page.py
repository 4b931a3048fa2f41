"""The page of a watched run in headless Chromium: its size, how long it takes to open, and how evenly it plays.

Twelve layers of 256 9×9 filters at fifty moments, on their way from noise to the closed form. Opening ends with the
load event, when all scripts have run and the first picture is drawn. While it plays, the time between frames is that
which `requestAnimationFrame` sees, and the work of a frame is the time that its drawing takes.

Run: python benchmarks/watched_page.py [--opened 5] [--against]
Results: docs/watch.md
"""

import argparse
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import filtercov
from filtercov.lab.report.inspect import look

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.browser import Browser

LAYERS, COUNT, SIZE, MOMENTS = 12, 256, 9, 50
PLAYED = """(async () => {
  const frames = [], work = [], drawn = draw;
  draw = () => { const start = performance.now(); drawn(); work.push(performance.now() - start); };
  goTo(0);
  await new Promise(requestAnimationFrame);
  play();
  while (playing) frames.push(await new Promise(requestAnimationFrame));
  return { frames, work };
})()"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opened", type=int, default=5)
    parser.add_argument("--against", action="store_true", help="two runs beside each other")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        files = [_watched(Path(folder) / f"run-{seed}.watched", seed) for seed in range(2 if options.against else 1)]
        start = time.process_time()
        page = Path(folder) / "page.html"
        page.write_text(look(files[0], against=files[1] if options.against else None).page())
        print(f"made in {time.process_time() - start:.1f} s of processor time, {page.stat().st_size / 1e6:.1f} MB")
        opened = []
        for _ in range(options.opened):
            tab = browser.open(page)
            opened.append(tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
            browser.close_tabs()
        print("opened in", ", ".join(f"{milliseconds:.0f}" for milliseconds in sorted(opened)), "ms")
        played = browser.open(page).evaluate(PLAYED)
    frames, work = played["frames"], sorted(played["work"])
    gaps = sorted(late - early for early, late in pairwise(frames))
    print(
        f"{len(frames)} frames, {1000 * len(gaps) / sum(gaps):.0f} a second; between two of them, ms: {_spread(gaps)}"
    )
    print(f"work of a frame, ms: {_spread(work)}")


def _spread(values: list[float]) -> str:
    at = {"median": 0.5, "95 of 100": 0.95, "99 of 100": 0.99}
    found = {name: values[int(share * (len(values) - 1))] for name, share in at.items()}
    return ", ".join(f"{name} {value:.1f}" for name, value in found.items()) + f", longest {values[-1]:.1f}"


def _watched(path: Path, seed: int) -> str:
    def network() -> nn.Sequential:
        return nn.Sequential(*(nn.Conv2d(COUNT, COUNT, SIZE, groups=COUNT) for _ in range(LAYERS)))

    torch.manual_seed(seed)
    start, goal, net = network(), network(), network()
    filtercov.init_(goal, seed=seed)
    watch = filtercov.watch(net, path, every=1)
    with torch.no_grad():
        for moment in range(1, MOMENTS):
            share = moment / (MOMENTS - 1)
            for layer, early, late in zip(net, start, goal, strict=True):
                layer.weight.copy_((1 - share) * early.weight + share * late.weight)
            watch()
    return str(path)


if __name__ == "__main__":
    main()
