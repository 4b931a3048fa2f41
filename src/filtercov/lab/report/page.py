"""Self-contained HTML pages: one file, no network, light, dark and on paper.

A page carries its style, scripts and pictures inside it, and a content security policy that forbids it to fetch
anything, so it opens the same in ten years and from any disk. It ends with what made it: version and command, and no
date, so that the same command makes the same page of the same files.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filtercov.lab.training.rundir import write_atomic
from filtercov.printable import printable

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
NUMBER, TAGS = re.compile(r"[(+−-]?\d"), re.compile(r"<[^>]*>")
SENTENCE = 32  # letters: longer cells of a table wrap


def page(title: str, *body: str, lead: str = "", command: str = "", scripts: Iterable[str] = ()) -> str:
    """A whole HTML document: the title, the result in a sentence or a few lines (`lead`), and `body`.

    Without a lead the body (HTML) has a heading of its own. `command` made the page; Python has none.

    >>> page("Filters & co", "<p>hello</p>", lead="a < b").splitlines()[4]
    '<title>Filters &amp; co</title>'
    """
    heading = f'<h1>{text(title)}</h1>\n<p class="lead">{lines(lead)}</p>' if lead else ""
    content = "\n".join(filter(None, [heading, *body]))
    programs = "\n".join(f"<script>\n{asset(name)}</script>" for name in ("page.js", *scripts))
    made_with = f"<dt>with</dt><dd>{copyable(command)}</dd>" if command else ""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<style>
{asset("page.css")}</style>
<main>
{content}
<footer><dl><dt>made by</dt><dd>filtercov {text(version("filtercov"))}</dd>{made_with}</dl></footer>
</main>
{programs}
</html>
"""


def text(value: object) -> str:
    """Anything as HTML text on one line, also safe inside a quoted attribute.

    >>> text('a < "b"')
    'a &lt; &quot;b&quot;'
    """
    return html.escape(printable(str(value)))


def lines(words: str) -> str:
    """Text that keeps its line breaks, as HTML."""
    return "<br>".join(map(text, words.splitlines()))


def number(value: float | None, *, digits: int = 2) -> str:
    """A number as pages show it, a dash where there is none.

    >>> number(-0.5), number(-0.0001), number(None)
    ('−0.50', '0.00', '–')
    """
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def note(words: str, *, warning: bool = False) -> str:
    """A remark; a `warning` says that something is missing or wrong."""
    return f'<p class="{"warning" if warning else "note"}">{text(words)}</p>'


def folded(summary: str, content: str) -> str:
    """Content that is shown when its summary is pressed."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "") -> str:
    """A sortable table whose first column names its rows; cells that are `str` are HTML, anything else is text.

    Columns of numbers are aligned right. In a narrow window it scrolls sideways inside its own box.
    """
    body = [[cell if isinstance(cell, str) else text(cell) for cell in row] for row in rows]
    words = [not any(NUMBER.match(TAGS.sub("", cell)) for cell in column) for column in zip(*body, strict=True)]
    kinds = [' class="left"' if left else "" for left in words or [True] * len(head)]
    columns = "".join(f'<th scope="col"{kind}>{cell}</th>' for cell, kind in zip(head, kinds, strict=True))
    lines = []
    for first, *rest in body:
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(rest, kinds[1:], strict=True))
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    label = f"<caption>{caption}</caption>" if caption else ""
    whole = f"<table>{label}<thead><tr>{columns}</tr></thead>\n<tbody>{chr(10).join(lines)}</tbody></table>"
    return f'<div class="scroll sortable" tabindex="0">{whole}</div>'


def text_table(rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """A sortable table of plain text, whose sentences wrap and whose verdicts are coloured; its heading comes first."""
    head, *body = rows

    def shown(name: str, cell: str) -> str:
        sentence = len(cell) > SENTENCE and not NUMBER.match(cell)
        kind = "words" if sentence else cell.replace(" ", "-") * (name == "verdict")
        return f'<span class="{kind}">{text(cell)}</span>' if kind else text(cell)

    cells = [[shown(name, cell) for name, cell in zip(head, row, strict=True)] for row in body]
    return table([text(name) for name in head], cells, caption=caption)


def part(said: str | Sequence[Sequence[str]]) -> str:
    """A paragraph of text, or a table of it."""
    return f"<p>{text(said)}</p>" if isinstance(said, str) else text_table(said)


def figure(content: str, caption: str) -> str:
    """Content with a caption (HTML) below it, unless that is empty."""
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f"<figure>{content}{below}</figure>"


def grid(items: Iterable[str]) -> str:
    """Items side by side, as many as the window has room for."""
    return f'<div class="grid">{"".join(items)}</div>'


def numbered(index: int, name: str, link: str = "") -> str:
    """A layer at the head of a table's row, by number and name; a phone shows the number alone."""
    shown = f'{index + 1}<span class="name">. {text(name)}</span>'
    return f'<a href="{text(link)}">{shown}</a>' if link else shown


def copyable(code: str) -> str:
    """A line of code with a button below it that copies it."""
    return f'<div class="copyable"><code>{text(code)}</code><button type="button" data-copy>Copy</button></div>'


def embedded_json(name: str, value: Any) -> str:
    """Data for the page's scripts: the JSON text of the element `name`.

    >>> embedded_json("data", {"tag": "</script>"})
    '<script type="application/json" id="data">{"tag": "\\\\u003c/script>"}</script>'
    """
    data = json.dumps(value, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{text(name)}">{data}</script>'


def asset(name: str) -> str:
    """The text of a file beside this module."""
    return resources.files("filtercov.lab.report").joinpath(name).read_text(encoding="utf-8")


def write_output(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file, making its directories: whole or not at all."""
    target = Path(path)
    write_atomic(target, content.encode() if isinstance(content, str) else content, advice="choose another place")
    return target
