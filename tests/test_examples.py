"""The examples run, and do what they say."""

import re
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import filtercov as fc
from tests.peers import import_peer
from tests.processes import command

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    """The names that an example defines."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")


def test_plain_pytorch_trains_everything_but_the_frozen_filters(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plain_pytorch.py", "--limit", "1500", "--epochs", "1"])
    names = runpy.run_path(str(EXAMPLES / "plain_pytorch.py"), run_name="__main__")
    model, twin = names["model"], names["network"]()
    fc.init_(twin, "cifar-p2", seed=0)
    for drawn, kept in zip(fc.depthwise_layers(twin), fc.depthwise_layers(model), strict=True):
        assert torch.equal(drawn.weight, kept.weight)
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    said = capsys.readouterr().out
    assert "4 of 4 depthwise layers initialised" in said
    (loss,) = re.findall(r"epoch 1: loss (\S+)", said)
    assert float(loss) < 2.0  # of ten classes, which chance gives 2.3


@pytest.mark.filterwarnings("default")  # those of Lightning and torch to each other
def test_a_lightning_callback_fills_and_freezes_before_the_optimiser_is_made(tmp_path):
    import_peer("lightning")  # which imports torchvision; `make test-frameworks` has it
    names = example("lightning_callback")
    module, twin = names["Classifier"](), names["Classifier"]()
    callback = names["InitialiseFilters"]("imagenet-frozen", seed=3, freeze=True)
    pointwise = module.net[1][2].weight.detach().clone()
    names["fit"](module, callback, steps=2, directory=str(tmp_path))
    fc.init_(twin, "imagenet-frozen", seed=3)
    assert len(callback.report.initialised) == 3
    for ours, theirs in zip(fc.depthwise_layers(twin), fc.depthwise_layers(module), strict=True):
        assert torch.equal(ours.weight, theirs.weight)
        assert not theirs.weight.requires_grad
    held = {id(p) for group in module.optimizers().param_groups for p in group["params"]}
    assert not any(id(layer.weight) in held for layer in fc.depthwise_layers(module))
    assert not torch.equal(pointwise, module.net[1][2].weight)


def watched_without_a_trace(plain, watched, path):
    """Five steps, of which every second was watched, ended as they did unwatched."""
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), watched.parameters(), strict=True))
    seen = fc.Watched.load(path)
    assert seen.steps == (0, 2, 4, 5)
    layer = fc.depthwise_layers(watched)[0]
    filters = layer.weight.detach().double().flatten(1)
    assert seen[-1].statistics[layer.name].covariance == pytest.approx(filters.T.cov().numpy(), abs=1e-7)


@pytest.mark.filterwarnings("default")  # those of Lightning and torch to each other
def test_a_lightning_callback_watches_and_continues_with_its_trainer(tmp_path):
    import_peer("lightning")
    names = example("lightning_callback")

    def watch(name):
        return names["WatchFilters"](str(tmp_path / name), every=2)

    def module():
        torch.manual_seed(7)
        return names["Classifier"]()

    plain, watched, continued = module(), module(), module()
    names["fit"](plain, steps=5, directory=str(tmp_path))
    names["fit"](watched, watch("whole"), steps=5, directory=str(tmp_path))
    watched_without_a_trace(plain, watched, tmp_path / "whole")
    trainer = names["fit"](continued, watch("parts"), steps=3, directory=str(tmp_path))
    trainer.save_checkpoint(tmp_path / "third.ckpt")
    names["fit"](module(), watch("parts"), steps=5, directory=str(tmp_path), resume=str(tmp_path / "third.ckpt"))
    assert fc.Watched.load(tmp_path / "parts").steps == (0, 2, 3, 4, 5)


@pytest.mark.filterwarnings("default")  # those of transformers and torch to each other
def test_a_callback_of_hugging_faces_trainer_watches_and_continues_with_it(tmp_path):
    import_peer("accelerate")
    import_peer("transformers")
    names = example("huggingface_callback")

    class Unwatched(names["TrainerCallback"]):
        """Sees nothing."""

    def watch(name):
        return names["WatchFilters"](str(tmp_path / name), every=2)

    plain, watched = names["network"](), names["network"]()
    names["train"](plain, Unwatched(), steps=5, directory=str(tmp_path / "plain"))
    names["train"](watched, watch("whole"), steps=5, directory=str(tmp_path / "watched"))
    watched_without_a_trace(plain, watched, tmp_path / "whole")
    # Stopped after its checkpoint of step 3, with a moment that is measured again when it continues.
    names["train"](names["network"](), watch("parts"), steps=4, directory=str(tmp_path / "parts-of-it"))
    shutil.rmtree(tmp_path / "parts-of-it" / "checkpoint-4")
    names["train"](names["network"](), watch("parts"), steps=5, directory=str(tmp_path / "parts-of-it"), resume=True)
    assert fc.Watched.load(tmp_path / "parts").steps == (0, 2, 4, 5)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # timm leaves images open
def test_timms_parts_train_from_the_checkpoint_that_init_writes(tmp_path):
    import_peer("timm.data")
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "train" / label).mkdir(parents=True)
        for i in range(16):
            pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "train" / label / f"{i}.png")
    start = tmp_path / "start.safetensors"
    command("init", "convnext_atto", "--num-classes", 2, "--out", start)
    settings = {"model": "convnext_atto", "initial_checkpoint": str(start), "num_classes": 2, "size": 32}
    trained = example("timm_training")["train"](str(tmp_path), epochs=1, **settings).state_dict()
    written = load_file(start)
    assert trained.keys() == written.keys()
    for name in [name for name in written if name.endswith("conv_dw.weight")]:
        moved = (trained[name] - written[name]).abs().max()
        assert 0 < moved < 0.01  # two steps of 0.001 from the filters drawn, not from others
