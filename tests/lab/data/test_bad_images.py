"""Forty files that are no images: each is found, named, skipped up to the limit, and then refused."""

import logging
from pathlib import Path

import pytest

from filtercov.errors import BadImagesError, DataError
from filtercov.lab.data import BatchLoader, scan
from filtercov.lab.data.folder import load_folder
from tests.lab.data.folders import write_bad_files, write_folder, zip_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def spoiled(tmp_path: Path) -> tuple[Path, set[str]]:
    root = write_folder(tmp_path / "pets")
    return root, write_bad_files(root / "train" / "dog")


def test_scan_lists_all_forty_with_reasons(spoiled: tuple[Path, set[str]]) -> None:
    root, bad = spoiled
    assert len(bad) == 40
    steps = []
    report = scan(root, progress=lambda done, total: steps.append((done, total)))
    assert {Path(file.path).name for file in report.bad} == bad
    assert all(file.reason for file in report.bad)
    assert "train/dog/bad-empty.jpg: empty file" in map(str, report.bad)
    assert report.images[("train", "dog")] == 6
    assert sum(report.images.values()) == 27
    assert steps[-1] == (67, 67)


def test_scan_of_a_zip_finds_the_same(spoiled: tuple[Path, set[str]], tmp_path: Path) -> None:
    root, bad = spoiled
    for name in ("bad-link.jpg", "bad-loop.jpg", "bad-pipe.jpg"):
        (root / "train" / "dog" / name).unlink()  # a zip holds no such things
    report = scan(zip_folder(root, tmp_path / "pets.zip"))
    assert len(report.bad) == len(bad) - 3
    assert sum(report.images.values()) == 27


def test_up_to_the_limit_they_are_skipped_and_named(
    spoiled: tuple[Path, set[str]], caplog: pytest.LogCaptureFixture
) -> None:
    root, bad = spoiled
    for _ in range(2):  # decoding, and from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING, "filtercov.lab.data"):
            data = load_folder(root, bad_limit=40)
        assert len(data.train) == 18
        assert sum(f"train/dog/{name}" in caplog.text for name in bad) == 40


def test_one_more_than_the_limit_is_an_error_even_from_the_cache(spoiled: tuple[Path, set[str]]) -> None:
    root, _ = spoiled
    with pytest.raises(BadImagesError, match=r"more than 39 images cannot be read .*bad-.*filtercov scan"):
        load_folder(root, bad_limit=39)
    load_folder(root, bad_limit=40)
    with pytest.raises(BadImagesError, match="more than 0"):
        load_folder(root, bad_limit=0)


def test_a_folder_of_nothing_but_bad_files_is_refused(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", per_class=1)
    for file in root.rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match="none of the training files looked at is an image"):
        load_folder(root)


@pytest.mark.parametrize("workers", [0, 2])
def test_while_streaming_training_replaces_them_and_evaluation_leaves_them_out(tmp_path: Path, workers: int) -> None:
    root = write_folder(tmp_path / "pets", size=(80, 90))
    for label in ("cat", "emu"):
        (root / "train" / label / "0001.png").write_bytes(b"")
        (root / "test" / label / "0001.png").write_bytes(b"broken")
    data = load_folder(root, image_size=72, bad_limit=4, workers=workers)
    training = BatchLoader(data.train, batch_size=9, seed=0, shuffle=True, mean=data.mean, std=data.std)
    assert [len(images) for images, _ in training.epoch(0)] == [9, 9]
    evaluation = BatchLoader(data.test, batch_size=9, seed=0, mean=data.mean, std=data.std)
    ((images, targets),) = evaluation.epoch(0)
    assert len(images) == 7
    assert targets.tolist() == [0, 0, 1, 1, 1, 2, 2]


def test_while_streaming_the_limit_holds_over_both_sets_and_counts_each_file_once(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", size=(80, 90))
    for split in ("train", "test"):
        (root / split / "cat" / "0001.png").write_bytes(b"")
    data = load_folder(root, image_size=72, bad_limit=1, workers=0)
    training = BatchLoader(data.train, batch_size=9, seed=0, shuffle=True, mean=data.mean, std=data.std)
    for epoch in range(3):
        assert len(list(training.epoch(epoch))) == 2
    evaluation = BatchLoader(data.test, batch_size=9, seed=0, mean=data.mean, std=data.std)
    with pytest.raises(BadImagesError, match="more than 1 images"):
        list(evaluation.epoch(0))


@pytest.mark.parametrize("workers", [0, 1])
def test_while_streaming_a_stretch_of_nothing_but_bad_files_is_one_sentence(tmp_path: Path, workers: int) -> None:
    root = write_folder(tmp_path / "pets", per_class=12, size=(80, 90))
    for file in (root / "train" / "cat").iterdir():
        file.write_bytes(b"")
    data = load_folder(root, image_size=72, workers=workers)
    training = BatchLoader(data.train, batch_size=36, seed=0, shuffle=True, mean=data.mean, std=data.std)
    with pytest.raises(DataError, match="and so for the 9 images before it; repair the folder") as raised:
        list(training.epoch(0))
    assert "Traceback" not in str(raised.value)
