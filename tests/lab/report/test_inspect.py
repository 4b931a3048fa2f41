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
from filtercov.errors import CheckpointError, CovarianceError, FiltercovError, ModelError, SourceError
from filtercov.lab.report.inspect import inspect, look, measure_target
from filtercov.lab.report.inspect_target import find_target, model_target
from tests.lab.report.watched_files import watched
from tests.peers import import_peer


def network(*kernel_sizes, channels=400, seed=0, source="figure"):
    torch.manual_seed(seed)
    net = nn.Sequential(*(nn.Conv2d(channels, channels, k, groups=channels) for k in kernel_sizes))
    fc.init_(net, source, min_kernel_size=1)
    return net


def measured(net, other=None):
    return measure_target(model_target(net, "a"), None if other is None else model_target(other, "b"))


def test_sigma_and_schedule_of_filters_drawn_from_the_closed_form_are_found_again():
    schedule = fc.QuadraticSchedule(0.3, 0.5, 1.0)
    report = measured(network(7, 7, 7, 7, channels=2000, source=schedule))
    for layer in report.layers:
        assert layer["sigma"] == pytest.approx(schedule(layer["depth"]), rel=0.05)
        assert layer["likeness"] > 0.98
    fitted = [report.schedule(d) for d in (0.0, 0.5, 1.0)]
    assert fitted == pytest.approx([schedule(d) for d in (0.0, 0.5, 1.0)], rel=0.1)
    model = nn.Sequential(*(nn.Conv2d(8, 8, 7, groups=8) for _ in range(3)))
    done = eval(report.paste_line(), {"filtercov": fc, "model": model})
    assert [row.sigma for row in done.initialised] == pytest.approx(fitted, abs=2e-4)


def test_no_schedule_is_offered_where_sigma_exceeds_the_kernel_or_filters_do_not_vary():
    flat, sane = (measured(network(5, 5, 5, 5, source=lambda _, s=s: s)) for s in (30.0, 1.0))
    assert flat.schedule.fit.usable
    assert (flat.paste_line(), flat.as_json()["schedule"]["usable"]) == ("", False)
    assert "exceeds the side of a kernel" in flat.page()
    assert (sane.unusable, sane.paste_line()[:15]) == ("", "filtercov.init_")
    net = network(7, 7, 3, channels=8)
    for layer in net[:2]:
        nn.init.constant_(layer.weight, 0.5)
    constant = measured(net)
    assert (constant.as_json()["schedule"], constant.paste_line()) == (None, "")
    assert "nearest schedule" not in constant.page()
    assert "nan" not in re.sub(r'"data:[^"]*"', "", constant.page())


def test_the_mean_is_its_share_of_the_power_and_json_has_every_number_and_no_nan():
    torch.manual_seed(0)
    conv = nn.Conv2d(64, 64, 5, groups=64)
    nn.init.normal_(conv.weight, mean=0.5)
    [layer] = measured(conv).layers
    filters = conv.weight.detach().flatten(1).double().numpy()
    power = np.square(filters.mean(axis=0)).sum()
    share = power / (power + filters.var(axis=0, ddof=1).sum())
    assert layer["mean_share"] == pytest.approx(share, rel=1e-5)
    net = nn.Sequential(nn.Conv2d(1, 1, 5), nn.Conv2d(8, 8, 1, groups=8), nn.Conv2d(8, 8, (5, 7), groups=8))
    one_pixel, rectangle = json.loads(json.dumps(measured(net, net).as_json(), allow_nan=False))["layers"]
    assert (one_pixel["sigma"], rectangle["kronecker_residual"]) == (None, None)
    assert one_pixel["kronecker_residual"] == pytest.approx(0.0)
    assert rectangle["cosine"] == pytest.approx(1.0)
    assert len(rectangle["eigenvalues"]) == 35


def test_every_kind_of_file_gives_the_same_numbers(tmp_path):
    net = network(5, 7)
    (tmp_path / "run").mkdir()
    safetensors.torch.save_file(net.state_dict(), tmp_path / "weights.safetensors")
    torch.save({"state_dict": net.state_dict()}, tmp_path / "weights.pth")
    fc.FilterStatistics.from_model(net).save(tmp_path / "statistics.safetensors")
    safetensors.torch.save_file(net.state_dict(), tmp_path / "run" / "checkpoint.safetensors")
    kinds = {"weights.safetensors": "checkpoint", "weights.pth": "checkpoint"}
    kinds |= {"statistics.safetensors": "statistics file", "run": "run"}
    expected = measured(net).as_json()["layers"]
    for name, kind in kinds.items():
        report = look(str(tmp_path / name))
        assert report.target.kind == kind
        for layer, same in zip(report.as_json()["layers"], expected, strict=True):
            assert layer["sigma"] == pytest.approx(same["sigma"])
            assert layer["eigenvalues"] == pytest.approx(same["eigenvalues"])
        drawn = "filters drawn from the statistics, which hold none" in report.page()
        assert (drawn, "strongest" in report.page()) == (kind == "statistics file", kind != "statistics file")
    shipped = fc.FilterStatistics.shipped("efficientnet-lite0")
    for name in ("efficientnet-lite0", "stats:efficientnet-lite0"):
        assert [layer.name for layer in find_target(name).statistics] == [layer.name for layer in shipped]


