"""Compile the kernels with their own test program under the address and undefined-behaviour sanitizers, and run it."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.csrc.kernels_program import build

# Checks as calls instead of inline code: the unrolled kernels then compile several times faster.
CALLS = ["--param", "asan-instrumentation-with-call-threshold=0"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", *CALLS]
CPU = Path("/proc/cpuinfo")
ISA_FLAGS = {
    "isa_avx2": ["-mavx2", "-mfma"],
    "isa_avx512": ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"],
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_kernels_equal_the_definition_and_stay_inside_their_buffers(tmp_path: Path) -> None:
    by_file = dict(ISA_FLAGS) if platform.machine() == "x86_64" else {}
    if by_file and CPU.exists() and "avx512" not in CPU.read_text():
        by_file["isa_avx512"] = [
            *ISA_FLAGS["isa_avx512"],
            "-fno-sanitize=all",
        ]  # it will not be run, and compiles three times faster so
    program = build("g++", tmp_path, flags=["-O0", "-g1", "-Wno-psabi", *SANITIZERS], by_file=by_file)
    # The sanitizer would otherwise abort where the kernels are to report that memory ran out.
    options = {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0", "OMP_WAIT_POLICY": "passive"}
    run = subprocess.run([str(program)], capture_output=True, text=True, env={**os.environ, **options})
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert " 0 failures" in run.stdout
