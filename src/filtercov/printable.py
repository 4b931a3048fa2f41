"""Text from files and file names, made safe to show: one line, and nothing that a terminal or a page would obey."""

from __future__ import annotations

import unicodedata

# Controls (escape sequences among them), invisible and direction-changing characters, halves of surrogate pairs, and
# the two that break lines without being controls.
UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Return text with every character that is not for the eye written as its escape.

    >>> print(printable("\x1b[2Jblocks.0\n"), printable("größe 漢字 σ²"))
    \x1b[2Jblocks.0\n größe 漢字 σ²
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in UNPRINTABLE else c for c in text)


def shortened(text: str, longest: int = 80) -> str:
    """Return printable text of at most about `longest` characters, the middle left out.

    >>> shortened("a" * 1000, 20)
    'aaaaaaaaaa…aaaaaaaaa'
    """
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[len(text) - (longest - 1) // 2 :]}"
    return printable(text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
