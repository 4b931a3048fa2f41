"""Watched runs in numbers: what is said of them is what their filters do, and nothing that chance would do too."""

import io
import json
import re
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import nn
from typer.testing import CliRunner

import filtercov as fc
from filtercov.cli import main
from filtercov.cli.app import app
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CheckpointError, FiltercovError, TargetError
from filtercov.lab.report.inspect import find_target, look
from filtercov.lab.report.watched import WatchedReport
from filtercov.lab.report.watched_animation import frame
from filtercov.lab.report.watched_compare import beside_one_covariance
from filtercov.lab.report.watched_data import most_moments
from filtercov.lab.report.watched_run import chosen_moments, read_watched
from tests.lab.report.watched_files import network, watched
from tests.peers import import_peer


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def report_of(path: Path, **more: Any) -> WatchedReport:
    found = look(str(path), **more)
    assert isinstance(found, WatchedReport)
    return found


def test_json_has_every_number_of_every_moment_and_since_when_it_is_beyond_chance(tmp_path: Path) -> None:
    path = watched(tmp_path / "f.watched", [0.0, 0.0, 1.0, 1.0])
    result = run("inspect", path, "--json")
    numbers = json.loads(result.stdout)
    records = fc.Watched.load(path).to_records()
    assert [moment["step"] for moment in numbers["moments"]] == [0, 10, 20, 30]
    shown = [{"step": moment["step"], **layer} for moment in numbers["moments"] for layer in moment["layers"]]
    for record, layer in zip(records, shown, strict=True):
        for key in ("step", "name", "sigma", "likeness", "likeness_chance", "effective_rank", "relative_distance"):
            assert layer[key] == record[key]
        covariance = fc.Watched.load(path).at(record["step"]).statistics[record["name"]].covariance
        np.testing.assert_allclose(layer["eigenvalues"], np.linalg.eigvalsh(covariance)[::-1], atol=1e-12)
    since = [layer["beyond_chance_since"]["likeness"] for layer in numbers["layers"]]
    assert since == [None, 20, 20, 20, None]
    assert [layer["kernel_size"] for layer in numbers["layers"]] == ["5x5", "5x5", "3x5", "7", "3x3x3"]
    assert numbers["kind"] == "watched run"


def test_structure_that_went_away_again_has_not_appeared_and_some_is_there_from_the_start(tmp_path: Path) -> None:
    strayed = report_of(watched(tmp_path / "a", [0.0, 1.0, 1.0, 0.0])).as_json()["layers"]
    assert [layer["beyond_chance_since"]["likeness"] for layer in strayed] == [None] * 5
    net = network(((5, 5),))
    fc.init_(net, lambda _: 0.4, seed=0)
    with fc.watch(net, tmp_path / "b", every=1) as watch:
        watch()
    rows, _ = report_of(tmp_path / "b").table()
    assert rows[1][-1] == "start"


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
    assert "No layer was more like the closed form than independent filters are at step 0, 3 at step 30." in lines
    assert "Structure that stayed appeared first in layer 2, by step 20, and last in layer 4, by step 20." in lines
    assert lines[-1] == f"wrote {tmp_path / 'p.html'}"


def test_nothing_is_said_of_noise(tmp_path: Path) -> None:
    path = watched(tmp_path / "f", [0.0] * 6, sizes=((9, 9),) * 8, layers=(), count=48)
    report = report_of(path)
    rows, sentences = report.table()
    assert {row[-1] for row in rows[1:]} == {"–"}
    assert (
        sentences[0]
        == "No layer was more like the closed form than independent filters are at step 0, none at step 50."
    )
    assert not any("appeared" in sentence for sentence in sentences)


def test_two_samples_of_one_covariance_are_not_told_apart_and_two_covariances_are() -> None:
    rng = np.random.default_rng(0)
    size, count = (7, 7), 64

    def sample(cov: Any) -> LayerStatistics:
        values, vectors = np.linalg.eigh(cov)
        filters = rng.normal(size=(count, 49)) * np.sqrt(values.clip(0)) @ vectors.T
        return LayerStatistics("layer", size, count, filters.mean(axis=0), np.cov(filters.T))

    noise, small, large = np.eye(49), *(fc.gaussian_covariance(size, sigma) for sigma in (0.5, 2.0))
    strayed = 0
    for cov in (noise, small, large):
        judged = [beside_one_covariance(sample(cov), sample(3 * cov), rng) for _ in range(40)]
        strayed += sum((number.value or 0) < (number.low or 0) for number in judged)
        middle = np.mean([number.value for number in judged])
        assert np.mean([number.chance for number in judged]) == pytest.approx(middle, abs=0.06)
    assert strayed <= 2  # of 120
    for one, other in ((noise, small), (small, large), (noise, large)):
        judged = [beside_one_covariance(sample(one), sample(other), rng) for _ in range(5)]
        assert all((number.value or 0) < (number.low or 0) for number in judged)


