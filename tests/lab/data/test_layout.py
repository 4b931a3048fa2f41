"""What counts as an image of a folder: clutter does not, nested images do, and names may come from any system."""

import os
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data import scan
from filtercov.lab.data.folder import load_folder
from filtercov.lab.data.tree import open_tree
from tests.lab.data.folders import encoded, write_folder, zip_folder

CLUTTER = (
    ".DS_Store",
    "train/.DS_Store",
    "train/cat/.DS_Store",
    "train/cat/._0000.png",
    "train/cat/.0000.png.swp",
    "train/cat/0000.png~",
    "train/cat/#0000.png#",
    "train/cat/0000.png.bak",
    "train/cat/Thumbs.db",
    "train/cat/THUMBS.DB",
    "train/cat/desktop.ini",
    "train/cat/Icon\r",
    "train/cat/labels.txt",
    "train/cat/boxes.XML",
    "train/cat/@eaDir/0000.png/SYNOPHOTO_THUMB_M.jpg",
    "train/cat/.ipynb_checkpoints/0000-checkpoint.png",
    "train/.hidden/0000.png",
    "train/.git/HEAD",
    "test/.AppleDouble/0000.png",
    "test/annotations.csv",
    "__MACOSX/train/cat/._0000.png",
    "__MACOSX/._train",
    "__MACOSX/other/0000.png",
    "README",
    "docs/cat/picture.png",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def members(prefix: str = "", between: str = "/") -> dict[str, bytes]:
    """Return a zip's members: two training images and one test image of each of two classes."""
    places = [("train", "cat", 0), ("train", "cat", 1), ("train", "dog", 0), ("train", "dog", 1)]
    places += [("test", "cat", 0), ("test", "dog", 0)]
    return {
        prefix + between.join((split, label, f"{number}.png")): encoded(seed)
        for seed, (split, label, number) in enumerate(places)
    }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("prefix", ["", "pets"])
def test_clutter_is_neither_an_image_nor_a_class_nor_an_error(tmp_path: Path, packed: bool, prefix: str) -> None:
    clean = load_folder(write_folder(tmp_path / "clean"), bad_limit=0)
    root = write_folder(tmp_path / "cluttered" / prefix)
    for name in CLUTTER:
        top = tmp_path / "cluttered" if name.startswith("__MACOSX") else root  # beside what was packed
        write(top / name, b"\x00\x05\x16\x07 no image")
    source = zip_folder(tmp_path / "cluttered", tmp_path / "pets.zip") if packed else tmp_path / "cluttered"
    data = load_folder(source, bad_limit=0)
    np.testing.assert_array_equal(data.train.images, clean.train.images)
    np.testing.assert_array_equal(data.test.labels, clean.test.labels)
    assert data.train.classes == clean.train.classes
    report = scan(source)
    assert report.bad == ()
    assert sum(report.images.values()) == 27


def test_what_is_neither_clutter_nor_a_picture_is_reported(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    write(root / "train" / "cat" / "notes", b"hello")
    write(root / "train" / "cat" / "0001.heic", b"\x00\x00\x00\x18ftypheic")
    assert [file.path for file in scan(root).bad] == ["train/cat/0001.heic", "train/cat/notes"]


@pytest.mark.parametrize("packed", [False, True])
def test_images_nested_below_a_class_are_the_classes(tmp_path: Path, packed: bool) -> None:
    # As in Tiny ImageNet: train/CLASS/images/*.JPEG beside train/CLASS/CLASS_boxes.txt.
    root = write_folder(tmp_path / "pets")
    write(root / "train" / "cat" / "images" / "cat_0.JPEG", encoded(100, kind="JPEG"))
    write(root / "train" / "cat" / "images" / "2019" / "may" / "cat_1.PNG", encoded(101))
    write(root / "train" / "cat" / "cat_boxes.txt", b"0 0 1 1")
    write(root / "test" / "dog" / "images" / "dog_0.Jpg", encoded(102, kind="JPEG"))
    data = load_folder(zip_folder(root, tmp_path / "pets.zip") if packed else root, bad_limit=0)
    assert data.train.classes == ("cat", "dog", "emu")
    assert np.bincount(data.train.labels).tolist() == [8, 6, 6]
    assert np.bincount(data.test.labels).tolist() == [3, 4, 3]


def test_a_class_may_be_a_link_and_a_circle_of_links_counts_nothing_twice(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    elsewhere = tmp_path / "elsewhere"
    (root / "train" / "cat").rename(elsewhere)
    (root / "train" / "cat").symlink_to(elsewhere)
    (elsewhere / "up").symlink_to(root)
    (elsewhere / "self").symlink_to(elsewhere)
    (root / "train" / "dog" / "above").symlink_to("..")
    assert np.bincount(load_folder(root, bad_limit=0).train.labels).tolist() == [6, 6, 6]


def write_val_and_valid(root: Path) -> None:
    for name in ("val", "valid"):
        write(root / name / "cat" / "a.png", encoded(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: (root / "train" / "yak").symlink_to("nowhere"), "train/yak is a link to nothing"),
        (lambda root: (root / "val").symlink_to("nowhere"), "val is a link to nothing"),
        (lambda root: (root / "train" / "yak").mkdir(), "the class train/yak holds no images"),
        (lambda root: write(root / "train" / "yak" / "a" / "notes.txt", b""), "the class train/yak holds no images"),
        (lambda root: write(root / "train" / "stray.JPG", b""), "train/stray.JPG is in no class; move it to train/"),
        (write_val_and_valid, "both val/ and valid/"),
        (lambda root: write(root / "Train" / "cat" / "a.png", encoded(0)), "both Train/ and train/"),
    ],
)
def test_a_doubtful_arrangement_is_refused_by_a_sentence_that_names_it(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    root = write_folder(tmp_path / "pets")
    make(root)
    with pytest.raises(DataError, match=message) as caught:
        load_folder(root)
    assert "\n" not in str(caught.value)


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
    with pytest.raises(DataError, match="holds two datasets, a/ and b/"):
        load_folder(write_zip(tmp_path / "two.zip", {**members("a/"), **members("b/")}))


def test_names_of_windows_and_needless_dots_in_a_zip_are_understood(tmp_path: Path) -> None:
    plain = load_folder(write_zip(tmp_path / "plain.zip", members()))
    windows = write_zip(tmp_path / "windows.zip", members("pets\\", "\\"))
    dotted = write_zip(tmp_path / "dotted.zip", {f"./{name.replace('/', '//')}": d for name, d in members().items()})
    for archive in (windows, dotted):
        data = load_folder(archive, bad_limit=0)
        assert data.train.classes == ("cat", "dog")
        np.testing.assert_array_equal(data.train.images, plain.train.images)


@pytest.mark.parametrize("name", ["../train/cat/x.png", "train/cat/../../../x.png", "/train/cat/x.png", "C:\\train\\x"])
def test_names_that_lead_out_of_a_zip_are_refused(tmp_path: Path, name: str) -> None:
    archive = write_zip(tmp_path / "slip.zip", {**members(), name: encoded(9)})
    with pytest.raises(DataError, match="leads out of the archive"):
        load_folder(archive)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_members_with_one_name_the_last_counts_as_when_unpacking(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "pets.zip", members())
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("train/cat/0.png", encoded(77))
        opened.extractall(tmp_path / "unpacked")
    data, unpacked = load_folder(archive), load_folder(tmp_path / "unpacked")
    assert len(data.train) == 4
    np.testing.assert_array_equal(data.train.images, unpacked.train.images)


def test_a_class_is_the_same_in_every_spelling_that_systems_give_its_accents(tmp_path: Path) -> None:
    contents = {}
    for name, content in members().items():
        form = "NFC" if name.startswith("train") else "NFD"
        contents[unicodedata.normalize(form, name.replace("cat", "félin").replace("dog", "犬"))] = content
    archive = write_zip(tmp_path / "accents.zip", contents)
    assert load_folder(archive, bad_limit=0).train.classes == ("félin", "犬")
    # macOS writes UTF-8 and leaves out the flag that says so, in the local and the central header.
    raw = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = raw.find(signature)
        while at >= 0:
            raw[at + offset + 1] &= ~0x08
            at = raw.find(signature, at + 4)
    unmarked = write(tmp_path / "unmarked.zip", bytes(raw))
    assert not any(info.flag_bits & 0x800 for info in zipfile.ZipFile(unmarked).infolist())
    data = load_folder(unmarked, bad_limit=0)
    assert data.train.classes == ("félin", "犬")
    assert len(data.train) == 4


def test_file_names_that_are_no_text_are_read_and_reported(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    write(root / "train" / "cat" / os.fsdecode(b"good-\xff.png"), encoded(5))
    write(root / "train" / "cat" / os.fsdecode(b"bad-\xff.png"), b"no image")
    assert len(load_folder(root, bad_limit=1).train) == 19
    assert len(load_folder(root, bad_limit=1).train) == 19  # from the cache
    (bad,) = scan(root).bad
    assert str(bad).encode().startswith(b"train/cat/bad-")


@pytest.mark.parametrize("damage", ["directory", "end"])
def test_a_damaged_zip_is_refused_by_a_sentence(tmp_path: Path, damage: str) -> None:
    archive = write_zip(tmp_path / "pets.zip", members())
    raw = bytearray(archive.read_bytes())
    at = raw.find(b"PK\x01\x02") if damage == "directory" else raw.find(b"PK\x05\x06") + 12
    raw[at : at + 4] = b"\xff\xff\xff\x7f"
    archive.write_bytes(bytes(raw))
    with pytest.raises(DataError, match=r"pets\.zip cannot be read as a zip file"):
        open_tree(archive).files  # noqa: B018
