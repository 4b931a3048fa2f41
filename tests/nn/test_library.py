"""Finding and refusing the native library: every way it can be missing has its own words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from filtercov.errors import NativeError
from filtercov.nn import library, native_status

ROOT = Path(__file__).parents[2]
needs_native = pytest.mark.skipif(not native_status().available, reason="native kernels not built")


def test_a_missing_library_is_explained_by_the_builds_record(tmp_path: Path) -> None:
    assert "no record of a build" in library.load(tmp_path, {}).reason
    (tmp_path / "_native_build.txt").write_text("CompileError: no g++ here\n")
    loaded = library.load(tmp_path, {})
    assert loaded.library is None
    assert "CompileError: no g++ here" in loaded.reason
    assert "install a C++17 compiler" in loaded.reason


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_native.so").write_bytes(b"not a library")
    assert "does not load" in library.load(tmp_path, {}).reason


def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not native_status().available:
        pytest.skip("native kernels not built")
    monkeypatch.setattr(library, "ABI_VERSION", 999)
    assert "needed is 999" in library.load(library.PACKAGE, {}).reason


def test_the_environment_turns_it_off_without_a_warning() -> None:
    loaded = library.load(library.PACKAGE, {"FILTERCOV_NATIVE": "0"})
    assert loaded.library is None
    assert loaded.by_request


@needs_native
def test_the_environment_picks_the_instruction_set() -> None:
    for isa in native_status().isas:
        assert library.load(library.PACKAGE, {"FILTERCOV_ISA": isa}).isa == isa
    assert "FILTERCOV_ISA=sse9" in library.load(library.PACKAGE, {"FILTERCOV_ISA": "sse9"}).reason


@needs_native
def test_a_refused_call_says_what_was_wrong() -> None:
    geometry = library.Geometry(1, 1)  # and kernels of extent zero
    with pytest.raises(NativeError, match="an argument out of range"):
        library.call("depthwise_weight_grad", geometry, None, None, None)


SCRIPT = """
import torch, warnings
from filtercov.nn import DepthwiseConv2d, accelerate_, library, native_status
library.PACKAGE = library.Path({folder!r})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    layer = DepthwiseConv2d(16, 16, 9, padding=4, groups=16)
    x = torch.randn(2, 16, 9, 9).to(memory_format=torch.channels_last).requires_grad_()
    layer(x).square().sum().backward()
    layer(x).square().sum().backward()
    net = torch.nn.Sequential(layer, torch.nn.GELU(), torch.nn.BatchNorm2d(16))
    accelerate_(net)
    net(x).sum().backward()
print(native_status())
print(len(caught), *[w.message for w in caught])
"""


@pytest.mark.parametrize("off", [True, False])
def test_without_the_library_everything_works_and_one_warning_says_why(tmp_path: Path, off: bool) -> None:
    environment = {**os.environ, **({"FILTERCOV_NATIVE": "0"} if off else {})}
    command = [sys.executable, "-c", SCRIPT.format(folder=str(tmp_path))]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    status, warned = run.stdout.strip().splitlines()
    assert status.startswith("native kernels off: ")
    if off:
        assert "FILTERCOV_NATIVE=0" in status
        assert warned == "0"
    else:
        assert warned.startswith("1 filtercov's native kernels are off: they were not built")


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_a_failed_build_still_succeeds_and_records_the_reason(tmp_path: Path, compiler: str) -> None:
    folders = [f"--build-lib={tmp_path}/lib", f"--build-temp={tmp_path}/temp"]
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", *folders]
    environment = {**os.environ, "CC": compiler, "CXX": compiler}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    record = tmp_path / "lib" / "filtercov" / "_native_build.txt"
    assert compiler in record.read_text()
    assert compiler in library.load(record.parent, {}).reason
