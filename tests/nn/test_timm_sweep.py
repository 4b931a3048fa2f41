"""Accelerated timm networks against plain PyTorch: outputs and gradients no worse than its own float32 errors.

The oracle is float64 in NCHW; see `timm_comparison.py`. Networks run in child processes: one that dies is named.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import import_peer

# Plain PyTorch's two layouts differ from each other by as much where BatchNorm magnifies rounding errors.
TIMES = 10.0
SAMPLE = ["mobilenetv3_small_050", "mixnet_s", "starnet_s050", "edgenext_xx_small"]
FAMILIES = """
byobnet coat convmixer convnext edgenext efficientformer_v2 efficientnet efficientvit_mit efficientvit_msra fasternet
fastvit ghostnet hgnet inception_next levit mambaout metaformer mobilenetv3 mobilevit mvitv2 nextvit pvt_v2 repghost
repvit rexnet starnet tiny_vit twins xception
""".split()


def compare_in_children(names):
    """Return each network's comparison, or how its process ended."""
    outcomes = {}
    while remaining := [name for name in names if name not in outcomes]:
        command = [sys.executable, "-W", "ignore", "-m", "tests.nn.timm_comparison", *remaining]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, env=environment)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        outcomes |= {line["name"]: line["results"] for line in lines if "results" in line}
        if run.returncode != 0:
            died = signal.Signals(-run.returncode).name if run.returncode < 0 else run.stderr.strip()[-500:]
            outcomes[lines[-1]["name"] if lines else remaining[0]] = died
    return outcomes


def faults_of(names):
    """Return a line for each network that died or errs more than plain PyTorch does."""
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


def test_some_networks_err_no_more_than_plain_pytorch():
    import_peer("timm")
    assert faults_of(SAMPLE) == []


@pytest.mark.faults
@pytest.mark.parametrize("family", FAMILIES)
def test_every_network_with_depthwise_layers_errs_no_more_than_plain_pytorch(family):
    assert faults_of(import_peer("timm").list_models(module=family)) == []
