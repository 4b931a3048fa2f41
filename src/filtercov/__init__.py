"""filtercov: study, transfer and construct the covariance of convolutional filters, and initialise with it.

After "Understanding the Covariance Structure of Convolutional Filters" (Trockman, Willmott and Kolter, ICLR 2023).

>>> import filtercov as fc
>>> from torch import nn
>>> model = nn.Sequential(nn.Conv2d(64, 64, 7, padding=3, groups=64), nn.Conv2d(64, 64, 7, padding=3, groups=64))
>>> report = fc.init_(model)
>>> len(report.initialised)
2
"""

from filtercov.covariance import (
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
from filtercov.freeze import freeze_, thaw_
from filtercov.init import init_
from filtercov.sample import covariance_normal_
from filtercov.schedule import PRESETS, QuadraticSchedule, SawtoothSchedule
from filtercov.schedule_fit import fit_schedule
from filtercov.statistics import FilterStatistics
from filtercov.transfer import copy_filters_

__all__ = [
    "PRESETS",
    "DepthwiseLayer",
    "FilterStatistics",
    "FiltercovError",
    "QuadraticSchedule",
    "SawtoothSchedule",
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
]
