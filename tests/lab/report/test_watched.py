"""Watched runs in numbers: what is said of them is what their filters do, and nothing that chance would do too."""

import json
import re

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

import filtercov as fc
from filtercov.cli.app import app
from filtercov.lab.report.inspect import Report, look
from filtercov.lab.report.watched import most_moments
from tests.lab.report.watched_files import network, watched


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def since(path):
    return [row[-1] for row in look(str(path)).table()[1:]]


def test_nothing_is_said_of_noise_nor_of_structure_that_went_away_again(tmp_path):
    report = look(str(watched(tmp_path / "f", [0.0] * 6, sizes=((9, 9),) * 8, layers=(), count=48)))
    assert {row[-1] for row in report.table()[1:]} == {"–"}
    assert report.finding.startswith("None of 8 layers are more like the closed form than independent filters are at")
    assert since(watched(tmp_path / "a", [0.0, 1.0, 1.0, 0.0])) == ["–"] * 5
    net = network(((5, 5),))
    fc.init_(net, lambda _: 0.4, seed=0)
    with fc.watch(net, tmp_path / "b", every=1) as watch:
        watch()
    assert since(tmp_path / "b") == ["start"]
    constant = nn.Conv2d(8, 8, 3, groups=8)
    nn.init.zeros_(constant.weight)
    with fc.watch(constant, tmp_path / "c", every=1) as watch:
        watch()
    json.dumps(look(str(tmp_path / "c")).as_json(), allow_nan=False)
    assert look(str(tmp_path / "c")).table()[1][3] == "– → –"


def test_the_terminal_has_a_row_for_each_layer_and_says_what_chance_would_not(tmp_path):
    path = watched(tmp_path / "f.watched")
    lines = run("inspect", path, "--out", tmp_path / "p.html").stdout.splitlines()
    head, rows = lines[0], lines[1:6]
    names = ["layer", "size", "filters", "σ", "likeness", "by chance", "moved", "structure since"]
    assert re.split(r" {2,}", head) == names
    assert [line.split()[-1] for line in rows] == ["–", "20", "20", "20", "–"]
    records = fc.Watched.load(path)[-1].to_records()
    for line, record in zip(rows, records, strict=True):
        assert f"{record['relative_distance']:.2f}" in line
        sigma = f"{record['sigma']:.2f}"
        assert f"→ {sigma if record['likeness_beyond_chance'] else f'({sigma})'} " in line
    assert lines[6:] == [
        "3 of 5 layers are more like the closed form than independent filters are at step 30, none at step 0.",
        f"wrote {tmp_path / 'p.html'}",
    ]
    numbers = json.loads(run("inspect", path, "--json").stdout)
    assert (numbers["kind"], numbers["records"]) == ("watched run", fc.Watched.load(path).to_records())


def test_a_page_and_a_table_have_room_for_so_many_moments_and_json_for_all(tmp_path):
    report = look(str(watched(tmp_path / "f", [0.0] * 230, sizes=((3, 3),), layers=(), count=8)))
    moments = report.moments
    assert (len(moments), moments[0].step, moments[-1].step) == (200, 0, 2290)
    assert "230 moments from step 0 to 2290; here are 200, evenly spaced." in report.page()
    assert len(report.as_json()["records"]) == 230
    wide = watched(tmp_path / "wide", [0.0] * 2, sizes=((31, 31),) * 12, layers=(), count=4)
    assert 3 <= most_moments(fc.Watched.load(wide)) < 30


def test_a_run_stands_for_its_weights_and_a_watched_run_beside_another_for_its_end(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    one, other = (watched(tmp_path / n / "filters.watched", sizes=((5, 5),) * 2, layers=(0, 1)) for n in "ab")
    report = look(str(one), against=str(tmp_path / "b"))
    last = fc.Watched.load(other)[-1]
    assert [layer["cosine"] for layer in report.layers] == pytest.approx([1.0, 1.0])
    assert report.against.label == "b"
    np.testing.assert_array_equal(report.against.statistics[0].covariance, last.statistics[0].covariance)
    assert any("step 30" in note for note in report.notes)
    assert look(str(tmp_path / "a")).as_json()["kind"] == "watched run"
    fc.FilterStatistics.from_model(network(((5, 5),))).save(tmp_path / "a" / "statistics.safetensors")
    assert isinstance(look(str(tmp_path / "a")), Report)