def test_two_runs_are_compared_moment_by_moment(tmp_path: Path) -> None:
    sizes = ((5, 5),) * 2
    one = watched(tmp_path / "one", [0.0, 0.5, 1.0], sizes=sizes, layers=(0, 1), count=96, sigma=0.5)
    same = watched(tmp_path / "same", [0.0, 0.5, 1.0], sizes=sizes, layers=(0, 1), count=96, seed=7, sigma=0.5)
    other = watched(tmp_path / "other", [0.0, 0.5, 1.0], sizes=sizes, layers=(1,), count=96, seed=7, sigma=0.5)
    together = report_of(one, against=str(same))
    assert [pair["apart"] for pair in together.as_json()["comparison"]] == [False, False]
    assert "end in one place as far as so many filters can tell" in together.table()[1][0]
    numbers = json.loads(run("inspect", one, "--against", other, "--json").stdout)
    assert [pair["apart"] for pair in numbers["comparison"]] == [True, False]
    for place, (mine, theirs) in enumerate(zip(fc.Watched.load(one), fc.Watched.load(other), strict=True)):
        for pair in numbers["comparison"]:
            a, b = (m.statistics[pair["name"]].covariance.ravel() for m in (mine, theirs))
            assert pair["cosines"][place] == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)), rel=1e-12)
    assert numbers["against"]["target"] == "other"
    result = run("inspect", one, "--against", other, "--out", tmp_path / "p.html")
    assert "one and other end in different places in 1 of 2 layers" in result.stdout
    assert re.search(r"^1\. 0 .* apart$", result.stdout, re.M)
    assert re.search(r"^2\. 1 .* not told apart$", result.stdout, re.M)


def test_two_runs_of_one_name_are_told_apart_from_wherever_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        watched(tmp_path / name / "run", [0.0], sizes=((5, 5),))
    monkeypatch.chdir(tmp_path / "x")
    for one, other in (("run", "../y/run"), ("../y/run", "run")):
        first, second = (run.label for run in report_of(Path(one), against=other)._runs)
        assert first == "run"
        assert second == ("y/run" if other != "run" else "x/run")


def test_where_the_other_run_goes_on_nothing_is_said_of_its_end(tmp_path: Path) -> None:
    long = watched(tmp_path / "long", [0.0, 0.5, 1.0], sizes=((5, 5),), layers=(0,), count=96)
    short = watched(tmp_path / "short", [0.0, 0.5], sizes=((5, 5),), layers=(0,), count=96)
    assert "short and long are at step 10 in one place" in report_of(short, against=str(long)).table()[1][0]
    assert "long and short end in" in report_of(long, against=str(short)).table()[1][0]


def test_a_table_of_some_of_the_moments_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    run_file = watched(tmp_path / "run", [0.0, 1.0, 0.0, 1.0, 1.0], sizes=((5, 5),), layers=(0,), count=96)
    assert not any("Looked at" in sentence for sentence in report_of(run_file).table()[1])
    monkeypatch.setattr("filtercov.lab.report.watched.most_moments", lambda *_, **__: 3)
    assert report_of(run_file).table()[1][-1].startswith("Looked at 3 of 5 moments, evenly spaced")


def test_the_other_run_is_taken_where_it_was_until_then(tmp_path: Path) -> None:
    sizes = ((5, 5),)
    long = watched(tmp_path / "long", [0.0, 0.2, 0.4, 0.6, 1.0], sizes=sizes, layers=(0,))
    short = watched(tmp_path / "short", [0.0, 1.0], sizes=sizes, layers=(0,), seed=3)
    (pair,) = report_of(long, against=str(short)).as_json()["comparison"]
    last = fc.Watched.load(short)[-1].statistics[0].covariance
    expected = [
        float(np.vdot(m.statistics[0].covariance, last))
        / np.linalg.norm(m.statistics[0].covariance) / np.linalg.norm(last)
        for m in fc.Watched.load(long).moments[1:]
    ]  # fmt: skip
    assert pair["cosines"][1:] == pytest.approx(expected)


