"""Reads the numbers out of the paper's LaTeX: the oracle for the CSV that ships with the package.

It knows the layout of the paper's tables and nothing of the package; `Entry` is one number with where it stands.
"""

import re
from typing import NamedTuple


class Entry(NamedTuple):
    table: str
    row: str
    column: str
    epochs: int
    mean: str
    std: str  # empty where the paper gives none
    bold: bool  # best of its group, black


CIFAR_COLUMNS = ["uniform", "covariance", "covariance-eighth", "filters", "closed-form"]
IMAGENET_ROWS = {
    "Uniform init": "uniform",
    "Stats from CM-512/12": "covariance",
    "Stats from the same arch": "covariance",
    "Stats from CM-64/12": "covariance-eighth",
    "Stats from $1/8^{\\text{th}}$-width arch": "covariance-eighth",
    "Filters transferred from CM-512/12": "filters",
    "Filters transferred from same arch": "filters",
    "Our init (.15, .3, .5)": "closed-form .15 .3 .5",
    "Our init (.15, .5, .25)": "closed-form .15 .5 .25",
    "Our init (.15, .25, 1.0)": "closed-form .15 .25 1.0",
}


def parse(latex: str) -> list[Entry]:
    """Return every number of every results table, in the order of the paper."""
    entries: list[Entry] = []
    # A table's caption may stand on either side of its tabular, so each tabular is read with what surrounds it.
    tabulars = list(re.finditer(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", latex, re.DOTALL))
    for position, found in enumerate(tabulars):
        before = latex[tabulars[position - 1].end() if position else 0 : found.start()]
        after = latex[found.end() : found.end() + 400]
        body = found.group(1)
        if "CIFAR-10 results for" in before:
            entries += _cifar(before, body)
        elif "label{tab:imnet}" in before:
            entries += _imagenet_main(body)
        else:
            entries += _imagenet_appendix(body, after)
    return entries


def _cifar(before: str, body: str) -> list[Entry]:
    title = re.findall(r"CIFAR-10 results for (\S+) with patch size (\d)", before)[-1]
    table = f"cifar-{title[0].lower().replace('/', '-')}-p{title[1]}"
    columns = [f"{filters}/{init}" for filters in ("thawed", "frozen") for init in CIFAR_COLUMNS]
    entries, kernel = [], ""
    for line in body.split("\\\\"):
        if "\\pm" not in line:
            continue
        first, epochs, *cells = line.split("&")
        if size := re.search(r"\\multirow\{3\}\{\*\}\{(\d+)\}", first):
            kernel = size.group(1)
        assert len(cells) == len(columns), line
        for column, cell in zip(columns, cells, strict=True):
            number = re.search(r"(\d+\.\d+) \\pm (\.\d+)", cell)
            assert number, cell
            bold = "mathbf" in cell and "darkblue" not in cell
            entries.append(Entry(table, f"k{kernel}", column, int(epochs), number[1], number[2], bold))
    return entries


def _imagenet_main(body: str) -> list[Entry]:
    inits = ["uniform", "closed-form .15 .5 .25", "closed-form .15 .25 1.0"]
    columns = [f"{filters}/{init}" for filters in ("thawed", "frozen") for init in inits]
    entries = []
    for line in body.split("\\\\"):
        cells = [cell.strip() for cell in line.replace("\\hline", "").split("&")]
        if not cells[0].startswith("Conv"):
            continue
        row = f"{cells[0].lower().replace('/', '-')}-k{cells[1]}-p{cells[2]}"
        for column, cell in zip(columns, cells[4:], strict=False):  # a row's last empty cells are one \multicolumn
            if number := re.search(r"\d+\.\d+", cell):
                entries.append(Entry("imagenet", row, column, int(cells[3]), number[0], "", "textbf" in cell))
    return entries


def _imagenet_appendix(body: str, after: str) -> list[Entry]:
    epochs = next(int(n) for n in re.findall(r"(10|50)[ -]epoch", after))
    title = re.search(r"\\textbf\{(Conv[^}:]*)(?:: Patch Size (\d+), Kernel Size 9)?\}", body)
    assert title, body
    model = title[1].lower().replace("/", "-") + (f"-p{title[2]}" if title[2] else "")
    entries = []
    for line in body.split("\\\\"):
        cells = [cell.strip() for cell in line.replace("\\hline", "").split("&")]
        if len(cells) == 3 and cells[0] in IMAGENET_ROWS:
            for filters, cell in zip(("thawed", "frozen"), cells[1:], strict=True):
                column = f"{filters}/{IMAGENET_ROWS[cells[0]]}"
                entries.append(Entry(f"imagenet-{epochs}-{model}", model, column, epochs, cell, "", False))
    return entries
