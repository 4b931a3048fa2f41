"""Watched runs in numbers: what is said of them is what their filters do, and nothing that chance would do too."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import filtercov as fc
from filtercov.cli.app import app
from filtercov.errors import CheckpointError, FiltercovError, SourceError
from filtercov.lab.report.inspect import Report, look
from filtercov.lab.report.watched import WatchedReport, most_moments
from tests.lab.report.watched_files import network, watched


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def report_of(path: Path) -> WatchedReport:
    found = look(str(path))
    assert isinstance(found, WatchedReport)
    return found


def test_json_has_every_number_of_every_moment_and_since_when_it_is_beyond_chance(tmp_path: Path) -> None:
    path = watched(tmp_path / "f.watched", [0.0, 0.0, 1.0, 1.0])
    result = run("inspect", path, "--json")
    numbers = json.loads(result.stdout)
    records = fc.Watched.load(path).to_records()
    shown = [record for layer in numbers["layers"] for record in layer["moments"]]
    assert sorted(shown, key=lambda record: (record["step"], record["name"])) == records
    since = [layer["beyond_chance_since"] for layer in numbers["layers"]]
    assert since == [None, 20, 20, 20, None]
    assert [layer["name"] for layer in numbers["layers"]] == ["0", "1", "2", "3", "4"]
    assert numbers["kind"] == "watched run"


def test_structure_that_went_away_again_has_not_appeared_and_some_is_there_from_the_start(tmp_path: Path) -> None:
    strayed = report_of(watched(tmp_path / "a", [0.0, 1.0, 1.0, 0.0])).as_json()["layers"]
    assert [layer["beyond_chance_since"] for layer in strayed] == [None] * 5
    net = network(((5, 5),))
    fc.init_(net, lambda _: 0.4, seed=0)
    with fc.watch(net, tmp_path / "b", every=1) as watch:
        watch()
    assert report_of(tmp_path / "b").table()[1][-1] == "start"


def test_the_terminal_has_a_row_for_each_layer_and_says_what_chance_would_not(tmp_path: Path) -> None:
    path = watched(tmp_path / "f.watched")
    result = run("inspect", path, "--out", tmp_path / "p.html")
    lines = result.stdout.splitlines()
    head, rows = lines[0], lines[1:6]
    assert re.split(r" {2,}", head) == [
        "layer", "size", "filters", "σ", "likeness", "by chance", "moved", "structure since",
    ]  # fmt: skip
    assert [line.split()[-1] for line in rows] == ["–", "20", "20", "20", "–"]
    records = fc.Watched.load(path)[-1].to_records()
    for line, record in zip(rows, records, strict=True):
        assert f"{record['relative_distance']:.2f}" in line
        sigma = f"{record['sigma']:.2f}"
        assert (f"→ {sigma} " in line) == bool(record["likeness_beyond_chance"])
        assert (f"→ ({sigma}) " in line) != bool(record["likeness_beyond_chance"])
    assert (
        "3 of 5 layers are more like the closed form than independent filters are at step 30, none at step 0." in lines
    )
    assert "Structure that stayed appeared first in layer 2, by step 20, and last in layer 4, by step 20." in lines
    moved = sorted((record["relative_distance"], int(record["name"]) + 1) for record in records)
    least, most = (f"{size:.2g} (layer {layer})" for size, layer in (moved[0], moved[-1]))
    assert f"Filters moved by {least} to {most} of their size at the start." in lines
    assert lines[-1] == f"wrote {tmp_path / 'p.html'}"


def test_nothing_is_said_of_noise(tmp_path: Path) -> None:
    path = watched(tmp_path / "f", [0.0] * 6, sizes=((9, 9),) * 8, layers=(), count=48)
    report = report_of(path)
    rows, sentences = report.table(), report.findings()
    assert {row[-1] for row in rows[1:]} == {"–"}
    assert sentences[0].startswith("None of 8 layers are more like the closed form than independent filters are at")
    assert not any("appeared" in sentence for sentence in sentences)


def test_a_page_and_a_table_have_room_for_so_many_moments_and_json_for_all(tmp_path: Path) -> None:
    report = report_of(watched(tmp_path / "f", [0.0] * 230, sizes=((3, 3),), layers=(), count=8))
    moments = report.moments
    assert (len(moments), moments[0].step, moments[-1].step) == (200, 0, 2290)
    assert "Looked at 200 of 230 moments" in report.page()
    assert report.findings()[-1].startswith("Looked at 200 of 230 moments")
    assert len(report.as_json()["layers"][0]["moments"]) == 230
    wide = watched(tmp_path / "wide", [0.0] * 2, sizes=((31, 31),) * 12, layers=(), count=4)
    assert 3 <= most_moments(fc.Watched.load(wide)) < 30


def test_the_ends_of_two_watched_runs_are_compared_like_any_targets(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    one, other = (watched(tmp_path / n / "filters.watched", sizes=((5, 5),) * 2, layers=(0, 1)) for n in "ab")
    report = look(str(one), against=str(tmp_path / "b"))
    assert isinstance(report, Report)
    last = fc.Watched.load(other)[-1]
    assert [layer.numbers["cosine"] for layer in report.layers] == pytest.approx([1.0, 1.0])
    assert report.against is not None
    assert report.against.label == "b"
    np.testing.assert_array_equal(report.against.statistics[0].covariance, last.statistics[0].covariance)
    assert any("step 30" in note for note in report.notes)
    torch.save(network(((5, 5),) * 3).state_dict(), tmp_path / "w.pth")
    assert isinstance(look(str(tmp_path / "w.pth"), against=str(one)), Report)


def test_a_run_stands_for_its_weights_where_it_has_some(tmp_path: Path) -> None:
    watched(tmp_path / "filters.watched", sizes=((5, 5),))
    assert report_of(tmp_path).label == tmp_path.name
    fc.FilterStatistics.from_model(network(((5, 5),))).save(tmp_path / "statistics.safetensors")
    found = look(str(tmp_path))
    assert isinstance(found, Report)
    assert any("filters.watched shows how its filters grew" in note for note in found.notes)


def test_foreign_damaged_and_empty_files_are_errors_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "letter.watched").write_bytes(b"Dear Sir")
    for name in ("damaged", "begun", "foreign.watched"):
        watched(tmp_path / name, sizes=((5, 5),))
    last = tmp_path / "damaged" / "00000030.safetensors"
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    for moment in (tmp_path / "begun").glob("0*"):
        moment.unlink()
    (tmp_path / "foreign.watched" / "start.safetensors").write_bytes(last.read_bytes())
    for name in ("letter.watched", "damaged", "begun", "foreign.watched", "nothing.watched"):
        with pytest.raises(FiltercovError) as caught:
            look(str(tmp_path / name)).page()
        assert "\n" not in str(caught.value)
    with pytest.raises((CheckpointError, SourceError)):
        look("convmixer_8_2_k5_p2", against=str(tmp_path / "begun"))


def test_constant_filters_have_no_sigma(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(1, 1, 3))
    nn.init.zeros_(net[0].weight)
    with fc.watch(net, tmp_path / "f", every=1) as watch:
        watch()
    report = report_of(tmp_path / "f")
    json.dumps(report.as_json(), allow_nan=False)
    assert report.table()[1][3] == "– → –"
    assert report.page()
