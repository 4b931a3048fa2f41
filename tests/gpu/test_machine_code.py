"""The Triton kernels compiled for GPUs that are not here: nothing spills, and little shared memory is used."""
# ruff: noqa: E402

import csv

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed: `make test-gpu` installs it")
if triton.knobs.runtime.interpret:
    pytest.skip("Triton's interpreter is on, which compiles nothing", allow_module_level=True)

from tools.gpu_machine_code import (
    SHARED_MEMORY,
    TABLE,
    TARGETS,
    Layer,
    compile_quickly,
    read_code,
    shipped,
)

# Of what `python -m tools.gpu_machine_code` sweeps: filters small and large, in each layout, type and pass.
LAYERS = [
    Layer("forward", 31, "float32", channels_last=True),
    Layer("forward", 7, "bfloat16", channels_last=True),
    Layer("forward", 3, "float16"),
    Layer("weight_grad", 31, "float32"),
    Layer("weight_grad", 15, "float16", channels_last=True),
    Layer("weight_grad", 7, "float32", channels_last=True, size=7),
    Layer("weight_grad", 4, "float32", size=64),  # it spilled with more columns, and 12 with more rows
    Layer("weight_grad", 12, "float32", size=64),
    Layer("forward", 31, "float32", size=512, line=True),
    Layer("weight_grad", 11, "float16", size=512, line=True),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{layer.which}-{layer.kernel}-{layer.dtype}")
def test_no_register_spills_and_each_number_loaded_serves_several_multiply_adds(layer, target):
    compiled = layer.compile(target)
    code = read_code(compiled, target)
    assert code.spilled == 0
    assert code.shared <= min(4096, SHARED_MEMORY[target])
    # PyTorch's kernels load two numbers for each, a pixel and a tap; small filters leave ours less to share.
    numbers = sum(code.loads) / (4 if layer.dtype == "float32" else 2)
    assert code.multiply_adds > (1.5 if layer.kernel == 3 or layer.line else 2.0) * numbers
    if layer.dtype == "bfloat16" and "ptx" in compiled.asm:
        assert "cvt.rn.bf16" in compiled.asm["ptx"]  # to the nearest, which the interpreter does not


@pytest.mark.parametrize(
    "layer",
    [
        *LAYERS[::3],
        Layer("input_grad", 9, "float32", channels_last=True, size=8),
        Layer("input_grad", 5, "float16", size=14),
    ],
    ids=lambda layer: "-".join(layer.key()),
)
def test_the_sweeps_quick_way_gives_the_same_machine_code(layer, tmp_path, monkeypatch):
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "quick"))
    quick = compile_quickly(layer)
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "usual"))
    for target, code in quick.items():
        kind = "hsaco" if target.startswith("gfx") else "cubin"
        assert code.asm[kind] == layer.compile(target).asm[kind]


def test_every_configuration_in_the_table_is_one_that_is_shipped_and_none_spills():
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert {tuple(row[:5]) for row in rows} <= {layer.key() for layer in shipped()}
    assert all(0 < int(cell) <= 512 for row in rows for cell in row[5:])
