"""The documentation points at what exists: names, links, pictures, files, commands, flags, and code that compiles."""

import ast
import importlib
import re
from functools import cache

import pytest

import filtercov
import filtercov.covariance
import filtercov.errors
import filtercov.nn
from filtercov.cli.app import COMMANDS, _load
from tests.pages import FENCE, PAGES, ROOT, blocks
from tests.test_layering import PARTS
from tools.draw_house import PICTURE, ROOMS, house

# Where a name that stands alone, as `freeze_` does, is looked for.
PLACES = """
filtercov filtercov.nn filtercov.covariance filtercov.FilterStatistics filtercov.QuadraticSchedule filtercov.lab.data
filtercov.lab.experiments filtercov.lab.models filtercov.lab.training filtercov.lab.report.inspect
filtercov.lab.report.inspect.Report filtercov.lab.report.inspect_target
torch torch.Tensor torch.fx torch.nn torch.nn.init torch.nn.Module builtins
""".split()
# Of the C library, and of models of timm's.
FOREIGN = {"free", "no_weight_decay"}


def shown(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """The text of a page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page):
    """The anchors of a page's headings, as the site and GitHub both make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[\s-]+", "-", heading) for heading in plain}


def documented():
    """The objects that the pages of the reference show, by dotted name."""
    pages = (ROOT / "docs" / "api").glob("*.md")
    return {
        name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }


@cache
def resolve(name):
    """The object of a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("filtercov"):
                pytest.skip(f"{name} needs {error.name}, which is not installed")
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def test_every_public_name_and_every_error_is_in_the_reference():
    public = [getattr(module, n) for module in (filtercov, filtercov.nn, filtercov.covariance) for n in module.__all__]
    errors = [value for value in vars(filtercov.errors).values() if isinstance(value, type)]
    in_reference = [resolve(name) for name in documented()]
    assert [one for one in (*public, *errors) if not any(one is found for found in in_reference)] == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_and_pictures_lead_somewhere(page):
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_files_that_are_named_exist(page):
    missing = []
    for code in re.findall(r"`([^`\n]+)`", prose(page)):
        for word in code.split():
            name = word.partition("::")[0]
            ours = name.startswith(("src/", "tests/", "tools/", "benchmarks/", "docs/", ".github/"))
            if ours or re.fullmatch(r"(\w+/)*\w+\.(py|cpp|h|inl|lock)", name):
                places = (ROOT / name, ROOT / "src" / name, ROOT / "src" / "filtercov" / name)
                missing += [name] * (not any(place.exists() for place in places))
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_dotted_names_exist_and_python_can_be_parsed(page):
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"(?<![\w./-])filtercov(?:\.\w+)+", text)) - {"filtercov.initialisations"}  # entry points
    for code in blocks(page, "python"):
        imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
        names |= {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    for name in sorted(names, key=lambda name: name.startswith(("filtercov.jax", "filtercov.keras"))):
        assert resolve(name) is not None  # or is skipped, where those are not installed


def test_commands_and_flags_exist():
    found = set()
    for page in PAGES:
        text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
        for line in re.findall(r"(?:^|[\s`(])filtercov ((?!import)[a-z][^\n`]*)", text):
            command, *words = re.split(r"\s#|\s{3,}|[`;|]|\.\s", line)[0].split()
            given = {word.partition("=")[0].rstrip(".,:)") for word in words if re.match(r"--?[a-z]", word)}
            if command in COMMANDS or any(word.startswith("--") for word in words):
                found.add(command)
                flags = {flag for option in _load(command).params for flag in (*option.opts, *option.secondary_opts)}
                assert given <= flags | {"--help"}, (page, command)
    assert COMMANDS.keys() >= found >= {"init", "stats", "train", "reproduce", "compare", "inspect", "explore"}


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_functions_that_are_named_alone_exist(page):
    """`name_`, and `name(…)`: what is called, or ends as what changes its argument does."""
    if page.stem in ("jax", "keras"):
        return
    found = set(re.findall(r"`([A-Za-z_]\w*_)[`(]", prose(page))) | set(re.findall(r"`([A-Za-z]\w*)\(", prose(page)))
    missing = {name for name in found if not any(hasattr(place, name) for place in map(resolve, PLACES))}
    assert missing - FOREIGN == set()


def test_every_part_has_a_room_in_the_picture_and_arrows_are_the_imports():
    assert ROOMS.keys() == PARTS.keys()
    assert PICTURE.read_text(encoding="utf-8") == house(), "draw it again: python -m tools.draw_house"
