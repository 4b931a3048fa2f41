"""A run is known by the content of what it reads: what changed under an old name never gives the old result."""

import dataclasses
import io
import json
import os
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

import filtercov as fc
from filtercov.errors import DamagedRunError, RunMismatchError
from filtercov.lab.data import load
from filtercov.lab.experiments import runspec
from filtercov.lab.experiments.attempt import attempt
from filtercov.lab.experiments.execute import build_model, execute
from filtercov.lab.experiments.graph import Run, transferred
from filtercov.lab.experiments.inputs import read_inputs
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.sweep import sweep
from tests.lab.experiments.tiny import spec


def write_statistics(path, seed):
    """Statistics of a small network of that seed."""
    network = build_model(spec(seed=seed), load("embedded", limit=512))
    fc.FilterStatistics.from_model(network).save(path)


def write_images(folder, *, seed=0, size=28):
    """Two classes of random grey images in train/ and test/."""
    rng = np.random.default_rng(seed)
    for split, count in (("train", 64), ("test", 16)):
        for label in ("a", "b"):
            (folder / split / label).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = rng.integers(0, 255, (size, size), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / label / f"{number}.png")
    return folder


def swept(run, root):
    """Sweep one run, as a command does; return what was said."""
    words = io.StringIO()
    outcomes = sweep([run], root, stream=words)
    assert outcomes[run.key].status == "done"
    return words.getvalue()


def test_overwritten_statistics_are_another_run_to_a_sweep_and_an_error_to_train(tmp_path):
    write_statistics(tmp_path / "s.safetensors", seed=1)
    run, runs = Run(spec(init=f"stats:{tmp_path}/s.safetensors")), Runs(tmp_path / "runs")
    swept(run, runs.root)
    before = runs.result(run)
    execute(run.spec, tmp_path / "mine")

    write_statistics(tmp_path / "s.safetensors", seed=2)
    with pytest.raises(RunMismatchError, match=r"inputs\.init is '\w+' there and '\w+' here"):
        execute(run.spec, tmp_path / "mine")
    said = swept(run, runs.root)
    assert "what it read has changed since: the content of its init is" in said
    assert runs.result(run).weights_sha256 != before.weights_sha256
    assert (runs.root / "damaged" / f"{run.key}-1" / "result.json").exists()
    assert "changed" not in swept(run, runs.root)

    write_statistics(tmp_path / "s.safetensors", seed=1)
    swept(run, runs.root)
    assert runs.result(run).weights_sha256 == before.weights_sha256


def test_a_number_after_a_name_is_no_file_even_where_there_is_one(tmp_path):
    (tmp_path / "9").write_text("not a file of filters")
    assert read_inputs(spec(init="box:9"), "0123", init_root=tmp_path) == {"data": "0123"}
    (tmp_path / "f.pth").write_text("a file")
    for name in ("filters", "interpolated", "selected"):
        assert "init" in read_inputs(spec(init=f"{name}:f.pth"), "0123", init_root=tmp_path)


def test_an_unfinished_run_whose_statistics_changed_is_begun_again(tmp_path):
    class Crash:
        def update(self, snapshot):
            if snapshot.step == 5:
                raise RuntimeError("crash")

        def close(self):
            pass

    write_statistics(tmp_path / "s.safetensors", seed=1)
    run, runs = Run(spec(init=f"stats:{tmp_path}/s.safetensors")), Runs(tmp_path / "runs")
    assert attempt(run, runs, progress=Crash()).status == "failed"
    write_statistics(tmp_path / "s.safetensors", seed=2)
    said = []
    assert attempt(run, runs, say=said.append).status == "done"
    assert "cannot be continued" in said[0]
    assert "inputs.init" in said[0]
    fresh = execute(run.spec, tmp_path / "fresh")
    assert runs.result(run).weights_sha256 == fresh.weights_sha256


def test_other_images_in_the_same_folder_are_another_run(tmp_path):
    folder = write_images(tmp_path / "images")
    run = Run(dataclasses.replace(spec(), data=f"folder:{folder}", data_limit=None, augment="none"))
    runs = Runs(tmp_path / "runs")
    swept(run, runs.root)
    before = runs.result(run)
    assert "changed" not in swept(run, runs.root)
    write_images(folder, seed=1)
    assert "the content of its data is" in swept(run, runs.root)
    assert runs.result(run).weights_sha256 != before.weights_sha256


