"""Freed memory stays with the process: the next step touches no page that the system would have to clear first."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from filtercov.nn import accelerate_
from filtercov.nn.memory import keep_freed_memory

# Tensors of 16 MiB, held together and freed together as the activations of a step are.
SCRIPT = """
import resource, torch
from filtercov.nn import accelerate_
from torch import nn
layers = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8))
{first}
def step():
    activations = [torch.zeros(1 << 22) for _ in range(8)]
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(first: str) -> int:
    # Where nobody says from which size on memory is the system's, glibc learns it, and sometimes keeps all by chance.
    returning = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", SCRIPT.format(first=first)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=returning).stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="needs glibc")
@pytest.mark.parametrize(
    "first",
    [
        "assert accelerate_(layers).keeps_memory",
        "assert accelerate_(layers, example_input=torch.zeros(1, 8, 9, 9), seconds=0).keeps_memory",
    ],
)
def test_kept_memory_is_not_asked_for_again(first: str) -> None:
    assert page_faults(first) < 500


@pytest.mark.skipif(not keep_freed_memory(), reason="needs glibc")
def test_memory_is_given_back_to_those_who_want_that() -> None:
    assert page_faults("assert not accelerate_(layers, keep_memory=False).keeps_memory") > 5000


@pytest.mark.skipif(not keep_freed_memory(), reason="needs glibc")
def test_the_report_says_whether_memory_is_kept() -> None:
    layers = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8))
    assert "keeps the memory it frees" in str(accelerate_(layers))
    assert "memory" not in str(accelerate_(layers, keep_memory=False))


def test_a_model_elsewhere_does_not_change_the_memory_of_the_process() -> None:
    assert not accelerate_(nn.Conv2d(8, 8, 3, groups=8, device=torch.device("meta"))).keeps_memory
