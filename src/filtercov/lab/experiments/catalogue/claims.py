"""The runs that settle each claim: an experiment for each, of the cells that its comparisons name and no others.

Networks and epochs are the paper's. Runs are known by what they are, so what claims and tables share is trained once.
"""

from collections.abc import Sequence

from filtercov.lab.experiments.catalogue.build import (
    UNIFORM,
    Builder,
    Cell,
    Experiment,
    Init,
    closed_form,
    covariance,
    eighth,
    filters,
)
from filtercov.lab.experiments.catalogue.figures import mixer
from filtercov.lab.experiments.paper_claims import Claim


def claim_experiment(claim: Claim, build: Builder) -> Experiment:
    """Return the experiment of a claim."""
    named = dict.fromkeys(name for comparison in claim.comparisons for name in comparison.cells)
    timed = sorted(int(name.row.removeprefix("k")) for name in named if name.column == "saved")
    tables: dict[tuple[str, int, str], list[str]] = {}  # (row, epochs, filters) -> initialisations
    for name in named:
        kind, _, init = name.column.partition("/")
        if name.column != "saved":
            tables.setdefault((name.row, name.epochs, kind), []).append(init)
    return build.experiment(
        claim.experiment,
        title=f"Claim {claim.number}",
        shows=claim.says,
        cells=[cell for place, inits in tables.items() for cell in _cells(claim, build, *place, inits)],
        speed=tuple(build.scale.model(mixer(kernel, width=512, depth=12)) for kernel in timed),
        chart="bars",
    )


def _cells(claim: Claim, build: Builder, row: str, epochs: int, kind: str, inits: Sequence[str]) -> list[Cell]:
    model = network(row)
    few = min(build.scale.claim_seeds, build.family.seeds)  # of C15 the gain is of several points, not of one
    columns = [*(_column(init, model) for init in sorted(inits, key=_order)), *build.also()]
    seeds = few if claim.number == "C15" else build.scale.claim_seeds
    return build.cells(row, model, columns, epochs=epochs, filters=(kind,), seeds=seeds)


def network(row: str) -> str:
    """Return the network of a row, or of what a column is `from`.

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


def _order(init: str) -> int:
    """Uniform first, then the closed form, then transfers in the order of the comparisons."""
    return {"uniform": 0, "closed-form": 1}.get(init, 2)