def test_a_run_that_starts_from_a_run_follows_it(tmp_path):
    write_statistics(tmp_path / "s.safetensors", seed=1)
    reference = Run(spec(seed=100, init=f"stats:{tmp_path}/s.safetensors"))
    run = Run(spec(init=transferred("filters-of", reference), freeze_filters=True), reference)
    runs = Runs(tmp_path / "runs")
    for seed in (1, 2):
        write_statistics(tmp_path / "s.safetensors", seed=seed)
        assert {outcome.status for outcome in sweep([reference, run], runs.root, stream=io.StringIO()).values()} == {
            "done"
        }
        inputs = json.loads(runs.directory(run).config.read_text())["inputs"]
        assert inputs["init"] == runs.result(reference).weights_sha256
    assert {path.name for path in (runs.root / "damaged").iterdir()} == {f"{reference.key}-1", f"{run.key}-1"}


def test_a_finished_run_stands_where_what_it_read_is_gone(tmp_path):
    folder = write_images(tmp_path / "images")
    write_statistics(tmp_path / "s.safetensors", seed=1)
    fields = {"data": f"folder:{folder}", "data_limit": None, "init": f"stats:{tmp_path}/s.safetensors"}
    run, runs = Run(dataclasses.replace(spec(), **fields)), Runs(tmp_path / "runs")
    swept(run, runs.root)
    shutil.rmtree(folder)
    (tmp_path / "s.safetensors").unlink()
    assert "changed" not in swept(run, runs.root)


def test_another_meaning_of_the_same_settings_is_another_run(tmp_path, monkeypatch):
    run, runs = Run(spec()), Runs(tmp_path)
    attempt(run, runs)
    path = runs.directory(run).config
    config = json.loads(path.read_text())
    for name in ("format", "version"):
        path.write_text(json.dumps({**config, name: config[name] - 1}))
        with pytest.raises(
            DamagedRunError, match=r"its config\.json is of format \d and version \d, this filtercov's are 2 and 2"
        ):
            runs.result(run)
        with pytest.raises(RunMismatchError, match=f"{name} is 1 there and 2 here"):
            execute(run.spec, runs.directory(run).path)
    for name in ("FORMAT", "VERSION"):
        monkeypatch.setattr(runspec, name, 0)
        assert spec().key != run.key
        monkeypatch.undo()


def test_planning_needs_neither_data_nor_files():
    assert len(spec(init="stats:/nowhere/at-all.safetensors").key) == 16


@pytest.mark.parametrize("size", [28, 80])
def test_the_digest_of_a_folder_is_of_its_content_and_not_of_its_name_or_times(tmp_path, size, monkeypatch):
    """28 pixels are decoded into memory, 80 are streamed."""
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))
    first = write_images(tmp_path / "first", size=size)
    second = shutil.copytree(first, tmp_path / "second", copy_function=shutil.copyfile)

    def digest(folder):
        return load(f"folder:{folder}", workers=0).content_digest

    before = digest(first)
    assert digest(second) == digest(first) == before

    changed = first / "train" / "a" / "0.png"
    about = changed.stat()
    spare = tmp_path / "spare.png"
    shutil.copyfile(first / "train" / "a" / "1.png", spare)
    os.truncate(spare, about.st_size)  # as large as what it replaces, and as old
    os.utime(spare, ns=(about.st_atime_ns, about.st_mtime_ns))
    spare.replace(changed)
    assert digest(first) != before
    assert digest(second) == before


@pytest.mark.parametrize(("size", "noticed"), [(28, False), (80, True)])
def test_how_streamed_images_are_cut_is_in_their_digest(tmp_path, size, noticed, monkeypatch):
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))
    folder = write_images(tmp_path / "images", size=size)
    before = load(f"folder:{folder}", workers=0).content_digest
    monkeypatch.setattr("filtercov.lab.data.streaming.CENTRE_SHARE", 0.875)
    assert (load(f"folder:{folder}", workers=0).content_digest != before) == noticed


def test_a_zip_streams_the_same_content_as_the_directory_it_was_made_of(tmp_path, monkeypatch):
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))
    folder = write_images(tmp_path / "images", size=80)
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, path.relative_to(folder))
    digests = [load(f"folder:{path}", workers=0).content_digest for path in (folder, tmp_path / "images.zip")]
    assert digests[0] == digests[1]


def test_every_part_of_a_dataset_is_in_its_digest():
    data = load("embedded", limit=20)
    other = data.train.images.copy()
    other[-1, -1, -1, 0] ^= 1
    variants = [
        data,
        dataclasses.replace(data, train=dataclasses.replace(data.train, images=other)),
        dataclasses.replace(data, train=dataclasses.replace(data.train, labels=data.train.labels[::-1].copy())),
        dataclasses.replace(data, test=data.test.subset(np.arange(1999))),
        dataclasses.replace(data, mean=(0.5,)),
    ]
    assert len({variant.content_digest for variant in variants}) == len(variants)
    assert dataclasses.replace(data, name="another").content_digest == data.content_digest
