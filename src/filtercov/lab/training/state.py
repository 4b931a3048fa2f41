"""Everything a run needs to continue as if it had never stopped, and the checkpoint file that holds it.

That is the model, the optimiser's state over its parameter groups, EMA weights, and the place in the batches.
"""

import copy
from collections.abc import Collection, Mapping
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from filtercov import depthwise_layers
from filtercov.errors import CheckpointError
from filtercov.files import Kind, open_checksummed
from filtercov.lab.training.batches import Totals
from filtercov.lab.training.config import TrainConfig
from filtercov.lab.training.rundir import storing
from filtercov.layers.state_dict import write_tensors

KIND = Kind("filtercov-checkpoint", 2, "checkpoint", "restore it or delete its run to start again")


def parameter_groups(model: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """The trainable parameters, grouped by weight decay and by `lr_scale`, a factor of the learning rate.

    Without `decay_norms` the rule is timm's: parameters of at most one dimension (norms, biases, layer scales), those
    called bias and those in the model's own `no_weight_decay()` do not decay.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    >>> groups = parameter_groups(model, TrainConfig(weight_decay=0.1, decay_norms=False))
    >>> [(group["weight_decay"], len(group["params"])) for group in groups]
    [(0.1, 1), (0.0, 3)]
    """
    listed: Collection[str] = getattr(model, "no_weight_decay", tuple)()
    filters = set() if config.filter_lr == 1.0 else {id(layer.weight) for layer in depthwise_layers(model)}
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        spared = parameter.ndim <= 1 or name.endswith(".bias") or any(fnmatch(name, pattern) for pattern in listed)
        if parameter.requires_grad:
            decay = config.weight_decay if config.decay_norms or not spared else 0.0
            scale = config.filter_lr if id(parameter) in filters else 1.0
            groups.setdefault((decay, scale), []).append(parameter)
    # The order is part of the checkpoint's format, which numbers parameters as the optimiser does.
    ordered = sorted(groups.items(), key=lambda group: (-group[0][0], -group[0][1]))
    return [{"params": params, "weight_decay": decay, "lr_scale": scale} for (decay, scale), params in ordered]


class TrainingState:
    """The model, its moving average if asked for, the optimiser's state, and the place in the sequence of batches.

    No random state is kept: each step seeds the generator from (seed, step, rank).
    """

    def __init__(self, model: nn.Module, config: TrainConfig, *, batches: int) -> None:
        device = next(model.parameters()).device
        self.model, self.batches = model, batches  # of an epoch
        groups = parameter_groups(model, config)
        if config.opt == "sgd":
            self.optimizer: torch.optim.Optimizer = torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
        else:
            self.optimizer = torch.optim.AdamW(groups, lr=config.lr, eps=config.opt_eps)
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.amp == "float16")
        self.decay = config.ema_decay
        self.ema = None if self.decay is None else copy.deepcopy(model).eval().requires_grad_(False)
        self.epoch, self.batch = 0, 0  # batches of this epoch already trained on
        self.totals = Totals()  # of this epoch's training batches
        self.interval = Totals()  # of those since the last logged step
        self.seconds = 0.0  # spent on this run by every process that worked on it, one after another
        self.last_epoch: dict[str, Any] = {}  # the metrics of the last finished epoch
        self.metrics_size = 0  # bytes of the metrics of the steps done

    @property
    def step(self) -> int:
        """Steps done since the beginning of the run."""
        return self.epoch * self.batches + self.batch

    @torch.no_grad()
    def average_(self) -> None:
        """Move the EMA weights, if any, towards the model's; integer buffers (counters) are copied.

        Not `torch.optim.swa_utils.AveragedModel`, which copies at its first update, so that resuming needs its counter,
        and rounds integer buffers or leaves out BatchNorm's statistics.
        """
        if self.ema is None or self.decay is None:
            return
        here, there = (module.state_dict(keep_vars=True) for module in (self.ema, self.model))
        pairs = {id(average): (average, there[name]) for name, average in here.items()}  # tied weights once
        for average, current in pairs.values():
            if average.is_floating_point():
                average.lerp_(current, 1.0 - self.decay)
            else:
                average.copy_(current)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors to save: `model.…`, `optimizer.N.…` of the optimiser's N-th parameter, `ema.…`."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for index, parameter in enumerate(self._trained()):
            for key, value in self.optimizer.state[parameter].items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{key}"] = value
        if self.ema is not None:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.ema.state_dict().items()}
        return tensors

    def values(self) -> dict[str, Any]:
        """The values that are not tensors, ready for JSON."""
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "totals": asdict(self.totals),
            "interval": asdict(self.interval),
            "seconds": self.seconds,
            "last_epoch": self.last_epoch,
            "scaler": self.scaler.state_dict(),
            "metrics_size": self.metrics_size,
        }

    @torch.no_grad()
    def restore_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Continue from the output of `tensors` and `values`; each tensor takes the memory layout of the one here."""
        load_weights_(self.model, _under("model.", tensors))
        if self.ema is not None:
            load_weights_(self.ema, _under("ema.", tensors))
        moments = {
            index: {
                key: _laid_out_like(parameter, value) for key, value in _under(f"optimizer.{index}.", tensors).items()
            }
            for index, parameter in enumerate(self._trained())
        }
        # PyTorch moves those to the parameter's device that belong there, which a step count does not.
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.scaler.load_state_dict(values["scaler"])
        self.epoch, self.batch, self.seconds = values["epoch"], values["batch"], values["seconds"]
        self.totals, self.interval = Totals(**values["totals"]), Totals(**values["interval"])
        self.last_epoch, self.metrics_size = values["last_epoch"], values["metrics_size"]

    def finite(self) -> bool:
        """Whether all tensors to save are finite."""
        return all(bool(tensor.isfinite().all()) for tensor in self.tensors().values())

    def _trained(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def load_weights_(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy weights into a model of the same names and shapes."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"the checkpoint does not fit this model: {error}") from error


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """A moment in the memory layout of its parameter, which files do not keep and the last bits depend on."""
    if value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> str:
    """Write tensors and JSON-ready values to `path`, whole or not at all; return the file's checksum.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checksum = save_checkpoint(Path(folder) / "a.safetensors", {"w": torch.ones(2)}, {"step": 3})
    ...     load_checkpoint(Path(folder) / "a.safetensors")
    ({'w': tensor([1., 1.])}, {'step': 3})
    """
    with storing(path):
        return write_tensors(path, KIND, tensors, {"values": values})


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and values of a file written by `save_checkpoint`, after checking its every byte."""
    with open_checksummed(path, KIND, "pt") as (file, about):
        # Copied, because the reader's tensors are the mapped file itself.
        return {name: file.get_tensor(name).clone() for name in about["order"]}, dict(about["values"])


def read_checksum(path: Path) -> str:
    """The checksum of a file written by `save_checkpoint`, after checking that its contents match it."""
    with open_checksummed(path, KIND, "pt") as (_, about):
        return str(about["sha256"])
