"""filtercov: study, transfer and construct the covariance of convolutional filters, and initialise with it.

After "Understanding the Covariance Structure of Convolutional Filters" (Trockman, Willmott and Kolter, ICLR 2023).

>>> import filtercov as fc
>>> from torch import nn
>>> model = nn.Sequential(nn.Conv2d(64, 64, 7, padding=3, groups=64), nn.Conv2d(64, 64, 7, padding=3, groups=64))
>>> report = fc.init_(model)
>>> len(report.initialised)
2

Names are imported when they are first used, so that the mathematics can be had without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__: str  # read from the installed package when it is asked for

if TYPE_CHECKING:
    from filtercov.covariance import (
        LayerStatistics,
        empirical_covariance,
        gaussian_covariance,
        nearest_kronecker,
        resize_covariance,
        symmetric_root,
        to_block,
        to_flat,
    )
    from filtercov.depthwise.model import DepthwiseLayer, depthwise_layers
    from filtercov.errors import FiltercovError
    from filtercov.filters import copy_filters_, covariance_normal_, freeze_, init_, thaw_
    from filtercov.schedule import PRESETS, QuadraticSchedule, SawtoothSchedule, fit_schedule
    from filtercov.statistics.filter_statistics import FilterStatistics
    from filtercov.statistics.shipped import REFERENCES
    from filtercov.statistics.watch import watch
    from filtercov.statistics.watched import Watched

__all__ = [
    "PRESETS",
    "REFERENCES",
    "DepthwiseLayer",
    "FilterStatistics",
    "FiltercovError",
    "LayerStatistics",
    "QuadraticSchedule",
    "SawtoothSchedule",
    "Watched",
    "copy_filters_",
    "covariance_normal_",
    "depthwise_layers",
    "empirical_covariance",
    "fit_schedule",
    "freeze_",
    "gaussian_covariance",
    "init_",
    "nearest_kronecker",
    "resize_covariance",
    "symmetric_root",
    "thaw_",
    "to_block",
    "to_flat",
    "watch",
]

# Where each public name is defined; a test compares it with the imports above.
_HOMES = {
    "covariance": (
        "LayerStatistics",
        "empirical_covariance",
        "gaussian_covariance",
        "nearest_kronecker",
        "resize_covariance",
        "symmetric_root",
        "to_block",
        "to_flat",
    ),
    "depthwise.model": ("DepthwiseLayer", "depthwise_layers"),
    "errors": ("FiltercovError",),
    "filters": ("copy_filters_", "covariance_normal_", "freeze_", "init_", "thaw_"),
    "schedule": ("PRESETS", "QuadraticSchedule", "SawtoothSchedule", "fit_schedule"),
    "statistics.filter_statistics": ("FilterStatistics",),
    "statistics.shipped": ("REFERENCES",),
    "statistics.watch": ("watch",),
    "statistics.watched": ("Watched",),
}
# What belongs to filtercov.nn, and is looked for here; a test compares it with the names there.
_OF_NN = (
    "Acceleration",
    "DepthwiseConv1d",
    "DepthwiseConv2d",
    "DepthwiseConv3d",
    "FusedSequential",
    "NativeStatus",
    "accelerate_",
    "batch_norm_act",
    "depthwise_conv1d",
    "depthwise_conv2d",
    "depthwise_conv3d",
    "gelu_batch_norm",
    "keep_freed_memory",
    "native_status",
    "restore_",
)
_HOME = {name: f"filtercov.{home}" for home, names in _HOMES.items() for name in names}
_PACKAGES = ("covariance", "errors", "jax", "keras", "lab", "nn")


def __getattr__(name: str) -> Any:
    """Import what is asked for, once; say which name was probably meant if there is none."""
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _PACKAGES:
        try:
            value = import_module(f"filtercov.{name}")
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise AttributeError(f"filtercov.{name} needs {name}, which is not installed", name=name) from error
    elif name == "__version__":
        value = import_module("importlib.metadata").version("filtercov")
    else:
        raise import_module("filtercov.errors").no_such_name("filtercov", name, _known())
    globals()[name] = value
    return value


def _known() -> dict[str, str]:
    """Return the names that may have been meant, each with the module it is asked from."""
    return {**dict.fromkeys(_OF_NN, "filtercov.nn"), **dict.fromkeys(_HOME, "filtercov")}


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__"])
