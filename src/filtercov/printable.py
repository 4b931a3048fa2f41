"""Text made fit to show: text from files as one line that no terminal or page would obey, counts, and columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

# Controls (escape sequences among them), invisible and direction-changing characters, halves of surrogate pairs, and
# the two that break lines without being controls.
UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Text with every character that is not for the eye written as its escape.

    >>> print(printable("\x1b[2Jblocks.0\n"), printable("größe 漢字 σ²"))
    \x1b[2Jblocks.0\n größe 漢字 σ²
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape", "surrogatepass").decode("ascii") if unicodedata.category(c) in UNPRINTABLE else c
        for c in text
    )


def shortened(text: str, longest: int = 80) -> str:
    """Printable text of at most about `longest` characters, the middle left out.

    >>> shortened("a" * 1000, 20)
    'aaaaaaaaaa…aaaaaaaaa'
    """
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[len(text) - (longest - 1) // 2 :]}"
    return printable(text)


def counted(count: int, noun: str, nouns: str | None = None) -> str:
    """A number of things in words, `nouns` being the plural where an s does not make it.

    >>> counted(1, "epoch"), counted(20, "epoch"), counted(1200, "class", "classes")
    ('1 epoch', '20 epochs', '1,200 classes')
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def show_bytes(count: int) -> str:
    """A number of bytes as people say it.

    >>> show_bytes(1000), show_bytes(1500), show_bytes(3 * 2**20), show_bytes(81 * 10**12)
    ('1 kB', '1.5 kB', '3.1 MB', '81 TB')
    """
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value >= 1000:
            value, unit = value / 1000, larger
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> list[str]:
    """The lines of a table in columns; those headed by one of `numbers` are flush right.

    >>> aligned([["layer", "ms"], ["0", "1.5"]], numbers=["ms"]) == ["layer   ms", "0      1.5"]
    True
    """
    columns = []
    for column in zip(*rows, strict=True):
        align = str.rjust if column[0] in numbers else str.ljust
        columns.append([align(cell, max(map(len, column))) for cell in column])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
