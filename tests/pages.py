"""The examples of a documentation page, run as its reader would run them."""

import linecache
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def python_blocks(name: str) -> list[str]:
    """The blocks of Python of docs/name."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_page(name: str) -> dict[str, Any]:
    """Run the Python of docs/name one block after another, and return the names it leaves."""
    names: dict[str, Any] = {"__name__": "example"}
    for number, block in enumerate(python_blocks(name)):
        file = f"<{name} {number}>"
        linecache.cache[file] = (len(block), None, block.splitlines(keepends=True), file)  # as notebooks do it
        exec(compile(block, file, "exec"), names)
    return names
