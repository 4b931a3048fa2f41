"""Every function, class and module that the documentation names exists where it says."""

import ast
import builtins
import importlib
import re

import pytest
import torch
from torch import nn

import filtercov
import filtercov.covariance
import filtercov.lab.data
import filtercov.lab.experiments
import filtercov.lab.models
import filtercov.lab.report.inspect
import filtercov.lab.report.inspect_target
import filtercov.lab.training
import filtercov.nn
from tests.docs.test_docs import FENCE, PAGES, prose, resolve, shown

# Where a name that stands alone, as `freeze_` does, is looked for.
PLACES = (
    filtercov,
    filtercov.nn,
    filtercov.covariance,
    filtercov.lab.data,
    filtercov.lab.experiments,
    filtercov.lab.models,
    filtercov.lab.report.inspect,
    filtercov.lab.report.inspect_target,
    filtercov.lab.training,
    filtercov.FilterStatistics,
    filtercov.QuadraticSchedule,
    filtercov.lab.report.inspect.Report,
    torch,
    torch.Tensor,
    torch.fx,
    nn,
    nn.init,
    nn.Module,
    builtins,
)
# Of the C library, and of models of timm's.
FOREIGN = {"free", "no_weight_decay"}


def python_blocks():
    for page in PAGES:
        for kind, code in FENCE.findall(page.read_text(encoding="utf-8")):
            if kind == "python":
                yield pytest.param(ast.parse(code), id=f"{shown(page)}-{code.splitlines()[0][:30]}")


def dotted(node):
    """The dotted name of an expression such as filtercov.nn.restore_, None of any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return before and f"{before}.{node.attr}"
    return None


@pytest.mark.parametrize("tree", list(python_blocks()))
def test_names_in_python_exist(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("filtercov"):
            try:
                module = importlib.import_module(node.module)
            except ModuleNotFoundError as error:
                pytest.skip(f"{error.name} is not installed")
            assert all(hasattr(module, alias.name) for alias in node.names)
        name = dotted(node) if isinstance(node, ast.Attribute) else None
        if name and name.startswith("filtercov."):
            assert resolve(name) is not None


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_functions_that_are_named_alone_exist(page):
    """`name_`, and `name(…)`: what is called, or ends as what changes its argument does."""
    if page.stem in ("jax", "keras"):
        return
    found = set(re.findall(r"`([A-Za-z_]\w*_)[`(]", prose(page))) | set(re.findall(r"`([A-Za-z]\w*)\(", prose(page)))
    missing = {name for name in found if not any(hasattr(place, name) for place in PLACES)}
    assert missing - FOREIGN == set()


def test_the_search_for_names_finds_them():
    found = {name for page in PAGES for name in re.findall(r"`([A-Za-z_]\w*_)[`(]", prose(page))}
    assert {"init_", "freeze_", "copy_filters_", "accelerate_", "restore_"} <= found
