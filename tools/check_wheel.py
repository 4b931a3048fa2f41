"""Install the wheel in dist as a stranger would, and use it: `make test-wheel` builds it first.

Every environment is fresh, has no compiler on its path, and takes the versions that the lock files pin. One has the
library alone, from the wheel and then by `pip install .` from the source archive; the others an extra each. Of the
extras timm is left out: torchvision's wheel, which it needs, does not load beside the pinned CPU build of torch.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-frameworks.lock", "requirements-peers.lock")

INIT = """
import filtercov, torch
from torch import nn
model = nn.Sequential(*[nn.Conv2d(32, 32, 7, padding=3, groups=32) for _ in range(3)])
assert len(filtercov.init_(model).initialised) == 3
assert all(len(filtercov.init_(model, "stats:" + name).initialised) == 3 for name in filtercov.REFERENCES)
filtercov.nn.accelerate_(model)
model(torch.randn(2, 32, 8, 8)).sum().backward()
"""
KERNELS = "import filtercov.nn; status = filtercov.nn.native_status(); print(status); assert status.available"

# What each extra is for, tried once: a command, or lines of Python.
USES: dict[str, list[str]] = {
    "lab": [
        "filtercov info",
        "filtercov init convmixer_32_4_k9_p2 --out start.safetensors",
        "filtercov reproduce --list",
        "filtercov demo --out demo",
    ],
    "jax": [
        "import sys, jax, filtercov.jax\n"
        "assert filtercov.jax.gaussian(0.5)(jax.random.key(0), (7, 7, 1, 8)).shape == (7, 7, 1, 8)\n"
        "assert 'torch' not in sys.modules"
    ],
    "keras": [
        "import os; os.environ['KERAS_BACKEND'] = 'torch'\n"
        "import filtercov.keras\n"
        "assert filtercov.keras.Gaussian(0.5, seed=0)((7, 7, 8, 1)).shape == (7, 7, 8, 1)"
    ],
    "lab,ray": ["filtercov reproduce kronecker --scale smoke --engine ray --data embedded --cpus-per-run 1"],
}


def pinned() -> set[str]:
    """Return the pins of all lock files; one lock includes another, which pip would install and not only heed."""
    lines = [line for lock in LOCKS for line in (ROOT / lock).read_text(encoding="utf-8").splitlines()]
    return {line for line in lines if "==" in line}


class Environment:
    """A fresh virtual environment whose path leads to nothing but itself: no compiler, no other Python."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
        self.bin = directory / "venv" / "bin"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.environment = kept | {"PATH": str(self.bin), "CC": "false", "CXX": "false"}
        self.pins = directory / "constraints.txt"
        self.pins.write_text("\n".join(sorted(pinned())), encoding="utf-8")

    def run(self, *command: str | Path) -> None:
        """Run a program of the environment in an empty directory, or stop with what it said."""
        program, *arguments = command
        subprocess.run(
            [self.bin / program, *arguments], cwd=self.directory, env=self.environment, check=True, timeout=1800
        )

    def install(self, what: str) -> float:
        """Install with pip what the lock files allow, and return the seconds it took."""
        started = time.monotonic()
        self.run("pip", "--disable-pip-version-check", "--quiet", "install", "-c", self.pins, what)
        return time.monotonic() - started


def check(wheel: Path, extra: str) -> None:
    """Install the wheel with an extra in an environment of its own, and use both."""
    with tempfile.TemporaryDirectory(prefix="filtercov-wheel-") as directory:
        env = Environment(Path(directory))
        seconds = env.install(f"{wheel}[{extra}]" if extra else str(wheel))
        print(f"[{extra or 'no extra'}] installed in {seconds:.0f} s", flush=True)
        env.run("python", "-c", KERNELS)
        env.run("python", "-c", INIT)
        if "lab" not in extra:
            env.run("python", "-c", "from importlib.util import find_spec; assert find_spec('typer') is None")
        for use in USES.get(extra, []):
            env.run(*(use.split() if use.startswith("filtercov ") else ("python", "-c", use)))
        if not extra:
            check_source(env)


def check_source(env: Environment) -> None:
    """Replace the wheel by the source: without a compiler everything works, and says that kernels are off."""
    (archive,) = (ROOT / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(env.directory, filter="data")
    seconds = env.install(str(env.directory / archive.name.removesuffix(".tar.gz")))
    print(f"[pip install .] installed in {seconds:.0f} s", flush=True)
    env.run("python", "-c", INIT)
    env.run("python", "-c", KERNELS.replace("assert status", "assert not status"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="an extra, or 'none'; may be repeated")
    options = parser.parse_args()
    (wheel,) = (ROOT / "dist").glob("*.whl")
    for extra in ["", *USES]:
        if options.only is None or (extra or "none") in options.only:
            check(wheel, extra)
    print("the wheel installs and works")


if __name__ == "__main__":
    main()