def test_runs_of_different_networks_and_other_things_are_not_compared(tmp_path: Path) -> None:
    path = watched(tmp_path / "a", sizes=((5, 5),))
    for name, other in (("names", ((5, 5), (5, 5))), ("sizes", ((7, 7),))):
        watched(tmp_path / name, sizes=other)
        with pytest.raises(TargetError, match="needed a run of the same 1 depthwise layers to compare with a, got"):
            look(str(path), against=str(tmp_path / name))
    torch.save(nn.Conv2d(8, 8, 5, groups=8).state_dict(), tmp_path / "w.pth")
    with pytest.raises(TargetError, match=r"w\.pth: needed another watched run to compare a with, found none"):
        look(str(path), against=str(tmp_path / "w.pth"))
    with pytest.raises(TargetError, match="needed one network, got a watched run; look at it with"):
        look("convmixer_8_2_k5_p2", against=str(path))
    with pytest.raises(TargetError, match="needed one network, got a watched run"):
        find_target(str(path))
    with pytest.raises(TargetError, match="for an example input, got a watched run"):
        look(str(path), example=(3, 32, 32))


def test_foreign_damaged_and_empty_files_get_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letter.watched").write_bytes(b"Dear Sir")
    for name in ("damaged", "begun", "foreign.watched"):
        watched(tmp_path / name, sizes=((5, 5),))
    last = tmp_path / "damaged" / "00000030.safetensors"
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    for moment in (tmp_path / "begun").glob("0*"):
        moment.unlink()
    (tmp_path / "foreign.watched" / "start.safetensors").write_bytes(last.read_bytes())
    files = {
        "letter.watched": "cannot be read",
        "damaged": "do not match its checksum, it is damaged",
        "begun": "needed a watched run with a moment in it, it has just begun",
        "foreign.watched": "not a filtercov watched run",
    }
    for name, said in files.items():
        with pytest.raises((CheckpointError, TargetError), match=said):
            look(str(tmp_path / name)).page()
        monkeypatch.setattr("sys.argv", ["filtercov", "inspect", str(tmp_path / name)])
        with pytest.raises(SystemExit, match="1"):
            main()
        assert re.fullmatch(rf"filtercov: [^\n]*{said}[^\n]*\n", capsys.readouterr().err)
    monkeypatch.setattr("sys.argv", ["filtercov", "inspect", "convmixer_8_2_k5_p2", "--animate", "a.gif"])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "--animate: needed a watched run" in capsys.readouterr().err


def test_a_run_stands_for_its_weights_where_it_has_some_and_says_that_it_was_watched(tmp_path: Path) -> None:
    watched(tmp_path / "filters.watched", sizes=((5, 5),))
    begun = report_of(tmp_path)
    assert begun.run.label == tmp_path.name
    fc.FilterStatistics.from_model(network(((5, 5),))).save(tmp_path / "statistics.safetensors")
    found = look(str(tmp_path))
    assert not isinstance(found, WatchedReport)
    assert any("filters.watched shows how its filters came about" in note for note in found.notes)
    report = report_of(tmp_path / "filters.watched", against=str(tmp_path))
    assert [run.source.name for run in report._runs] == [str(tmp_path / "filters.watched")] * 2


def test_a_run_can_be_looked_at_while_it_goes_on(tmp_path: Path) -> None:
    net, path = network(((5, 5),)), tmp_path / "f"
    watch = fc.watch(net, path, every=1)
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            with torch.no_grad():
                net[0].weight.mul_(1.001)
            watch()

    writer = threading.Thread(target=train)
    writer.start()
    try:
        seen = [len(report_of(path).run.watched)]
        while len(seen) < 20 or seen[-1] < seen[0] + 20:
            report = report_of(path)
            seen.append(len(report.run.watched))
            assert len(report.table()[0]) == 2
    finally:
        stop.set()
        writer.join()
    assert seen == sorted(seen)


