"""Datasets by name: the embedded images, CIFAR-10's archive, limits, and which images are held out for validation."""

import hashlib
import io
import pickle
import re
import tarfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data import Dataset, StreamedImages, by_name, load
from tests.lab.data.folders import encoded, write, write_folder


def pictures(source: object) -> set[bytes]:
    return {image.tobytes() for image in source.images}  # type: ignore[attr-defined]


def assert_apart(data: Dataset) -> None:
    train, validation, test = pictures(data.train), pictures(data.validation), pictures(data.test)
    assert len(train) == len(data.train)
    assert not train & validation
    assert not (train | validation) & test


def test_the_embedded_images_are_balanced_grey_28_by_28_and_described() -> None:
    data = load("embedded")
    assert data.train.images.shape == (10_000, 28, 28, 1)
    assert np.bincount(data.train.labels).tolist() == [1000] * 10
    assert np.bincount(data.test.labels).tolist() == [200] * 10
    assert (data.num_classes, data.in_channels, data.image_size, data.name) == (10, 1, 28, "embedded")
    values = data.train.images / 255
    assert values.mean() == pytest.approx(data.mean[0], abs=1e-5)
    assert values.std() == pytest.approx(data.std[0], abs=1e-5)
    licence = resources.files("filtercov.lab.data").joinpath("fashion_mnist.LICENSE")
    assert "Copyright © 2017 Zalando SE" in licence.read_text(encoding="utf-8")


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


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("embedded", {"limit": 0}, "limit"),
        ("embedded", {"limit": 10_001}, "limit"),
        ("embedded", {"image_size": 32}, "32"),
        ("mnist", {}, r"choose embedded, cifar10 or folder:PATH$"),
        ("folder:", {}, "choose embedded"),
        ("/", {}, "did you mean folder:/"),
    ],
)
def test_unknown_names_and_impossible_settings_are_refused(spec: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(spec, **options)  # type: ignore[arg-type]
    assert len(load("embedded", limit=10_000, image_size=28).train) == 10_000


def test_a_folder_may_be_named_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_folder(tmp_path / "pets")
    monkeypatch.chdir(root / "train" / "cat")
    data = load("folder:../..")
    assert (data.name, len(data.train)) == ("folder:pets", 18)


@pytest.mark.parametrize(("size", "streamed"), [((16, 16), False), ((80, 90), True)])
def test_val_is_for_validation_beside_test_and_the_test_set_without_it(
    tmp_path: Path, size: tuple[int, int], streamed: bool
) -> None:
    root = write_folder(tmp_path / "pets", size=size)
    for seed, label in enumerate(("cat", "cat", "dog", "dog", "emu", "emu")):
        write(root / "val" / label / f"{seed}.png", encoded(1000 + seed, size))
    data = load(f"folder:{root}", validation=True, workers=0)
    assert isinstance(data.train, StreamedImages) == streamed
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 6, 9)  # type: ignore[arg-type]
    assert data.validation.labels.tolist() == [0, 0, 1, 1, 2, 2]  # type: ignore[union-attr]
    if not streamed:
        assert_apart(data)
    (root / "test").rename(tmp_path / "elsewhere")  # then val/ is the test set, and a tenth of the rest is held out
    data = load(f"folder:{root}", validation=True, workers=0)
    assert (len(data.train), len(data.validation), len(data.test)) == (15, 3, 6)  # type: ignore[arg-type]
    assert load(f"folder:{root}", workers=0).validation is None


def test_a_tenth_of_each_class_is_held_out_whatever_the_limit() -> None:
    split = load("embedded", validation=True)
    assert split.validation is not None
    assert np.bincount(split.validation.labels).tolist() == [100] * 10
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


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, np.ndarray]:
    """An archive like CIFAR-10's, of 20 images a batch, where downloads come from, and its images, training first."""
    everything = np.random.default_rng(0).integers(0, 256, (6, 20, 32, 32, 3), dtype=np.uint8)
    path = tmp_path / by_name.CIFAR10
    with tarfile.open(path, "w:gz") as archive:
        for name, images in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], everything, strict=True):
            rows = images.transpose(0, 3, 1, 2).reshape(20, 3072)
            content = pickle.dumps({b"data": rows, b"labels": [i % 10 for i in range(20)]}, protocol=2)
            # As NumPy 1 in Python 2 wrote it: the module's old name, and the dtype's flags as integers.
            content = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            content = re.sub(rb"(u1q.)\x89\x88", lambda match: match[1] + b"K\x00K\x01", content)
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    monkeypatch.setattr(by_name, "CIFAR10_URL", path.as_uri())
    monkeypatch.setattr(by_name, "CIFAR10_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path, everything.reshape(120, 32, 32, 3)


def test_cifar10_arrives_is_checked_and_is_used_again(tmp_path: Path, served: tuple[Path, np.ndarray]) -> None:
    archive, images = served
    root = tmp_path / "deep" / "root"
    with pytest.raises(DataError, match="--download"):
        load("cifar10", root=root)
    data = load("cifar10", root=root, download=True)
    np.testing.assert_array_equal(data.train.images, images[:100])
    np.testing.assert_array_equal(data.test.images, images[100:])
    assert data.train.labels.tolist() == list(range(10)) * 10
    assert (data.num_classes, data.in_channels, data.image_size) == (10, 3, 32)
    assert (data.mean, data.std) == ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # part of runs' identities
    archive.unlink()
    np.testing.assert_array_equal(load("cifar10", root=root).train.images, data.train.images)
    assert [path.name for path in root.iterdir()] == [by_name.CIFAR10]


@pytest.mark.parametrize("sent", ["part", "nothing", "wrong file"])
def test_a_wrong_archive_is_never_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: tuple[Path, np.ndarray], sent: str
) -> None:
    archive, _ = served
    monkeypatch.setattr(pickle, "load", lambda *_, **__: pytest.fail("unpickled before it was checked"))
    if sent == "nothing":
        archive.unlink()
    else:
        archive.write_bytes(archive.read_bytes()[:1000])
    root = archive.parent if sent == "wrong file" else tmp_path / "root"  # there already, or downloaded
    with pytest.raises(DataError, match=by_name.CIFAR10):
        load("cifar10", root=root, download=True)
    assert not any((tmp_path / "root").glob("*"))
