"""The page of anyone's runs: grouped by what was trained, with what was left out named."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.errors import ConfigError
from filtercov.lab.experiments.execute import execute
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.report.settings import runs_page
from filtercov.lab.training import TrainConfig


def train(run_dir: Path, init: str = "uniform", lr: float = 0.01) -> None:
    config = TrainConfig(epochs=2, batch_size=30, lr=lr)
    spec = RunSpec(model="convmixer_4_2_k5_p7", data="embedded", data_limit=60, init=init, train=config)
    execute(spec, run_dir)


def test_runs_are_grouped_by_what_was_trained_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    root = tmp_path / "own"
    for init in ("uniform", "closed-form"):
        train(root / init, init)
    for name in ("unfinished", "broken"):
        shutil.copytree(root / "uniform", root / name)
    (root / "unfinished" / "result.json").unlink()
    result = json.loads((root / "broken" / "result.json").read_text())
    (root / "broken" / "result.json").write_text(json.dumps(result | {"test_accuracy": 99.0}))
    out = CliRunner().invoke(app, ["report", str(root), "--out", str(tmp_path / "p.html")])
    assert out.exit_code == 0, out.output
    for said in (
        "<h1>convmixer_4_2_k5_p7 on 60 images of the embedded data, 2 epochs",
        "thawed closed-form imagenet-thawed",
        "left out: unfinished: not finished",
        "left out: run broken is damaged",
        f"2 runs in {root}",
    ):
        assert said in (tmp_path / "p.html").read_text()
    assert f"1 run in {root / 'uniform'}" in runs_page(root / "uniform")[0]
    train(root / "other", lr=0.02)
    html, _ = runs_page(root)
    assert '<p class="lead">2 settings, each with its own table.</p>' in html
    assert all(f"2 epochs, lr {lr}</h2>" in html for lr in (0.01, 0.02))
    assert html.count("<table>") == 2
    with pytest.raises(ConfigError):
        runs_page(tmp_path / "nowhere")
