"""Covariance initialisation for JAX and Flax: `gaussian` for one layer, `init_depthwise` for all of a network.

Kernels are laid out as Flax lays them out, (*kernel_size, 1, channels). Both work under `jax.jit`: covariances depend
on shapes alone, and are constants of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from filtercov.covariance.closed_form import check_sigma
from filtercov.covariance.forms import Array, check_held
from filtercov.covariance.root import Negative, Root, check_negative, gaussian_roots
from filtercov.errors import ModelError
from filtercov.layers.names import building_key
from filtercov.plan import InitPlan, Source
from filtercov.schedule import Layer, relative_depth

Tree = TypeVar("Tree")

# Flax's attention with a single head has projections of the shape of depthwise kernels, under these names.
PROJECTIONS = {"query", "key", "value"}


def gaussian(sigma: float, *, negative: Negative = "clip") -> Callable[..., jax.Array]:
    """An initialiser `init(key, shape, dtype)` of depthwise kernels with the closed-form covariance of one σ.

    `shape` is (*kernel_size, 1, channels), with one to three axes of pixels. `negative` says what becomes of negative
    eigenvalues, see `symmetric_root`.

    >>> init = gaussian(0.8)
    >>> init(jax.random.key(0), (7, 7, 1, 96)).shape
    (7, 7, 1, 96)
    """
    sigma = check_sigma(sigma)
    check_negative(negative)

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = None) -> jax.Array:
        shape = tuple(shape)
        if not 3 <= len(shape) <= 5 or shape[-2] != 1:
            raise ModelError(
                f"gaussian: needed the shape of a depthwise kernel, (*kernel_size, 1, channels), got {shape}; dense "
                "layers keep an initialiser of their own"
            )
        [root] = gaussian_roots(shape[:-2], [sigma], negative=negative)
        return _draw(key, root, shape[-1], jnp.result_type(float) if dtype is None else dtype)

    return init


def init_depthwise(
    params: Tree,
    source: Source[Layer] = "imagenet-thawed",
    *,
    key: jax.Array,
    filter_fn: Callable[[Layer], bool] | None = None,
    min_kernel_size: int | None = None,
    negative: Negative = "clip",
    order: Sequence[str] | None = None,
) -> Tree:
    """Return `params` with the filters of every depthwise kernel drawn anew, from what `source` says of its depth.

    `params` is any tree of parameters: nested dictionaries, Flax's `FrozenDict`, an `nnx.State`. A depthwise kernel is
    a leaf called `kernel` of shape (*kernel_size, 1, channels) with more than one channel; a dense layer that reads
    one-channel images has that shape too. Kernels are named by the keys that lead to them, joined by dots and without
    the last.

    JAX sorts the keys of dictionaries, so the order of layers is guessed from their names: 2 before 10, stems first.
    `order` names the kernels in forward order instead; those it leaves out are not counted and not changed.

    `key` is one of `jax.random`: the same one draws the same filters. `source`, but for `"stats:…"`,
    `filter_fn`, `min_kernel_size` and `negative` are as in `filtercov.init_`, and so are its warnings. Initialising no
    kernel is an error.

    >>> params = {f"block_{i}": {"kernel": jnp.zeros((7, 7, 1, 64))} for i in range(2)}
    >>> params = init_depthwise(params, "cifar-p2", key=jax.random.key(0))
    >>> bool(params["block_0"]["kernel"].std() < params["block_1"]["kernel"].std())  # σ grows with depth
    True
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(params)
    values = [leaf for _, leaf in leaves]
    found = _find_kernels(leaves)
    names = sorted(found, key=building_key) if order is None else list(order)
    if not names or len(set(names)) < len(names) or not found.keys() >= set(names):
        known = ", ".join(sorted(found, key=building_key))
        raise ModelError(f"order: needed each name once, of {known}, got {order!r}")
    kernels = []
    for i, name in enumerate(names):
        *kernel_size, _, channels = values[found[name]].shape
        kernels.append(Layer(name, tuple(kernel_size), channels, i, relative_depth(i, len(names))))

    def sample(kernel: Layer, root: Root, mean: Array | None) -> jax.Array:
        dtype = values[found[kernel.name]].dtype
        return _draw(jax.random.fold_in(key, kernel.index), root, kernel.channels, dtype, mean)

    who = "init_depthwise"
    plan = InitPlan(kernels, source, filter_fn=filter_fn, min_kernel_size=min_kernel_size, negative=negative, who=who)
    drawn, _ = plan.draw(sample)
    for kernel, value in zip(plan.chosen, drawn, strict=True):
        values[found[kernel.name]] = value
    return jax.tree_util.tree_unflatten(tree, values)  # type: ignore[no-any-return]


def _find_kernels(leaves: Sequence[tuple[Any, Any]]) -> dict[str, int]:
    """The places of depthwise kernels among the leaves of a tree, by the name of their layer."""
    found: dict[str, int] = {}
    for i, (path, leaf) in enumerate(leaves):
        keys = [str(getattr(part, "key", getattr(part, "name", getattr(part, "idx", part)))) for part in path]
        if keys[-1:] == ["value"]:  # what an nnx.Param holds
            keys.pop()
        shape: Sequence[int] = getattr(leaf, "shape", ())
        depthwise = 3 <= len(shape) <= 5 and shape[-2] == 1 and shape[-1] > 1
        if not depthwise or keys[-1:] != ["kernel"] or PROJECTIONS.intersection(keys[-2:-1]):
            continue
        name = ".".join(keys[:-1]) or "kernel"
        if name in found:
            raise ModelError(f"init_depthwise: needed kernels of different names, got two called {name!r}")
        found[name] = i
    if not found:
        raise ModelError(
            "init_depthwise: needed at least one depthwise kernel, a leaf called 'kernel' of shape (*kernel_size, 1, "
            f"channels) with more than one channel, found none among {len(leaves)} leaves"
        )
    return found


def _draw(key: jax.Array, root: Root, channels: int, dtype: Any, mean: Array | None = None) -> jax.Array:
    """A kernel (*kernel_size, 1, channels) of filters with a root's covariance, in single precision or finer."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ModelError(f"needed a floating-point kernel, got {jnp.dtype(dtype)}")
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    deviation = np.sqrt((root.matrix**2).sum(axis=0).max()) + (0.0 if mean is None else np.abs(mean).max())
    with np.errstate(over="ignore", under="ignore"):
        check_held(deviation.astype(dtype), dtype)  # jit knows no drawn number
    work = jnp.float64 if dtype == jnp.float64 else jnp.float32
    drawn = jax.random.normal(key, (channels, len(root.matrix)), work)
    window = jnp.matmul(drawn, jnp.asarray(root.matrix, work), precision=jax.lax.Precision.HIGHEST)
    filters = jnp.zeros((channels, *root.kernel_size), work)
    where = (slice(None), *root.window)
    filters = filters.at[where].set(window.reshape(filters[where].shape))
    if mean is not None:
        filters = filters + jnp.asarray(mean.reshape(root.kernel_size), work)
    return jnp.moveaxis(filters, 0, -1)[..., None, :].astype(dtype)
