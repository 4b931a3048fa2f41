import gzip
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data import embedded, load

ORIGINALS = Path("/usr/share/datasets/fashion-mnist")  # where Debian's dataset-fashion-mnist puts them


def test_it_is_balanced_grey_28_by_28_and_described() -> None:
    data = load("embedded")
    assert data.train.images.shape == (10_000, 28, 28, 1)
    assert data.test.images.shape == (2_000, 28, 28, 1)
    assert np.bincount(data.train.labels).tolist() == [1000] * 10
    assert np.bincount(data.test.labels).tolist() == [200] * 10
    assert (data.num_classes, data.in_channels, data.image_size, data.name) == (10, 1, 28, "embedded")
    values = data.train.images / 255
    assert values.mean() == pytest.approx(data.mean[0], abs=1e-5)
    assert values.std() == pytest.approx(data.std[0], abs=1e-5)


def test_the_file_is_small_and_has_its_licence_beside_it() -> None:
    folder = resources.files("filtercov.lab.data")
    assert len(folder.joinpath("fashion_mnist.npz").read_bytes()) <= 6_000_000
    assert "Copyright © 2017 Zalando SE" in folder.joinpath("fashion_mnist.LICENSE").read_text(encoding="utf-8")


def test_damage_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "SHA256", "0" * 64)
    with pytest.raises(DataError, match="damaged"):
        load("embedded")


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
@pytest.mark.parametrize(("split", "prefix", "each"), [("train", "train", 1000), ("test", "t10k", 200)])
def test_every_image_is_the_originals(split: str, prefix: str, each: int) -> None:
    images = np.frombuffer(gzip.decompress((ORIGINALS / f"{prefix}-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
    labels = np.frombuffer(gzip.decompress((ORIGINALS / f"{prefix}-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
    ours = getattr(load("embedded"), split)
    for label in range(10):
        rows = np.flatnonzero(labels == label)[:each]
        expected = images.reshape(-1, 28, 28, 1)[rows]
        np.testing.assert_array_equal(ours.images[ours.labels == label], expected)


def test_a_limit_is_stratified_nested_and_seeded() -> None:
    small, large = load("embedded", limit=50).train, load("embedded", limit=500).train
    assert np.bincount(small.labels).tolist() == [5] * 10
    np.testing.assert_array_equal(small.images, large.images[:50])
    np.testing.assert_array_equal(small.images, load("embedded", limit=50).train.images)


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_an_impossible_limit_is_refused(limit: int) -> None:
    with pytest.raises(DataError, match=r"limit must lie in 1\.\.10000"):
        load("embedded", limit=limit)


@pytest.mark.parametrize("spec", ["", "mnist", "folder:", "folder", "cifar100"])
def test_unknown_data_is_refused_with_the_choices(spec: str) -> None:
    with pytest.raises(DataError, match="choose embedded, cifar10 or folder:PATH"):
        load(spec)


def test_another_size_is_refused_where_nothing_is_scaled() -> None:
    with pytest.raises(DataError, match="28 pixels, not 32"):
        load("embedded", image_size=32)
