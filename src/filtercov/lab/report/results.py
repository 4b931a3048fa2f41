"""The report of an experiment: one page that stands alone, and the same table as Markdown, CSV and LaTeX."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from filtercov.errors import ExperimentError, OutputError
from filtercov.files import Source
from filtercov.lab.experiments.records import ExperimentRecord
from filtercov.lab.report import page
from filtercov.lab.report.results_claims import findings_of
from filtercov.lab.report.results_drawings import draw
from filtercov.lab.report.results_figures import charts, claim_picture, learning_curves
from filtercov.lab.report.results_lines import Line, lines
from filtercov.lab.report.results_ranking import TOLD_APART, rankings
from filtercov.lab.report.results_text import (
    notes,
    show_epochs,
    show_paper,
    show_row,
    table,
    to_csv,
    to_latex,
    to_markdown,
)
from filtercov.lab.report.results_words import heading, introduction, show_measured, show_seeds
from filtercov.lab.training.progress import duration
from filtercov.printable import counted

TEXTS = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
WIDEST = 14  # columns of a table in the paper's arrangement


def write_reports(records: Sequence[ExperimentRecord], out: Path, *, command: str = "") -> list[Path]:
    """Write the pages and texts of some experiments and return the paths; pages end with the `command` that made them.

    One experiment becomes `out` and, beside it, the same name with .md, .csv and .tex. Of several each becomes such a
    set, named after the experiment and beside `out`, which lists them.
    """
    if not records:
        raise ExperimentError("there is nothing to report: no experiment was run in that directory")
    check_place(out)
    if len(records) == 1:
        return write_report(records[0], out, command=command)
    written = []
    places = []
    for record in records:
        place = page_beside(out, record)
        written += write_report(record, place, command=command)
        places.append(place.name)
    return [page.write_output(out, index_page(records, places, command=command)), *written]


def check_place(out: Path) -> None:
    """Raise unless a page can be written to `out` and its texts beside it."""
    if not out.name or os.path.isdir(out):  # noqa: PTH112 - where pathlib raises for a name that is too long
        raise OutputError(
            f"{out}: cannot be written (Is a directory); name the page in it, such as {out / 'report.html'}"
        )
    if out.suffix.lower() in TEXTS:
        raise OutputError(
            f"{out}: needed a name for the page, as {', '.join(TEXTS)} are written beside it; call it {out.stem}.html"
        )


def link_to(place: str, name: str) -> str:
    """Return a link from a page to another beside it."""
    return f'<a href="{page.text(quote(place))}">{page.text(name)}</a>'


def page_beside(out: Path, record: ExperimentRecord) -> Path:
    """Return where an experiment's page lies, of several that are listed in `out`."""
    return out.with_name(f"{out.stem}-{record.name}-{record.scale}{out.suffix or '.html'}")


def write_report(record: ExperimentRecord, out: Path, *, command: str = "") -> list[Path]:
    """Write an experiment's page and, beside it, its texts; return the paths."""
    texts = TEXTS if record.cells else {".md": to_markdown}
    html = page.write_output(out, results_page(record, command=command))
    return [html, *(page.write_output(out.with_suffix(suffix), make(record)) for suffix, make in texts.items())]


def results_page(record: ExperimentRecord, *, command: str = "") -> str:
    """Return an experiment's page."""
    found = lines(record)
    body = [
        f"<h1>{page.text(heading(record))}</h1>",
        f"<p>{page.text(introduction(record))}</p>",
        *(f'<p class="note">{page.text(note)}</p>' for note in notes(record, found)),
    ]
    body += [card(claim_picture(finding)) for finding in findings_of(record)]
    body += section("Figures", [card(chart) for chart in charts(record)])
    body += _drawings(record)
    body += ranking_parts(record)
    if found:
        body.append("<h2>Results</h2>")
        body += [_arranged(found)] if len({(line.filters, line.init) for line in found}) <= WIDEST else []
        body.append(f"<p>Test accuracy in percent: {_seeds(found)}. Press a heading to sort.</p>")
        body.append(f'<div class="sortable">{_sortable(found)}</div>')
    if record.speeds:
        rows = [
            [
                page.text(s.model),
                s.kernel_size,
                f"{1000 * s.thawed:.1f}",
                f"{1000 * s.frozen:.1f}",
                f"{1 - s.frozen / s.thawed:.0%}",
            ]
            for s in record.speeds
        ]
        head = ["network", "kernel", "thawed step, ms", "frozen step, ms", "frozen takes less"]
        body.append(f'<h2>Results</h2><div class="sortable">{page.table(head, rows)}</div>')
    body += section("Learning curves", [card(chart) for chart in learning_curves(record)])
    body.append(_again(record))
    return _page(heading(record), "\n".join(body), [record], command)