def test_a_page_has_room_for_so_many_moments_and_json_for_all(tmp_path: Path) -> None:
    path = watched(tmp_path / "f", [0.0] * 230, sizes=((3, 3),), layers=(), count=8)
    run_, report = read_watched(path), report_of(path)
    moments = chosen_moments(run_, most_moments(run_, runs=1))
    assert len(moments) == 200
    assert (moments[0].step, moments[-1].step) == (0, 2290)
    assert "The page has 200 of the moments." in report.page()
    assert len(report.as_json()["moments"]) == 230
    wide = watched(tmp_path / "wide", [0.0] * 2, sizes=((31, 31),) * 12, layers=(), count=4)
    assert 3 <= most_moments(read_watched(wide), runs=1) < 30


def test_pictures_and_animations_are_of_the_moments(tmp_path: Path) -> None:
    path = watched(tmp_path / "f.watched", [0.0, 0.3, 0.6, 1.0])
    run("inspect", path, "--png", tmp_path / "png", "--animate", tmp_path / "a.png")
    run("inspect", path, "--animate", tmp_path / "a.gif")
    assert sorted(p.name for p in (tmp_path / "png").iterdir()) == ["step-0.png", "step-10.png", "step-30.png"]
    for name, kind in (("a.png", "PNG"), ("a.gif", "GIF")):
        with Image.open(tmp_path / name) as moving:
            assert (moving.format, moving.n_frames) == (kind, 4)  # type: ignore[attr-defined]
            frames = []
            for place in range(4):
                moving.seek(place)
                frames.append(np.asarray(moving.convert("RGB")).astype(int))
        assert all(np.abs(early - late).max() > 50 for early, late in pairwise(frames))
        with Image.open(io.BytesIO((tmp_path / "png" / "step-0.png").read_bytes())) as still:
            near = np.abs(np.asarray(still.convert("RGB")).astype(int) - frames[0])
        assert np.mean(near) < 3
    assert not Path("inspect.html").exists()


def said(report: WatchedReport, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Return what is written on a picture of the first moment, and how far each line is from the right edge."""
    found = []

    def text(pen: ImageDraw.ImageDraw, at: tuple[float, float], words: str, _: object, font: Any) -> None:
        found.append((words, pen.im.size[0] - at[0] - pen.textlength(words, font)))

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    frame(report._histories, 0)
    return found


def test_labels_on_pictures_leave_room_for_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = watched(tmp_path / f"{'模型' * 20}-closed-form-seed0.watched", sizes=((5, 5),), layers=(0,))
    short = watched(tmp_path / "short", sizes=((5, 5),), layers=(0,))
    lines = said(report_of(long, against=str(short)), monkeypatch)
    heading, first, second = (words for words, _ in lines if not words.startswith(("layer", "σ", "chance")))
    assert heading.endswith("watched, step 0 of 30")
    assert first.endswith("watched")
    assert all(line.startswith("模型") and "…" in line for line in (heading, first))
    assert second == "short"
    assert min(room for _, room in lines) >= 12


def test_a_network_of_timms_is_watched_for_a_few_steps(tmp_path: Path) -> None:
    timm = import_peer("timm")
    torch.manual_seed(0)
    net = timm.create_model("test_convnext", num_classes=4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    with fc.watch(net, tmp_path / "f", every=1) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(2, 3, 64, 64)).square().mean().backward()
            optimizer.step()
            watch()
    rows, sentences = report_of(tmp_path / "f").table()
    assert len(rows) == 1 + len(fc.depthwise_layers(net))
    assert any(sentence.startswith("Filters moved by") for sentence in sentences)
    assert "ConvNeXt while it trained" in report_of(tmp_path / "f").page()


def test_constant_filters_have_no_sigma_and_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(1, 1, 3))
    nn.init.zeros_(net[0].weight)
    with fc.watch(net, tmp_path / "f", every=1) as watch:
        watch()
    report = report_of(tmp_path / "f", against=str(tmp_path / "f"))
    json.dumps(report.as_json(), allow_nan=False)
    assert report.as_json()["comparison"][0]["apart"] is None
    assert "Nothing can be said" in report.table()[1][0]
    alone = report_of(tmp_path / "f")
    assert alone.table()[0][1][3] == "– → –"
    assert [words for words, _ in said(alone, monkeypatch) if "σ" in words] == ["σ –"]
    assert alone.page()
    with pytest.raises(FiltercovError):
        look(str(tmp_path / "nothing.watched"))
