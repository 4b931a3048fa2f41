"""The structure of a layer's filters: numbers that mean the same for every kernel size, each beside what chance gives.

`structure_of` measures an array of filters; `structure_of_layer` tells what mean and covariance still tell where the
filters themselves are gone. Chance is what as many filters of independent Gaussian weights would show. All of it is
float64 NumPy, takes milliseconds, and gives the same numbers every time.
"""

from filtercov.structure.measure import Structure, structure_of, structure_of_layer
from filtercov.structure.number import Number

__all__ = ["Number", "Structure", "structure_of", "structure_of_layer"]
