"""Covariance initialisation for Keras 3: `Gaussian` for one layer, `init_` for a whole model, with any backend.

Filters are drawn by NumPy in double precision and rounded once, so that a seed gives the same ones with every backend.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from filtercov.covariance.closed_form import check_sigma
from filtercov.covariance.forms import Array, check_held, to_odd, whole_number
from filtercov.covariance.root import Negative, Root, check_negative, gaussian_roots
from filtercov.errors import CovarianceError, ModelError, SourceError
from filtercov.plan import InitPlan, InitReport, Source
from filtercov.schedule import Layer, relative_depth

DEPTHWISE = (keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D)
SEPARABLE = (keras.layers.SeparableConv1D, keras.layers.SeparableConv2D)
GROUPED = (keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)


@keras.saving.register_keras_serializable(package="filtercov")
class Gaussian(keras.initializers.Initializer):
    """An initialiser of depthwise kernels with the closed-form covariance of one σ.

    It is the `depthwise_initializer` of DepthwiseConv and SeparableConv layers, whose kernels are (*kernel_size,
    channels, multiplier), and the `kernel_initializer` of Conv layers with a group for each channel, whose kernels are
    (*kernel_size, 1, channels). Like Keras' own, an initialiser gives the same filters whenever it is called, and picks
    a seed where it is given none, one that `keras.utils.set_random_seed` decides. `negative` says what becomes of
    negative eigenvalues, see `symmetric_root`.

    >>> Gaussian(0.8, seed=0)((7, 7, 96, 1)).shape == (7, 7, 96, 1)
    True
    """

    def __init__(self, sigma: float, seed: int | None = None, negative: Negative = "clip") -> None:
        self.sigma = check_sigma(sigma)
        check_negative(negative)
        self.negative = negative
        self._given_seed, self.seed = seed, _seed(seed)

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> Any:
        """A kernel of a depthwise layer's shape."""
        shape = tuple(shape)
        if not 3 <= len(shape) <= 5:
            raise ModelError(
                "Gaussian: needed the shape of a depthwise kernel, (*kernel_size, channels, multiplier) or "
                f"(*kernel_size, 1, channels), got {shape}"
            )
        [root] = gaussian_roots(shape[:-2], [self.sigma], negative=self.negative)
        kernel = _draw(np.random.default_rng(self.seed), root, shape)
        return _rounded(kernel, dtype or keras.config.floatx())

    def get_config(self) -> dict[str, Any]:
        """The arguments it was made with."""
        return {"sigma": self.sigma, "seed": self._given_seed, "negative": self.negative}


def init_(
    model: Any,
    source: Source[Layer] = "imagenet-thawed",
    seed: int | None = None,
    *,
    filter_fn: Callable[[Layer], bool] | None = None,
    min_kernel_size: int | None = None,
    negative: Negative = "clip",
) -> InitReport:
    """Initialise the filters of every depthwise layer in a Keras model, in place, and report what was done.

    Those are DepthwiseConv1D and 2D, the depthwise kernels of SeparableConv1D and 2D, and Conv layers with as many
    groups as input channels, in the order in which the model holds its layers, those of nested models and of layers
    made of layers included, each once. `source`, but for `"stats:…"`, `filter_fn`, `min_kernel_size` and `negative` are
    as in `filtercov.init_`, and so are its warnings. A `seed` draws the same filters each time, and so does
    `keras.utils.set_random_seed` where none is given. All chosen layers are changed or, on any error, none. Choosing
    none is an error.

    >>> layers = [keras.layers.DepthwiseConv2D(k, name=f"dw{k}") for k in (3, 7)]
    >>> net = keras.Sequential([keras.Input((16, 16, 8)), *layers])
    >>> print(init_(net, "cifar-p2", seed=0))
    layer  kernel  channels  depth  source   negative  outcome
    dw3       3x3         8  0.000  -               -  skipped: 3x3 is under min_kernel_size=5
    dw7       7x7         8  1.000  σ = 1.9     2.75%  initialised
    1 of 2 depthwise layers initialised; negative: the share of a covariance's spectrum below zero
    """
    generator, kernels = np.random.default_rng(_seed(seed)), _find_kernels(model)
    plan = InitPlan(list(kernels), source, filter_fn=filter_fn, min_kernel_size=min_kernel_size, negative=negative)

    def sample(layer: Layer, root: Root, mean: Array | None) -> Any:
        return _rounded(_draw(generator, root, tuple(kernels[layer].shape), mean), kernels[layer].dtype)

    drawn, report = plan.draw(sample)
    for layer, filters in zip(plan.chosen, drawn, strict=True):
        kernels[layer].assign(filters)
    return report


