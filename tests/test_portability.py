"""What is only on POSIX systems is not needed: shown by taking it away, and by reading the source."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import filtercov
from tests.windows_like import POSIX_CALLS, POSIX_MODULES

ROOT = Path(filtercov.__file__).parent
SCRIPT = Path(__file__).with_name("windows_like.py")
MAIN = "from filtercov.cli import main; main()"
# Asked for before they are used.
GUARDED = {("files.py", "O_DIRECTORY"), ("lab/experiments/local.py", "setsid")}
NOT_FILES = {"os", "tarfile", "webbrowser", "zipfile", "Image"}  # whose `open` takes no encoding


def nodes():
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT).as_posix(), node


def test_all_modules_import_and_a_run_is_trained_without_what_windows_lacks(tmp_path):
    size = "--model convmixer_8_2_k5_p4 --data-limit 64 --batch-size 32 --epochs 1 --init closed-form".split()
    done = subprocess.run(
        [sys.executable, SCRIPT, "train", *size, "--run-dir", tmp_path / "run"],
        # The locale's encoding is ASCII, which any text of ours would overstep; Windows knows users by USERNAME.
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "USERNAME": "someone"},
        capture_output=True,
        encoding="cp1252",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "% test accuracy after 1 epoch" in done.stdout
    assert json.loads((tmp_path / "run" / "result.json").read_text())["epochs"] == 1
    assert b"\r" not in (tmp_path / "run" / "metrics.jsonl").read_bytes()


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


def test_no_module_imports_what_only_posix_has():
    found = set()
    for path, node in nodes():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {(path, name) for name in names if name.split(".")[0] in (*POSIX_MODULES, "posix")}
    assert found == set()


def test_no_module_calls_what_only_posix_has():
    found = {
        (path, node.attr)
        for path, node in nodes()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
        if node.attr in POSIX_CALLS
    }
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
