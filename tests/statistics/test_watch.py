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


def test_what_is_kept_is_what_the_filters_and_gradients_were(tmp_path):
    model = network()
    training, seen = Training(model), {}

    def remember():
        layers = {name: (flat(model[int(name)].weight), model[int(name)].weight.grad) for name in ("1", "3")}
        seen[training.done] = layers, fc.FilterStatistics.from_model(model).to_records()

    remember()
    with fc.watch(model, tmp_path / "f.watched", every=3, gradients=True) as watch:
        for _ in range(7):
            training.step()
            if watch():
                remember()
    remember()
    watched = fc.Watched.load(tmp_path / "f.watched")
    assert watched.steps == (0, 3, 6, 7) == tuple(seen)
    assert (watched.source, watched.began, watched.notes) == ("Sequential", 0, ())
    for moment in watched:
        layers, records = seen[moment.step]
        for (name, (weight, gradient)), kept, record in zip(layers.items(), moment.to_records(), records, strict=True):
            layer, drift, scale = moment.statistics[name], moment.drift[name], np.abs(weight).max()
            np.testing.assert_allclose(layer.mean, weight.mean(axis=0), rtol=0, atol=1e-7 * scale)
            np.testing.assert_allclose(layer.covariance, np.cov(weight.T), rtol=0, atol=1e-7 * scale**2)
            np.testing.assert_array_equal(moment.filters[name].reshape(-1, weight.shape[1]), weight[followed(12)])
            start = seen[0][0][name][0]
            np.testing.assert_array_equal(watched.start[name].reshape(start.shape), start)
            assert drift.distance == pytest.approx(math.sqrt(((weight - start) ** 2).sum()), rel=1e-12)
            assert drift.relative == pytest.approx(drift.distance / math.sqrt((start**2).sum()), rel=1e-12)
            cosine = (weight * start).sum() / math.sqrt((weight**2).sum() * (start**2).sum())
            assert drift.cosine == pytest.approx(cosine, rel=1e-12)
            assert kept["step"] == moment.step
            assert (name in moment.gradients) == (gradient is not None) == (moment.step > 0)
            if gradient is not None and moment.step == 7:  # the tensor is that of the last step
                expected = np.cov(flat(gradient).T)
                np.testing.assert_allclose(moment.gradients[name].covariance, expected, rtol=1e-5, atol=1e-12)
                assert kept["gradient_norm"] == pytest.approx(float(gradient.norm()), rel=1e-5)
            for key, value in record.items():
                assert kept[key] == (pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value)
    assert watched[-1].drift["1"].distance > watched[1].drift["1"].distance > watched[0].drift["1"].distance == 0
    assert watched.at(5) is watched[1]
    assert len(watched.to_records()) == 8
    assert sorted(contents(watch.path)) == [*(f"0000000{step}.safetensors" for step in watched.steps), START]
    last = fc.FilterStatistics.load(watch.path / "00000007.safetensors")
    np.testing.assert_array_equal(last[0].covariance, watched[-1].statistics[0].covariance)


def state_of(model, optimizer):
    state = [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    moments = [m for entry in optimizer.state_dict()["state"].values() for m in entry.values()]
    return [*state, *moments, torch.get_rng_state()]


def test_a_watched_run_ends_in_the_same_bits_as_one_that_nobody_watched(tmp_path):
    ends = []
    for watched in (False, True):
        model = network()
        nn.utils.parametrizations.spectral_norm(model[3])  # whose state moves when its weight is read in training
        training = Training(model)
        threads, mode = torch.get_num_threads(), torch.is_grad_enabled()
        np.random.seed(5)
        path = tmp_path / "f.watched"
        with fc.watch(model, path, every=1, gradients=True) if watched else contextlib.nullcontext() as watch:
            for _ in range(4):
                training.step()
                if watched:
                    assert watch()
        assert model.training
        assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, mode)
        ends.append((state_of(model, training.optimizer), np.random.random()))
    (plain, drawn), (watched, drawn_too) = ends
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert drawn == drawn_too


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


@pytest.mark.parametrize("stopped_at", [0, 1, 5])
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
    (path / ".00000009.safetensors.0123abcd.tmp").write_bytes(b"half a moment")
    assert fc.Watched.load(path).steps == tuple(range(0, stopped_at + 4, 2))
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


def test_damage_is_found_where_it_is_read(tmp_path):
    path = tmp_path / "f"
    with fc.watch(network(), path, every=1) as watch:
        watch()
    moment = path / "00000001.safetensors"
    whole = moment.read_bytes()
    moment.write_bytes(whole[:-1])
    watched = fc.Watched.load(path)
    assert watched[0].drift["1"].distance == 0
    with pytest.raises(CheckpointError, match="00000001"):
        watched[1].statistics  # noqa: B018
    (path / START).write_bytes(whole)  # a moment in place of the start
    with pytest.raises(CheckpointError, match="not a filtercov watched run"):
        fc.Watched.load(path)


@pytest.mark.parametrize("wrong", [{"every": 0}, {"every": True}, {"step": -1}, {"steps": [1.5]}], ids=str)
def test_numbers_that_mean_nothing_are_refused_before_a_file_is_made(tmp_path, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        fc.watch(network(), tmp_path / "f", **wrong)
    assert not (tmp_path / "f").exists()


def test_wrapped_tied_frozen_and_computed_filters_are_watched_under_their_names(tmp_path):
    model = network()
    twin = nn.Conv2d(12, 12, 5, groups=12)
    twin.weight = model[1].weight
    model.append(twin)  # after the output, where it is found and does not run
    nn.utils.parametrizations.weight_norm(model[3])
    model[1].weight.requires_grad_(False)
    runs = model[:-1]
    with fc.watch(nn.DataParallel(model), tmp_path / "f", every=1, gradients=True) as watch:
        training = Training(runs)
        training.step()
        watch()
    watched = fc.Watched.load(tmp_path / "f")
    assert list(watched.start) == [layer.name for layer in fc.depthwise_layers(model)] == ["1", "3", "8"]
    assert watched.source == "Sequential"
    np.testing.assert_array_equal(watched[1].statistics["1"].covariance, watched[1].statistics["8"].covariance)
    assert watched[1].drift["1"].distance == 0 < watched[1].drift["3"].distance
    assert watched[1].gradients == {}


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


@pytest.mark.parametrize("size", [1e-40, 1.0, 1e40])
def test_filters_of_any_size_keep_their_digits(tmp_path, size):
    model = nn.Sequential(nn.Conv2d(16, 16, 3, groups=16)).double()
    with torch.no_grad():
        model[0].weight.normal_(generator=torch.Generator().manual_seed(0)).mul_(size)
    fc.watch(model, tmp_path / "f")
    [moment] = fc.Watched.load(tmp_path / "f")
    np.testing.assert_allclose(moment.statistics[0].mean, flat(model[0].weight).mean(0), rtol=1e-6)
    assert moment.drift["0"].distance == 0
