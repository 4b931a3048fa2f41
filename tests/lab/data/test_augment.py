"""The pipeline: what is drawn, what is mixed, and that it is a function of its seed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from filtercov.errors import DataError
from filtercov.lab.data.augment import Augment, Draws, cut_boxes, normalise
from filtercov.lab.data.geometry import crop_boxes
from filtercov.lab.data.operations import OPERATIONS, randaugment
from tests.peers import import_peer

EVERYTHING = Augment(
    random_resized_crop=(0.3, 1.0),
    flip=0.5,
    randaugment=(2, 9),
    colour_jitter=(0.4, 0.4, 0.4),
    erasing=0.5,
    mixup=0.8,
    cutmix=1.0,
)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(augment: Augment, count: int, seed: int = 0) -> Draws:
    return Draws(augment, count, generator(seed))


def augmented(
    augment: Augment, images: Tensor, targets: Tensor, *, seed: int = 0, num_classes: int = 10
) -> tuple[Tensor, Tensor]:
    return augment(images, targets, drawn(augment, len(images), seed), num_classes=num_classes)


def random_images(count: int, channels: int = 3, size: int = 32) -> Tensor:
    return torch.randint(256, (count, channels, size, size), dtype=torch.uint8, generator=generator(99))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_same_seed_gives_the_same_batch_and_leaves_its_input_alone(channels: int) -> None:
    images, targets = random_images(64, channels), torch.arange(64) % 10
    before, state = images.clone(), torch.get_rng_state()
    first, soft = augmented(EVERYTHING, images, targets, seed=1)
    assert torch.equal(torch.get_rng_state(), state)  # torch's own is not moved
    again, soft_again = augmented(EVERYTHING, images, targets, seed=1)
    other, _ = augmented(EVERYTHING, images, targets, seed=2)
    assert torch.equal(first, again)
    assert torch.equal(soft, soft_again)
    assert not torch.equal(first, other)
    assert torch.equal(images, before)
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert first.isfinite().all()


def test_switching_one_operation_on_does_not_change_what_the_others_draw() -> None:
    plain, full = drawn(Augment(flip=0.5), 32), drawn(EVERYTHING, 32)
    for name in ("crop", "flip", "jitter", "erase", "mix_kind", "mix_centre"):
        assert torch.equal(getattr(plain, name), getattr(full, name))


def test_a_share_of_the_draws_chooses_an_operation_and_the_rest_none() -> None:
    images, draws = random_images(400), drawn(Augment(randaugment=(1, 9)), 400)
    changed = randaugment(images, draws.operation, draws.sign, magnitude=21, probability=0.25)
    chosen = draws.operation[:, 0] < 0.25
    assert torch.equal(changed[~chosen], images[~chosen])
    always = randaugment(images[chosen], 4 * draws.operation[chosen], draws.sign[chosen], magnitude=21)
    assert torch.equal(changed[chosen], always)
    never = randaugment(images, draws.operation, draws.sign, magnitude=21, probability=0.0)
    assert torch.equal(never, images)


def test_a1_has_the_operations_strength_and_frequency_of_timms() -> None:
    theirs = import_peer("timm.data.auto_augment").rand_augment_transform("rand-m7-mstd0.5-inc1", {})
    augment = Augment.preset("a1")
    assert augment.randaugment is not None
    count, magnitude = augment.randaugment
    assert count == theirs.num_layers
    assert {op.prob for op in theirs.ops} == {augment.operation_probability}

    def ours(name: str) -> float:
        return next(op for op in OPERATIONS if op.name == name).strength(magnitude / 30)

    def argument(name: str) -> float:
        op = next(op for op in theirs.ops if op.name == name)
        return abs(float(op.level_fn(op.magnitude, op.hparams)[0]))

    assert ours("Rotate") == pytest.approx(argument("Rotate"))
    assert ours("ShearX") == pytest.approx(argument("ShearX"))
    assert 150 / 331 * ours("TranslateX") == pytest.approx(argument("TranslateXRel"), abs=0.01)
    assert ours("Solarize") == pytest.approx(argument("SolarizeIncreasing"), abs=1)
    assert ours("Color") == pytest.approx(abs(argument("ColorIncreasing") - 1))


def test_the_presets_are_the_published_recipes() -> None:
    """ConvMixer's script for CIFAR-10: `--scale 0.75 --ra-n 1 --ra-m 8 --jitter 0.1 --reprob 0.25`; A1 of timm."""
    cifar, a1 = Augment.preset("cifar"), Augment.preset("a1")
    assert (cifar.random_resized_crop, cifar.crop_ratio, cifar.flip) == ((0.75, 1.0), (1.0, 1.0), 0.5)
    assert (cifar.randaugment, cifar.colour_jitter, cifar.erasing, cifar.mixes) == ((1, 8), (0.1,) * 3, 0.25, False)
    assert (a1.random_resized_crop, a1.crop_ratio, a1.flip) == ((0.08, 1.0), (3 / 4, 4 / 3), 0.5)
    assert (a1.colour_jitter, a1.erasing, a1.mixup, a1.cutmix) == (None, 0.0, 0.2, 1.0)


def test_crop_boxes_are_distributed_like_torchvisions() -> None:
    transforms = import_peer("torchvision.transforms")
    torch.manual_seed(0)
    scale, ratio = (0.08, 1.0), (3 / 4, 4 / 3)
    image = torch.empty(3, 32, 48)
    theirs = torch.tensor([transforms.RandomResizedCrop.get_params(image, scale, ratio) for _ in range(3000)]).double()
    ours = crop_boxes(drawn(Augment(), 3000).crop, 32, 48, scale=scale, ratio=ratio).double()
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, 0] + ours[:, 2] <= 32).all()
    assert (ours[:, 1] + ours[:, 3] <= 48).all()
    standard_error = theirs.std(0) * (2 / 3000) ** 0.5
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 4 * standard_error).all()
    assert (ours.std(0) / theirs.std(0) - 1).abs().max() < 0.08


