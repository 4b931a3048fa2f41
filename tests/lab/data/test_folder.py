"""Folders and zips of small images: decoded once, kept, the same wherever they come from; bad files are named."""

import io
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from filtercov.errors import DataError
from filtercov.files import Lock
from filtercov.lab.data import folder
from filtercov.lab.data.folder import load_folder
from tests.lab.data.folders import encoded, write_folder, zip_folder


def test_every_pixel_and_label_is_the_files_of_a_directory_or_zip(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets")
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
def home(own_cache: Path) -> Path:
    """Where decoded folders are."""
    return own_cache / "folders"


def test_the_second_load_decodes_nothing_and_maps_the_same_bytes(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "pets")
    first = load_folder(root)
    monkeypatch.setattr(folder, "_decode", lambda *_, **__: pytest.fail("decoded again"))
    for lock in home.glob(".*.lock"):
        lock.unlink()
    second = load_folder(root)
    assert [path.suffix for path in home.iterdir()] == [""]  # nothing is written, as in a cache that is read-only
    assert isinstance(second.train.images, np.memmap)
    np.testing.assert_array_equal(first.train.images, second.train.images)


def test_a_changed_source_and_another_version_are_decoded_anew(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "pets")
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


def test_a_cache_that_is_damaged_or_cannot_be_written_is_reported(tmp_path: Path, home: Path) -> None:
    root = write_folder(tmp_path / "pets")
    load_folder(root)
    (directory,) = home.glob("pets-*")
    for name, content in (("bad.json", b"garbled"), ("train", b"short")):
        kept = (directory / name).read_bytes()
        (directory / name).write_bytes(content)
        with pytest.raises(DataError, match="delete that directory"):
            load_folder(root)
        (directory / name).write_bytes(kept)
    home.rename(tmp_path / "elsewhere")
    home.write_text("a file where the directory would go: mkdir fails, even for root")
    with pytest.raises(DataError, match="set FILTERCOV_CACHE"):
        load_folder(root)


def test_an_interrupted_or_killed_decoding_leaves_nothing_that_looks_finished(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "pets")
    with monkeypatch.context() as patch:
        patch.setattr(folder, "flush", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            load_folder(root)
    assert {path.suffix for path in home.iterdir()} == {".lock"}
    killed = (
        "import os; from filtercov.lab.data import folder; from pathlib import Path\n"
        "folder.flush = lambda path: os._exit(9)\n"
        f"folder.load_folder(Path({str(root)!r}))"
    )
    assert subprocess.run([sys.executable, "-c", killed]).returncode == 9
    assert len(list(home.glob(".decoding-*"))) == 1
    assert len(load_folder(root).train) == 18
    assert not list(home.glob(".decoding-*"))


def test_who_finds_another_decoding_waits_for_its_images(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "pets")
    whole = load_folder(root)
    (cache,) = home.glob("pets-*")
    hidden = cache.rename(tmp_path / "hidden")
    lock = Lock(cache.with_name(f".{cache.name}.lock"))
    assert lock.acquire()
    monkeypatch.setattr(folder, "_decode", lambda *_, **__: pytest.fail("decoded twice"))
    found = []
    waiting = threading.Thread(target=lambda: found.append(load_folder(root)))
    waiting.start()
    time.sleep(0.3)
    assert not found
    hidden.rename(cache)
    lock.release()
    waiting.join()
    np.testing.assert_array_equal(found[0].train.images, whole.train.images)


def test_images_are_scaled_to_the_size_asked_for(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", size=(40, 20))
    assert load_folder(root).image_size == 20
    data = load_folder(root, image_size=10)
    centre = Image.open(root / "train" / "cat" / "0000.png").crop((10, 0, 30, 20))
    expected = np.asarray(centre.resize((10, 10), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(data.train.images[0], expected)


def test_grey_folders_have_one_channel_and_one_colour_picture_is_enough_for_three(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", mode="L")
    assert load_folder(root).in_channels == 1
    (root / "train" / "cat" / "0000.png").write_bytes(encoded(5, mode="RGBA"))
    data = load_folder(root)
    assert data.in_channels == 3
    np.testing.assert_array_equal(
        data.train.images[0], np.asarray(Image.open(io.BytesIO(encoded(5, mode="RGBA"))))[..., :3]
    )
    assert (data.train.images[1][..., 0] == data.train.images[1][..., 2]).all()


def test_up_to_the_limit_bad_files_are_skipped_and_each_is_named(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_folder(tmp_path / "pets")
    for name in ("bad-1.jpg", "bad-\x1b[2J\udcff.jpg"):  # a name that a terminal would obey
        (root / "train" / "dog" / name).write_bytes(b"no picture")
    for _ in range(2):  # decoding, and from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING, "filtercov.lab.data"):
            data = load_folder(root, bad_limit=2)
        assert data.train.labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6
        names = sorted(message.removeprefix("cannot use ").partition(": ")[0] for message in caplog.messages)
        assert names == ["train/dog/bad-1.jpg", "train/dog/bad-\\x1b[2J\\udcff.jpg"]
    for size in (16, 8):  # from the cache, and decoding
        with pytest.raises(DataError, match=r"train/dog/bad-.*bad_limit"):
            load_folder(root, bad_limit=1, image_size=size)
    assert not list(home.glob(".decoding-*"))


def test_a_split_of_nothing_but_bad_files_is_refused(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", per_class=1)
    for split, message in (("test", "none of the test images"), ("train", "none of the 3 training files")):
        for file in (root / split).rglob("*.png"):
            file.write_bytes(b"")
        with pytest.raises(DataError, match=message):
            load_folder(root)
