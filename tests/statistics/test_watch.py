"""Watching real training: what is kept is what the filters were, and training is as if nobody watched."""

import contextlib
import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import CheckpointError, ConfigError, FiltercovWarning, ModelError
from filtercov.statistics.watched import START, followed


def network(seed=0, width=12):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, width, 2, 2),
        nn.Conv2d(width, width, 5, padding=2, groups=width),
        nn.BatchNorm2d(width),
        nn.Conv2d(width, width, (3, 1), padding=(1, 0), groups=width),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 4),
    )


class Training:
    """Steps of AdamW on random images, of which each is a function of the step."""

    def __init__(self, model, lr=0.01):
        self.model = model
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=lr)
        self.done = 0

    def step(self):
        torch.manual_seed(1000 + self.done)
        images, labels = torch.randn(8, 3, 12, 12), torch.randint(4, (8,))
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()
        self.done += 1


def flat(tensor):
    return tensor.detach().double().numpy().reshape(len(tensor), -1)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_filters_that_start_at_zero_have_no_relative_drift(tmp_path):
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 4, 3, groups=4))
    nn.init.zeros_(model[0].weight)
    with fc.watch(model, tmp_path / "f.watched", every=1) as watch:
        nn.init.ones_(model[0].weight)
        nn.init.zeros_(model[1].weight)
        watch()
    grown, gone = fc.Watched.load(tmp_path / "f.watched")[-1].drift.values()
    assert (grown.distance, grown.relative, grown.cosine) == (6.0, None, None)
    assert (gone.relative, gone.cosine) == (1.0, None)


def test_what_is_kept_is_what_the_filters_were(tmp_path):
    model = network()
    training, moments = Training(model), []

    def remember():
        layers = [(name, flat(model[int(name)].weight)) for name in ("1", "3")]
        moments.append((layers, fc.FilterStatistics.from_model(model).to_records()))

    remember()
    with fc.watch(model, tmp_path / "f.watched", every=3) as watch:
        for _ in range(7):
            training.step()
            if watch():
                remember()
    remember()
    watched = fc.Watched.load(tmp_path / "f.watched")
    assert watched.steps == (0, 3, 6, 7)
    assert (watched.source, watched.began) == ("Sequential", 0)
    for moment, (layers, records) in zip(watched, moments, strict=True):
        for (name, weight), kept, record in zip(layers, moment.to_records(), records, strict=True):
            layer, drift, start = moment.statistics[name], moment.drift[name], flat(torch.tensor(watched.start[name]))
            np.testing.assert_allclose(layer.mean, weight.mean(axis=0), rtol=0, atol=1e-7)
            np.testing.assert_allclose(layer.covariance, np.cov(weight.T), rtol=0, atol=1e-7)
            np.testing.assert_array_equal(moment.filters[name].reshape(-1, weight.shape[1]), weight[followed(12)])
            assert drift.distance == pytest.approx(np.linalg.norm(weight - start), rel=1e-12)
            assert drift.relative == pytest.approx(drift.distance / np.linalg.norm(start), rel=1e-12)
            cosine = (weight * start).sum() / np.linalg.norm(weight) / np.linalg.norm(start)
            assert drift.cosine == pytest.approx(cosine, rel=1e-12)
            for key, value in (record | {"step": moment.step}).items():
                assert kept[key] == (pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value)
    np.testing.assert_array_equal(watched.start["1"].reshape(12, 25), moments[0][0][0][1])
    assert watched.at(5) is watched[1]
    assert len(watched.to_records()) == 8
    assert sorted(contents(watch.path)) == [*(f"0000000{step}.safetensors" for step in watched.steps), START]
    assert fc.FilterStatistics.load(watch.path / "00000007.safetensors").source == "Sequential at step 7"


def test_a_watched_run_ends_in_the_same_bits_as_one_that_nobody_watched(tmp_path):
    ends = []
    for watched in (False, True):
        model = network()
        nn.utils.parametrizations.spectral_norm(model[3])  # whose state moves when its weight is read in training
        training = Training(model)
        threads = torch.get_num_threads()
        np.random.seed(5)
        watch = fc.watch(model, tmp_path / "f", every=1) if watched else lambda: True
        for _ in range(4):
            training.step()
            assert watch()
        assert model.training
        assert torch.is_grad_enabled()
        assert torch.get_num_threads() == threads
        moments = [m for entry in training.optimizer.state_dict()["state"].values() for m in entry.values()]
        tensors = [*model.state_dict().values(), *(p.grad for p in model.parameters()), *moments]
        ends.append([*tensors, torch.get_rng_state(), torch.tensor(np.random.random())])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_steps_are_those_asked_for_and_the_last(tmp_path):
    model = network()
    with fc.watch(model, tmp_path / "a", every=None, steps=[1, 4]) as watch:
        assert [watch() for _ in range(6)] == [True, False, False, True, False, False]
    assert fc.Watched.load(tmp_path / "a").steps == (0, 1, 4, 6)
    watch = fc.watch(model, tmp_path / "b", every=10, steps=[13])
    said = [watch(step) for step in (4, 4, 9, 12, 12, 14, 14, 20, 33)]
    assert said == [False, False, False, True, False, True, False, True, True]
    watch.close()
    watch.close()
    assert fc.Watched.load(tmp_path / "b").steps == (0, 12, 14, 20, 33)
    with pytest.raises(ConfigError, match="needed steps that grow, got 5 after 33"):
        watch(5)
    with pytest.raises(KeyError, match="at or before step -1"):
        fc.Watched.load(tmp_path / "b").at(-1)
    with contextlib.suppress(KeyboardInterrupt), fc.watch(model, tmp_path / "c", every=2) as watch:
        watch(3)
        watch()
        watch()
        raise KeyboardInterrupt  # such a run is not over
    assert fc.Watched.load(tmp_path / "c").steps == (0, 3, 4)


