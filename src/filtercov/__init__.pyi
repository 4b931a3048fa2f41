# The public names, spelled once: __init__.py reads this file and imports each name when it is first used.
from filtercov import covariance as covariance
from filtercov import errors as errors
from filtercov import nn as nn
from filtercov.covariance import LayerStatistics as LayerStatistics
from filtercov.covariance import gaussian_covariance as gaussian_covariance
from filtercov.errors import FiltercovError as FiltercovError
from filtercov.filters import (
    copy_filters_ as copy_filters_,
)
from filtercov.filters import (
    covariance_normal_ as covariance_normal_,
)
from filtercov.filters import (
    freeze_ as freeze_,
)
from filtercov.filters import (
    init_ as init_,
)
from filtercov.filters import (
    thaw_ as thaw_,
)
from filtercov.layers.find import depthwise_layers as depthwise_layers
from filtercov.schedule import (
    PRESETS as PRESETS,
)
from filtercov.schedule import (
    QuadraticSchedule as QuadraticSchedule,
)
from filtercov.schedule import (
    SawtoothSchedule as SawtoothSchedule,
)
from filtercov.schedule import (
    fit_schedule as fit_schedule,
)
from filtercov.statistics.filter_statistics import FilterStatistics as FilterStatistics
from filtercov.statistics.shipped import REFERENCES as REFERENCES
from filtercov.statistics.watch import watch as watch
from filtercov.statistics.watched import Watched as Watched

__version__: str
