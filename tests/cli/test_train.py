"""`filtercov train` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from filtercov.cli.train import train
from filtercov.errors import ConfigError, RunMismatchError
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import TrainConfig, read_metrics, read_result

APP = typer.Typer()
APP.command()(train)
SMALL = ["--model", "convmixer_8_2_k5_p4", "--data-limit", "64", "--batch-size", "32", "--epochs", "1"]


def run(*arguments):
    """Run the command in this process; errors of ours come through."""
    return CliRunner().invoke(APP, [*SMALL, *map(str, arguments)], catch_exceptions=False)


def test_a_run_is_trained_reported_and_found_finished_the_second_time(tmp_path):
    first = run("--run-dir", tmp_path / "run", "--init", "closed-form", "--freeze-filters")
    assert first.exit_code == 0
    accuracy = read_result(tmp_path / "run").test_accuracy
    assert f"{accuracy:.2f} % test accuracy after 1 epochs; the run is {tmp_path / 'run'}" in first.output
    again = run("--run-dir", tmp_path / "run", "--init", "closed-form", "--freeze-filters")
    assert again.output.splitlines()[-1] == first.output.splitlines()[-1]
    assert (tmp_path / "run" / "statistics.safetensors").exists()
    with pytest.raises(RunMismatchError, match="freeze_filters is True there and False here"):
        run("--run-dir", tmp_path / "run", "--init", "closed-form")


def test_a_run_for_choosing_a_setting_reports_validation_accuracy(tmp_path):
    output = run("--run-dir", tmp_path / "run", "--evaluate", "validation").output
    accuracy = read_result(tmp_path / "run").test_accuracy
    assert f"{accuracy:.2f} % validation accuracy after 1 epochs" in output
    assert "test" not in output.replace(str(tmp_path), "")
    with pytest.raises(RunMismatchError, match="evaluate"):
        run("--run-dir", tmp_path / "run")


def test_flags_reach_the_configuration(tmp_path):
    flags = "--lr 0.02 --weight-decay 0.1 --opt sgd --momentum 0.5 --sched cosine --warmup-epochs 0.5 --smoothing 0.1"
    more = "--clip-grad 1.0 --amp --model-ema --model-ema-decay 0.5 --seed 7 --augment none --drop-path 0.1"
    run("--run-dir", tmp_path / "run", "--no-decay-norms", *flags.split(), *more.split())
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert TrainConfig.from_dict(stored["train"]) == TrainConfig(
        epochs=1,
        batch_size=32,
        lr=0.02,
        weight_decay=0.1,
        decay_norms=False,
        opt="sgd",
        momentum=0.5,
        sched="cosine",
        warmup_epochs=0.5,
        smoothing=0.1,
        clip_grad=1.0,
        amp="bfloat16",
        ema_decay=0.5,
        seed=7,
    )
    assert (stored["augment"], stored["drop_path"], stored["data"]) == ("none", 0.1, "embedded")


def test_without_a_directory_the_run_is_named_by_its_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run()
    spec = RunSpec(model=SMALL[1], data="embedded", data_limit=64, train=TrainConfig(epochs=1, batch_size=32))
    assert read_result(tmp_path / "runs" / spec.key) is not None


def test_a_bad_flag_is_refused_with_a_sentence_and_no_directory_is_made(tmp_path):
    with pytest.raises(ConfigError, match="unknown initialisation 'closed'"):
        run("--run-dir", tmp_path / "run", "--init", "closed")
    assert not (tmp_path / "run").exists()


def test_torchrun_trains_one_run_in_two_processes_with_the_loss_of_one(tmp_path):
    flags = [*SMALL, "--model", "convnext_atto_div8_p1", "--augment", "cifar", "--log-interval", "1"]
    for name, launcher in {
        "one": [sys.executable],
        "two": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    }.items():
        done = subprocess.run(
            [*launcher, Path(__file__).with_name("train_script.py"), *flags, "--run-dir", tmp_path / name],
            capture_output=True,
            text=True,
            timeout=300,
            env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-2000:]
    curves = [
        [r.get("loss") or r["train_loss"] for r in read_metrics(tmp_path / n / "metrics.jsonl")] for n in ("one", "two")
    ]
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)