def test_a_crop_that_never_fits_falls_back_to_the_centre() -> None:
    boxes = crop_boxes(drawn(Augment(), 5).crop, 100, 4, scale=(0.9, 1.0), ratio=(1.0, 1.0))
    assert boxes.tolist() == [[48, 0, 4, 4]] * 5


def test_erasing_zeroes_one_rectangle_of_the_stated_size_in_the_stated_share_of_images() -> None:
    white = torch.full((4000, 3, 32, 32), 255, dtype=torch.uint8)
    images, _ = augmented(Augment(erasing=0.25), white, torch.zeros(4000).long())
    erased = images[:, 0] == 0
    hit = erased.any(2).any(1)
    assert hit.float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(images[:, 0], images[:, 2])
    for mask in erased[hit][:100]:
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        box = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert box.all()
        assert mask.sum() == box.numel()
        assert 0.01 <= mask.float().mean() <= 0.36  # 2 to 33 %, sides rounded to pixels


@pytest.mark.parametrize("alpha", [0.2, 3.0])
def test_mixing_weights_follow_the_beta_distribution(alpha: float) -> None:
    draws = drawn(Augment(mixup=alpha, cutmix=alpha), 20_000)
    for weight in (draws.mixup_weight, draws.cutmix_weight):
        assert weight.mean().item() == pytest.approx(0.5, abs=0.01)
        assert weight.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)


def test_mixup_is_the_weighted_sum_of_an_image_and_its_partner() -> None:
    images, targets = random_images(32), torch.arange(32) % 10
    augment = Augment(mixup=0.8)
    mixed, soft = augmented(augment, images, targets)
    weight = drawn(augment, 32).mixup_weight.float()
    plain = normalise(images, (0.0,), (1.0,))
    w = weight.view(-1, 1, 1, 1)
    torch.testing.assert_close(mixed, w * plain + (1 - w) * plain.flip(0))
    one_hot = torch.eye(10)[targets]
    torch.testing.assert_close(soft, weight[:, None] * one_hot + (1 - weight[:, None]) * one_hot.flip(0))


def test_cutmix_pastes_a_box_of_the_partner_and_weighs_targets_by_its_area() -> None:
    plain = torch.arange(1, 65, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 16, 16).contiguous()
    targets = torch.arange(64)
    mixed, soft = augmented(Augment(cutmix=1.0), plain, targets, num_classes=64)
    values = (mixed * 255).round().long()
    own_share = (values == torch.arange(1, 65).view(-1, 1, 1, 1)).double().mean((1, 2, 3))
    from_partner = values == torch.arange(64, 0, -1).view(-1, 1, 1, 1)
    assert ((values == torch.arange(1, 65).view(-1, 1, 1, 1)) | from_partner).all()
    torch.testing.assert_close(soft[torch.arange(64), targets].double(), own_share, rtol=0, atol=1e-6)
    torch.testing.assert_close(soft.sum(1), torch.ones(64))
    assert 0.1 < own_share.std() < 0.5


def test_cut_boxes_have_the_wanted_area_away_from_the_border() -> None:
    weight, centre = torch.tensor([0.75, 1.0, 0.0]).double(), torch.full((3, 2), 0.5).double()
    assert cut_boxes(weight, centre, 32, 32).tolist() == [[8, 8, 16, 16], [16, 16, 0, 0], [0, 0, 32, 32]]


def test_where_both_are_on_half_the_images_are_cut_and_half_blended() -> None:
    plain = (torch.arange(1000) % 2 * 200).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    mixed, _ = augmented(Augment(mixup=1.0, cutmix=1.0), plain, torch.zeros(1000).long())
    uniform = (mixed.flatten(1).std(1) < 1e-6).float().mean().item()
    assert 0.45 < uniform < 0.7  # blended ones are flat, and so are boxes of no or all pixels


def test_a_setting_that_makes_no_sense_is_refused_and_its_edges_are_not() -> None:
    refused: list[dict[str, Any]] = [
        {"flip": float("nan")},
        {"erasing": 1.1},
        {"random_resized_crop": (0.0, 1.0)},
        {"random_resized_crop": (0.9, 0.5)},
        {"random_resized_crop": (0.5, 1.0), "crop_padding": 4},
        {"randaugment": (2, 31)},
    ]
    for arguments in refused:
        with pytest.raises(DataError):
            Augment(**arguments)
    Augment(flip=1.0, erasing=0.0, random_resized_crop=(1.0, 1.0), randaugment=(0, 30))


def test_an_unknown_preset_and_images_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(DataError, match="choose one of none, light"):
        Augment.preset("cifra")  # type: ignore[arg-type]
    for images in (torch.rand(2, 3, 8, 8), torch.zeros(2, 2, 8, 8, dtype=torch.uint8), torch.zeros(3, 8, 8).byte()):
        with pytest.raises(DataError, match="uint8 images"):
            augmented(Augment(), images, torch.zeros(2).long())


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (33, 17)])
def test_odd_sizes_and_single_images_work(size: tuple[int, int]) -> None:
    images = torch.randint(256, (1, 3, *size), dtype=torch.uint8, generator=generator(0))
    for seed in range(30):
        out, _ = augmented(EVERYTHING, images, torch.tensor([0]), seed=seed)
        assert out.shape == images.shape
        assert out.isfinite().all()
