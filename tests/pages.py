"""The pages of the documentation, their blocks of code, and their examples run as a reader would run them."""

import linecache
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)  # kind, code


def blocks(page: Path, kind: str) -> list[str]:
    """The blocks of code of a kind, such as python."""
    return [code for of, code in FENCE.findall(page.read_text(encoding="utf-8")) if of == kind]


def python_blocks(name: str) -> list[str]:
    """The blocks of Python of docs/name."""
    return blocks(DOCS / name, "python")


def run_page(name: str) -> dict[str, Any]:
    """Run the Python of docs/name one block after another, and return the names it leaves."""
    names: dict[str, Any] = {"__name__": "example"}
    for number, block in enumerate(python_blocks(name)):
        file = f"<{name} {number}>"
        linecache.cache[file] = (len(block), None, block.splitlines(keepends=True), file)  # as notebooks do it
        exec(compile(block, file, "exec"), names)
    return names
