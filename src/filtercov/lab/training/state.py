"""Everything a run needs to continue as if it had never stopped."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from filtercov.errors import CheckpointError
from filtercov.lab.training.config import TrainConfig
from filtercov.lab.training.ema import Ema
from filtercov.lab.training.optimizer import build_optimizer, trained


@dataclass
class Totals:
    """Sums over the images seen so far."""

    loss: float = 0.0
    correct: float = 0.0
    images: float = 0.0

    def add(self, loss: float, correct: float, images: float) -> None:
        """Count another group of images."""
        self.loss += loss
        self.correct += correct
        self.images += images

    @property
    def mean_loss(self) -> float:
        """Mean loss per image."""
        return self.loss / max(self.images, 1.0)

    @property
    def accuracy(self) -> float:
        """Share of images classified correctly, in percent."""
        return 100.0 * self.correct / max(self.images, 1.0)


@dataclass
class TrainingState:
    """The model, what the optimiser and the average know, and the place in the sequence of batches.

    No random state is kept: each step seeds the generator from (seed, step, rank), so a step depends on nothing else.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    ema: Ema | None
    epoch: int = 0
    batch: int = 0  # batches of this epoch already trained on
    totals: Totals = field(default_factory=Totals)  # of this epoch's training batches
    interval: Totals = field(default_factory=Totals)  # of those since the last logged step
    seconds: float = 0.0  # spent on this run by every process that worked on it, one after another
    last_epoch: dict[str, Any] = field(default_factory=dict)  # the record of the last finished epoch
    never_finite: dict[str, Tensor] = field(default_factory=dict)  # where what does not train began so, by name

    @classmethod
    def create(cls, model: nn.Module, config: TrainConfig) -> "TrainingState":
        """Return the state before the first step."""
        device = next(model.parameters()).device
        return cls(
            model=model,
            optimizer=build_optimizer(model, config),
            scaler=torch.amp.GradScaler(device.type, enabled=config.amp == "float16"),
            ema=Ema(model, decay=config.ema_decay) if config.ema_decay is not None else None,
            never_finite=_never_finite(model),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor to be saved, by name."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for index, parameter in enumerate(trained(self.optimizer)):
            for key, value in self.optimizer.state[parameter].items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{key}"] = value
        if self.ema:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.ema.model.state_dict().items()}
        return tensors

    def values(self) -> dict[str, Any]:
        """Return the rest, ready for JSON."""
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
    def restore_(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `tensors` and `values` returned; values go into the memory layouts that are here."""
        load_exactly_(self.model, _under("model.", tensors))
        if self.ema:
            load_exactly_(self.ema.model, _under("ema.", tensors))
        moments = {
            index: {
                key: _laid_out_like(parameter, value) for key, value in _under(f"optimizer.{index}.", tensors).items()
            }
            for index, parameter in enumerate(trained(self.optimizer))
        }
        # PyTorch knows which of these belong on the parameter's device, whatever their shape, and which do not.
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.scaler.load_state_dict(values["scaler"])
        self.epoch, self.batch, self.seconds = values["epoch"], values["batch"], values["seconds"]
        self.totals, self.interval = Totals(**values["totals"]), Totals(**values["interval"])
        self.last_epoch = values["last_epoch"]

    def finite(self) -> bool:
        """Whether every number to be saved is finite, but for those that training found otherwise and does not train.

        A mask of -inf, as attention has it, is no divergence; a running average that became infinite is.
        """
        for name, tensor in self.tensors().items():
            if tensor.is_floating_point() or tensor.is_complex():
                fine = torch.isfinite(tensor)
                kind, _, rest = name.partition(".")
                if kind in ("model", "ema") and rest in self.never_finite:
                    fine |= self.never_finite[rest]
                if not bool(fine.all()):
                    return False
        return True


def load_exactly_(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy weights into a model of the same names and shapes."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"the checkpoint does not fit this model: {error}") from error


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """Return the value in the memory layout it had: that of its parameter, where it has the parameter's shape."""
    if value.dim() == 0 or value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def _never_finite(model: nn.Module) -> dict[str, Tensor]:
    """Return where buffers and frozen parameters are not finite, by name; those that are finite are left out."""
    training = {name for name, parameter in model.named_parameters(remove_duplicate=False) if parameter.requires_grad}
    found = {}
    for name, tensor in model.state_dict().items():
        if name not in training and (tensor.is_floating_point() or tensor.is_complex()):
            strange = ~torch.isfinite(tensor)
            if bool(strange.any()):
                found[name] = strange
    return found
