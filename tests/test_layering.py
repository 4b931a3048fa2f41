"""The layers of the package, read from its imports: nothing imports upward."""

import ast
from pathlib import Path

import pytest

import filtercov

ROOT = Path(filtercov.__file__).parent

# What each part may import of the package; everyone may import the leaves.
LEAVES = {"errors", "files", "limits", "printable", "replacing", "scalar"}
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "replacing": set(),
    "scalar": set(),
    "limits": set(),
    "printable": set(),
    "covariance": set(),
    "schedule": set(),
    "depthwise": {"schedule"},
    "checkpoint": set(),
    "statistics_file": {"covariance"},
    "statistics": {"covariance", "schedule", "depthwise", "statistics_file"},
    "schedule_fit": {"covariance", "schedule", "statistics"},
    "rounding": {"covariance"},
    "sample": {"covariance", "depthwise", "rounding"},
    "init_report": {"covariance"},
    "assign": {"depthwise"},
    "freeze": {"depthwise", "init_report"},
    "transfer": {"covariance", "depthwise", "assign", "init_report", "rounding", "sample"},
    "prescription": {"covariance", "schedule", "depthwise", "statistics", "sample"},
    "init": {"covariance", "depthwise", "statistics", "prescription", "rounding", "sample", "assign", "init_report"},
    "nn": {"depthwise"},
    "models": {"nn"},
    "data": set(),
    "training": set(),
}
MAY_IMPORT_EVERYTHING_BELOW = {
    "experiments": {"report", "cli"},
    "report": {"cli"},
    "cli": set(),
    "__init__": {"nn", "models", "data", "training", "experiments", "report", "cli"},
}


def imports():
    """Every import of the package's own parts: (file, part that imports, part imported)."""
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        part = relative.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [
                    f"{node.module}.{alias.name}" if node.module == "filtercov" else node.module for alias in node.names
                ]
            elif isinstance(node, ast.ImportFrom) and node.level:
                pytest.fail(f"{relative}: relative import")
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                if name.split(".")[0] == "filtercov":
                    yield relative, part, [*name.split("."), "__init__"][1]


def test_nothing_imports_upward():
    public = set(filtercov.__all__) | {"__init__"}
    wrong = []
    for path, part, imported in imports():
        if imported == part or imported in LEAVES:
            continue
        if part in MAY_IMPORT:
            allowed = imported in MAY_IMPORT[part]
        else:
            allowed = imported not in MAY_IMPORT_EVERYTHING_BELOW[part] or imported in public
        if not allowed:
            wrong.append(f"{path} imports {imported}")
    assert wrong == []


def test_every_part_has_a_place():
    parts = {
        path.name.removesuffix(".py")
        for path in ROOT.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert parts <= MAY_IMPORT.keys() | MAY_IMPORT_EVERYTHING_BELOW.keys()


def test_the_mathematics_knows_nothing_of_torch():
    third_parties = set()
    for path in (ROOT / "covariance").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            third_parties |= {name.split(".")[0] for name in names}
    assert not third_parties & {"torch", "torchvision", "safetensors", "scipy"}


def test_no_source_file_holds_two_ideas():
    long = {str(p.relative_to(ROOT)): n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}
