"""The examples of a documentation page, run as its reader would run them."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def run_page(name: str) -> dict[str, Any]:
    """Run the Python of docs/name one block after another, and return the names it leaves."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    return names
