"""Accelerated timm networks against plain PyTorch: outputs and gradients no worse than its own float32 errors.

The oracle is float64 in NCHW; see `timm_comparison.py`. Networks run in child processes: one that dies is named.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nn.timm_names import ARCHITECTURES
from tests.peers import import_peer

ROOT = Path(__file__).parents[2]
# Plain PyTorch's two layouts differ from each other by as much where BatchNorm magnifies rounding errors.
TIMES = 10.0
SAMPLE = """
mobilenetv3_small_050 convnext_atto mixnet_s lcnet_035 efficientvit_m0 starnet_s050 inception_next_atto
edgenext_xx_small repghostnet_050 tinynet_e
""".split()


def compare_in_children(names: list[str]) -> dict[str, dict[str, Any] | str]:
    """Return each network's comparison, or how its process ended."""
    outcomes: dict[str, dict[str, Any] | str] = {}
    while remaining := [name for name in names if name not in outcomes]:
        command = [sys.executable, "-W", "ignore", "-m", "tests.nn.timm_comparison", *remaining]
        run = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        outcomes |= {line["name"]: line["results"] for line in lines if "results" in line}
        if run.returncode != 0:
            died = signal.Signals(-run.returncode).name if run.returncode < 0 else run.stderr.strip()[-500:]
            outcomes[lines[-1]["name"] if lines else remaining[0]] = died
    return outcomes


def faults_of(names: list[str]) -> list[str]:
    """Return a line for each network that died or errs more than plain PyTorch does."""
    import_peer("timm")
    faults = []
    for name, outcome in compare_in_children(names).items():
        if isinstance(outcome, str):
            faults.append(f"{name}: {outcome}")
            continue
        for mode, result in outcome.items():
            # BatchNorm of a few values turns rounding errors into chaos layer by layer; as a whole they compare.
            layerwise = mode == "frozen" or "frozen" not in outcome
            if max(result["output"], result["gradient"], result["layer"] if layerwise else 0.0) > TIMES:
                faults.append(f"{name}, {mode}: {result}")
    return faults


def test_ten_networks_err_no_more_than_plain_pytorch() -> None:
    assert faults_of(SAMPLE) == []


@pytest.mark.faults
@pytest.mark.parametrize("module", sorted(ARCHITECTURES))
def test_every_network_with_depthwise_layers_errs_no_more_than_plain_pytorch(module: str) -> None:
    assert faults_of(ARCHITECTURES[module].split()) == []
