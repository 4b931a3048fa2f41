"""Records for tests of the report, made of given accuracies rather than of runs."""

from filtercov.lab.experiments.paper import PaperNumber
from filtercov.lab.experiments.records import CellRecord, ExperimentRecord, Trained
from filtercov.lab.experiments.timings import SpeedRecord

TRAINED = Trained("net_k9", "10,000 images of toys", 5)


def cell(column: str, *accuracies: float, paper: float | None = None, missing: tuple[str, ...] = (), **more):
    settings = {"row": "k9", "epochs": 20, "trained": TRAINED} | more
    curves = {seed: (*(a * epoch / 5 for epoch in range(1, 5)), a) for seed, a in enumerate(accuracies)}
    number = None if paper is None else PaperNumber(paper, 0.1, "somewhere")
    return CellRecord(column=column, missing=missing, curves=curves, paper=number, **settings)


def record(*cells: CellRecord, chart: str = "bars", speeds: tuple[SpeedRecord, ...] = (), **more) -> ExperimentRecord:
    settings = {
        "name": "made-up",
        "drawings": (),
        "damaged": (),
        "missing": tuple(run for cell in cells for run in cell.missing),
        "seconds": 61.0,
        "scale": "small",
        "reduced": "everything & more",
    } | more
    return ExperimentRecord(
        title="Made up <for tests>",
        shows="how a report looks",
        chart=chart,
        command="filtercov reproduce made-up --scale small",
        versions={"torch": "2.13.0"},
        cells=cells,
        speeds=speeds,
        **settings,
    )


TABLE = record(
    cell("thawed/uniform", 50.0, 51.0, 52.0, paper=89.26),
    cell("thawed/closed-form", 54.0, 55.5, 55.5, paper=90.85),
    cell("frozen/uniform", 40.0, 42.0, paper=84.97),
    cell("frozen/closed-form", 40.5, 41.0, paper=90.56),
    cell("frozen/filters", missing=("0123456789abcdef  net frozen filters-of net, 5 epochs, seed 1",), paper=89.5),
)
SPEEDS = record(speeds=tuple(SpeedRecord(f"net_k{k}", k, 0.1 * k, 0.08 * k) for k in (3, 9, 15)))
