"""The page of evidence: the paper's row, its claims with a picture each, the ranking, what was not run."""

from pathlib import Path

from filtercov.lab.report import evidence_tables as tables
from filtercov.lab.report import page
from filtercov.lab.report.charts import Dot, dot_chart
from filtercov.lab.report.evidence_row import Recipe
from filtercov.lab.report.evidence_text import evidence_markdown, row_remarks, summary, tally
from filtercov.lab.report.evidence_view import View
from filtercov.lab.report.results import (
    card,
    check_place,
    link_to,
    page_beside,
    ranking_parts,
    section,
    write_report,
)
from filtercov.lab.report.results_figures import claim_picture
from filtercov.lab.report.results_words import show_mean

TITLE = "Evidence"


def write_evidence(view: View, out: Path, *, command: str = "") -> list[Path]:
    """Write the page, the same as Markdown beside it, and a page with its texts for every experiment."""
    check_place(out)
    written = [
        page.write_output(out, evidence_page(view, out, command=command)),
        page.write_output(out.with_suffix(".md"), f"# {TITLE}\n\n{evidence_markdown(view)}"),
    ]
    for record in view.records:
        written += write_report(record, page_beside(out, record), command=command)
    return written


def evidence_page(view: View, out: Path, *, command: str = "") -> str:
    """Return the page; `out` is where it will lie, with the pages of experiments beside it."""
    body = [f"<h1>{TITLE}</h1>", f"<p>{page.text(summary(view))}</p>"]
    body += [f'<p class="note">{page.text(text)}</p>' for text in view.damaged]
    body += _row(view)
    body += _claims(view)
    body += (view.ranking and ranking_parts(view.ranking)) or ["<h2>Ranking</h2>", "<p>It was not run.</p>"]
    if view.records:
        body += ["<h2>Experiments</h2>", _experiments(view, out)]
    if view.others:
        body += ["<h2>Other runs</h2>", _sortable(tables.other_table(view.others))]
    body += _not_run(view)
    return page.page(
        TITLE,
        "\n".join(body),
        origin=page.Origin((view.source,), command),
        styles=[page.asset("results.css")],
        scripts=[page.asset("results.js")],
    )


def _row(view: View) -> list[str]:
    parts = ["<h2>The row at the paper's size</h2>", f"<p>{page.text(tables.ROW_WORDS)}</p>"]
    pictures = [card(_recipes_chart(view.recipes, filters)) for filters in ("frozen", "thawed")]
    parts.append(f'<div class="cards">{"".join(pictures)}</div>')
    parts.append(_sortable(tables.row_table(view.recipes)))
    parts += [f'<p class="quiet">{page.text(remark)}</p>' for remark in row_remarks(view)]
    gains = tables.gain_table(view.recipes)
    if len(gains) > 1:
        parts += ["<h3>What the closed form gains, paired over seeds</h3>", _sortable(gains)]
    if view.unrecorded:
        parts.append("<h3>Numbers that were seen, of which no run was kept</h3>")
        parts.append(_sortable(tables.unrecorded_table(view)))
    return parts


def _recipes_chart(recipes: tuple[Recipe, ...], filters: str) -> str:
    """Return the cells of one kind of filters by recipe; a recipe without a run shows the paper's numbers alone."""
    rows: dict[str, dict[str, Dot]] = {}
    for recipe in recipes:
        dots = {}
        for cell in recipe.cells:
            kind, _, init = cell.column.partition("/")
            if kind == filters and cell.measured is not None:
                low, high = cell.interval or (None, None)
                shown = show_mean(cell.measured.mean, cell.measured.std)
                dots[init] = Dot(cell.measured.mean, low, high, cell.paper.mean, shown)
        if dots:
            rows[str(recipe)] = dots
    heading = f"<h3>{filters}</h3>"
    if not rows:
        return f'{heading}<p class="quiet">Not run.</p>'
    caption = f"test accuracy in percent, {filters} filters, with {tables.INTERVAL} where n is 2 or more"
    return heading + page.figure(dot_chart(rows, label=f"{filters} filters, by recipe"), caption)


def _claims(view: View) -> list[str]:
    head, *rows = tables.claim_table(view)
    shown: list[list[object]] = [
        [
            page.text(number),
            page.text(says),
            f'<span class="{verdict.replace(" ", "-")}">{page.text(verdict)}</span>',
            page.text(n),
            page.text(difference),
            f"<code>{' '.join(f'<span>{page.text(word)}</span>' for word in command.split(' '))}</code>",
        ]
        for number, says, verdict, n, difference, command in rows
    ]
    table = page.table([page.text(name) for name in head], shown)
    parts = [
        "<h2>The paper's claims</h2>",
        f"<p>{page.text(tables.CLAIM_WORDS)}</p>",
        f'<p class="quiet">{page.text(tables.SCALE_WORDS)}</p>',
        f"<p>{page.text(tally(view))}</p>",
    ]
    parts.append(f'<div class="sortable claims">{table}</div>')
    return parts + section(
        "A picture for each",
        [card(claim_picture(f) + page.copyable(view.commands[f.claim.number])) for f in view.findings if f.begun],
    )


def _experiments(view: View, out: Path) -> str:
    head, *rows = tables.experiment_table(view)
    shown: list[list[object]] = []
    for record, (name, *rest) in zip(view.records, rows, strict=True):
        shown.append([link_to(page_beside(out, record).name, name), *map(page.text, rest)])
    return f'<div class="sortable">{page.table(head, shown)}</div>'


def _not_run(view: View) -> list[str]:
    lines = view.not_run
    if not lines:
        return []
    items = "".join(
        f"<dt>{page.text(line.what)}: {page.text(line.cost)}</dt><dd>{page.copyable(line.command)}</dd>"
        for line in lines
    )
    return [
        "<h2>What was not run</h2>",
        f"<p>{page.text(tables.cost_words())}</p>",
        f'<dl class="not-run">{items}</dl>',
    ]


def _sortable(rows: tables.Table) -> str:
    head, *body = ([page.text(cell) for cell in row] for row in rows)
    return f'<div class="sortable">{page.table(head, body)}</div>'
