"""The kernels with their own test program: under sanitizers of addresses and undefined behaviour, and on AArch64."""

import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "src" / "filtercov" / "csrc"
FLAGS = ["-std=c++17", "-O0", "-g1", "-fopenmp", "-ffp-contract=fast", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
SANITIZERS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    # A null or misaligned vector access faults anyway, and the address sanitizer knows objects' sizes: without these
    # checks the unrolled kernels compile in two thirds of the time.
    "-fno-sanitize=null,alignment,object-size",
    # Checks as calls instead of inline code: several times faster again.
    *("--param", "asan-instrumentation-with-call-threshold=0"),
]
ISA_FLAGS = {
    "isa_avx2": ["-mavx2", "-mfma"],
    "isa_avx512": ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"],
}


def _build(folder: Path) -> Path:
    cpu = Path("/proc/cpuinfo")

    def compiled(source: Path) -> Path:
        flags = ISA_FLAGS.get(source.stem, []) if platform.machine() == "x86_64" else []
        if source.stem == "isa_avx512" and cpu.exists() and "avx512" not in cpu.read_text():
            flags = [*flags, "-fno-sanitize=all"]  # compiled for its warnings; it could not be run here
        target = folder / f"{source.stem}.o"
        command = ["g++", *FLAGS, *SANITIZERS, *flags, f"-I{CSRC}", "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        return target

    sources = [*sorted(CSRC.glob("*.cpp")), Path(__file__).with_name("kernels_test.cpp")]
    with ThreadPoolExecutor(2) as pool:
        objects = [str(path) for path in pool.map(compiled, sources)]
    program = folder / "kernels_test"
    subprocess.run(["g++", *FLAGS, *SANITIZERS, *objects, "-o", str(program)], check=True)
    return program


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_kernels_equal_the_definition_and_stay_inside_their_buffers(tmp_path: Path) -> None:
    # The sanitizer would otherwise abort where the kernels are to report that memory ran out.
    options = {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0", "OMP_WAIT_POLICY": "passive"}
    run = subprocess.run([str(_build(tmp_path))], capture_output=True, text=True, env={**os.environ, **options})
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert " 0 failures" in run.stdout


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
    include = f"-I{CSRC}"
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
