"""The command line as a user meets it: what it prints, what it writes, and how it says no."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

import filtercov as fc
from filtercov.cli.app import COMMANDS, _load, app
from filtercov.errors import CheckpointError, ModelError
from filtercov.lab import models
from tests.peers import import_peer
from tools import write_commands


def run(*arguments):
    """Run a command in this process; errors of filtercov's own propagate."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def run_installed(*arguments):
    """Run the installed command in a process of its own."""
    command = Path(sys.executable).with_name("filtercov")
    return subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, check=False)


def run_in_shell(line, **environment):
    """Run the installed command with what a shell makes of the rest of the line."""
    command = Path(sys.executable).with_name("filtercov")
    environment = os.environ | environment
    return subprocess.run(f"{command} {line}", shell=True, env=environment, capture_output=True, text=True, check=False)


def test_info_names_versions_and_the_native_kernels():
    output = run("info")
    assert f"torch           {torch.__version__}" in output
    assert "native kernels" in output
    assert "imagenet-thawed" in output


def test_init_writes_a_checkpoint_that_the_model_loads(tmp_path):
    out = tmp_path / "start.safetensors"
    output = run("init", "convmixer_16_3_k7_p2", "--preset", "cifar-p2", "--num-classes", 10, "--out", out)
    assert "3 of 3 depthwise layers initialised" in output
    model = models.create("convmixer_16_3_k7_p2", num_classes=10)
    model.load_state_dict(safetensors.torch.load_file(out))
    variances = [layer.weight.var().item() for layer in fc.depthwise_layers(model)]
    assert variances == sorted(variances)  # σ grows with depth, and with it the variance


def test_the_same_seed_writes_the_same_checkpoint(tmp_path):
    for name in ("a.pth", "b.pth"):
        run("init", "convmixer_16_2_k7_p2", "--seed", 3, "--out", tmp_path / name)
    a, b = (torch.load(tmp_path / name, weights_only=True) for name in ("a.pth", "b.pth"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_statistics_of_one_checkpoint_initialise_another_model(tmp_path):
    run("init", "convmixer_32_4_k7_p2", "--out", tmp_path / "small.pth")
    output = run("stats", tmp_path / "small.pth", "--out", tmp_path / "small.stats")
    assert "wrote" in output
    assert "nearest schedule: QuadraticSchedule(" in output
    assert len(fc.FilterStatistics.load(tmp_path / "small.stats").layers) == 4
    output = run(
        "init",
        "convmixer_64_8_k7_p2",
        "--statistics",
        tmp_path / "small.stats",
        "--out",
        tmp_path / "large.safetensors",
    )
    assert "8 of 8 depthwise layers initialised" in output


def test_a_model_tells_the_layers_of_a_checkpoint_that_shapes_leave_open(tmp_path):
    run("init", "convmixer_16_2_k7_p2", "--in-channels", 1, "--out", tmp_path / "grey.pth")
    alone = run("stats", tmp_path / "grey.pth", "--out", tmp_path / "grey.stats")
    assert "note: left out stem.0: dense, of one-channel images" in alone
    told = run("stats", tmp_path / "grey.pth", "--like", "convmixer_16_2_k7_p2", "--out", tmp_path / "grey.stats")
    assert "note:" not in told
    assert len(fc.FilterStatistics.load(tmp_path / "grey.stats").layers) == 2


def test_timm_models_are_initialised_by_name(tmp_path):
    timm = import_peer("timm")
    output = run("init", "convnext_zepto_rms", "--num-classes", 5, "--out", tmp_path / "start.safetensors")
    assert "10 of 10 depthwise layers initialised" in output
    model = timm.create_model("convnext_zepto_rms", num_classes=5, checkpoint_path=str(tmp_path / "start.safetensors"))
    written = safetensors.torch.load_file(tmp_path / "start.safetensors")
    for layer in fc.depthwise_layers(model):
        assert torch.equal(layer.weight, written[f"{layer.name}.weight"])


def test_a_model_whose_filters_are_all_small_is_initialised_when_asked_to(tmp_path):
    import_peer("timm")
    arguments = ["init", "mobilenetv2_035", "--num-classes", 5, "--out", tmp_path / "start.safetensors"]
    with pytest.raises(ModelError, match=r"17 × 3x3 is under min_kernel_size=5"):
        run(*arguments)
    assert list(tmp_path.iterdir()) == []
    assert "17 of 17 depthwise layers initialised" in run(*arguments, "--min-kernel-size", 3)
    run("stats", tmp_path / "start.safetensors", "--out", tmp_path / "start.stats")
    assert "17 of 17 depthwise layers initialised" in run(*arguments, "--statistics", tmp_path / "start.stats")


def test_a_schedule_of_three_numbers_is_what_the_filters_are_drawn_from(tmp_path):
    output = run("init", "convmixer_16_3_k7_p2", "--schedule", "0.5,0.5,3", "--out", tmp_path / "start.pth")
    sigmas = [float(line.split("σ = ")[1].split()[0]) for line in output.splitlines() if "σ = " in line]
    assert sigmas == pytest.approx([0.5 + 0.5 * d + 3 / 2 * d * d for d in (0, 0.5, 1)], rel=1e-3)


def test_statistics_are_resized_to_the_networks_filters_and_it_says_so(tmp_path):
    run("init", "convmixer_64_2_k5_p2", "--out", tmp_path / "small.pth")
    run("stats", tmp_path / "small.pth", "--out", tmp_path / "small.stats")
    start = ["--statistics", tmp_path / "small.stats", "--out", tmp_path / "large.pth"]
    output = run("init", "convmixer_32_4_k9_p2", *start)
    assert "4 of 4 depthwise layers initialised" in output
    assert "4 layers resized from 5x5 to 9x9" in output
    assert "resized statistics" not in run("init", "convmixer_32_4_k5_p2", *start)


def spelled(name):
    """Every command's option of a name: its spellings, default and help."""
    found = {}
    for command in COMMANDS:
        for parameter in _load(command).params:
            if parameter.name == name:
                found[command] = (tuple(parameter.opts), parameter.default, parameter.help)
    return found


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("runs", {"train", "compare", "reproduce"}),
        ("data_root", {"train", "compare", "reproduce"}),
        ("download", {"train", "compare", "reproduce"}),
    ],
)
def test_what_several_commands_have_is_spelled_explained_and_set_alike(name, commands):
    found = spelled(name)
    assert found.keys() == commands
    assert len(set(found.values())) == 1
    assert next(iter(found.values()))[0] == (f"--{name.replace('_', '-')}",)


