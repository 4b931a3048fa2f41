"""What is left on a real terminal, tmux's, after Ctrl-C, after continuing and at the end."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
COMMAND = Path(sys.executable).with_name("filtercov")
PATIENCE = 300.0  # seconds, of a test that would otherwise wait for ever


class Terminal:
    """A pane of tmux in which commands are typed."""

    def __init__(self, directory: Path) -> None:
        self._socket = [str(TMUX), "-S", f"{directory}/socket"]
        self.tmux("new-session", "-d", "-x", "80", "-y", "60", "env PS1='$ ' sh")

    def type(self, *words: object) -> None:
        """Type a command, after which the terminal's `ended` is told."""
        done = shlex.join([*self._socket, "wait-for", "-S", "ended"])
        self.tmux("send-keys", "-l", f"clear; {shlex.join(map(str, words))}; echo exit $?; {done}")
        self.tmux("send-keys", "Enter")

    def wait(self) -> list[str]:
        """Return the lines of the screen when the command has ended, without prompts and what `exit_code` then is."""
        self.tmux("wait-for", "ended")
        lines = self.tmux("capture-pane", "-p").splitlines()
        *shown, ended = [line for line in lines if line.strip() and not line.startswith("$")]
        self.exit_code = int(ended.removeprefix("exit "))
        return shown

    def tmux(self, *words: str) -> str:
        command = [*self._socket, "-f", os.devnull, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


@pytest.fixture
def terminal():
    with tempfile.TemporaryDirectory(prefix="tmux-") as directory:  # a socket's path must be short
        opened = Terminal(Path(directory))
        yield opened
        opened.tmux("kill-server")


def until(condition):
    """Wait for something that a child process does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_leaves_its_epochs_and_nothing_of_the_bar(terminal, tmp_path):
    size = ["--model", "convmixer_16_4_k9_p2", "--data-limit", 2000, "--batch-size", 50, "--epochs", 3]
    command = [COMMAND, "train", *size, "--set", "log_interval=1", "--run-dir", tmp_path / "run"]
    terminal.type(*command)
    metrics = tmp_path / "run" / "metrics.jsonl"
    until(lambda: metrics.exists() and metrics.read_text().count("\n") > 45)  # of 40 steps in an epoch
    terminal.tmux("send-keys", "C-c")
    stopped = terminal.wait()
    assert terminal.exit_code == 130
    text = " ".join(line.strip() for line in stopped)
    assert "━" not in text
    assert text.count("stopped on request after step") == 1
    assert "run the same command again to continue" in text  # no word is broken
    assert sum(line.startswith("epoch 1/3") for line in stopped) == 1
    step = text.partition("after step ")[2].split()[0]

    terminal.type(*command)
    ended = terminal.wait()
    text = " ".join(line.strip() for line in ended)
    assert "━" not in text
    assert ended[0] == f"resuming at step {step} of 120"
    assert [line.split()[1] for line in ended[1:3]] == ["2/3", "3/3"]
    assert "% test accuracy after 3 epochs; the run is" in text
    assert text.count("accuracy") == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_that_is_stopped_leaves_a_count_and_a_sentence_and_ends_with_its_table(terminal, tmp_path, workers):
    command = [COMMAND, "reproduce", "kronecker", "--scale", "smoke", "--workers", workers, "--runs", tmp_path]
    terminal.type(*command, "--seeds", 60)
    until(lambda: any(tmp_path.glob("*/result.json")))
    terminal.tmux("send-keys", "C-c")
    text = " ".join(line.strip() for line in terminal.wait())
    assert terminal.exit_code == 130
    assert "running" not in text
    assert len(re.findall(r" of \d+ done", text)) == 1
    assert text.endswith("filtercov: stopped; what is done is kept, run the same command again to continue")

    terminal.type(*command, "--seeds", 1)
    lines = terminal.wait()
    text = " ".join(line.strip() for line in lines)
    assert lines[0] == "kronecker, scale smoke: 7 runs"
    assert text.count("7 of 7 done") == 1
    assert "running" not in text
    assert text.count("Smaller than in the paper") == 1
    assert "it shows that the code runs, its accuracies mean nothing." in text  # no word is broken
    assert sum("kronecker" in line and "frozen" in line for line in lines) == 1


def test_a_list_fits_the_terminal(terminal):
    terminal.type(COMMAND, "reproduce", "--list", "imagenet-to-cifar", "--scale", "smoke")
    text = " ".join(" ".join(terminal.wait()).split())
    for word in "imagenet-to-cifar covariances learned help other".split():
        assert word in text.split()
