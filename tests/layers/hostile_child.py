"""Run a command of filtercov on every file of a JSON list of [kind, path], under a limit on memory.

It prints a JSON line for each, with its exit code and what was printed, and a last one with the memory taken.
"""

import io
import json
import resource
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from filtercov.cli import main
from filtercov.files import MEMORY


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(*arguments: str) -> dict[str, object]:
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["filtercov", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        code: object = end.code or 0
    except BaseException as error:  # anything but an orderly exit is named
        code = f"{type(error).__name__}: {error}"[:300]
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    work, listed = sys.argv[1:]
    run("info")
    before = memory()
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (addresses + MEMORY, addresses + MEMORY))
    for kind, path in json.loads(Path(listed).read_text()):
        command = ("inspect", path, "--json") if kind == "statistics" else ("stats", path, "--out", f"{work}/out")
        print(json.dumps({"kind": kind, "path": path, **run(*command)}), flush=True)
    print(json.dumps({"taken": memory() - before}), flush=True)
