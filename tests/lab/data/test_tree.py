"""What counts as an image of a folder: clutter does not, nested images do; doubtful arrangements are refused."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data import tree
from filtercov.lab.data.folder import load_folder
from filtercov.lab.data.tree import Tree
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


def found(root: Path) -> list[tuple[str, str, str]]:
    return [file[:3] for file in Tree(root).files]


def write_zip(path: Path, names: list[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return path


NAMES = [f"{place}.png" for place in ("train/cat/0", "train/cat/1", "train/dog/0", "test/cat/0", "test/dog/0")]


def test_clutter_is_neither_an_image_nor_a_class_nor_an_error(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    clean = found(root)
    for name in CLUTTER:
        write(root / name, b"no image")
    assert found(root) == clean
    write(tmp_path / "__MACOSX" / "pets" / "train" / "cat" / "0000.png", b"no image")  # beside what was packed
    packed = zip_folder(tmp_path, tmp_path.with_name("packed.zip"))
    assert found(packed) == [(f"pets/{path}", split, label) for path, split, label in clean]


def test_images_nested_below_a_class_and_classes_that_are_links_count(tmp_path: Path) -> None:
    # As in Tiny ImageNet: train/CLASS/images/*.JPEG beside train/CLASS/CLASS_boxes.txt.
    root = write_folder(tmp_path / "pets")
    write(root / "train" / "cat" / "images" / "2019" / "cat_0.JPEG", encoded(100, kind="JPEG"))
    write(root / "train" / "cat" / "cat_boxes.txt", b"0 0 1 1")
    write(root / "test" / "dog" / "images" / "dog_0.Jpg", encoded(102, kind="JPEG"))
    (root / "train" / "cat").rename(tmp_path / "elsewhere")
    (root / "train" / "cat").symlink_to(tmp_path / "elsewhere")
    for file in (root / "test" / "emu").iterdir():  # an empty class of the test set is no reason to stop
        file.unlink()
    data = load_folder(root, bad_limit=0)
    assert data.train.classes == ("cat", "dog", "emu")
    assert np.bincount(data.train.labels).tolist() == [7, 6, 6]
    assert np.bincount(data.test.labels).tolist() == [3, 4]


def rename(path: Path, name: str) -> None:
    path.rename(path.with_name(name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "train" / "yak").symlink_to("nowhere"), "No such file.*train/yak"),
        (lambda root: (root / "train" / "yak").mkdir(), "train/yak holds no images"),
        (lambda root: write(root / "train" / "yak" / "a" / "notes.txt", b""), "train/yak holds no images"),
        (lambda root: write(root / "train" / "stray.JPG", b""), "train/stray.JPG is in no class"),
        (lambda root: rename(root / "train", "extra"), "no train/CLASS/image"),
        (lambda root: rename(root / "test", "extra"), "no test/CLASS or val/CLASS"),
        (lambda root: rename(root / "test" / "cat", "yak"), "tests classes it does not train: yak"),
        (lambda root: rename(root, "elsewhere"), "pets cannot be read"),
    ],
)
def test_a_doubtful_arrangement_is_refused_by_a_sentence_that_names_it(
    tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    root = write_folder(tmp_path / "pets")
    change(root)
    with pytest.raises(DataError, match=message):
        load_folder(root)


def test_a_single_class_and_what_is_no_zip_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two classes or more"):
        load_folder(write_folder(tmp_path / "pets", classes=("cat",)))
    archive = write_zip(tmp_path / "pets.zip", NAMES)
    damaged = archive.read_bytes().replace(b"PK\x01\x02", b"\xff\xff\xff\x7f")
    for content in (b"hello", damaged):
        with pytest.raises(DataError, match=r"pets\.zip cannot be read"):
            Tree(write(archive, content))


def test_splits_are_those_nearest_to_the_top(tmp_path: Path) -> None:
    deep = [f"a/b/{name}" for name in NAMES]
    assert len(found(write_zip(tmp_path / "deep.zip", deep))) == 5
    # A copy further down, and a class that is called like a split, are no reason for doubt.
    named = [*NAMES, *deep, "train/test/a.png"]
    archive = Tree(write_zip(tmp_path / "named.zip", named))
    assert archive.classes == ("cat", "dog", "test")
    assert len(archive.files) == 6
    with pytest.raises(DataError, match="two datasets, a/b/ and a/c/"):
        Tree(write_zip(tmp_path / "two.zip", [*deep, *(f"a/c/{name}" for name in NAMES)]))


def test_each_process_opens_the_zip_for_itself(tmp_path: Path) -> None:
    archive = Tree(write_zip(tmp_path / "pets.zip", NAMES))
    opened = tree._opened(archive, os.getpid())
    assert tree._opened(archive, os.getpid()) is opened
    assert tree._opened(archive, -1) is not opened  # a forked worker would share the file's position
