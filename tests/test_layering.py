"""The two floors of the package, read from its imports: nothing imports upward, the library knows of no laboratory."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import filtercov
from tests.processes import python

ROOT = Path(filtercov.__file__).parent

# What each part may import of the package, as docs/design.md says it; everyone may import the leaves.
DESIGN = (Path(__file__).parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
TABLE = re.findall(r"^\| `([\w.]+)` \| [^|]* \| ([^|]*)\|$", DESIGN, re.MULTILINE)
PARTS = {part: set(re.findall(r"`([\w.]+)`", may)) for part, may in TABLE if part != "cli"}
LEAVES = {"errors", "printable"}
LIBRARY = {part: may for part, may in PARTS.items() if not part.startswith("lab.")}
LABORATORY = {part: may for part, may in PARTS.items() if part.startswith("lab.")}
LABORATORY["lab"] = {"lab.reproduction", "lab.comparison"}
TOP = {"cli", "__init__"}

# What the library may import of others', and where more than these is allowed.
THIRD_PARTIES = {"numpy", "torch", "safetensors", "threadpoolctl"}
WITHOUT_TORCH = {"errors", "printable", "covariance", "structure", "schedule", "plan", "jax", "keras"}
FRAMEWORKS = {"jax": {"jax"}, "keras": {"keras"}}
# Files that are imported only where these have been: by the laboratory, or by whoever made a model of theirs.
WHERE_INSTALLED = {
    "files.py": {"filelock"},
    "nn/gpu/__init__.py": {"triton"},
    "nn/gpu/kernels.py": {"triton"},
    "nn/timm_modules.py": {"timm"},
    "nn/torchvision_modules.py": {"torchvision"},
}


def part_of(names):
    """The part that a dotted name below the package, as a list, belongs to."""
    if names[:1] == ["lab"] and len(names) > 1:
        return ".".join(names[:2])
    return names[0] if names else "__init__"


@cache
def imports():
    """Every import: (file, part that imports, part imported or None, the first name of what is imported)."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        part = part_of([*relative.parts[:-1], *[relative.stem] * (relative.stem != "__init__")])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{relative}: relative import"
                in_package = node.module in ("filtercov", "filtercov.lab")
                names = [f"{node.module}.{name}" if in_package else node.module for name in names]
            for first, *rest in (name.split(".") for name in names):
                ours = part_of(rest) if first == "filtercov" else None
                found.append((relative.as_posix(), part, ours, first))
    return found


def allowed(part, imported):
    if imported == part or imported in LEAVES or part in TOP:
        return part != "__init__" or not imported.startswith("lab")
    if part in LIBRARY:
        return imported in LIBRARY[part]
    return imported in LIBRARY or imported in LABORATORY[part] or imported in {*filtercov.__all__, "__init__"}


def test_nothing_imports_upward():
    wrong = {f"{path} imports {name}" for path, part, name, _ in imports() if name and not allowed(part, name)}
    assert wrong == set()


def test_a_part_may_import_only_those_before_it_in_the_table():
    order = list(PARTS)
    assert all(order.index(lower) < order.index(part) for part, may in PARTS.items() for lower in may)


def test_the_library_needs_four_packages_and_the_mathematics_one():
    wrong = set()
    for path, part, ours, first in imports():
        if ours or part not in LIBRARY or first in sys.stdlib_module_names:
            continue
        known = {"numpy"} if part in WITHOUT_TORCH else THIRD_PARTIES | WHERE_INSTALLED.get(path, set())
        known = known | FRAMEWORKS.get(part, set())
        if first not in known:
            wrong.add(f"{path} imports {first}")
    assert wrong == set()


def test_no_source_file_holds_two_ideas():
    long = {str(p.relative_to(ROOT)): n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}


WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
"""


def run_without(*missing, code):
    return python(WITHOUT.format(missing=missing) + code, check=False)


def test_the_mathematics_schedules_and_the_choice_of_layers_work_without_torch():
    code = """
import filtercov
import filtercov.covariance
from filtercov.layers.names import building_key
from filtercov.plan import InitPlan
from filtercov import structure
print(filtercov.PRESETS["cifar-p2"](0.0), filtercov.gaussian_covariance(3, 0.5).shape)
"""
    ended = run_without("torch", "safetensors", "threadpoolctl", code=code)
    assert ended.stdout == "0.08 (9, 9)\n", ended.stderr


@pytest.mark.parametrize("framework", ["jax", "keras"])
def test_a_framework_that_is_missing_is_said_to_be_and_is_no_attribute(framework):
    ended = run_without(
        framework, code=f"import filtercov; print(hasattr(filtercov, {framework!r})); filtercov.{framework}"
    )
    assert ended.stdout == "False\n"
    assert ended.stderr.endswith(f"AttributeError: filtercov.{framework} needs {framework}, which is not installed\n")
    imported = run_without(framework, code=f"import filtercov.{framework}")
    assert imported.stderr.endswith(f"ModuleNotFoundError: No module named {framework!r}\n")


@pytest.mark.parametrize(("missing", "arguments"), [("typer", ["--help"]), ("PIL", ["figures", "x"])])
def test_the_command_line_says_what_to_install(missing, arguments):
    code = f"import sys; sys.argv = ['filtercov', *{arguments!r}]; from filtercov.cli import main; main()"
    ended = run_without(missing, code=code)
    assert ended.returncode == 1
    assert f"needs {missing}, which is not installed" in ended.stderr
    assert "pip install 'filtercov[lab]'" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "--install-completion"),
        (["--version"], "filtercov 0."),
        (["reproduce", "--help"], "--measure"),
        (["reproduce", "--list", "kronecker"], "Fig. 14"),
    ],
)
def test_light_commands_do_not_import_torch(arguments, said):
    code = f"import sys; sys.argv = ['filtercov', *{arguments!r}]; from filtercov.cli import main; main()"
    ended = run_without("torch", "numpy", code=code)
    assert said in ended.stdout, ended.stderr
