"""`filtercov train` as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from filtercov import Watched
from filtercov.errors import ConfigError, DataError, ModelError, RunError
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import TrainConfig, load_checkpoint, read_metrics, read_result
from tests.lab.data.folders import write_folder
from tests.peers import import_peer
from tests.processes import command

SMALL = ["--model", "convmixer_8_2_k5_p4", "--data-limit", "64", "--batch-size", "32", "--epochs", "1"]


def run(*words):
    return command("train", *SMALL, *words)


def test_a_run_is_trained_reported_and_found_finished_the_second_time(tmp_path):
    words = ["--run-dir", tmp_path / "run", "--init", "closed-form"]
    first = run(*words, "--freeze-filters")
    accuracy = read_result(tmp_path / "run").test_accuracy
    assert f"{accuracy:.2f} % test accuracy after 1 epoch; the run is {tmp_path / 'run'}" in first
    again = run(*words, "--freeze-filters")
    assert again.splitlines()[-1] == first.splitlines()[-1]
    assert "finished before" in again
    assert (tmp_path / "run" / "statistics.safetensors").exists()
    with pytest.raises(RunError, match="freeze_filters is True there and False here"):
        run(*words)


def test_a_run_for_choosing_a_setting_reports_validation_accuracy(tmp_path):
    output = run("--run-dir", tmp_path / "run", "--evaluate", "validation")
    accuracy = read_result(tmp_path / "run").test_accuracy
    assert f"{accuracy:.2f} % validation accuracy after 1 epoch;" in output
    assert "test" not in output.replace(str(tmp_path), "")
    with pytest.raises(RunError, match="evaluate"):
        run("--run-dir", tmp_path / "run")


def test_flags_reach_the_run_whose_key_names_its_directory(tmp_path):
    flags = "--lr 0.02 --amp --seed 7 --augment none --set opt=sgd --set momentum=0.5 --set smoothing=0.5 "
    flags += "--set weight_decay=0.1 --set drop_path=0.1 --set decay_norms=false --set clip_grad=1 "
    flags += "--set log_interval=1"
    run("--runs", tmp_path, *flags.split())
    settings = {"opt": "sgd", "momentum": 0.5, "smoothing": 0.5, "weight_decay": 0.1, "decay_norms": False}
    train = TrainConfig(epochs=1, batch_size=32, lr=0.02, clip_grad=1.0, amp="bfloat16", seed=7, **settings)
    spec = RunSpec(model=SMALL[1], data="embedded", data_limit=64, augment="none", drop_path=0.1, train=train)
    assert len(read_metrics(tmp_path / spec.key / "metrics.jsonl")) == 2 + 1  # of two steps and an epoch


@pytest.mark.parametrize(
    "words",
    [
        *(["--set", setting] for setting in ("opt_eps", "opt_epz=1", "lr=fast", "opt_eps=-1")),
        ["--init", "closed"],
        ["--runs", "s3://bucket/runs"],
        ["--data", "cifar10", "--data-root", "."],
    ],
)
def test_settings_that_do_not_exist_or_fit_are_refused(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, DataError)):
        run(*words)
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_timms_is_trained_by_the_name_init_takes(tmp_path):
    timm = import_peer("timm")
    folder = write_folder(tmp_path / "imgs", size=(64, 64))
    words = ["--model", "tf_mobilenetv3_small_minimal_100", "--img-size", "64", "--data", f"folder:{folder}"]
    flags = ["--init", "closed-form", "--data-limit", "8", "--batch-size", "4", "--run-dir", tmp_path / "run"]
    with pytest.raises(ModelError):  # the closed form is not for 3x3 filters, as of init_
        run(*words, *flags)
    output = run(*words, *flags, "--min-kernel-size", "2")
    assert "11 of 11 depthwise layers initialised" in output
    assert "after 1 epoch" in output
    trained = timm.create_model("tf_mobilenetv3_small_minimal_100", num_classes=3)
    trained.load_state_dict(load_checkpoint(tmp_path / "run" / "checkpoint.safetensors")[0])
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (stored["model"], stored["schedule"]) == ("tf_mobilenetv3_small_minimal_100", "imagenet-thawed")


def test_torchrun_trains_one_run_in_two_processes_with_the_loss_of_one(tmp_path):
    flags = "--model convnext_atto_div8_p1 --augment cifar --set log_interval=1 --watch 1".split()
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    filtercov = Path(sys.executable).with_name("filtercov")
    for name, launcher in {"one": [], "two": two}.items():
        words = [*launcher, filtercov, "train", *SMALL, *flags, "--run-dir", tmp_path / name]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    metrics = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two")]
    one, two = ([record.get("loss") or record["train_loss"] for record in records] for records in metrics)
    assert two == pytest.approx(one, rel=1e-4)
    watched = [Watched.load(tmp_path / name / "filters.watched") for name in ("one", "two")]
    assert watched[0].steps == watched[1].steps == (0, 1, 2)