def _find_kernels(model: Any) -> dict[Layer, Any]:
    """The depthwise layers of a model, and the variables of their filters."""
    if not isinstance(model, keras.layers.Layer):
        raise ModelError(f"init_: needed a Keras model or layer, got {type(model).__name__}")
    found = [(layer, kernel) for layer in _walk(model, set()) if (kernel := _depthwise_kernel(layer)) is not None]
    if not found:
        unbuilt = "" if model.built else " in a model that is not built yet; call it on an example first"
        raise ModelError(
            f"{model.name}: needed at least one depthwise layer (DepthwiseConv, SeparableConv, or Conv with as many "
            f"groups as input channels, and more than one), found none{unbuilt}"
        )
    kernels = {}
    for i, (layer, kernel) in enumerate(found):
        name = (layer.path or layer.name).removeprefix(f"{model.name}/")
        size, channels, depth = tuple(kernel.shape[:-2]), math.prod(kernel.shape[-2:]), relative_depth(i, len(found))
        kernels[Layer(name, size, channels, i, depth)] = kernel
    return kernels


def _walk(layer: Any, seen: set[int]) -> Iterator[Any]:
    """A layer and those inside it, depth first, each once."""
    if id(layer) in seen:
        return
    seen.add(id(layer))
    yield layer
    whole = isinstance(layer, keras.Model)
    for one in layer.layers if whole else layer._flatten_layers(include_self=False, recursive=False):
        yield from _walk(one, seen)


def _depthwise_kernel(layer: Any) -> Any:
    """The variable of a layer's depthwise filters, None if it has none."""
    grouped = isinstance(layer, GROUPED) and layer.groups > 1
    if not isinstance(layer, DEPTHWISE + SEPARABLE) and not grouped:
        return None
    if not layer.built:
        raise ModelError(
            f"{layer.path or layer.name}: needed a layer that knows its channels, got a {type(layer).__name__} that is "
            "not built yet; build the model first, by calling it on an example or with build(input_shape)"
        )
    kernel = layer.depthwise_kernel if isinstance(layer, SEPARABLE) else layer.kernel
    if grouped and kernel.shape[-2] > 1:
        return None
    if not isinstance(kernel, keras.Variable) or not keras.backend.is_float_dtype(kernel.dtype):
        raise ModelError(
            f"{layer.path or layer.name}: needed a kernel that is a floating-point variable, got one that is computed "
            "from others, as with LoRA, or quantised; initialise the model before that"
        )
    return kernel


def _draw(generator: np.random.Generator, root: Root, shape: tuple[int, ...], mean: Array | None = None) -> Array:
    """A float64 kernel (*kernel_size, channels, multiplier) whose every filter has the root's covariance."""
    count = math.prod(shape[-2:])
    filters = np.zeros((count, *root.kernel_size))
    window = filters[(slice(None), *root.window)]
    window[...] = (generator.standard_normal((count, len(root.matrix))) @ root.matrix).reshape(window.shape)
    if mean is not None:
        filters += mean.reshape(root.kernel_size)
    return np.moveaxis(filters, 0, -1).reshape(shape)


def _rounded(values: Array, dtype: str) -> Any:
    """Values as a tensor, every number rounded once; those that the type cannot hold are refused."""
    dtype = keras.backend.standardize_dtype(dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise CovarianceError(f"needed a floating-point type for filters, got {dtype}")
    # The backends convert float64 to 16 bits by way of float32, which would round twice.
    exact = values if dtype in ("float32", "float64") else to_odd(values)
    with np.errstate(over="ignore", under="ignore"):
        if values.size:
            check_held(np.abs(values).max().astype(dtype), dtype)
    return keras.ops.convert_to_tensor(exact, dtype)


def _seed(seed: int | None) -> int:
    """The seed as a number; without one, a number from where Keras takes its own seeds."""
    return random.randrange(2**31) if seed is None else whole_number(seed, "seed", least=0, error=SourceError)
