"""Datasets by name: the embedded images, limits, and which images are held out for validation."""

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data import Dataset, StreamedImages, load
from tests.lab.data.folders import encoded, write, write_folder


def pictures(source: object) -> set[bytes]:
    return {image.tobytes() for image in source.images}  # type: ignore[attr-defined]


def assert_apart(data: Dataset) -> None:
    train, validation, test = pictures(data.train), pictures(data.validation), pictures(data.test)
    assert len(train) == len(data.train)
    assert not train & validation
    assert not train & test
    assert not validation & test


def test_the_embedded_images_are_balanced_grey_28_by_28_and_described() -> None:
    data = load("embedded")
    assert data.train.images.shape == (10_000, 28, 28, 1)
    assert data.test.images.shape == (2_000, 28, 28, 1)
    assert np.bincount(data.train.labels).tolist() == [1000] * 10
    assert np.bincount(data.test.labels).tolist() == [200] * 10
    assert (data.num_classes, data.in_channels, data.image_size, data.name) == (10, 1, 28, "embedded")
    values = data.train.images / 255
    assert values.mean() == pytest.approx(data.mean[0], abs=1e-5)
    assert values.std() == pytest.approx(data.std[0], abs=1e-5)
    licence = resources.files("filtercov.lab.data").joinpath("fashion_mnist.LICENSE")
    assert "Copyright © 2017 Zalando SE" in licence.read_text(encoding="utf-8")


def test_damage_of_the_embedded_images_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("filtercov.lab.data.by_name.EMBEDDED_SHA256", "0" * 64)
    with pytest.raises(DataError, match="damaged"):
        load("embedded")


# The checksums are part of the names of runs: they must not change.
@pytest.mark.parametrize(
    ("options", "digest"),
    [
        ({}, "e85cf982c670b49f102967ee2a8fa74e6faf015b4023b1cb7ebedbdaf0a44de4"),
        ({"limit": 100}, "39f84473f6e487a8c541cbd79e9c1b9cf744a09bdf6d87d83114833288abd5ab"),
        ({"validation": True}, "991ab18f47e9176287065ea6847e21e3721ee0a7282ba4c78147bb128d97902d"),
    ],
)
def test_the_digests_of_the_embedded_images_are_those_of_earlier_versions(options: dict[str, int], digest: str) -> None:
    assert load("embedded", **options).content_digest == digest  # type: ignore[arg-type]


def test_a_limit_is_stratified_nested_and_repeatable() -> None:
    small, large = load("embedded", limit=50).train, load("embedded", limit=500).train
    assert np.bincount(small.labels).tolist() == [5] * 10
    np.testing.assert_array_equal(small.images, large.images[:50])


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 10_001}, {"image_size": 32}, {"workers": -1}])
def test_an_impossible_setting_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(DataError, match=str(*options.values())):
        load("embedded", **options)  # type: ignore[arg-type]
    assert len(load("embedded", limit=10_000, image_size=28, workers=0).train) == 10_000


@pytest.mark.parametrize("spec", ["", "mnist", "folder:", "folder", "~nobody-of-that-name/x", "x" * 300])
def test_unknown_data_is_refused_with_the_choices(spec: str) -> None:
    with pytest.raises(DataError, match=r"choose embedded, cifar10 or folder:PATH$"):
        load(spec)


def test_a_path_without_folder_is_understood_as_a_slip(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"did you mean folder:{tmp_path}"):
        load(str(tmp_path))


@pytest.mark.parametrize(("inside", "text"), [(".", "."), ("train/cat", "../..")])
def test_a_folder_may_be_named_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, text: str
) -> None:
    root = write_folder(tmp_path / "pets")
    monkeypatch.chdir(root / inside)
    data = load(f"folder:{text}")
    assert (data.name, len(data.train)) == ("folder:pets", 18)
    assert {path.name for path in tmp_path.iterdir()} == {"pets", "pets.filtercov"}


@pytest.mark.parametrize(("size", "streamed"), [((16, 16), False), ((80, 90), True)])
def test_val_beside_test_is_no_part_of_the_test_set(tmp_path: Path, size: tuple[int, int], streamed: bool) -> None:
    root = write_folder(tmp_path / "pets", size=size)
    for seed, label in enumerate(("cat", "cat", "dog", "dog", "emu", "emu")):
        write(root / "val" / label / f"{seed}.png", encoded(1000 + seed, size))
    for validation in (False, True):
        data = load(f"folder:{root}", validation=validation, workers=0)
        assert isinstance(data.train, StreamedImages) == streamed
        assert data.validation is not None
        assert (len(data.train), len(data.validation), len(data.test)) == (18, 6, 9)
        assert data.validation.labels.tolist() == [0, 0, 1, 1, 2, 2]
    if not streamed:
        assert_apart(data)
        assert pictures(data.validation) == pictures(load(f"folder:{root}", limit=5).validation)


@pytest.mark.parametrize("name", ["val", "validation", "Valid"])
def test_val_without_test_is_the_test_set_and_validation_comes_from_training(tmp_path: Path, name: str) -> None:
    root = write_folder(tmp_path / "imagenet", per_class=20, test=name)
    data = load(f"folder:{root}")
    assert (len(data.train), data.validation, len(data.test)) == (60, None, 30)
    split = load(f"folder:{root}", validation=True)
    assert (len(split.train), len(split.validation), len(split.test)) == (54, 6, 30)  # type: ignore[arg-type]
    assert_apart(split)
    assert pictures(split.train) | pictures(split.validation) == pictures(data.train)
    assert pictures(split.test) == pictures(data.test)


def test_a_tenth_of_each_class_is_held_out_whatever_the_limit() -> None:
    split = load("embedded", validation=True)
    assert split.validation is not None
    assert np.bincount(split.validation.labels).tolist() == [100] * 10
    assert np.bincount(split.train.labels).tolist() == [900] * 10
    assert_apart(split)
    for limit in (100, 9000, 10_000):
        limited = load("embedded", limit=limit, validation=True)
        assert len(limited.train) == min(limit, 9000)
        np.testing.assert_array_equal(limited.validation.images, split.validation.images)  # type: ignore[union-attr]
        if limit <= 9000:  # the images that a run on the test images trains on
            np.testing.assert_array_equal(limited.train.images, load("embedded", limit=limit).train.images)


def test_unequal_classes_each_give_a_tenth_rounded_up_but_never_their_last_image(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", per_class=25)
    for label, kept in (("dog", 2), ("emu", 1)):
        for file in sorted((root / "train" / label).iterdir())[kept:]:
            file.unlink()
    data = load(f"folder:{root}", validation=True)
    assert np.bincount(data.validation.labels, minlength=3).tolist() == [3, 1, 0]  # type: ignore[union-attr]
    assert np.bincount(data.train.labels).tolist() == [22, 1, 1]
    with pytest.raises(DataError, match="one image of each class"):
        load(f"folder:{write_folder(tmp_path / 'few', per_class=1)}", validation=True)
