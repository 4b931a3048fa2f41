"""PyTorch's weight gradient of strided 1×1 convolutions corrupts memory in channels_last; `accelerate_` avoids it.

Everything that might die of it runs in a child process.
"""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from filtercov.nn import accelerate_
from filtercov.nn.strided_pointwise import StridedPointwiseConv2d
from tests.peers import import_peer

ROOT = Path(__file__).parents[2]

TRAINING = """
import copy, sys, torch
from filtercov.nn import accelerate_
from tests.nn.timm_comparison import build, passes

torch.set_num_threads(1)
torch.manual_seed(0)
plain = build(sys.argv[1])
for module in plain.modules():
    if isinstance(module, torch.nn.BatchNorm2d):
        module.eval()  # rounding errors would be magnified, in NCHW as well
fast = copy.deepcopy(plain)
assert accelerate_(fast).made_safe
images = torch.randn(2, 3, 64, 64)
_, wanted = passes(copy.deepcopy(plain).double(), images.double())
norm = sum(gradient.square().sum() for gradient in wanted.values()).sqrt()
plain_error = sum((g - wanted[n]).square().sum() for n, g in passes(plain, images)[1].items()).sqrt() / norm
for _ in range(20):
    fast.zero_grad()
    _, gradients = passes(fast, images)
error = sum((g - wanted[n]).square().sum() for n, g in gradients.items()).sqrt() / norm
assert error <= 10 * max(plain_error, 1e-6), (error, plain_error)
print("done")
"""


@pytest.mark.parametrize("name", ["mobileone_s0", "fastvit_t8", "fastvit_mci2"])
def test_twenty_steps_neither_crash_nor_change_the_gradients(name: str) -> None:
    import_peer("timm")
    command = [sys.executable, "-W", "ignore", "-c", TRAINING, name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, f"exit code {run.returncode}: {run.stderr[-2000:]}"
    assert run.stdout == "done\n"


@pytest.mark.parametrize("channels", [2, 3, 7, 15])
@pytest.mark.parametrize("stride", [2, (1, 3)])
def test_a_strided_pointwise_convolution_gives_the_same_results_in_both_layouts(
    channels: int, stride: int | tuple[int, int]
) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(channels, 12, 1, stride=stride))
    fast = copy.deepcopy(plain)
    assert accelerate_(fast).made_safe == ("0",)
    for size in ((2, channels, 12, 12), (2, channels, 13, 11), (channels, 6, 6)):
        images = torch.randn(size)
        ours, theirs = images.clone(), images.clone()
        if len(size) == 4:
            ours = ours.contiguous(memory_format=torch.channels_last)
        for net, x in ((fast, ours), (plain, theirs)):
            net.zero_grad()
            net(x.requires_grad_()).square().sum().backward()
        assert torch.allclose(fast(ours), plain(theirs), atol=1e-5)
        for a, b in (
            (ours.grad, theirs.grad),
            *((p.grad, q.grad) for p, q in zip(fast.parameters(), plain.parameters(), strict=True)),
        ):
            assert a is not None
            assert b is not None
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)


def test_only_endangered_convolutions_change_and_subclasses_are_named() -> None:
    class Own(nn.Conv2d):
        pass

    net = nn.ModuleDict(
        {
            "stem": nn.Conv2d(3, 8, 1, stride=2),
            "valid": nn.Conv2d(3, 8, 1, stride=2, padding="valid"),
            "grouped": nn.Conv2d(12, 8, 1, stride=2, groups=4),
            "own": Own(3, 8, 1, stride=2),
            "unstrided": nn.Conv2d(3, 8, 1),
            "wide": nn.Conv2d(16, 8, 1, stride=2),
            "patches": nn.Conv2d(3, 8, 2, stride=2),
            "depthwise": nn.Conv2d(8, 8, 1, stride=2, groups=8),
        }
    )
    report = accelerate_(net)
    assert report.made_safe == ("stem", "valid", "grouped")
    assert {name for name, layer in net.items() if type(layer) is StridedPointwiseConv2d} == set(report.made_safe)
    assert set(report.skipped) == {"own"}
    assert "corrupt memory" in report.skipped["own"]
    assert "3 strided 1x1 convolutions" in str(report)
    assert accelerate_(net).made_safe == ()