def test_every_flag_is_explained():
    silent = [f"{c} {p.name}" for c in COMMANDS for p in _load(c).params if not p.help]
    assert silent == []


def test_the_page_of_commands_says_what_they_say():
    assert write_commands.PAGE.read_text(encoding="utf-8") == write_commands.page()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["init", "convmixer_16_2_k3_p2", "--out", "x.pth"],
            "init_: needed a layer to initialise, got none of 2 depthwise ones (2 × 3x3 is under min_kernel_size=5); "
            "pass min_kernel_size=3 to initialise them all the same, or transfer the statistics of a trained model",
        ),
        (["init", "convmixer_256", "--out", "x.pth"], "unknown model 'convmixer_256'"),
        (["init", "convmixer_16_2_k7_p2", "--preset", "", "--out", "x.pth"], "unknown preset ''"),
        (["init", "convmixer_16_2_k7_p2", "--out", "."], "needed a name ending in .safetensors or .pth"),
        (["init", "convmixer_16_2_k7_p2", "--preset", "nope", "--out", "x.pth"], "unknown preset 'nope'"),
        (["init", "convmixer_16_2_k7_p2", "--out", "x.onnx"], "needed a name ending in .safetensors or .pth"),
        (
            ["init", "convmixer_16_2_k7_p2", "--preset", "cifar-p2", "--statistics", "x", "--out", "x.pth"],
            "needed one source of filters, got --preset and --statistics; leave out all but one",
        ),
        (
            ["init", "convmixer_16_2_k7_p2", "--schedule", "1,2", "--out", "x.pth"],
            "needed three numbers 'σ0,v,a'",
        ),
        (["init", "convmixer_16_2_k7_p2", "--schedule", "sawtooth:1,2,3", "--out", "x.pth"], "built in stages"),
        (["stats", "missing.pth", "--out", "x"], "missing.pth: needed a checkpoint file, found nothing"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_installed(*arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("filtercov: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_statistics_are_not_measured_again(tmp_path):
    run("init", "convmixer_32_4_k7_p2", "--out", tmp_path / "small.pth")
    run("stats", tmp_path / "small.pth", "--out", tmp_path / "small.stats")
    with pytest.raises(CheckpointError, match=r"small.stats: these are filter statistics already"):
        run("stats", tmp_path / "small.stats", "--out", tmp_path / "again.stats")
    assert not (tmp_path / "again.stats").exists()


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["info", "--help", "reproduce --list"])
def test_output_that_takes_nothing_is_one_sentence_and_exit_code_1(arguments, buffered):
    result = run_in_shell(f"{arguments} >/dev/full", PYTHONUNBUFFERED=buffered)
    assert result.returncode == 1
    assert result.stderr == "filtercov: standard output: cannot be used (No space left on device)\n"


@pytest.mark.parametrize("arguments", ["info", "reproduce --list"])
def test_output_that_is_closed_is_no_error(arguments):
    result = run_in_shell(f"{arguments} >&-")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_statistics_are_not_written_in_place_of_a_directory(tmp_path):
    run("init", "convmixer_32_4_k7_p2", "--out", tmp_path / "small.pth")
    with pytest.raises(CheckpointError, match=r"^\.: cannot be written \(Is a directory\)"):
        run("stats", tmp_path / "small.pth", "--out", ".")


def test_the_version_is_the_packages():
    assert run("--version") == f"filtercov {fc.__version__}\n"


def test_an_unknown_option_is_a_usage_error():
    result = run_installed("init", "--bogus")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
