"""Batches are a pure function of (seed, epoch, batch), whoever asks for them."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from filtercov.errors import DataError
from filtercov.lab.data import Augment, BatchLoader, ImageArrays
from filtercov.lab.data.dataset import stratified_order
from tests.lab.data.folders import assert_same, joined

MIXING = Augment(
    crop_padding=2, flip=0.5, randaugment=(1, 9), colour_jitter=(0.2, 0.2, 0.2), erasing=0.3, mixup=0.5, cutmix=1.0
)


def make_arrays(count: int, size: int = 8, channels: int = 3, classes: int = 5) -> ImageArrays:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, size, size, channels), dtype=np.uint8)
    return ImageArrays(images, rng.integers(0, classes, count), tuple(f"class {i}" for i in range(classes)))


def make_loader(arrays: ImageArrays, **options: object) -> BatchLoader:
    settings_ = {"batch_size": 16, "seed": 7, "augment": MIXING, "shuffle": True, "drop_last": False}
    return BatchLoader(arrays, mean=(0.5,) * 3, std=(0.25,) * 3, **{**settings_, **options})


def test_an_epoch_repeats_exactly_from_any_batch_on() -> None:
    whole = list(make_loader(make_arrays(100)).epoch(2))
    loader = make_loader(make_arrays(100))
    for start in range(len(loader) + 1):
        assert_same(list(loader.epoch(2, start)), whole[start:])


@pytest.mark.parametrize(
    ("world_size", "augment"),
    [(2, MIXING), (5, MIXING), (3, Augment.preset("light")), (5, Augment.preset("cifar")), (3, Augment())],
)
def test_the_ranks_shares_make_up_the_batch_of_one_process(world_size: int, augment: Augment) -> None:
    arrays = make_arrays(100)
    whole = list(make_loader(arrays, augment=augment).epoch(1))
    loaders = [make_loader(arrays, augment=augment, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert_same(joined([list(loader.epoch(1)) for loader in loaders]), whole)


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 6), st.booleans(), st.integers(0, 2**40))
def test_every_image_is_seen_once_for_any_sizes(
    count: int, batch_size: int, world_size: int, drop_last: bool, seed: int
) -> None:
    if batch_size < world_size or (drop_last and count < batch_size):
        return
    # Each image is its own number, so that what was seen can be read off.
    images = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1)
    arrays = ImageArrays(images, np.zeros(count, np.int64), ("only",))
    options = {"batch_size": batch_size, "seed": seed, "drop_last": drop_last, "mean": (0.0,), "std": (1 / 255,)}
    seen = []
    for rank in range(world_size):
        loader = BatchLoader(arrays, shuffle=True, rank=rank, world_size=world_size, **options)  # type: ignore[arg-type]
        batches = [batch for batch, _ in loader.epoch(0)]
        assert len(batches) == len(loader)
        seen += [round(value) for batch in batches for value in batch.flatten().tolist()]
    expected = count // batch_size * batch_size if drop_last else count
    assert len(seen) == len(set(seen)) == expected


def test_batches_are_normalised_float32_in_channels_last_memory() -> None:
    arrays = make_arrays(16)
    images, targets = next(make_loader(arrays, shuffle=False, augment=Augment()).epoch(0))
    reference = (arrays.images.astype(np.float64) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(images.permute(0, 2, 3, 1).numpy(), reference, atol=1e-6)
    assert torch.equal(targets, torch.from_numpy(arrays.labels))  # in the data's order
    assert images.dtype == torch.float32
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert targets.dtype == torch.int64


def test_nearby_seeds_epochs_and_batches_draw_independently() -> None:
    different = make_arrays(64)
    same = different.subset(np.zeros(64, np.int64))  # only the draws tell them apart
    orders, batches = set(), set()
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1)):
        shuffled = make_loader(different, augment=Augment(), seed=seed).epoch(epoch)
        orders.add(torch.cat([images for images, _ in shuffled]).numpy().tobytes())
        augmented = make_loader(same, augment=Augment(crop_padding=4), seed=seed).epoch(epoch)
        batches.update(images.numpy().tobytes() for images, _ in augmented)
    assert (len(orders), len(batches)) == (4, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((2, 4, 4, 3), np.float32)}, "uint8 images"),
        ({"images": np.zeros((2, 3, 4, 4), np.uint8)}, "1 or 3"),
        ({"labels": np.array([0.0, 1.0])}, "int64 labels"),
        ({"labels": np.array([0, 1, 1])}, r"labels \(2,\)"),
        ({"labels": np.array([0, 2])}, "got 0 to 2"),
        ({"labels": np.array([-1, 1])}, "from 0 to 1"),
    ],
)
def test_arrays_that_are_no_labelled_images_are_refused(change: dict[str, np.ndarray], message: str) -> None:
    given_ = {"images": np.zeros((2, 4, 4, 1), np.uint8), "labels": np.array([0, 1]), "classes": ("cat", "dog")}
    assert len(ImageArrays(**given_).subset(np.array([], np.int64))) == 0  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message):
        ImageArrays(**{**given_, **change})  # type: ignore[arg-type]


def test_images_that_do_not_fill_a_batch_are_refused() -> None:
    with pytest.raises(DataError):
        make_loader(make_arrays(15), drop_last=True)
    assert len(make_loader(make_arrays(16), drop_last=True)) == 1


def test_mean_and_std_are_the_channels_and_a_constant_channel_is_not_scaled() -> None:
    arrays = make_arrays(30)
    arrays.images[..., 1] = 51
    mean, std = arrays.mean_and_std()
    exact = [
        Fraction(channel.sum(dtype=int).item(), 255 * channel.size) for channel in np.moveaxis(arrays.images, 3, 0)
    ]
    assert mean == tuple(map(float, exact))  # to the last bit, which is part of a run's identity
    assert std[1] == 1.0
    np.testing.assert_allclose([std[0], std[2]], (arrays.images / 255).std((0, 1, 2))[[0, 2]])


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.data())
def test_any_beginning_of_the_stratified_order_keeps_the_classes_in_proportion(
    labels: list[int], data: st.DataObject
) -> None:
    array = np.array(labels, dtype=np.int64)
    order = stratified_order(array)
    assert sorted(order.tolist()) == list(range(len(labels)))
    limit = data.draw(st.integers(1, len(labels)))
    counts, totals = np.bincount(array[order[:limit]], minlength=5), np.bincount(array, minlength=5)
    assert np.abs(counts - limit * totals / len(labels)).max() <= 3
