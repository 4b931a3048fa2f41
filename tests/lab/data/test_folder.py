"""Folders and zips of small images: decoded once, kept beside a manifest, the same wherever they come from."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from filtercov.errors import DataError
from filtercov.files import Lock
from filtercov.lab.data import cache, load
from filtercov.lab.data.folder import load_folder
from tests.lab.data.folders import encoded, write_folder, zip_folder

CIFAR_ZIP = Path(__file__).parents[3] / "shared" / "data" / "cifar10-images.zip"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def count_decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    original = cache.read
    monkeypatch.setattr(cache, "read", lambda tree, path: seen.append(path) or original(tree, path))
    return seen


def test_every_pixel_and_label_is_the_files(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    data = load(f"folder:{root}")
    assert (data.num_classes, data.in_channels, data.image_size) == (3, 3, 16)
    assert data.train.classes == ("cat", "dog", "emu")
    files = sorted((root / "train").rglob("*.png"))
    assert data.train.labels.tolist() == [("cat", "dog", "emu").index(file.parent.name) for file in files]
    for image, file in zip(data.train.images, files, strict=True):
        np.testing.assert_array_equal(image, np.asarray(Image.open(file)))
    assert len(data.test) == 9
    values = data.train.images / 255
    np.testing.assert_allclose(data.mean, values.mean((0, 1, 2)), atol=1e-12)
    np.testing.assert_allclose(data.std, values.std((0, 1, 2)), atol=1e-12)


@pytest.mark.parametrize("prefix", ["", "pets/"])
def test_a_zip_gives_what_its_directory_gives(tmp_path: Path, prefix: str) -> None:
    root = write_folder(tmp_path / "pets")
    archive = zip_folder(root, tmp_path / "pets.zip", prefix=prefix)
    from_directory, from_zip = load_folder(root), load_folder(archive)
    np.testing.assert_array_equal(from_zip.train.images, from_directory.train.images)
    np.testing.assert_array_equal(from_zip.test.labels, from_directory.test.labels)


@pytest.mark.parametrize("test", ["val", "valid", "validation"])
def test_the_test_split_may_have_its_other_names(tmp_path: Path, test: str) -> None:
    assert len(load_folder(write_folder(tmp_path / "pets", test=test)).test) == 9


def test_the_second_load_decodes_nothing_and_maps_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "pets")
    seen = count_decodings(monkeypatch)
    first = load_folder(root)
    assert len(seen) == 27
    second = load_folder(root)
    assert len(seen) == 27
    assert isinstance(second.train.images.base, np.memmap) or isinstance(second.train.images, np.memmap)
    np.testing.assert_array_equal(first.train.images, second.train.images)
    assert (tmp_path / "pets.filtercov").is_dir()
    assert not list((tmp_path / "pets.filtercov").glob(".decoding-*"))


def test_a_changed_source_is_decoded_anew(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    before = np.array(load_folder(root).train.images)
    (root / "train" / "cat" / "0000.png").write_bytes(encoded(1000))
    os.utime(root / "train" / "cat" / "0000.png", ns=(1, 1))
    after = load_folder(root).train.images
    assert not np.array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1:], after[1:])


def test_nothing_is_written_beside_a_source_marked_read_only_even_by_root(tmp_path: Path, own_cache: Path) -> None:
    shared = tmp_path / "shared"
    archive = zip_folder(write_folder(tmp_path / "pets"), _made(shared) / "pets.zip")
    shared.chmod(0o555)
    try:
        assert len(load_folder(archive).train) == 18
        assert list(shared.iterdir()) == [archive]
        assert len(list((own_cache / "folders").iterdir())) == 1
    finally:
        shared.chmod(0o755)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def test_a_source_that_cannot_be_written_beside_uses_the_cache_directory(tmp_path: Path, own_cache: Path) -> None:
    root = write_folder(tmp_path / "pets")
    (tmp_path / "pets.filtercov").write_text("a file where the directory would go: mkdir fails, even for root")
    load_folder(root)
    assert len(list((own_cache / "folders").iterdir())) == 1


def test_nowhere_to_write_is_an_error_that_says_what_to_set(tmp_path: Path, own_cache: Path) -> None:
    root = write_folder(tmp_path / "pets")
    (tmp_path / "pets.filtercov").write_text("")
    own_cache.write_text("")
    with pytest.raises(DataError, match="set FILTERCOV_CACHE"):
        load_folder(root)


def test_an_interrupted_decoding_leaves_nothing_that_looks_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "pets")
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            load_folder(root)
    assert list((tmp_path / "pets.filtercov").iterdir()) == []
    assert len(load_folder(root).train) == 18


def test_what_a_killed_decoding_left_is_removed_by_the_next_and_what_another_is_at_is_not(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
    killed = (
        "import os; from filtercov.lab.data import cache, folder; from pathlib import Path\n"
        "cache._publish = lambda *_: os._exit(9)\n"
        f"folder.load_folder(Path({str(root)!r}))"
    )
    assert subprocess.run([sys.executable, "-c", killed]).returncode == 9
    home = tmp_path / "pets.filtercov"
    assert len(list(home.glob(".decoding-*"))) == 2
    live = home / ".decoding-1-live"
    live.mkdir()
    lock = Lock(live.with_suffix(".lock"))
    assert lock.acquire()
    assert len(load_folder(root).train) == 18
    assert set(home.glob(".decoding-*")) == {live, lock.path}
    lock.release()


@pytest.mark.parametrize("damage", ["truncate images", "garble manifest", "remove images", "wrong labels"])
def test_a_damaged_cache_is_noticed(tmp_path: Path, damage: str) -> None:
    root = write_folder(tmp_path / "pets")
    load_folder(root)
    (home,) = (tmp_path / "pets.filtercov").iterdir()
    if damage == "truncate images":
        (home / "images.bytes").write_bytes((home / "images.bytes").read_bytes()[:-100])
    elif damage == "garble manifest":
        (home / "manifest.json").write_text("{")
    elif damage == "remove images":
        (home / "images.bytes").unlink()
    else:
        manifest = json.loads((home / "manifest.json").read_text())
        manifest["labels"] = manifest["labels"][:-1]
        (home / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="delete that directory"):
        load_folder(root)


def test_images_are_scaled_to_the_size_asked_for(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", size=(40, 20))
    data = load_folder(root, image_size=10)
    assert data.train.images.shape[1:] == (10, 10, 3)
    centre = Image.open(root / "train" / "cat" / "0000.png").crop((10, 0, 30, 20))
    expected = np.asarray(centre.resize((10, 10), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(data.train.images[0], expected)


def test_grey_folders_have_one_channel_and_mixed_modes_become_rgb(tmp_path: Path) -> None:
    assert load_folder(write_folder(tmp_path / "grey", mode="L")).in_channels == 1
    mixed = write_folder(tmp_path / "mixed")
    (mixed / "train" / "cat" / "0000.png").write_bytes(encoded(5, mode="RGBA"))
    (mixed / "train" / "cat" / "0001.png").write_bytes(encoded(5, mode="L"))
    data = load_folder(mixed)
    assert data.in_channels == 3
    assert (data.train.images[1][..., 0] == data.train.images[1][..., 2]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: root / "missing", "neither a directory nor a zip"),
        (lambda root: root, "no train/CLASS/image"),
        (lambda root: _written(root / "file.txt", b"hello"), "neither a directory nor a zip"),
        (lambda root: _written(root / "a.zip", b"PK\x05\x06" + bytes(18)), "no train/CLASS/image"),
        (lambda root: _only_train(root / "pets"), "no test/CLASS or val/CLASS"),
        (lambda root: _strange_class(root / "pets"), "tests classes it does not train: yak"),
        (lambda root: write_folder(root / "pets", classes=("cat",)), "two classes or more.*cat alone.*below a class"),
        (lambda root: root / ("x" * 300), "cannot be looked at: File name too long; make it readable"),
    ],
)
def test_a_path_that_is_no_dataset_is_refused(tmp_path: Path, make: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_folder(make(tmp_path))  # type: ignore[operator]


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _only_train(root: Path) -> Path:
    write_folder(root)
    (root / "test").rename(root / "ignored")
    return root


def _strange_class(root: Path) -> Path:
    write_folder(root)
    (root / "test" / "cat").rename(root / "test" / "yak")
    return root


@pytest.mark.parametrize(("inside", "text"), [(".", "."), ("train/cat", "../..")])
def test_a_folder_may_be_named_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, text: str
) -> None:
    root = write_folder(tmp_path / "pets")
    monkeypatch.chdir(root / inside)
    data = load(f"folder:{text}")
    assert (data.name, len(data.train)) == ("folder:pets", 18)
    assert {path.name for path in tmp_path.iterdir()} == {"pets", "pets.filtercov"}


def test_a_path_that_stands_for_nothing_is_refused() -> None:
    with pytest.raises(DataError, match=r"folder:~nobody-of-that-name/x leads nowhere .*; write the path without ~"):
        load("folder:~nobody-of-that-name/x")
    for text in ("~nobody-of-that-name/x", "x" * 300):
        with pytest.raises(DataError, match="unknown data"):
            load(text)


@pytest.mark.skipif(not CIFAR_ZIP.is_file(), reason="the CIFAR-10 zip is not beside the project")
def test_real_cifar_images_from_the_zip_decode_as_pillow_decodes_them(tmp_path: Path) -> None:
    # A small part of it, as a zip of its own: decoding all 60,000 takes longer than a test should.
    part = tmp_path / "part.zip"
    with zipfile.ZipFile(CIFAR_ZIP) as whole, zipfile.ZipFile(part, "w") as archive:
        wanted = [name for name in whole.namelist() if name.endswith(("/0000.jpg", "/0001.jpg", "/0002.jpg"))]
        contents = {name: whole.read(name) for name in wanted}
        for name, content in contents.items():
            archive.writestr(name, content)
    data = load_folder(part)
    assert (data.num_classes, data.image_size, len(data.train), len(data.test)) == (10, 32, 30, 30)
    train = sorted(name for name in wanted if name.startswith("train/"))
    for image, name in zip(data.train.images, train, strict=True):
        np.testing.assert_array_equal(image, np.asarray(Image.open(io.BytesIO(contents[name]))))
