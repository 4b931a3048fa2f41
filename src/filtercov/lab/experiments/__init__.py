"""The paper's tables and figures as graphs of runs, the engines that run them, and the paper's numbers.

`register("name", initialise)` adds a column to every table, as does an entry point of the group
`filtercov.initialisations`.
"""

from filtercov.lab.experiments.initialisations import InitContext, register
from filtercov.lab.experiments.runspec import RunSpec

__all__ = ["InitContext", "RunSpec", "register"]
