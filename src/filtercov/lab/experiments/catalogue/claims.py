"""The runs that settle each claim: an experiment for each, of the cells that its comparisons name and no others.

Networks and epochs are the paper's. Runs are known by what they are, so what claims and tables share is trained once.
"""

from collections import defaultdict

from filtercov.lab.experiments.catalogue.build import (
    UNIFORM,
    Builder,
    Cell,
    Init,
    Parts,
    closed_form,
    covariance,
    eighth,
    filters,
    mixer,
    timed_networks,
)
from filtercov.lab.experiments.paper_claims import Claim


def claim_parts(claim: Claim, build: Builder) -> Parts:
    """The cells of a claim, and the networks that it times."""
    timed: list[int] = []
    tables: dict[tuple[str, int, str], list[str]] = defaultdict(list)  # (row, epochs, filters) -> initialisations
    for row, column, epochs in dict.fromkeys(name for comparison in claim.comparisons for name in comparison.cells):
        if column == "saved":
            timed.append(int(row.removeprefix("k")))
        else:
            kind, _, init = column.partition("/")
            tables[row, epochs, kind].append(init)
    seeds = build.scale.claim_seeds
    if claim.number == "C15":  # whose gain is of several points, not of one
        seeds = min(seeds, build.sized().seeds)
    cells: list[Cell] = []
    for (row, epochs, kind), inits in tables.items():
        model = network(row)
        inits.sort(key=lambda init: {"uniform": 0, "closed-form": 1}.get(init, 2))
        columns = [_column(init, model) for init in inits]
        cells += build.cells(row, model, columns, epochs=epochs, filters=(kind,), seeds=seeds)
    return Parts(cells, speed=timed_networks(build, sorted(timed)))


def network(row: str) -> str:
    """The network of a row, or of what a column is `from`.

    >>> network("k7"), network("k9-p1"), network("depth 24"), network("p2")
    ('convmixer_256_8_k7_p2', 'convmixer_256_8_k9_p1', 'convmixer_256_24_k9_p2', 'convmixer_256_8_k9_p2')
    """
    kind, _, number = row.partition(" ")
    if kind == "convnext":
        return "convnext_atto_p2"
    if kind == "depth":
        return mixer(depth=int(number))
    if row.startswith("p") or row == "k9-p1":
        return mixer(patch=int(row[-1]))
    return mixer(int(row.removeprefix("k")))


def _column(init: str, model: str) -> Init:
    origin = init.partition(" from ")[2]
    if origin == "embedded":
        return covariance(model, init, family="embedded")
    if origin:
        return covariance(network(origin), init)
    by_name = {
        "uniform": UNIFORM,
        "closed-form": closed_form(),
        "covariance": covariance(model),
        "covariance, no means": Init(init, "covariances-of", reference=model),
        "covariance-eighth": covariance(eighth(model), init),
        "filters": filters(model),
        "kronecker": Init(init, "kronecker-of", reference=model),
        "sawtooth": Init(init, "closed-form", "sawtooth:cifar-p2"),
    }
    return by_name.get(init) or closed_form(init.removeprefix("closed-form ").replace(" ", ","))