@pytest.mark.parametrize("stopped_at", [0, 1, 4])
def test_a_continued_run_leaves_the_files_of_one_that_was_not_interrupted(tmp_path, stopped_at):
    def run(path, training, until, **options):
        watch = fc.watch(training.model, path, every=2, **options)
        while training.done < until:
            training.step()
            watch()
        return watch

    path, training = tmp_path / "died", Training(network())
    run(tmp_path / "whole", Training(network()), 9).close()
    run(path, training, stopped_at)
    kept = copy.deepcopy(training)
    run(path, training, stopped_at + 3, step=stopped_at)  # and as if killed then
    assert fc.Watched.load(path).steps == tuple(range(0, stopped_at + 4, 2))
    (path / ".00000009.safetensors.0123abcd.tmp").write_bytes(b"half a moment")
    (path / "00000004.safetensors").unlink(missing_ok=True)  # which is due where one run continues
    run(path, kept, 9, step=stopped_at).close()
    assert contents(path) == contents(tmp_path / "whole")


def test_directories_that_are_not_this_runs_are_refused_and_left_as_they_are(tmp_path):
    path = tmp_path / "f"
    with fc.watch(network(), path, every=1, step=3) as watch:
        watch()
    assert fc.Watched.load(path).began == 3
    kept = contents(path)
    for wrong in (
        {"model": network()},
        {"model": network(seed=1), "step": 3},
        {"model": network(), "step": 2},
        {"model": network(width=6), "step": 4},
    ):
        with pytest.raises(CheckpointError, match=f"^{path}: needed"):
            fc.watch(path=path, **wrong)
    assert contents(path) == kept
    fc.watch(network(seed=1), path, step=4)  # the same run, as far as can be told
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".start.safetensors.0123abcd.tmp").touch()
    (tmp_path / "letter").write_text("Dear Sir")
    for name in ("letter", "none/f", "x" * 5000):
        with pytest.raises(CheckpointError):
            fc.watch(network(), tmp_path / name)
        with pytest.raises(CheckpointError, match="cannot be read"):
            fc.Watched.load(tmp_path / name)
    fc.watch(network(), tmp_path / "killed", step=0)
    assert sorted(contents(tmp_path / "killed")) == ["00000000.safetensors", START]


@pytest.mark.parametrize("wrong", [{"every": 0}, {"every": True}, {"step": -1}, {"steps": [1.5]}], ids=str)
def test_numbers_that_mean_nothing_are_refused_before_a_file_is_made(tmp_path, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        fc.watch(network(), tmp_path / "f", **wrong)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_of_processes_that_train_together_the_first_writes(tmp_path, monkeypatch, rank):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    watch = fc.watch(network(), tmp_path / "f", every=1)
    assert watch() == (tmp_path / "f").exists() == (rank == 0)


def test_wrapped_tied_frozen_and_computed_filters_are_watched_under_their_names(tmp_path):
    model = network()
    twin = nn.Conv2d(12, 12, 5, groups=12)
    twin.weight = model[1].weight
    model.append(twin)  # after the output, where it is found and does not run
    nn.utils.parametrizations.weight_norm(model[3])
    model[1].weight.requires_grad_(False)
    with fc.watch(nn.DataParallel(model), tmp_path / "f", every=1) as watch:
        Training(model[:-1]).step()
        watch()
    watched = fc.Watched.load(tmp_path / "f")
    assert list(watched.start) == [layer.name for layer in fc.depthwise_layers(model)] == ["1", "3", "8"]
    assert watched.source == "Sequential"
    np.testing.assert_array_equal(watched[1].statistics["1"].covariance, watched[1].statistics["8"].covariance)
    assert watched[1].drift["1"].distance == 0 < watched[1].drift["3"].distance


def test_layers_that_others_replace_are_followed_and_other_layers_refused(tmp_path):
    model = network()
    watch = fc.watch(model, tmp_path / "f", every=1)
    fc.nn.accelerate_(model)
    with torch.no_grad():
        next(layer.module.weight for layer in fc.depthwise_layers(model)).mul_(2)
    assert watch()
    assert fc.Watched.load(tmp_path / "f")[1].drift["1"].relative == pytest.approx(1)
    model[3] = nn.Identity()
    with pytest.raises(ModelError, match="got others, 1 in all"):
        watch()


def test_steps_with_filters_that_are_not_finite_are_left_out_with_a_warning(tmp_path):
    model = network()
    watch = fc.watch(model, tmp_path / "f", every=1)
    with torch.no_grad():
        model[1].weight[0, 0, 0, 0] = math.nan
    with pytest.warns(FiltercovWarning, match="left out step 1: 1: .*nan"):
        assert not watch()
    assert not watch()
    with torch.no_grad():
        model[1].weight[0, 0, 0, 0] = 0
    assert watch()
    assert fc.Watched.load(tmp_path / "f").steps == (0, 3)
    nn.init.constant_(model[1].weight, math.nan)
    with pytest.raises(fc.FiltercovError, match="nan"):
        fc.watch(model, tmp_path / "g")
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_filters_that_vanish_or_diverge_keep_their_digits(tmp_path, size):
    model = network()
    with torch.no_grad():
        model[1].weight.mul_(size)
    fc.watch(model, tmp_path / "f")
    [moment] = fc.Watched.load(tmp_path / "f")
    expected = fc.FilterStatistics.from_model(model)[0]
    np.testing.assert_allclose(moment.statistics[0].covariance, expected.covariance, rtol=1e-6)
