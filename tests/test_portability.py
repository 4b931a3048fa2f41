"""What only POSIX systems have is not used: shown by reading the source."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import filtercov

ROOT = Path(filtercov.__file__).parent
MAIN = "from filtercov.cli import main; main()"
POSIX_MODULES = "crypt fcntl grp nis ossaudiodev pty pwd readline resource spwd syslog termios tty".split()
POSIX_CALLS = (
    "chown fchdir fchmod fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getuid killpg lchown "
    "mkfifo mknod nice posix_fadvise posix_fallocate pread preadv pwrite pwritev sched_getaffinity sched_setaffinity "
    "sched_yield sendfile setsid statvfs sysconf sync tcgetpgrp uname wait3 wait4 O_CLOEXEC O_DIRECTORY O_NOFOLLOW "
    "O_NONBLOCK O_SYNC"
).split()
# Asked for before they are used.
GUARDED = {("files.py", "O_DIRECTORY"), ("lab/experiments/engines.py", "setsid")}
NOT_FILES = {"os", "tarfile", "webbrowser", "zipfile", "Image"}  # whose `open` takes no encoding


def nodes():
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT).as_posix(), node


def test_output_that_cannot_spell_sigma_is_no_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "init", "convmixer_8_2_k5_p4", "--out", tmp_path / "a.safetensors"],
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        encoding="cp1252",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "? = 0.15" in done.stdout


def test_no_module_uses_what_only_posix_has():
    found = set()
    for path, node in nodes():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {(path, name) for name in names if name.split(".")[0] in (*POSIX_MODULES, "posix")}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            found |= {(path, node.attr)} if node.attr in POSIX_CALLS else set()
    assert found == GUARDED


def test_text_is_read_and_written_in_an_encoding_of_ours():
    found = []
    for path, node in nodes():
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(getattr(node.func, "value", None), "id", "")
        binary = any(isinstance(a, ast.Constant) and "b" in str(a.value) for a in node.args)
        text = name in ("read_text", "write_text") or (name == "open" and owner not in NOT_FILES and not binary)
        if text and "encoding" not in {keyword.arg for keyword in node.keywords}:
            found.append(f"{path}:{node.lineno}")
    assert found == []