def index_page(records: Sequence[ExperimentRecord], places: Sequence[str], *, command: str = "") -> str:
    """Return the page that lists several experiments."""
    rows: list[list[object]] = []
    for record, place in zip(records, places, strict=True):
        state = f"{counted(len(record.missing), 'run')} missing" if record.missing else "complete"
        shown = (record.scale, record.trained, record.shows)
        rows.append([link_to(place, record.name), *map(page.text, shown), state, duration(record.seconds)])
    head = ["experiment", "scale", "trained", "shows", "state", "training time"]
    body = f'<h1>Experiments</h1>\n<div class="sortable">{page.table(head, rows)}</div>'
    return _page("Experiments", body, records, command)


def _page(title: str, body: str, records: Sequence[ExperimentRecord], command: str) -> str:
    sources = (record.source if len(records) == 1 else _of(record) for record in records)
    return page.page(
        title,
        body,
        origin=page.Origin(tuple(sources), command),
        styles=[page.asset("results.css")],
        scripts=[page.asset("results.js")],
    )


def _of(record: ExperimentRecord) -> Source:
    return replace(record.source, name=f"{record.name}, scale {record.scale}: {record.source.name}")


def section(title: str, cards: Sequence[str]) -> list[str]:
    """Return a heading and cards under it, nothing if there are none."""
    return [f"<h2>{title}</h2>", f'<div class="cards">{"".join(cards)}</div>'] if cards else []


def card(content: str) -> str:
    """Return something in a frame, to stand beside others."""
    return f'<div class="card">{content}</div>'


def _drawings(record: ExperimentRecord) -> list[str]:
    cards = []
    for drawing in record.drawings:
        picture = draw(drawing) or '<p class="note">The run this shows is missing.</p>'
        trained = f": {drawing.trained}" if record.reduced and drawing.trained else ""
        caption = page.text(f"{drawing.title}{trained}")
        cards.append(f'<div class="card wide">{page.figure(picture, caption)}</div>')
    return section("Pictures", cards)


def ranking_parts(record: ExperimentRecord) -> list[str]:
    """Return the rankings of a record as HTML, and what it takes to be told apart."""
    found = rankings(record)
    parts = [f"<h2>Ranking</h2><p>{page.text(TOLD_APART)}</p>"] if found else []
    for ranking in found:
        head, *rows = ([page.text(part) for part in row] for row in ranking.table())
        parts.append(f'<h3>{page.text(str(ranking))}</h3><div class="sortable">{page.table(head, rows)}</div>')
    return parts


def _seeds(found: Sequence[Line]) -> str:
    counts = [line.measured.n for line in found if line.measured]
    return show_seeds(counts) if counts else "every cell has runs missing"


def _arranged(found: Sequence[Line]) -> str:
    """Return the table as the paper arranges it, the paper's number under each."""
    columns = list(dict.fromkeys((line.filters, line.init) for line in found))
    by_place = {(show_row(line), show_epochs(line), line.filters, line.init): line for line in found}
    rows: list[list[object]] = []
    for row, epochs in dict.fromkeys((show_row(line), show_epochs(line)) for line in found):
        cells: list[object] = [f"{page.text(row)}, {epochs} epochs"]
        for column in columns:
            line = by_place.get((row, epochs, *column))
            if line is None:
                cells.append("")
                continue
            paper = f'<br><span class="quiet">{show_paper(line.paper)}</span>' if line.paper else ""
            cells.append(f"{show_measured(line.measured, line.missing)}{paper}")
        rows.append(cells)
    head = ["", *(f"{page.text(filters)}<br>{page.text(init)}" for filters, init in columns)]
    return page.table(
        head, rows, caption="measured, and under it the paper's number where it has one; in brackets the paper's epochs"
    )


def _sortable(found: Sequence[Line]) -> str:
    head, *rows = table(found)
    shown: list[list[object]] = [[page.text(part) for part in row] for row in rows]
    for line, row in zip(found, shown, strict=True):
        if line.verdict is not None:  # then the last column says so
            row[-1] = f'<span class="{line.verdict}">{row[-1]}</span>'
    return page.table([page.text(part) for part in head], shown)


def _again(record: ExperimentRecord) -> str:
    facts = {**record.versions, "training time": duration(record.seconds)}
    items = "".join(f"<dt>{page.text(name)}</dt><dd>{page.text(value)}</dd>" for name, value in facts.items())
    return f'<h2>To get it again</h2>{page.copyable(record.command)}<dl class="facts">{items}</dl>'
