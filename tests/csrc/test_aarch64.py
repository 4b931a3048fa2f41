"""The package's native library on another architecture: cross-compiled for AArch64, its tests run under qemu."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = "aarch64-linux-gnu-g++"


@pytest.mark.faults
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER} (Debian: g++-aarch64-linux-gnu)")
@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="needs qemu-aarch64 (Debian: qemu-user)")
def test_neon_and_portable_kernels_of_the_package_equal_the_definition(tmp_path: Path) -> None:
    folders = [f"--build-lib={tmp_path}/lib", f"--build-temp={tmp_path}/temp"]
    cross = {"CC": COMPILER, "CXX": COMPILER, "CFLAGS": "-Wall -Wextra -Werror"}
    build = subprocess.run(
        [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, **cross, "_PYTHON_HOST_PLATFORM": "linux-aarch64"},
    )
    assert build.returncode == 0, build.stderr
    package = tmp_path / "lib" / "filtercov"
    assert not (package / "_native_build.txt").exists(), build.stderr

    program = tmp_path / "kernels_test"
    include = f"-I{ROOT}/src/filtercov/csrc"
    source, library = Path(__file__).with_name("kernels_test.cpp"), package / "_native.so"
    subprocess.run(
        [COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", include, str(source), str(library), "-o", str(program)],
        check=True,
    )
    run = subprocess.run(
        ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(program), "100"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    portable, neon = "isa 0\n", "isa 3\n"
    assert run.stdout == f"{portable}{neon}200 convolutions, 0 failures\n"
