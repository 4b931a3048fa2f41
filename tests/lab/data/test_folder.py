"""Folders and zips of images: what counts as one, and small ones, decoded once and the same wherever they come from."""

import io
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from filtercov.errors import DataError
from filtercov.lab.data import folder, load
from filtercov.lab.data.folder import Tree, load_folder
from tests.lab.data.folders import encoded, write, write_folder, zip_folder

CLUTTER = (
    ".DS_Store",
    "train/cat/._0000.png",
    "train/cat/0000.png~",
    "train/cat/boxes.XML",
    "train/cat/@eaDir/0000.png/SYNOPHOTO_THUMB_M.jpg",
    "train/.ipynb_checkpoints/0000-checkpoint.png",
    "test/annotations.csv",
    "README",
    "docs/cat/picture.png",
)
NAMES = [f"{place}.png" for place in ("train/cat/0", "train/cat/1", "train/dog/0", "test/cat/0", "test/dog/0")]


def found(root: Path) -> list[tuple[str, str, str]]:
    return [(split, file.path, file.label) for split, files in Tree(root).splits.items() for file in files]


def write_zip(path: Path, names: list[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "pets")


def test_clutter_is_neither_an_image_nor_a_class_nor_an_error(root: Path, tmp_path: Path) -> None:
    clean = found(root)
    for name in CLUTTER:
        write(root / name, b"no image")
    assert found(root) == clean
    write(tmp_path / "__MACOSX" / "pets" / "train" / "cat" / "0000.png", b"no image")  # beside what was packed
    packed = zip_folder(tmp_path, tmp_path.with_name("packed.zip"))
    assert found(packed) == [(split, f"pets/{path}", label) for split, path, label in clean]


def test_images_nested_below_a_class_and_classes_that_are_links_count(root: Path, tmp_path: Path) -> None:
    # As in Tiny ImageNet: train/CLASS/images/*.JPEG beside train/CLASS/CLASS_boxes.txt.
    write(root / "train" / "cat" / "images" / "2019" / "cat_0.JPEG", encoded(100, kind="JPEG"))
    write(root / "train" / "cat" / "cat_boxes.txt", b"0 0 1 1")
    write(root / "test" / "dog" / "images" / "dog_0.Jpg", encoded(102, kind="JPEG"))
    (root / "train" / "cat").rename(tmp_path / "elsewhere")
    (root / "train" / "cat").symlink_to(tmp_path / "elsewhere")
    for file in (root / "test" / "emu").iterdir():  # an empty class of the test set is no reason to stop
        file.unlink()
    data = load_folder(root)
    assert data.train.classes == ("cat", "dog", "emu")
    assert np.bincount(data.train.labels).tolist() == [7, 6, 6]
    assert np.bincount(data.test.labels).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "train" / "yak").symlink_to("nowhere"), "No such file.*train/yak"),
        (lambda root: (root / "train" / "yak").mkdir(), "train/yak holds no images"),
        (lambda root: write(root / "train" / "yak" / "a" / "notes.txt", b""), "train/yak holds no images"),
        (lambda root: write(root / "train" / "stray.JPG", b""), "train/stray.JPG is in no class"),
        (lambda root: (root / "train").rename(root / "extra"), "no train/CLASS/image"),
        (lambda root: (root / "test").rename(root / "extra"), "no test/CLASS or val/CLASS"),
        (lambda root: (root / "test" / "cat").rename(root / "test" / "yak"), "tests classes it does not train: yak"),
        (lambda root: [shutil.rmtree(place) for place in root.glob("*/[de]*")], "two classes or more"),
        (lambda root: root.rename(root.with_name("elsewhere")), "pets cannot be read"),
    ],
)
def test_a_doubtful_arrangement_is_refused_by_a_sentence_that_names_it(
    root: Path, change: Callable[[Path], object], message: str
) -> None:
    change(root)
    with pytest.raises(DataError, match=message):
        load_folder(root)


def test_what_is_no_zip_is_refused(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "pets.zip", NAMES)
    damaged = archive.read_bytes().replace(b"PK\x01\x02", b"\xff\xff\xff\x7f")
    for content in (b"hello", damaged):
        with pytest.raises(DataError, match=r"pets\.zip cannot be read"):
            Tree(write(archive, content))


def test_splits_are_those_nearest_to_the_top(tmp_path: Path) -> None:
    deep = [f"a/b/{name}" for name in NAMES]
    assert len(found(write_zip(tmp_path / "deep.zip", deep))) == 5
    # A copy further down, and a class that is called like a split, are no reason for doubt.
    named = write_zip(tmp_path / "named.zip", [*NAMES, *deep, "train/test/a.png"])
    assert Tree(named).classes == ("cat", "dog", "test")
    assert len(found(named)) == 6
    with pytest.raises(DataError, match="two datasets, a/b/ and a/c/"):
        Tree(write_zip(tmp_path / "two.zip", [*deep, *(f"a/c/{name}" for name in NAMES)]))


