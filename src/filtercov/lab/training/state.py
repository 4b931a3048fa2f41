"""Everything a run needs to continue as if it had never stopped, and the checkpoint file that holds it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from filtercov.errors import CheckpointError
from filtercov.files import Kind, open_checksummed
from filtercov.lab.training.batches import Totals
from filtercov.lab.training.config import TrainConfig
from filtercov.lab.training.optimizer import Ema, build_optimizer
from filtercov.lab.training.rundir import storing
from filtercov.layers.state_dict import write_tensors

KIND = Kind("filtercov-checkpoint", 2, "checkpoint", "restore it or delete its run to start again")


@dataclass
class TrainingState:
    """The model, the optimiser's and the EMA's state, and the place in the sequence of batches.

    No random state is kept: each step seeds the generator from (seed, step, rank).
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    ema: Ema | None
    batches: int  # of an epoch
    epoch: int = 0
    batch: int = 0  # batches of this epoch already trained on
    totals: Totals = field(default_factory=Totals)  # of this epoch's training batches
    interval: Totals = field(default_factory=Totals)  # of those since the last logged step
    seconds: float = 0.0  # spent on this run by every process that worked on it, one after another
    last_epoch: dict[str, Any] = field(default_factory=dict)  # the metrics of the last finished epoch

    @classmethod
    def create(cls, model: nn.Module, config: TrainConfig, *, batches: int) -> Self:
        """The state before the first step."""
        device = next(model.parameters()).device
        return cls(
            model=model,
            optimizer=build_optimizer(model, config),
            scaler=torch.amp.GradScaler(device.type, enabled=config.amp == "float16"),
            ema=Ema(model, decay=config.ema_decay) if config.ema_decay is not None else None,
            batches=batches,
        )

    @property
    def step(self) -> int:
        """Steps done since the beginning of the run."""
        return self.epoch * self.batches + self.batch

    def tensors(self) -> dict[str, Tensor]:
        """The tensors to save: `model.…`, `optimizer.N.…` of the optimiser's N-th parameter, `ema.…`."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for index, parameter in enumerate(self._trained()):
            for key, value in self.optimizer.state[parameter].items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{key}"] = value
        if self.ema:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.ema.model.state_dict().items()}
        return tensors

    def values(self) -> dict[str, Any]:
        """The rest, ready for JSON."""
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "totals": asdict(self.totals),
            "interval": asdict(self.interval),
            "seconds": self.seconds,
            "last_epoch": self.last_epoch,
            "scaler": self.scaler.state_dict(),
        }

    @torch.no_grad()
    def restore_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Continue from the output of `tensors` and `values`; each tensor takes the memory layout of the one here."""
        load_weights_(self.model, _under("model.", tensors))
        if self.ema:
            load_weights_(self.ema.model, _under("ema.", tensors))
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
        self.last_epoch = values["last_epoch"]

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
