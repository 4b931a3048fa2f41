"""The kernels with their own test program: under sanitizers of addresses and undefined behaviour, and on AArch64."""

import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes import ROOT, run

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
        run("g++", *FLAGS, *SANITIZERS, *flags, f"-I{CSRC}", "-c", source, "-o", target)
        return target

    sources = [*sorted(CSRC.glob("*.cpp")), Path(__file__).with_name("kernels_test.cpp")]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    program = folder / "kernels_test"
    run("g++", *FLAGS, *SANITIZERS, *objects, "-o", program)
    return program


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_kernels_equal_the_definition_and_stay_inside_their_buffers(tmp_path: Path) -> None:
    # The sanitizer would otherwise abort where the kernels are to report that memory ran out.
    options = {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0", "OMP_WAIT_POLICY": "passive"}
    assert " 0 failures" in run(_build(tmp_path), **options).stdout


COMPILER = "aarch64-linux-gnu-g++"


@pytest.mark.faults
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER} (Debian: g++-aarch64-linux-gnu)")
@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="needs qemu-aarch64 (Debian: qemu-user)")
def test_neon_and_portable_kernels_of_the_package_equal_the_definition(tmp_path: Path) -> None:
    folders = [f"--build-lib={tmp_path}/lib", f"--build-temp={tmp_path}/temp"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    cross = {"CC": COMPILER, "CXX": COMPILER, "CFLAGS": " ".join(warnings), "_PYTHON_HOST_PLATFORM": "linux-aarch64"}
    build = run(sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", *folders, **cross)
    package = tmp_path / "lib" / "filtercov"
    assert not (package / "_native_build.txt").exists(), build.stderr

    program, source = tmp_path / "kernels_test", Path(__file__).with_name("kernels_test.cpp")
    run(COMPILER, "-std=c++17", *warnings, f"-I{CSRC}", source, package / "_native.so", "-o", program)
    ended = run("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program, 100)
    portable, neon = "isa 0\n", "isa 3\n"
    assert ended.stdout == f"{portable}{neon}200 convolutions, 0 failures\n"
