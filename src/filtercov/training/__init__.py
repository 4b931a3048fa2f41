"""Training: any module, any batches, one process or many; a run is a directory that can be interrupted anywhere."""

from filtercov.training.batches import Batches, evaluate
from filtercov.training.checkpoint import load_checkpoint, save_checkpoint
from filtercov.training.config import RECIPES, TrainConfig
from filtercov.training.distributed import World, current_world, process_group
from filtercov.training.fitting import fit
from filtercov.training.metrics import read_metrics
from filtercov.training.progress import Progress, Silent, progress_on
from filtercov.training.result import FitResult, read_result
from filtercov.training.rundir import RunDirectory
from filtercov.training.schedule import learning_rate

__all__ = [
    "RECIPES",
    "Batches",
    "FitResult",
    "Progress",
    "RunDirectory",
    "Silent",
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