def test_models_by_name_are_seen_as_they_start_and_untrained_ones_show_nothing_beyond_chance(monkeypatch):
    before = torch.random.get_rng_state()
    target = find_target("convmixer_16_3_k5_p2")
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(12345)
    again = find_target("convmixer_16_3_k5_p2")
    assert len(target.filters) == 3
    assert all(np.array_equal(target.filters[name], again.filters[name]) for name in target.filters)
    import_peer("timm")
    report = look("timm:mobilenetv2_035", untrained=True)
    layers = report.layers
    assert sum(bool(layer["effective_rank_beyond_chance"]) for layer in layers) <= 0.02 * len(layers) + 1
    assert report.paste_line() == ""
    with pytest.raises(ModelError, match="no_such_network"):
        find_target("timm:no_such_network", untrained=True)
    monkeypatch.setattr("timm.create_model", lambda *_, **__: (_ for _ in ()).throw(OSError("no network\nat all")))
    with pytest.raises(ModelError, match=r"\(no network\).*--untrained"):
        find_target("timm:test_convnext")


def test_two_files_of_one_name_are_told_apart_as_typed_and_noted_under_their_names(tmp_path, monkeypatch):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        fc.FilterStatistics.from_model(network(5, channels=8)).save(tmp_path / name / "statistics.safetensors")
    monkeypatch.chdir(tmp_path / "x")
    report = look("statistics.safetensors", against="../y/statistics.safetensors")
    assert "<h1>statistics.safetensors against ../y/statistics.safetensors</h1>" in report.page()
    report = look(str(tmp_path / "x"), against="convmixer_8_2_k5_p2")
    own, theirs = report.as_json()["notes"]
    assert ("not finished" in own, theirs.partition(": not trained")[0]) == (True, "convmixer_8_2_k5_p2")
    assert all(f'<p class="note">{note}</p>' in report.page() for note in (own, theirs))


def test_comparison_sees_shape_and_scale_apart_and_carries_the_other_over_to_depth_and_kernel_size():
    net, louder = network(5, 7), network(5, 7)
    with torch.no_grad():
        for layer in louder:
            layer.weight *= 3.0
    for layer in measured(net, louder).layers:
        assert (layer["cosine"], layer["scale"], layer["resized"]) == (pytest.approx(1.0), pytest.approx(3.0), False)
        assert layer["other_sigma"] == pytest.approx(layer["sigma"], rel=1e-4)
    other = network(9, 9, 9, 9)
    report = measured(network(5, 7, 5), other)
    carried = report.against.statistics
    assert [layer.kernel_size for layer in carried] == [(5, 5), (7, 7), (5, 5)]
    assert all(layer["resized"] for layer in report.layers)
    assert [layer["other"] for layer in report.layers] == ["0", "layers 1 and 2, weighted 0.5 : 0.5", "3"]
    first, last = fc.FilterStatistics.from_model(other).layers[1:3]
    halfway = resize_covariance(first.covariance, 9, 7) / 2 + resize_covariance(last.covariance, 9, 7) / 2
    np.testing.assert_allclose(carried[1].covariance, halfway, atol=1e-12)
    with pytest.raises(CovarianceError):
        measured(nn.Conv2d(4, 4, 5, groups=4), nn.Conv1d(4, 4, 5, groups=4))


def test_broken_files_and_targets_that_are_nothing_are_errors_of_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = network(5, channels=8)
    whole = safetensors.torch.save(net.state_dict())
    Path("cut.safetensors").write_bytes(whole[:-50])
    fc.FilterStatistics.from_model(net).save("damaged.safetensors")
    data = Path("damaged.safetensors").read_bytes()
    Path("damaged.safetensors").write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    torch.save(nn.Conv2d(3, 8, 3).state_dict(), "dense.pth")
    net[0].weight.data[3, 0, 1, 1] = math.nan
    torch.save(net.state_dict(), "nan.pth")
    Path("empty").mkdir()
    Path("letter.watched").write_bytes(b"Dear Sir")
    for name in ("watched", "begun", "foreign.watched"):
        watched(Path(name), sizes=((5, 5),))
    last = Path("watched/00000030.safetensors")
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    for moment in Path("begun").glob("0*"):
        moment.unlink()
    Path("foreign.watched/start.safetensors").write_bytes(last.read_bytes())
    kinds = dict.fromkeys(("cut.safetensors", "damaged.safetensors", "dense.pth"), CheckpointError)
    kinds |= dict.fromkeys(("missing.pth", "some/where", "begun"), SourceError) | {"nan.pth": CovarianceError}
    others = "convmixer_1", "empty", "letter.watched", "watched", "foreign.watched", "nothing.watched"
    for target, kind in (kinds | dict.fromkeys(others, FiltercovError)).items():
        with pytest.raises(kind) as caught:
            look(target).page()
        assert "\n" not in str(caught.value)
    with torch.device("meta"), pytest.raises(ModelError, match="meta device"):
        model_target(nn.Conv2d(4, 4, 5, groups=4), "ghost")


def test_a_model_in_memory_is_inspected_alone_or_beside_another(tmp_path):
    net, other = network(5, 7), network(5, 7, seed=1)
    report = inspect(net, label="mine", against=other, out=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == report.page()
    assert "<h1>mine against Sequential</h1>" in report.page()
    assert report.layers[0]["cosine"] > 0.9
    assert inspect(net, against=other).as_json()["against"] == "Sequential beside"
