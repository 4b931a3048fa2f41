"""Write what `filtercov reproduce --list` shows to `src/filtercov/lab/costs/listing.csv`.

`python -m tools.write_listing`; a test compares the file with what this counts.
"""

import csv
import io

from filtercov.lab.costs.listing import FILE, SCALES
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.builder import Options
from filtercov.lab.experiments.catalogue.places import PLACES
from filtercov.lab.experiments.planning import yardstick_images


def listing() -> str:
    """Return the table, counted anew."""
    stream = io.StringIO()
    head = ["name", "place", "shows", *(f"{scale}_{what}" for scale in SCALES for what in ("runs", "images"))]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    options = Options(imagenet="folder:imagenet")
    for name in catalogue.names():
        sized = [catalogue.experiment(name, scale=scale, options=options) for scale in SCALES]
        loads = [
            number
            for experiment in sized
            for number in (len(experiment.runs), round(sum(yardstick_images(run.spec) for run in experiment.runs)))
        ]
        writer.writerow([name, PLACES[name], sized[0].shows, *loads])
    return stream.getvalue()


if __name__ == "__main__":
    FILE.write_text(listing(), encoding="utf-8")
