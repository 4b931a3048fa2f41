"""Costs are counted as a run would have them."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from filtercov.lab import models
from filtercov.lab.costs import YARDSTICK
from filtercov.lab.data import load
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, RunSpec
from tests.lab.experiments.tiny import table
from tools.write_listing import IMAGES, Images, costs, forward_cost


def test_costs_counted_on_an_empty_shell_are_those_of_the_network():
    name = "convnext_atto_div20_p1"
    model, values = models.create(name, num_classes=10, in_channels=1), []
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(lambda _layer, _, output: values.append(output.numel()))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, 1, 28, 28))
    cost = forward_cost(name, 28, 1, 10)
    assert cost.values == sum(values)
    assert 2 * cost.multiply_adds == counter.get_total_flops()


def test_the_yardstick_takes_images_over_throughput():
    spec = RunSpec.recipe("cifar", model=YARDSTICK, data="cifar10", train={"epochs": 3})
    # Three epochs of 50,000 images, and three evaluations of 10,000, each a forward pass, a third of a step.
    counted = costs([Run(spec)])
    assert counted.seconds(1000.0) == pytest.approx(2 + 150 + 10)
    assert (counted.runs, counted.epochs, counted.images) == (1, 3, 160_000)
    assert counted.petaflops == pytest.approx(6 * 177_474_048 * 150_000 / 1e15)


def test_the_embedded_images_are_as_many_and_as_large_as_planned():
    data = load("embedded")
    shape = (data.image_size, data.in_channels, data.num_classes)
    assert IMAGES["embedded"] == Images(len(data.train), len(data.test), shape)


def test_storage_is_what_finished_runs_take(undisturbed):
    runs = table().runs
    planned = 1e6 * costs(runs).megabytes
    kept = ("checkpoint.safetensors", "statistics.safetensors")
    taken = sum((Runs(undisturbed).root / run.key / name).stat().st_size for run in runs for name in kept)
    # Headers and buffers of BatchNorm weigh more in networks of four channels than in any one would plan for.
    assert planned < taken < planned + len(runs) * 12_000
