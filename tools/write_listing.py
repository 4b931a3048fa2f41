"""Write what `filtercov reproduce --list` shows to `src/filtercov/lab/costs.csv`.

`python -m tools.write_listing`; a test compares the file with what this counts.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict

from filtercov.lab.costs import COLUMNS, FILE, SCALES
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.planning import costs


def listing(names: Sequence[str] = tuple(catalogue.PLACES)) -> str:
    """Return the table of experiments, counted anew."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["name", "place", "shows", *(f"{scale}_{column}" for scale in SCALES for column in COLUMNS)])
    options = catalogue.Options(imagenet="folder:imagenet")
    for name in names:
        sized = [catalogue.experiment(name, scale=scale, options=options) for scale in SCALES]
        counted = [asdict(costs(experiment.runs)) for experiment in sized]
        numbers = [
            f"{count[column]:.4g}" if column in ("petaflops", "megabytes") else count[column]
            for count in counted
            for column in COLUMNS
        ]
        writer.writerow([name, catalogue.PLACES[name], sized[0].shows, *numbers])
    return stream.getvalue()


if __name__ == "__main__":
    FILE.write_text(listing(), encoding="utf-8")
