"""Training: any module, any batches, one process or many; a run is a directory that can be interrupted anywhere."""

from filtercov.lab.training.batches import Batches, evaluate
from filtercov.lab.training.config import RECIPES, TrainConfig, learning_rate
from filtercov.lab.training.distributed import World, current_world, process_group
from filtercov.lab.training.fitting import fit
from filtercov.lab.training.progress import Progress, progress_on
from filtercov.lab.training.rundir import FitResult, RunDirectory, read_metrics, read_result
from filtercov.lab.training.state import load_checkpoint, save_checkpoint

__all__ = [
    "RECIPES",
    "Batches",
    "FitResult",
    "Progress",
    "RunDirectory",
    "TrainConfig",
    "World",
    "current_world",
    "evaluate",
    "fit",
    "learning_rate",
    "load_checkpoint",
    "process_group",
    "progress_on",
    "read_metrics",
    "read_result",
    "save_checkpoint",
]
