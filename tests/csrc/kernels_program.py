"""Compile the kernels together with `kernels_test.cpp`, the program that compares them with the definition."""

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "src" / "filtercov" / "csrc"
FLAGS = ["-std=c++17", "-fopenmp", "-ffp-contract=fast", "-Wall", "-Wextra", "-Werror"]


def build(
    compiler: str,
    folder: Path,
    *,
    flags: Sequence[str],
    linking: Sequence[str] = (),
    by_file: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """Return the program; `linking` are flags of the last step alone, `by_file` those of single sources, by stem."""

    def compiled(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        own = (by_file or {}).get(source.stem, ())
        command = [compiler, *FLAGS, *flags, *own, f"-I{CSRC}", "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        return target

    sources = [*sorted(CSRC.glob("*.cpp")), Path(__file__).with_name("kernels_test.cpp")]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    program = folder / "kernels_test"
    subprocess.run([compiler, *FLAGS, *flags, *linking, *map(str, objects), "-o", str(program)], check=True)
    return program
