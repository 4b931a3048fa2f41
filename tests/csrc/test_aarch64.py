"""The kernels on another architecture: cross-compiled for AArch64 and run under qemu, with no ARM machine at hand."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.csrc.kernels_program import ROOT, build

COMPILER = "aarch64-linux-gnu-g++"
AARCH64 = 183  # e_machine in an ELF header

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER} (Debian: g++-aarch64-linux-gnu)"),
]


@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="needs qemu-aarch64 (Debian: qemu-user)")
def test_neon_and_portable_kernels_equal_the_definition(tmp_path: Path) -> None:
    # Static, so that qemu needs no system library of the other architecture.
    program = build(COMPILER, tmp_path, flags=["-O1", "-g0"], linking=["-static"])
    run = subprocess.run(["qemu-aarch64", str(program), "100"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    portable, neon = "isa 0\n", "isa 3\n"
    assert run.stdout == f"{portable}{neon}200 convolutions, 0 failures\n"


def test_the_package_builds_for_aarch64(tmp_path: Path) -> None:
    folders = [f"--build-lib={tmp_path}/lib", f"--build-temp={tmp_path}/temp"]
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", *folders]
    environment = {**os.environ, "CC": COMPILER, "CXX": COMPILER, "_PYTHON_HOST_PLATFORM": "linux-aarch64"}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert not (tmp_path / "lib" / "filtercov" / "_native_build.txt").exists(), run.stderr
    (library,) = (tmp_path / "lib" / "filtercov").glob("_native*.so")
    assert int.from_bytes(library.read_bytes()[18:20], "little") == AARCH64
    symbols = subprocess.run(["aarch64-linux-gnu-nm", "-D", str(library)], capture_output=True, text=True, check=True)
    assert "filtercov_depthwise_forward" in symbols.stdout
