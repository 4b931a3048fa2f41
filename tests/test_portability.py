"""What only POSIX systems have is not used, and text has an encoding of ours: shown by reading the source."""

import ast
from pathlib import Path

import filtercov

ROOT = Path(filtercov.__file__).parent
MODULES = set("fcntl grp posix pty pwd readline resource syslog termios tty".split())
CALLS = set(
    "chown fork getloadavg getpgid getuid killpg mkfifo nice pread pwrite sched_getaffinity sendfile setsid statvfs "
    "sysconf sync uname O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC".split()
)
# Asked for before they are used.
GUARDED = {("files.py", "O_DIRECTORY"), ("lab/experiments/engines.py", "setsid")}
NOT_FILES = {"os", "tarfile", "webbrowser", "zipfile", "Image"}  # whose `open` takes no encoding


def nodes():
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT).as_posix(), node


def test_no_module_uses_what_only_posix_has():
    imported, called = set(), set()
    for path, node in nodes():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        imported |= {(path, name) for name in names if name.partition(".")[0] in MODULES}
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "os" and node.attr in CALLS:
            called.add((path, node.attr))
    assert imported == set()
    assert called == GUARDED


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
