"""The command line as a user meets it: what it prints, what it writes, and how it says no."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn
from typer.testing import CliRunner

import filtercov as fc
from filtercov.cli.app import COMMANDS, _load, app
from filtercov.errors import CheckpointError, FiltercovError, ModelError, StorageError
from filtercov.lab import models
from tests.processes import command as run
from tools import write_commands

EVIDENCE = Path(__file__).parents[2] / "evidence"


def run_installed(line, **environment):
    """Run the installed command in a process of its own, with what a shell makes of the rest of the line."""
    command = f"{Path(sys.executable).with_name('filtercov')} {line}"
    environment = os.environ | environment
    return subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)


def test_info_tells_versions_the_native_kernels_and_presets():
    output = run("info")
    assert all(told in output for told in (f"torch           {torch.__version__}", "native kernels", "imagenet-thawed"))


def test_init_writes_a_checkpoint_that_the_model_loads_the_same_for_a_seed(tmp_path):
    words = ["init", "convmixer_16_3_k7_p2", "--preset", "cifar-p2", "--num-classes", 10, "--out"]
    for name in ("start.safetensors", "again.safetensors"):
        assert "3 of 3 depthwise layers initialised" in run(*words, tmp_path / name)
    first, again = ((tmp_path / name).read_bytes() for name in ("start.safetensors", "again.safetensors"))
    assert first == again
    model = models.create("convmixer_16_3_k7_p2", num_classes=10)
    model.load_state_dict(safetensors.torch.load_file(tmp_path / "start.safetensors"))
    variances = [layer.weight.var().item() for layer in fc.depthwise_layers(model)]
    assert variances == sorted(variances)  # σ grows with depth, and with it the variance


def test_statistics_of_one_checkpoint_initialise_another_model_resized_if_need_be(tmp_path):
    run("init", "convmixer_32_4_k7_p2", "--out", tmp_path / "small.pth")
    assert "wrote" in run("stats", tmp_path / "small.pth", "--out", tmp_path / "small.stats")
    assert len(fc.FilterStatistics.load(tmp_path / "small.stats").layers) == 4
    start = ["--statistics", tmp_path / "small.stats", "--out", tmp_path / "large.safetensors"]
    for kernel, resized in ((7, False), (9, True)):
        output = run("init", f"convmixer_64_8_k{kernel}_p2", *start)
        assert "8 of 8 depthwise layers initialised" in output
        assert ("from 7x7" in output) == resized
    with pytest.raises(CheckpointError, match="these are filter statistics already"):
        run("stats", tmp_path / "small.stats", "--out", tmp_path / "again.stats")


def test_a_model_tells_the_layers_of_a_checkpoint_that_shapes_leave_open(tmp_path):
    run("init", "convmixer_16_2_k7_p2", "--in-channels", 1, "--out", tmp_path / "grey.pth")
    alone = run("stats", tmp_path / "grey.pth", "--out", tmp_path / "grey.stats")
    assert "note: left out stem.0: dense, of one-channel images" in alone
    told = run("stats", tmp_path / "grey.pth", "--like", "convmixer_16_2_k7_p2", "--out", tmp_path / "grey.stats")
    assert "note:" not in told
    assert len(fc.FilterStatistics.load(tmp_path / "grey.stats").layers) == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "schedule: noise: no layer is more like the closed form"),
        ("cifar-p2", "schedule: follows 5 of 5 layers (likeness 0.9"),
        ("flat", "  -  "),  # what has no spread has no σ
    ],
)
def test_stats_says_how_good_a_fit_is_and_offers_no_schedule_to_noise(tmp_path, source, said):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(128, 128, 7, groups=128) for _ in range(5)))
    if source == "flat":
        nn.init.ones_(net[0].weight)
    elif source:
        fc.init_(net, source)
    torch.save(net.state_dict(), tmp_path / "net.pth")
    output = run("stats", tmp_path / "net.pth", "--out", tmp_path / "net.stats")
    assert said in output
    assert "likeness  by chance" in output
    assert ("nearest schedule: QuadraticSchedule(" in output) == (source == "cifar-p2")


def test_a_schedule_of_three_numbers_is_what_the_filters_are_drawn_from(tmp_path):
    words = ["init", "convmixer_16_3_k3_p2", "--schedule", "0.5,0.5,3", "--out", tmp_path / "start.pth"]
    with pytest.raises(ModelError):  # small filters are left alone if not asked for
        run(*words)
    output = run(*words, "--min-kernel-size", 3)
    sigmas = [float(line.split("σ = ")[1].split()[0]) for line in output.splitlines() if "σ = " in line]
    assert sigmas == pytest.approx([0.5 + 0.5 * d + 3 / 2 * d * d for d in (0, 0.5, 1)], rel=1e-3)


def test_every_flag_is_explained_and_the_page_of_commands_says_what_they_say():
    assert [f"{c} {p.name}" for c in COMMANDS for p in _load(c).params if not p.help] == []
    assert write_commands.PAGE.read_text(encoding="utf-8") == write_commands.page()


# What a command needs besides the number.
WORDS = {
    "init": ["convmixer_8_2_k5_p2", "--out", "start.pth"],
    "train": ["--model", "convmixer_8_2_k5_p2"],
    "reproduce": ["kronecker", "--scale", "smoke", "--data", "folder:nowhere"],
    "compare": ["--model", "convmixer_8_2_k5_p2"],
}


def numbers():
    params = [(command, param) for command in (*WORDS, "demo", "bench") for param in _load(command).params]
    return [(command, param.opts[0]) for command, param in params if param.type_descriptor.annotation in (int, float)]


@pytest.mark.parametrize(("command", "option"), numbers())
def test_no_option_takes_a_negative_number_and_nothing_is_done(command, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [command, *WORDS.get(command, []), option, "-1"])
    assert result.exit_code == 2 or isinstance(result.exception, FiltercovError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("init convmixer_16_2_k7_p2 --out x.onnx", "needed a name ending in .safetensors or .pth"),
        ("init convmixer_16_2_k7_p2 --preset cifar-p2 --statistics x --out x.pth", "got --preset and --statistics"),
        ("init convmixer_16_2_k7_p2 --schedule 1,2 --out x.pth", "needed three numbers 'σ0,v,a'"),
        ("stats missing.pth --out x", "missing.pth: needed a checkpoint file, found nothing"),
        (f"report {'n' * 300}", "File name too long"),
        ("inspct x.pth", "did you mean `filtercov inspect`?"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_installed(arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("filtercov: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["info", "reproduce --list"])
def test_output_that_takes_nothing_is_one_sentence_and_exit_code_1(words, unbuffered):
    result = run_installed(f"{words} >/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert result.returncode == 1
    assert result.stderr == "filtercov: standard output: cannot be used (No space left on device)\n"


def test_output_that_is_closed_is_no_error_and_an_unknown_option_a_usage_error():
    closed, unknown = run_installed("reproduce --list >&-"), run_installed("init --bogus")
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, "", "")
    assert unknown.returncode == 2
    assert "Traceback" not in unknown.stderr


def test_no_command_writes_over_what_it_reads_or_in_place_of_a_directory_or_file(tmp_path):
    checkpoint, link = tmp_path / "net.pth", tmp_path / "link.pth"
    run("init", "convmixer_16_2_k5_p2", "--out", checkpoint)
    before = checkpoint.read_bytes()
    link.symlink_to(checkpoint)
    size = ["--data-limit", 64, "--batch-size", 32, "--epochs", 1]
    run("train", "--model", "convmixer_4_1_k3_p7", *size, "--run-dir", tmp_path / "run")
    for words in (
        ["stats", link, "--out", checkpoint],
        ["inspect", checkpoint, "--out", link],
        ["inspect", "convmixer_16_2_k5_p2", "--against", checkpoint, "--out", checkpoint],
        ["init", "convmixer_16_2_k5_p2", "--statistics", checkpoint, "--out", checkpoint],
        ["stats", checkpoint, "--out", tmp_path],
        ["keep", tmp_path, "--to", checkpoint],
    ):
        with pytest.raises(FiltercovError):
            run(*words)
        assert checkpoint.read_bytes() == before


@pytest.mark.parametrize(("out", "said"), [("folder", "Is a directory"), ("report.md", "report.html")])
@pytest.mark.parametrize("words", [["report", EVIDENCE], ["reproduce", "kronecker", "--scale", "smoke"]])
def test_a_report_goes_to_a_page_and_not_to_a_directory_or_a_text(words, out, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with pytest.raises(StorageError, match=said):
        run(*words, "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
