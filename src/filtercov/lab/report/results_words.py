"""How numbers and what they settle are written, the same in every table, caption, page and terminal."""

from collections.abc import Iterable

from filtercov.lab.experiments.records import ExperimentRecord, Trained
from filtercov.lab.report.results_statistics import CONFIDENCE, Difference, Summary
from filtercov.printable import counted

NOT_MEASURED = "not measured"
METHOD = (
    f"Differences are means over the n seeds that both columns have, in brackets the {CONFIDENCE:.0%} interval: "
    "Student's, for differences that are independent and normal."
)
VERDICTS = (
    "A sign holds if the whole interval lies on its side of zero, contradicts if the whole interval lies on the other, "
    "and is open otherwise. Each verdict is for itself, without correction for their number: where there is no "
    f"difference at all, one in {round(1 / (1 - CONFIDENCE))} is decided by chance."
)
ONE_RUN = (
    f"Where n is 1 the spread is {NOT_MEASURED}: such a mean has no ±, its difference no interval, and nothing is said "
    "of its sign."
)


def show_mean(mean: float, std: float | None) -> str:
    """Return mean ± standard deviation, or the mean alone where no spread was measured.

    >>> show_mean(52.184, 0.751), show_mean(52.184, None)
    ('52.18 ± 0.75', '52.18')
    """
    return f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}")


def show_measured(measured: Summary | None, missing: int) -> str:
    """Return mean ± standard deviation, or how many runs are missing for it."""
    if measured is None:
        return f"missing {missing} run{'s' if missing != 1 else ''}"
    return show_mean(measured.mean, measured.std)


def show_difference(difference: Difference | None) -> str:
    """Return a difference with its interval and the number of pairs.

    >>> show_difference(Difference(2.0, 0.5, 3.5, 3)), show_difference(Difference(2.0, None, None, 1))
    ('+2.00 [+0.50, +3.50], n = 3', '+2.00 [not measured], n = 1')
    """
    if difference is None:
        return ""
    measured = difference.low is not None
    interval = f"{difference.low:+.2f}, {difference.high:+.2f}" if measured else NOT_MEASURED
    return f"{difference.mean:+.2f} [{interval}], n = {difference.n}"


def show_cost(seconds: float) -> str:
    """Return a time that is only expected, as exactly as such a thing is known.

    >>> show_cost(40), show_cost(700), show_cost(8_432), show_cost(500_000)
    ('1 min', '12 min', '2.3 h', '139 h')
    """
    hours = seconds / 3600
    return f"{max(1, round(seconds / 60))} min" if hours < 1 else f"{hours:.1f} h" if hours < 20 else f"{hours:.0f} h"


def show_seeds(counts: Iterable[int], *, spread: bool = True) -> str:
    """Return what numbers over so many seeds each are, for a caption; `spread` says whether it is shown beside them.

    >>> show_seeds([3, 3]), show_seeds([1, 3], spread=False), show_seeds([1, 1])
    ('mean ± standard deviation over 3 seeds', 'mean over 1 to 3 seeds', 'one run each, spread not measured')
    """
    found = sorted(set(counts))
    if found == [1]:
        return f"one run each, spread {NOT_MEASURED}"
    seeds = str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"mean{' ± standard deviation' if spread else ''} over {seeds} seeds"


def introduction(record: ExperimentRecord) -> str:
    """Return the sentence that a report begins with."""
    return f"{record.name}, scale {record.scale}: {record.shows.removesuffix('.')}."


def heading(record: ExperimentRecord) -> str:
    """Return an experiment's title, after what was trained where that only stands for it."""
    return f"{record.trained}, standing for: {record.title}" if record.reduced and record.trained else record.title


def show_row(row: str, trained: Trained, *, reduced: bool) -> str:
    """Return a row's name, with the network that was trained where that only stands for the row's.

    >>> show_row("ConvMixer-256/8", Trained("net", "toys", 1), reduced=True)
    'ConvMixer-256/8: net'
    """
    return f"{row}: {trained.model}" if reduced else row


def show_trained(trained: Trained, epochs: int, *, stands_for: bool) -> str:
    """Return what was trained, for a caption, and for how many of the paper's epochs that stands.

    >>> show_trained(Trained("net", "toys", 1), 20, stands_for=True)
    "net on toys, 1 epoch for the paper's 20"
    >>> show_trained(Trained("net", "toys", 20), 20, stands_for=False)
    '20 epochs'
    """
    return f"{trained} for the paper's {epochs}" if stands_for else counted(trained.epochs, "epoch")
