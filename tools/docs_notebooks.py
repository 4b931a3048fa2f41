"""Show notebooks on the site: a hook of mkdocs that makes a page of every .ipynb file, with its kept outputs.

Nothing is executed here. A link to a notebook leads to its page, and the page to the notebook.
"""

import json
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LABEL = re.compile(r'aria-label="(.*?)"')
LINK = re.compile(r"(\]\([^)\s]+)\.ipynb(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page, and a file for every picture, beside each notebook."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        stem = notebook.src_uri.removesuffix(".ipynb")
        pictures: list[str] = []
        text = "\n\n".join(cell_markdown(cell, stem.rpartition("/")[2], pictures) for cell in cells(notebook))
        files.append(File.generated(config, f"{stem}.md", content=text))
        for i, picture in enumerate(pictures):
            files.append(File.generated(config, f"{stem}-{i}.svg", content=picture))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Lead links between pages to pages, and a notebook's page to what can be run."""
    notebook = files.get_file_from_path(page.file.src_uri.removesuffix(".md") + ".ipynb")
    linked = LINK.sub(r"\1.md\2", markdown)
    if notebook is None:
        return linked
    return f"{linked}\n\n---\n\n[This page as a notebook]({notebook.src_uri.rpartition('/')[2]}), to run and change.\n"


def cells(notebook: File) -> list[dict[str, Any]]:
    """Return a notebook's cells."""
    found: list[dict[str, Any]] = json.loads(notebook.content_string)["cells"]
    return found


def cell_markdown(cell: dict[str, Any], stem: str, pictures: list[str]) -> str:
    """Return a cell as Markdown; its pictures are added to `pictures` and shown from files named by stem and number."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/svg+xml" in data:
            picture = "".join(data["image/svg+xml"])
            parts.append(f"![{LABEL.findall(picture)[0]}]({stem}-{len(pictures)}.svg)")
            pictures.append(picture)
        else:
            parts.append(f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts)
