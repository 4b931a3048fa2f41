"""A process that runs a command of filtercov on every file it is told of, under a limit on its memory.

It reads a JSON list of [kind, path] and prints a JSON line for each: the exit code, and what was printed.
"""

import io
import json
import resource
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from filtercov.cli import main
from filtercov.files import MEMORY


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def run(*arguments: str) -> dict[str, object]:
    """Run one command; anything but an orderly exit is named."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["filtercov", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        code: object = end.code or 0
    except BaseException as error:
        code = f"{type(error).__name__}: {error}"[:300]
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    work, listed = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    run("info")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    limit = address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for kind, path in listed:
        command = ("inspect", path, "--json") if kind == "statistics" else ("stats", path, "--out", str(work / "out"))
        print(json.dumps({"kind": kind, "path": path, **run(*command)}), flush=True)
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(json.dumps({"taken": taken}), flush=True)
