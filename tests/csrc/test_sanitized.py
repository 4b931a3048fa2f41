"""Compile the kernels with their own test program under the address and undefined-behaviour sanitizers, and run it."""

import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "src" / "filtercov" / "csrc"
FLAGS = ["-std=c++17", "-O0", "-g1", "-fopenmp", "-ffp-contract=fast", "-Wall", "-Wextra", "-Werror"]
# Checks as calls instead of inline code: the unrolled kernels then compile several times faster.
CALLS = ["--param", "asan-instrumentation-with-call-threshold=0"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", *CALLS]
ISA_FLAGS = {
    "isa_avx2": ["-mavx2", "-mfma"],
    "isa_avx512": ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"],
}


def _compile(source: Path, folder: Path) -> Path:
    isa_flags = ISA_FLAGS.get(source.stem, []) if platform.machine() == "x86_64" else []
    target = folder / f"{source.stem}.o"
    command = ["g++", *FLAGS, *SANITIZERS, *isa_flags, f"-I{CSRC}", "-c", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_kernels_equal_the_definition_and_stay_inside_their_buffers(tmp_path: Path) -> None:
    sources = [*sorted(CSRC.glob("*.cpp")), Path(__file__).with_name("kernels_test.cpp")]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda source: _compile(source, tmp_path), sources))
    program = tmp_path / "kernels_test"
    subprocess.run(["g++", *FLAGS, *SANITIZERS, *map(str, objects), "-o", str(program)], check=True)
    # The sanitizer would otherwise abort where the kernels are to report that memory ran out.
    options = {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0", "OMP_WAIT_POLICY": "passive"}
    run = subprocess.run([str(program)], capture_output=True, text=True, env={**os.environ, **options})
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert " 0 failures" in run.stdout
