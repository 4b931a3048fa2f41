"""Which layers an initialisation changes, from what, and what it reports: shared by every framework."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from filtercov.covariance import forms
from filtercov.covariance.forms import show_size
from filtercov.covariance.root import Negative, Root, covariance_root, gaussian_roots
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, NothingChosenError, SourceError
from filtercov.prescription.init_notes import FILLED, tell
from filtercov.prescription.init_report import InitReport, InitRow
from filtercov.prescription.prescriber import AsArray, L, Layer, Prescription, Source, prescriber

# The paper found the closed form no help to 3×3 filters; transfer helps them too.
LEAST_KERNEL_OF_CLOSED_FORM = 5

NOT_CHOSEN = "not chosen by filter_fn"


def choose(
    layers: Sequence[L],
    source: Source[L],
    *,
    filter_fn: Callable[[L], bool] | None,
    min_kernel_size: int | None,
    who: str = "init_",
    as_array: AsArray = forms.as_array,
) -> tuple[dict[L, str], dict[L, Prescription]]:
    """Return the layers to leave alone, each with the reason, and the others, each with what to draw it from."""
    check_filter_fn(filter_fn, who)
    least = 1 if min_kernel_size is None else _check_kernel_size(min_kernel_size)
    prescribe = prescriber(source, len(layers), who=who, as_array=as_array)
    skipped: dict[L, str] = {}
    prescribed: dict[L, Prescription] = {}
    for layer in layers:
        if filter_fn is not None and not filter_fn(layer):
            skipped[layer] = NOT_CHOSEN
        elif max(layer.kernel_size) < least:
            skipped[layer] = _too_small(layer, least)
        else:
            prescription = prescribe(layer)
            closed_form = isinstance(prescription, float) and min_kernel_size is None
            if closed_form and max(layer.kernel_size) < LEAST_KERNEL_OF_CLOSED_FORM:
                skipped[layer] = _too_small(layer, LEAST_KERNEL_OF_CLOSED_FORM)
            else:
                prescribed[layer] = prescription
    return skipped, prescribed


def check_filter_fn(filter_fn: object, who: str) -> None:
    """Raise for what is given to `who` as a choice of layers but is no function of a layer, such as a name."""
    if filter_fn is None or callable(filter_fn):
        return
    advice = f"; pass lambda layer: {filter_fn!r} in layer.name" if isinstance(filter_fn, str) else ""
    raise SourceError(
        f"{who}: needed filter_fn to be a function of a layer that returns whether it is chosen, got "
        f"{type(filter_fn).__name__}{advice}"
    )


def _too_small(layer: Layer, least: int) -> str:
    return f"{show_size(layer.kernel_size)} is under min_kernel_size={least}"


def nothing_chosen(layers: Sequence[L], skipped: Mapping[L, str], who: str = "init_") -> NothingChosenError:
    """Return the error that says why no layer is left to initialise, and what would leave some."""
    reasons = ", ".join(f"{count} × {reason}" for reason, count in Counter(skipped.values()).items())
    small = [max(layer.kernel_size) for layer in layers if skipped[layer] != NOT_CHOSEN]
    if small:
        advice = (
            f"pass min_kernel_size={max(small)} to initialise them all the same, or transfer the FilterStatistics of a "
            "trained model, which the paper finds right for filters as small as these"
        )
    else:
        advice = (
            f"filter_fn is given layers, with names such as {layers[0].name!r}, and returns true for those it chooses"
        )
    finding = f"{who}: needed a layer to initialise, got none of {len(layers)} depthwise ones ({reasons})"
    return NothingChosenError(finding, advice)


def with_roots(prescribed: Mapping[L, Prescription], negative: Negative) -> Iterator[tuple[L, Prescription, Root]]:
    """Yield each layer with its prescription and its root; layers of one kernel size and closed form share one."""
    wanted = Counter((layer.kernel_size, p) for layer, p in prescribed.items() if isinstance(p, float))
    sizes = {size for size, _ in wanted}
    closed = {
        size: gaussian_roots(size, [form for k, form in wanted if k == size], negative=negative) for size in sizes
    }
    held: dict[tuple[tuple[int, ...], float], Root] = {}
    for layer, prescription in prescribed.items():
        if isinstance(prescription, float):
            key = (layer.kernel_size, prescription)
            root = held[key] if key in held else held.setdefault(key, next(closed[layer.kernel_size]))
            wanted[key] -= 1
            if not wanted[key]:
                del held[key]
        else:
            cov = prescription.covariance if isinstance(prescription, LayerStatistics) else prescription
            try:
                root = covariance_root(cov, layer.kernel_size, negative=negative)
            except CovarianceError as error:
                raise CovarianceError(f"{layer.name}: {error}") from None
        yield layer, prescription, root


def initialised_row(layer: Layer, prescription: Prescription, root: Root) -> InitRow:
    """Return what a report says of a layer that got new filters."""
    sigma = prescription if isinstance(prescription, float) else None
    source_layer = None
    if not isinstance(prescription, float):
        source_layer = prescription.name if isinstance(prescription, LayerStatistics) else "given covariance"
    return InitRow(
        name=layer.name,
        kernel_size=layer.kernel_size,
        channels=layer.channels,
        depth=layer.depth,
        initialised=True,
        sigma=sigma,
        source_layer=source_layer,
        negative_mass=root.negative_mass,
        resized=prescription.resized if isinstance(prescription, LayerStatistics) else None,
        filled=root.filled(FILLED),
    )


def make_report(
    layers: Sequence[L],
    source: Source[L],
    initialised: Mapping[L, InitRow],
    skipped: Mapping[L, str],
    *,
    who: str = "init_",
    stacklevel: int,
) -> InitReport:
    """Return what was done to each layer, with notes, and warn of what is probably not what was wanted."""
    rows = tuple(initialised.get(layer) or _skipped_row(layer, skipped[layer]) for layer in layers)
    return InitReport(rows, tell(rows, source, who=who, stacklevel=stacklevel + 1))


def _skipped_row(layer: Layer, reason: str) -> InitRow:
    """Return what a report says of a layer that was left alone."""
    return InitRow(layer.name, layer.kernel_size, layer.channels, layer.depth, False, reason)


def _check_kernel_size(min_kernel_size: int) -> int:
    try:
        return operator.index(min_kernel_size)
    except TypeError:
        raise SourceError(f"min_kernel_size: needed a whole number or None, got {min_kernel_size!r}") from None
