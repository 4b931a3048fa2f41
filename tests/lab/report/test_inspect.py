"""What `filtercov inspect` measures and compares, for every kind of target."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance import resize_covariance
from filtercov.errors import CheckpointError, FiltercovError, ModelError, SourceError
from filtercov.lab import models
from filtercov.lab.report.inspect import Report, inspect, look
from filtercov.lab.report.inspect_numbers import compare_targets, measure_target
from filtercov.lab.report.inspect_target import find_target, model_target
from tests.peers import import_peer


def network(*kernel_sizes: int, channels: int = 400, seed: int = 0, source: object = "figure") -> nn.Sequential:
    torch.manual_seed(seed)
    net = nn.Sequential(*(nn.Conv2d(channels, channels, k, groups=channels) for k in kernel_sizes))
    fc.init_(net, source, min_kernel_size=1)
    return net


def test_sigma_and_schedule_of_filters_drawn_from_the_closed_form_are_found_again() -> None:
    schedule = fc.QuadraticSchedule(0.3, 0.5, 1.0)
    net = network(7, 7, 7, 7, channels=2000, source=schedule)
    inspection = measure_target(model_target(net, "net"))
    for layer in inspection.layers:
        assert layer.sigma == pytest.approx(schedule(layer.depth), rel=0.05)
        assert layer.likeness > 0.98
    assert inspection.schedule is not None
    for d in (0.0, 0.5, 1.0):
        assert inspection.schedule(d) == pytest.approx(schedule(d), rel=0.1)


def test_pasted_line_initialises_with_the_fitted_schedule() -> None:
    inspection = measure_target(model_target(network(5, 5, 5), "net"))
    fitted = inspection.schedule
    model = nn.Sequential(*(nn.Conv2d(8, 8, 7, groups=8) for _ in range(3)))
    report = eval(inspection.paste_line(), {"filtercov": fc, "model": model})
    assert fitted is not None
    assert [row.sigma for row in report.initialised] == pytest.approx([fitted(d) for d in (0.0, 0.5, 1.0)], abs=2e-4)


def test_closed_form_beside_a_layer_is_at_its_least_squares_scale() -> None:
    torch.manual_seed(0)
    [layer] = measure_target(model_target(nn.Conv2d(64, 64, 5, groups=64), "unlike the closed form")).layers
    closed, cov = layer.closed_form, layer.statistics.covariance
    nearest = np.linalg.norm(cov - closed)
    assert nearest < np.linalg.norm(cov - 1.01 * closed)
    assert nearest < np.linalg.norm(cov - 0.99 * closed)


def test_every_kind_of_file_gives_the_same_numbers(tmp_path: Path) -> None:
    net = network(5, 7)
    safetensors.torch.save_file(net.state_dict(), tmp_path / "weights.safetensors")
    torch.save({"state_dict": net.state_dict()}, tmp_path / "weights.pth")
    fc.FilterStatistics.from_model(net).save(tmp_path / "statistics.safetensors")
    run = tmp_path / "run"
    run.mkdir()
    safetensors.torch.save_file(net.state_dict(), run / "checkpoint.safetensors")
    (run / "result.json").write_text("{}")
    expected = Report(measure_target(model_target(net, "net"))).as_json()["layers"]
    kinds = {}
    for name in ("weights.safetensors", "weights.pth", "statistics.safetensors", "run"):
        found = look(str(tmp_path / name)).as_json()
        kinds[name] = found["kind"]
        for layer, same in zip(found["layers"], expected, strict=True):
            assert layer["sigma"] == pytest.approx(same["sigma"])
            assert layer["eigenvalues"] == pytest.approx(same["eigenvalues"])
    assert list(kinds.values()) == ["checkpoint", "checkpoint", "statistics file", "run"]


def test_our_models_are_seen_as_they_start_and_leave_the_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    target = find_target("convmixer_16_3_k5_p2")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert "not trained" in target.notes[0]
    torch.manual_seed(12345)
    again = find_target("convmixer_16_3_k5_p2")
    assert all(np.array_equal(target.filters[name], again.filters[name]) for name in target.filters)
    assert len(target.filters) == len(fc.depthwise_layers(models.create("convmixer_16_3_k5_p2", num_classes=10)))


def test_timm_models_are_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    import_peer("timm")
    report = look("timm:test_convnext", untrained=True)
    assert report.inspection.layers[0].kernel_size == (7, 7)
    with pytest.raises(ModelError, match="no_such_network"):
        find_target("timm:no_such_network", untrained=True)
    monkeypatch.setattr("timm.create_model", lambda *_, **__: (_ for _ in ()).throw(OSError("no network\nat all")))
    with pytest.raises(
        ModelError, match=r"pretrained weights \(no network\); name a checkpoint file, or add --untrained"
    ):
        find_target("timm:test_convnext")


@pytest.mark.parametrize("name", ["timm:convnext_atto", "timm:mobilenetv2_035"])
def test_an_untrained_network_of_somebody_elses_shows_nothing_beyond_chance(name: str) -> None:
    import_peer("timm")
    report = look(name, untrained=True)
    layers = report.inspection.layers
    beyond = [(layer.name, key) for layer in layers for key, n in layer.structure.numbers().items() if n.beyond_chance]
    assert len(beyond) <= 0.02 * 6 * len(layers) + 1
    assert report.inspection.paste_line() == ""
    assert "To start another network" not in report.page()


def test_the_effective_receptive_field_of_a_model_is_seen_before_and_after(tmp_path: Path) -> None:
    report = look("convmixer_16_2_k5_p2", against="convmixer_16_4_k5_p2", example=(3, 32, 32))
    numbers = report.as_json()
    own, other = numbers["receptive_field"], numbers["against_receptive_field"]
    assert own["size"] == other["size"] == [32, 32]
    assert own["radius"]["value"] < other["radius"]["value"] < other["widest"]  # two layers look less far than four
    assert report.page().count("effective receptive field of convmixer") == 2
    assert look("convmixer_16_2_k5_p2").as_json()["receptive_field"] is None
    safetensors.torch.save_file(network(5).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(SourceError, match="needed a model by its name for an example input, got a checkpoint"):
        look(str(tmp_path / "w.safetensors"), example=(3, 32, 32))


def test_two_files_of_one_name_are_told_apart_by_their_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        torch.save(network(5, channels=8).state_dict(), tmp_path / name / "model.pth")
    monkeypatch.chdir(tmp_path / "x")
    report = look("model.pth", against="../y/model.pth")
    numbers = report.as_json()
    assert (numbers["target"], numbers["against"]) == ("x/model.pth", "y/model.pth")
    page = report.page()
    assert "<h1>x/model.pth against y/model.pth</h1>" in page
    assert "<h4>y/model.pth: 0</h4>" in page
    assert look("model.pth", against=str(tmp_path / "y" / "model.pth")).as_json()["against"] == "y/model.pth"
    same = look("model.pth", against="model.pth").as_json()
    assert (same["target"], same["against"]) == ("model.pth", "model.pth")


def test_what_is_odd_about_the_other_target_is_said_under_its_name(tmp_path: Path) -> None:
    fc.FilterStatistics.from_model(network(5, channels=8)).save(tmp_path / "statistics.safetensors")
    report = look(str(tmp_path), against="convmixer_8_2_k5_p2")
    own = "the run is not finished: this is its last checkpoint"
    theirs = "convmixer_8_2_k5_p2: not trained: these are the filters the network starts with"
    assert report.notes == (own, theirs)
    assert report.as_json()["notes"] == [own, theirs]
    for note in (own, theirs):
        assert f'<p class="note">{note}</p>' in report.page()


def test_filters_that_do_not_vary_have_no_schedule() -> None:
    net = network(7, 7, 3, channels=8)
    for layer in net[:2]:
        nn.init.constant_(layer.weight, 0.5)
    report = Report(measure_target(model_target(net, "flat")))
    assert report.inspection.schedule is None
    assert report.as_json()["schedule"] is None
    page = report.page()
    assert "filters that vary: there is no schedule to fit" in page
    assert "nearest schedule" not in page
    assert "nan" not in re.sub(r'"data:[^"]*"', "", page)


def test_comparison_sees_shape_and_scale_apart() -> None:
    net = network(5, 7)
    inspection = measure_target(model_target(net, "a"))
    with torch.no_grad():
        for layer in net:
            layer.weight *= 3.0
    for comparison, own in zip(
        compare_targets(inspection, model_target(net, "louder")), inspection.layers, strict=True
    ):
        assert comparison.cosine == pytest.approx(1.0)
        assert comparison.scale == pytest.approx(3.0)
        assert comparison.other.sigma == pytest.approx(own.sigma, rel=1e-4)
        assert not comparison.resized


def test_comparison_carries_the_other_over_to_depth_and_kernel_size() -> None:
    inspection = measure_target(model_target(network(5, 7, 5), "a"))
    other = model_target(network(9, 9, 9, 9), "b")
    comparisons = compare_targets(inspection, other)
    assert [comparison.other.kernel_size for comparison in comparisons] == [(5, 5), (7, 7), (5, 5)]
    assert all(comparison.resized for comparison in comparisons)
    assert [comparison.other.name for comparison in comparisons] == ["0", "layers 1 and 2, weighted 0.5 : 0.5", "3"]
    first, last = other.statistics.layers[1:3]
    halfway = resize_covariance(first.covariance, 9, 7) / 2 + resize_covariance(last.covariance, 9, 7) / 2
    np.testing.assert_allclose(comparisons[1].other.statistics.covariance, halfway, atol=1e-12)


def test_comparing_filters_of_different_dimensions_is_a_sentence() -> None:
    flat = measure_target(model_target(nn.Conv2d(4, 4, 5, groups=4), "flat"))
    with pytest.raises(SourceError, match=r"line: cannot be compared with .* which has 5×5 filters"):
        compare_targets(flat, model_target(nn.Conv1d(4, 4, 5, groups=4), "line"))


def test_json_holds_every_number_and_no_nan(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(1, 1, 5), nn.Conv2d(8, 8, 1, groups=8), nn.Conv2d(8, 8, (5, 7), groups=8))
    fc.FilterStatistics.from_model(net).save(tmp_path / "s.safetensors")
    report = look(str(tmp_path / "s.safetensors"), against=str(tmp_path / "s.safetensors"))
    numbers = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert len(numbers["layers"]) == 2
    one_pixel, rectangle = numbers["layers"]
    assert one_pixel["sigma"] is None
    assert one_pixel["kronecker_residual"] == pytest.approx(0.0)
    assert rectangle["kronecker_residual"] is None
    assert rectangle["comparison"]["cosine"] == pytest.approx(1.0)
    assert np.array(rectangle["pixel_variance"]).shape == (5, 7)


def broken_files(tmp_path: Path) -> dict[str, Path]:
    net = network(5, channels=8)
    whole = tmp_path / "whole.safetensors"
    safetensors.torch.save_file(net.state_dict(), whole)
    fc.FilterStatistics.from_model(net).save(tmp_path / "statistics.safetensors")
    files = {
        name: tmp_path / name for name in ("cut.safetensors", "cut.pth", "dense.pth", "nan.pth", "damaged.safetensors")
    }
    files["cut.safetensors"].write_bytes(whole.read_bytes()[:-50])
    torch.save(net.state_dict(), tmp_path / "whole.pth")
    files["cut.pth"].write_bytes((tmp_path / "whole.pth").read_bytes()[:-500])
    torch.save(nn.Conv2d(3, 8, 3).state_dict(), files["dense.pth"])
    net[0].weight.data[3, 0, 1, 1] = math.nan
    torch.save(net.state_dict(), files["nan.pth"])
    data = bytearray((tmp_path / "statistics.safetensors").read_bytes())
    data[-3] ^= 1
    files["damaged.safetensors"].write_bytes(data)
    return files


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cut.safetensors", CheckpointError),
        ("cut.pth", CheckpointError),
        ("dense.pth", CheckpointError),
        ("nan.pth", SourceError),
        ("damaged.safetensors", CheckpointError),
    ],
)
def test_broken_files_are_errors_of_one_line(tmp_path: Path, name: str, kind: type[FiltercovError]) -> None:
    with pytest.raises(kind) as caught:
        look(str(broken_files(tmp_path)[name]))
    assert "\n" not in str(caught.value)


def test_targets_that_are_nothing_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for target in ("missing.pth", "some/where", "convmixer_1", "empty"):
        with pytest.raises(FiltercovError):
            look(target)
    with torch.device("meta"), pytest.raises(SourceError, match="meta device"):
        model_target(nn.Conv2d(4, 4, 5, groups=4), "ghost")


def test_no_schedule_is_offered_where_sigma_exceeds_the_kernel() -> None:
    flat = measure_target(model_target(network(5, 5, 5, 5, source=lambda _: 30.0), "flat"))
    sane = measure_target(model_target(network(5, 5, 5, 5, source=lambda _: 1.0), "sane"))
    assert flat.schedule is not None
    assert flat.schedule.fit.usable
    assert (flat.too_wide, flat.paste_line(), flat.as_json()["schedule"]["usable"]) == (True, "", False)
    assert "QuadraticSchedule" not in Report(flat).page()
    assert (sane.too_wide, sane.paste_line()[:15]) == (False, "filtercov.init_")


def test_a_model_in_memory_is_inspected_alone_or_beside_another(tmp_path: Path) -> None:
    net, other = network(5, 7), network(5, 7, seed=1)
    report = inspect(net, label="mine", against=other, out=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == report.page()
    assert "<h1>mine against Sequential</h1>" in report.page()
    assert report.comparisons[0].cosine > 0.9
    assert inspect(net).as_json()["target"] == "Sequential"
