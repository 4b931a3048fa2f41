"""Large images, streamed: cut as Pillow cuts, the same whoever decodes, without touching torch's random state."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from filtercov.errors import DataError
from filtercov.lab.data import Augment, BatchLoader, Dataset, StreamedImages
from filtercov.lab.data.folder import load_folder
from filtercov.lab.data.geometry import crop_boxes
from tests.lab.data.folders import assert_same, joined, write_folder, zip_folder

FULL = Augment(random_resized_crop=(0.08, 1.0), flip=0.5, randaugment=(1, 9), erasing=0.3, mixup=0.2, cutmix=1.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("large") / "pets", size=(90, 80))


def make_loader(data: Dataset, **options: object) -> BatchLoader:
    settings = {"batch_size": 8, "seed": 3, "shuffle": True, "augment": FULL, "mean": data.mean, "std": data.std}
    return BatchLoader(data.train, **{**settings, **options})  # type: ignore[arg-type]


def test_large_images_stream_and_small_ones_do_not(root: Path) -> None:
    data = load_folder(root)
    assert isinstance(data.train, StreamedImages)
    assert data.image_size == 224
    assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # ImageNet's, as everybody's
    assert not isinstance(load_folder(root, image_size=32).train, StreamedImages)


def test_workers_zips_resuming_and_ranks_change_nothing(root: Path, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    here = make_loader(load_folder(root, image_size=72, workers=0))
    batches = list(here.epoch(1))
    assert_same(list(make_loader(load_folder(root, image_size=72, workers=2)).epoch(1)), batches)
    archive = zip_folder(root, tmp_path / "pets.zip")
    assert_same(list(make_loader(load_folder(archive, image_size=72, workers=2)).epoch(1)), batches)
    assert_same(list(here.epoch(1, 2)), batches[2:])
    ranks = [replace(here, rank=rank, world_size=2) for rank in range(2)]
    assert_same(joined([list(loader.epoch(1)) for loader in ranks]), batches)
    assert torch.equal(torch.get_rng_state(), state)  # a resumed run finds it unmoved


def test_a_limit_and_a_hold_out_keep_files_and_labels_together(root: Path) -> None:
    data = load_folder(root, image_size=72, workers=0).reduced(limit=7, hold_out_validation=True)
    for part, count in ((data.train, 7), (data.validation, 3)):
        assert len(part) == count
        assert [part.classes[label] for label in part.labels] == [Path(file.path).parts[1] for file in part.files]
    assert not {*data.train.files} & {*data.validation.files}


def test_a_random_resized_crop_is_pillows_of_the_drawn_box(root: Path) -> None:
    data = load_folder(root, image_size=72, workers=0)
    augment = Augment(random_resized_crop=(0.08, 1.0))
    loader = make_loader(data, augment=augment, shuffle=False, mean=(0.0,), std=(1 / 255,))
    images, _ = next(loader.epoch(0))
    share = next(loader._shares(0, 0))
    boxes = crop_boxes(share.draws.crop, 80, 90, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
    for image, file, (top, left, height, width) in zip(images, data.train.files, boxes.tolist(), strict=False):
        cropped = Image.open(root / file.path).crop((left, top, left + width, top + height))
        expected = np.asarray(cropped.resize((72, 72), Image.Resampling.BILINEAR))
        np.testing.assert_allclose(image.permute(1, 2, 0).numpy(), expected, atol=1e-3)


def test_evaluation_shows_the_central_nineteen_twentieths(root: Path) -> None:
    data = load_folder(root, image_size=76, workers=0)
    loader = BatchLoader(data.test, batch_size=9, seed=0, mean=(0.0,), std=(1 / 255,))
    images, targets = next(loader.epoch(0))
    assert targets.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for image, file in zip(images, data.test.files, strict=True):
        expected = np.asarray(Image.open(root / file.path).crop((7, 2, 83, 78)))  # 76 = 19/20 of 80: nothing to scale
        np.testing.assert_allclose(image.permute(1, 2, 0).numpy(), expected, atol=1e-3)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_an_error_of_one_sentence_when_its_batch_comes(tmp_path: Path, workers: int) -> None:
    root = write_folder(tmp_path / "pets", size=(80, 90))
    (root / "train" / "dog" / "0003.png").write_bytes(b"broken")  # the tenth image, so of the third batch of four
    batches = make_loader(load_folder(root, image_size=72, workers=workers), batch_size=4, shuffle=False).epoch(0)
    assert len(next(batches)[0]) == len(next(batches)[0]) == 4
    with pytest.raises(DataError, match=r"^/\S*pets: train/dog/0003\.png: not an image .*; repair or remove it$"):
        next(batches)


def test_the_digest_is_of_the_files_contents_not_of_their_times(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "pets", copy_function=shutil.copyfile)
    digests = {load_folder(path).content_digest for path in (root, copy, copy, zip_folder(root, tmp_path / "pets.zip"))}
    assert len(digests) == 1
    (copy / "train" / "cat" / "0000.png").write_bytes(b"other")
    assert load_folder(copy).content_digest not in digests
