"""The initialisations the paper compares, as columns."""

from dataclasses import replace

from filtercov.lab import models
from filtercov.lab.experiments.builder import Init
from filtercov.lab.models import ConvMixerSpec

UNIFORM = Init("uniform", "uniform")


def closed_form(schedule: str | None = None) -> Init:
    """Return the paper's construction, with the schedule in the column's name where it is given.

    >>> closed_form(".15,.25,1.0").column
    'closed-form .15 .25 1.0'
    """
    column = "closed-form" if schedule is None else f"closed-form {schedule.replace(',', ' ')}"
    return Init(column, "closed-form", schedule)


def covariance(reference: str, column: str = "covariance", *, family: str | None = None) -> Init:
    """Return covariance transfer from a network."""
    return Init(column, "statistics-of", reference=reference, reference_family=family)


def kronecker(reference: str) -> Init:
    """Return covariance transfer by Kronecker squares."""
    return Init("kronecker", "kronecker-of", reference=reference)


def filters(reference: str, column: str = "filters") -> Init:
    """Return direct transfer: the very filters of a network."""
    return Init(column, "filters-of", reference=reference)


def eighth(model: str) -> str:
    """Return the network of an eighth of the width.

    >>> eighth("convmixer_256_8_k9_p2"), eighth("convnext_atto_p1")
    ('convmixer_32_8_k9_p2', 'convnext_atto_div8_p1')
    """
    spec = models.parse(model)
    if isinstance(spec, ConvMixerSpec):
        return replace(spec, width=spec.width // 8).name
    return replace(spec, divide=8).name


def with_transfers(reference: str) -> list[Init]:
    """Return the first four columns of the paper's tables: uniform and the three transfers from a network."""
    return [UNIFORM, covariance(reference), covariance(eighth(reference), "covariance-eighth"), filters(reference)]
