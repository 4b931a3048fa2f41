"""Validation images: the folder's own where it has them beside a test set, else a tenth of the training images."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data import BatchLoader, Dataset, StreamedImages, load
from filtercov.lab.data.tree import open_tree
from tests.lab.data.folders import encoded, write_folder

CIFAR_ZIP = Path(__file__).parents[3] / "shared" / "data" / "cifar10-images.zip"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))


def write_three_splits(root: Path, **image: object) -> Path:
    """Write train, val and test; the pictures of all are different."""
    write_folder(root, **image)  # type: ignore[arg-type]
    seed = 1000
    for label in ("cat", "dog", "emu"):
        (root / "val" / label).mkdir(parents=True)
        for number in range(2):
            (root / "val" / label / f"{number:04}.png").write_bytes(encoded(seed, **image))  # type: ignore[arg-type]
            seed += 1
    return root


def pictures(source: object) -> set[bytes]:
    return {image.tobytes() for image in source.images}  # type: ignore[attr-defined]


def assert_apart(data: Dataset) -> None:
    train, validation, test = pictures(data.train), pictures(data.validation), pictures(data.test)
    assert len(train) == len(data.train)
    assert not train & validation
    assert not train & test
    assert not validation & test


@pytest.mark.parametrize("size", [(16, 16), (80, 90)])
def test_val_beside_test_is_no_part_of_the_test_set(tmp_path: Path, size: tuple[int, int]) -> None:
    root = write_three_splits(tmp_path / "pets", size=size)
    for validation in (False, True):
        data = load(f"folder:{root}", validation=validation, workers=0)
        assert isinstance(data.train, StreamedImages) == (size[0] > 64)
        assert data.validation is not None
        assert (len(data.train), len(data.validation), len(data.test)) == (18, 6, 9)
        assert data.validation.labels.tolist() == [0, 0, 1, 1, 2, 2]
    loader = BatchLoader(data.validation, batch_size=6, seed=0, mean=(0.0,) * 3, std=(1 / 255,) * 3)
    ((images, _),) = loader.epoch(0)
    assert len(images) == 6


def test_the_three_splits_hold_the_files_of_their_directories(tmp_path: Path) -> None:
    root = write_three_splits(tmp_path / "pets")
    data = load(f"folder:{root}")
    assert_apart(data)
    by_split: dict[str, set[str]] = {}
    for file in open_tree(root).files:
        by_split.setdefault(file.split, set()).add(file.path.split("/")[0])
    assert by_split == {"train": {"train"}, "validation": {"val"}, "test": {"test"}}


@pytest.mark.parametrize("name", ["val", "valid", "validation", "Val"])
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
    whole, split = load("embedded"), load("embedded", validation=True)
    assert split.validation is not None
    assert np.bincount(split.validation.labels).tolist() == [100] * 10
    assert np.bincount(split.train.labels).tolist() == [900] * 10
    assert_apart(split)
    assert pictures(split.train) | pictures(split.validation) == pictures(whole.train)
    for limit in (100, 5000, 9000, 10_000):
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
    limited = load(f"folder:{root}", validation=True, limit=20)
    assert len(limited.train) == 20
    assert_apart(limited)


def test_streamed_images_are_held_out_and_never_stand_in_for_unreadable_ones(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", per_class=10, size=(80, 90))
    data = load(f"folder:{root}", validation=True, image_size=72, workers=0)
    assert isinstance(data.train, StreamedImages)
    assert isinstance(data.validation, StreamedImages)
    assert (len(data.train), len(data.validation)) == (27, 3)
    assert not set(data.train.paths) & set(data.validation.paths)
    read: list[str] = []
    original = data.train.tree.read
    data.train.tree.read = lambda path: read.append(path) or original(path)  # type: ignore[method-assign, func-returns-value]
    for path in data.train.paths[::2]:
        (root / path).write_bytes(b"broken")
    loader = BatchLoader(data.train, batch_size=9, seed=0, shuffle=True, mean=data.mean, std=data.std)
    assert [len(images) for images, _ in loader.epoch(0)] == [9, 9, 9]
    assert set(read) <= set(data.train.paths)


def test_single_images_cannot_be_held_out(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", per_class=1)
    with pytest.raises(DataError, match="one training image of each class, none to validate with"):
        load(f"folder:{root}", validation=True)


@pytest.mark.skipif(not CIFAR_ZIP.is_file(), reason="the CIFAR-10 zip is not beside the project")
def test_real_cifar_images_are_held_out_by_class(tmp_path: Path) -> None:
    part = tmp_path / "part.zip"
    with zipfile.ZipFile(CIFAR_ZIP) as whole, zipfile.ZipFile(part, "w") as archive:
        for name in whole.namelist():
            if (name.startswith("train/") and "/000" in name) or name.endswith("/0000.jpg"):
                archive.writestr(name, whole.read(name))
    data = load(f"folder:{part}", validation=True)
    assert (len(data.train), len(data.validation), len(data.test)) == (90, 10, 10)  # type: ignore[arg-type]
    assert data.validation.labels.tolist() == list(range(10))  # type: ignore[union-attr]
    assert_apart(data)