def test_every_pixel_and_label_is_the_files_of_a_directory_or_zip(root: Path, tmp_path: Path) -> None:
    data = load_folder(root)
    assert (data.num_classes, data.in_channels, data.image_size) == (3, 3, 16)
    assert data.train.classes == ("cat", "dog", "emu")
    for source, split in ((data.train, "train"), (data.test, "test")):
        files = sorted((root / split).rglob("*.png"))
        assert source.labels.tolist() == [("cat", "dog", "emu").index(file.parent.name) for file in files]
        for image, file in zip(source.images, files, strict=True):
            np.testing.assert_array_equal(image, np.asarray(Image.open(file)))
    values = data.train.images / 255
    np.testing.assert_allclose(data.mean, values.mean((0, 1, 2)), atol=1e-12)
    np.testing.assert_allclose(data.std, values.std((0, 1, 2)), atol=1e-12)
    zipped = load_folder(zip_folder(root, tmp_path / "pets.zip", prefix="pets/"))
    assert zipped.content_digest == data.content_digest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where decoded folders are."""
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "folders"


def test_the_second_load_writes_nothing_and_maps_the_same_bytes(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_folder(root)
    monkeypatch.setattr(folder, "atomic_write", lambda _: pytest.fail("decoded again"))
    second = load_folder(root)
    assert [path.suffix for path in home.iterdir()] == [""]  # as it must be in a cache that is read-only
    assert isinstance(second.train.images, np.memmap)
    np.testing.assert_array_equal(first.train.images, second.train.images)


def test_a_changed_source_and_another_version_are_decoded_anew(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = np.array(load_folder(root).train.images)
    changed = root / "train" / "cat" / "0000.png"
    changed.write_bytes(encoded(1000))
    os.utime(changed, ns=(1, 1))
    after = load_folder(root).train.images
    assert not np.array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1:], after[1:])
    monkeypatch.setattr(folder, "_CACHE_VERSION", 1)
    load_folder(root)
    assert len(list(home.glob("pets-*"))) == 3


def test_a_cache_that_cannot_be_written_is_reported(root: Path, home: Path) -> None:
    write(home, b"a file where the directory would go: mkdir fails, even for root")
    with pytest.raises(DataError, match="set FILTERCOV_CACHE"):
        load_folder(root)


def test_images_are_scaled_to_the_size_asked_for(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "wide", size=(40, 20))
    assert load_folder(root).image_size == 20
    data = load_folder(root, image_size=10)
    centre = Image.open(root / "train" / "cat" / "0000.png").crop((10, 0, 30, 20))
    expected = np.asarray(centre.resize((10, 10), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(data.train.images[0], expected)


@pytest.mark.usefixtures("home")
@pytest.mark.skipif("FILTERCOV_CIFAR10" not in os.environ, reason="FILTERCOV_CIFAR10 names no zip of CIFAR-10's images")
def test_cifar10s_images_are_those_of_the_evidence() -> None:
    data = load(f"folder:{os.environ['FILTERCOV_CIFAR10']}")
    for source, count in ((data.train, 5000), (data.test, 1000)):
        assert np.bincount(source.labels).tolist() == [count] * 10
        assert source.images.shape == (10 * count, 32, 32, 3)
    mean = data.train.images.mean((0, 1, 2)) / 255  # of all images; `data.mean` is of some
    squares = np.square(data.train.images, dtype=np.uint16).mean((0, 1, 2)) / 255**2
    np.testing.assert_allclose(mean, (0.49140, 0.48216, 0.44653), rtol=0, atol=5e-5)
    np.testing.assert_allclose(np.sqrt(squares - mean**2), (0.24703, 0.24349, 0.26159), rtol=0, atol=5e-5)
    assert data.content_digest == "e2b4cba042f265067e8a1af07f846855edb28031bd8187f7ee1d7018cc3bc3a9"  # of every run


def test_grey_folders_have_one_channel_and_one_colour_picture_is_enough_for_three(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "grey", mode="L")
    assert load_folder(root).in_channels == 1
    (root / "train" / "cat" / "0000.png").write_bytes(encoded(5, mode="RGBA"))
    data = load_folder(root)
    assert data.in_channels == 3
    np.testing.assert_array_equal(
        data.train.images[0], np.asarray(Image.open(io.BytesIO(encoded(5, mode="RGBA"))))[..., :3]
    )
    assert (data.train.images[1][..., 0] == data.train.images[1][..., 2]).all()


def test_all_that_cannot_be_read_is_named_at_once_and_nothing_of_it_kept(root: Path, home: Path) -> None:
    bad = [write(root / "train" / "dog" / f"a-{number:02}.jpg", b"no picture") for number in range(11)]
    bad.append(write(root / "test" / "dog" / "b-\x1b[2J\udcff.jpg", b"no picture"))  # a name a terminal would obey
    message = r"^12 images of .*pets cannot be read \(test/dog/b-\\x1b\[2J\\udcff\.jpg: not an image.*; and 2 more\)"
    with pytest.raises(DataError, match=message) as raised:
        load_folder(root)
    assert str(raised.value).count("train/dog/a-") == 9
    assert not list(home.glob("pets-*"))
    for file in bad:
        file.unlink()
    assert len(load_folder(root).train) == 18
    for file in (root / "train").rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match=r"train/cat/0000\.png and all others looked at cannot be read"):
        load_folder(root)
