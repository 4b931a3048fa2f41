"""What counts as an image of a folder: clutter does not, nested images do; doubtful arrangements are refused."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data.folder import load_folder
from filtercov.lab.data.tree import DirectoryTree, ZipTree, open_tree
from tests.lab.data.folders import encoded, write, write_folder, zip_folder

CLUTTER = (
    ".DS_Store",
    "train/cat/._0000.png",
    "train/cat/0000.png~",
    "train/cat/THUMBS.DB",
    "train/cat/boxes.XML",
    "train/cat/@eaDir/0000.png/SYNOPHOTO_THUMB_M.jpg",
    "train/.ipynb_checkpoints/0000-checkpoint.png",
    "test/annotations.csv",
    "__MACOSX/train/cat/0000.png",
    "README",
    "docs/cat/picture.png",
)


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def members(prefix: str = "") -> dict[str, bytes]:
    """A zip's members: two training images and one test image of each of two classes."""
    places = ("train/cat/0", "train/cat/1", "train/dog/0", "train/dog/1", "test/cat/0", "test/dog/0")
    return {f"{prefix}{place}.png": encoded(seed) for seed, place in enumerate(places)}


@pytest.mark.parametrize(("packed", "prefix"), [(False, ""), (True, "pets")])
def test_clutter_is_neither_an_image_nor_a_class_nor_an_error(tmp_path: Path, packed: bool, prefix: str) -> None:
    clean = load_folder(write_folder(tmp_path / "clean"), bad_limit=0)
    root = write_folder(tmp_path / "cluttered" / prefix)
    for name in CLUTTER:
        top = tmp_path / "cluttered" if name.startswith("__MACOSX") else root  # beside what was packed
        write(top / name, b"no image")
    source = zip_folder(tmp_path / "cluttered", tmp_path / "pets.zip") if packed else tmp_path / "cluttered"
    assert load_folder(source, bad_limit=0).content_digest == clean.content_digest


def test_images_nested_below_a_class_are_the_classes(tmp_path: Path) -> None:
    # As in Tiny ImageNet: train/CLASS/images/*.JPEG beside train/CLASS/CLASS_boxes.txt.
    root = write_folder(tmp_path / "pets")
    write(root / "train" / "cat" / "images" / "2019" / "cat_0.JPEG", encoded(100, kind="JPEG"))
    write(root / "train" / "cat" / "cat_boxes.txt", b"0 0 1 1")
    write(root / "test" / "dog" / "images" / "dog_0.Jpg", encoded(102, kind="JPEG"))
    data = load_folder(root, bad_limit=0)
    assert data.train.classes == ("cat", "dog", "emu")
    assert np.bincount(data.train.labels).tolist() == [7, 6, 6]
    assert np.bincount(data.test.labels).tolist() == [3, 4, 3]


def test_a_class_may_be_a_link_and_a_circle_of_links_counts_nothing_twice(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    elsewhere = (root / "train" / "cat").rename(tmp_path / "elsewhere")
    (root / "train" / "cat").symlink_to(elsewhere)
    (elsewhere / "up").symlink_to(root)
    (elsewhere / "self").symlink_to(elsewhere)
    assert np.bincount(load_folder(root, bad_limit=0).train.labels).tolist() == [6, 6, 6]


def rename(path: Path, name: str) -> None:
    path.rename(path.with_name(name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "train" / "yak").symlink_to("nowhere"), "train/yak is a link to nothing"),
        (lambda root: (root / "val").symlink_to("nowhere"), "val is a link to nothing"),
        (lambda root: (root / "train" / "yak").mkdir(), "train/yak holds no images"),
        (lambda root: write(root / "train" / "yak" / "a" / "notes.txt", b""), "train/yak holds no images"),
        (lambda root: write(root / "train" / "stray.JPG", b""), "train/stray.JPG is in no class"),
        (lambda root: write(root / "TEST" / "cat" / "a.png", b""), "both TEST/ and test/"),
        (lambda root: rename(root / "train", "extra"), "no train/CLASS/image"),
        (lambda root: rename(root / "test", "extra"), "no test/CLASS or val/CLASS"),
        (lambda root: rename(root / "test" / "cat", "yak"), "tests classes it does not train: yak"),
    ],
)
def test_a_doubtful_arrangement_is_refused_by_a_sentence_that_names_it(
    tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    root = write_folder(tmp_path / "pets")
    change(root)
    with pytest.raises(DataError, match=message):
        load_folder(root)


def test_a_single_class_and_what_is_no_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two classes or more"):
        load_folder(write_folder(tmp_path / "pets", classes=("cat",)))
    for path in (tmp_path / "missing", write(tmp_path / "file.txt", b"hello"), tmp_path / ("x" * 300)):
        with pytest.raises(DataError, match=path.name):
            load_folder(path)


def test_an_empty_test_class_is_no_reason_to_stop(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    for file in (root / "test" / "emu").iterdir():
        file.unlink()
    assert sorted(set(load_folder(root).test.labels.tolist())) == [0, 1]


def test_splits_are_found_below_any_directories_and_in_any_case(tmp_path: Path) -> None:
    assert len(load_folder(write_zip(tmp_path / "deep.zip", members("a/b/"))).train) == 4
    upper = {name.replace("train", "Train").replace("test", "TEST"): data for name, data in members().items()}
    assert len(load_folder(write_zip(tmp_path / "upper.zip", upper)).test) == 2
    # A copy further down, and a class that is called like a split, are no reason for doubt.
    named = {**members(), **members("backup/"), "train/test/a.png": encoded(50)}
    data = load_folder(write_zip(tmp_path / "named.zip", named))
    assert data.train.classes == ("cat", "dog", "test")
    assert (len(data.train), len(data.test)) == (5, 2)
    with pytest.raises(DataError, match="two datasets, a/ and b/"):
        load_folder(write_zip(tmp_path / "two.zip", {**members("a/"), **members("b/")}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_two_members_of_one_name_the_last_counts(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "pets.zip", members())
    before = load_folder(archive)
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("train/cat/0.png", encoded(77))
    data = load_folder(archive)
    assert len(data.train) == 4
    np.testing.assert_array_equal(data.train.images[1:], before.train.images[1:])
    assert not np.array_equal(data.train.images[0], before.train.images[0])


@pytest.mark.parametrize("damage", ["directory", "end"])
def test_a_damaged_zip_is_refused(tmp_path: Path, damage: str) -> None:
    archive = write_zip(tmp_path / "pets.zip", members())
    raw = bytearray(archive.read_bytes())
    at = raw.find(b"PK\x01\x02") if damage == "directory" else raw.find(b"PK\x05\x06") + 12
    raw[at : at + 4] = b"\xff\xff\xff\x7f"
    archive.write_bytes(bytes(raw))
    with pytest.raises(DataError, match=r"pets\.zip"):
        open_tree(archive).files  # noqa: B018


def test_a_file_of_more_than_a_quarter_gigabyte_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_folder(tmp_path / "pets")
    size = (root / "train" / "cat" / "0000.png").stat().st_size
    trees = (DirectoryTree(root), ZipTree(zip_folder(root, tmp_path / "pets.zip")))
    for limit, readable in ((size, True), (size - 1, False)):
        monkeypatch.setattr("filtercov.lab.data.tree.LARGEST_FILE", limit)
        for tree in trees:
            if readable:
                assert len(tree.read("train/cat/0000.png")) == size
            else:
                with pytest.raises(OSError, match="larger than"):
                    tree.read("train/cat/0000.png")
