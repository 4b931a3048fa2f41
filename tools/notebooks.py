"""Run the notebooks of docs/notebooks in a fresh kernel and keep what they print: `python -m tools.notebooks`.

A cell tagged `varies` prints what depends on the machine, such as an accuracy; all other text is the same everywhere,
and `tests/docs/test_notebooks.py` holds it to that.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def run(source: Path, out: Path) -> None:
    """Run a notebook from top to bottom in an empty directory, and write it with what its cells gave."""
    notebook = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory() as directory:
        client = nbclient.NotebookClient(
            notebook,
            timeout=900,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": directory}},
        )
        client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.validate(notebook)
    nbformat.write(notebook, out)


def joined(outputs: list[Any]) -> list[Any]:
    """Return outputs with what one stream received in pieces, by chance of timing, in one."""
    whole: list[Any] = []
    for output in outputs:
        if whole and output.output_type == "stream" and whole[-1].get("name") == output.name:
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(NOTEBOOKS.glob("*.ipynb")))
    parser.add_argument("--out", type=Path, help="a directory to write to, instead of the notebooks themselves")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for source in options.notebooks:
        out = source if options.out is None else options.out / source.name
        run(source, out)
        print(f"{out.name}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
