# ruff: isort: skip_file
# The public names, spelled once: __init__.py reads this file and imports each name when it is first used.
from filtercov import covariance as covariance, errors as errors, nn as nn
from filtercov.covariance import LayerStatistics as LayerStatistics, gaussian_covariance as gaussian_covariance
from filtercov.errors import FiltercovError as FiltercovError
from filtercov.filters import copy_filters_ as copy_filters_, covariance_normal_ as covariance_normal_
from filtercov.filters import freeze_ as freeze_, init_ as init_, thaw_ as thaw_
from filtercov.lab.report.inspect import inspect as inspect
from filtercov.layers.find import depthwise_layers as depthwise_layers
from filtercov.schedule import PRESETS as PRESETS, QuadraticSchedule as QuadraticSchedule
from filtercov.schedule import SawtoothSchedule as SawtoothSchedule, fit_schedule as fit_schedule
from filtercov.statistics.filter_statistics import FilterStatistics as FilterStatistics
from filtercov.statistics.shipped import REFERENCES as REFERENCES
from filtercov.statistics.watch import watch as watch
from filtercov.statistics.watched import Watched as Watched

__version__: str
