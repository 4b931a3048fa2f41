"""Large images, streamed: cut as Pillow cuts, the same whoever decodes, without touching torch's random state."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from filtercov.lab.data import Augment, BatchLoader, Dataset, StreamedImages
from filtercov.lab.data.augment.crops import crop_boxes
from filtercov.lab.data.folder import load_folder
from filtercov.lab.data.tree import ZipTree
from tests.lab.data.folders import write_folder, zip_folder

FULL = Augment(random_resized_crop=(0.08, 1.0), flip=0.5, randaugment=(1, 9), erasing=0.3, mixup=0.2, cutmix=1.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("large") / "pets", size=(90, 80))


def make_loader(data: Dataset, **options: object) -> BatchLoader:
    settings = {"batch_size": 8, "seed": 3, "shuffle": True, "augment": FULL, "mean": data.mean, "std": data.std}
    return BatchLoader(data.train, **{**settings, **options})  # type: ignore[arg-type]


def assert_same_batches(a: list[tuple[torch.Tensor, torch.Tensor]], b: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for pair, other in zip(a, b, strict=True):
        assert torch.equal(pair[0], other[0])
        assert torch.equal(pair[1], other[1])


def test_large_images_stream_and_small_ones_do_not(root: Path) -> None:
    data = load_folder(root)
    assert isinstance(data.train, StreamedImages)
    assert data.image_size == 224
    assert not isinstance(load_folder(root, image_size=32).train, StreamedImages)


def test_workers_zips_and_resuming_change_nothing(root: Path, tmp_path: Path) -> None:
    here = make_loader(load_folder(root, image_size=72, workers=0))
    batches = list(here.epoch(1))
    assert_same_batches(list(make_loader(load_folder(root, image_size=72, workers=2)).epoch(1)), batches)
    archive = zip_folder(root, tmp_path / "pets.zip")
    assert_same_batches(list(make_loader(load_folder(archive, image_size=72, workers=2)).epoch(1)), batches)
    assert_same_batches(list(here.epoch(1, 2)), batches[2:])


def test_each_process_opens_the_zip_for_itself(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ZipTree(zip_folder(root, tmp_path / "pets.zip"))
    parents = tree._zip
    assert tree._zip is parents
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a forked worker, which would share the file's position
    assert tree._zip is not parents


def test_ranks_share_the_batches_of_one_process(root: Path) -> None:
    data = load_folder(root, image_size=72, workers=0)
    whole = list(make_loader(data).epoch(0))
    shares = [list(make_loader(data, rank=rank, world_size=2).epoch(0)) for rank in range(2)]
    together = [tuple(torch.cat(parts) for parts in zip(*pair, strict=True)) for pair in zip(*shares, strict=True)]
    assert_same_batches(together, whole)  # type: ignore[arg-type]


def test_a_random_resized_crop_is_pillows_of_the_drawn_box(root: Path) -> None:
    data = load_folder(root, image_size=72, workers=0)
    augment = Augment(random_resized_crop=(0.08, 1.0))
    loader = make_loader(data, augment=augment, shuffle=False, mean=(0.0,), std=(1 / 255,))
    images, _ = next(loader.epoch(0))
    share = loader._share(torch.arange(8), 0, 0)
    boxes = crop_boxes(share.draws.crop, 80, 90, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
    for image, path, (top, left, height, width) in zip(images, data.train.paths, boxes.tolist(), strict=False):
        cropped = Image.open(root / path).crop((left, top, left + width, top + height))
        expected = np.asarray(cropped.resize((72, 72), Image.Resampling.BILINEAR))
        np.testing.assert_allclose(image.permute(1, 2, 0).numpy(), expected, atol=1e-3)


def test_evaluation_shows_the_central_nineteen_twentieths(root: Path) -> None:
    data = load_folder(root, image_size=76, workers=0)
    loader = BatchLoader(data.test, batch_size=9, seed=0, mean=(0.0,), std=(1 / 255,))
    images, targets = next(loader.epoch(0))
    assert targets.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for image, path in zip(images, data.test.paths, strict=True):
        expected = np.asarray(Image.open(root / path).crop((7, 2, 83, 78)))  # 76 = 19/20 of 80: nothing to scale
        np.testing.assert_allclose(image.permute(1, 2, 0).numpy(), expected, atol=1e-3)


def test_a_padded_crop_moves_the_centre_by_up_to_its_padding(root: Path) -> None:
    data = load_folder(root, image_size=76, workers=0)
    loader = make_loader(data, batch_size=len(data.train), augment=Augment(crop_padding=4), shuffle=False)
    loader.mean, loader.std = (0.0,), (1 / 255,)
    seen: set[tuple[int, int]] = set()
    for epoch in range(4):
        images, _ = next(loader.epoch(epoch))
        for image, path in zip(images.permute(0, 2, 3, 1).numpy(), data.train.paths, strict=True):
            centre = np.asarray(Image.open(root / path).crop((7, 2, 83, 78)), dtype=np.float32)
            padded = np.pad(centre, ((4, 4), (4, 4), (0, 0)))
            fitting = [
                (top, left)
                for top in range(9)
                for left in range(9)
                if np.allclose(padded[top : top + 76, left : left + 76], image, atol=1e-3)
            ]
            assert len(fitting) == 1
            seen.update(fitting)
    assert [{place[axis] for place in seen} for axis in (0, 1)] == [set(range(9))] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_streaming_neither_uses_nor_moves_torchs_random_state(root: Path, workers: int) -> None:
    data = load_folder(root, image_size=72, workers=workers)
    state = torch.get_rng_state()
    list(make_loader(data).epoch(0))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_subset_streams_only_its_files(root: Path) -> None:
    data = load_folder(root, image_size=72, workers=0)
    subset = data.train.subset(np.array([5, 2]))
    assert subset.paths == (data.train.paths[5], data.train.paths[2])
    assert len(subset) == len(subset.labels) == 2
