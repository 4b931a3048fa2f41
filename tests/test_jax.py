"""filtercov.jax with real JAX and Flax: the distribution, σ by depth, which leaves and in which order, training."""

from pathlib import Path

import numpy as np
import pytest

import filtercov as fc
from filtercov.errors import CovarianceError, ModelError, SourceError
from tests.pages import run_page
from tests.processes import python
from tests.reference import brute_force_covariance, kernel_faults

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy
nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")
freeze = pytest.importorskip("flax.core", reason="flax is not installed").freeze
pytest.importorskip("optax", reason="optax is not installed")

N = 8_192
EXAMPLE = Path(__file__).parents[1] / "examples" / "flax_convmixer.py"
KEY = jax.random.key(0)


def kernels(*names, shape=(5, 5, 1, 8), dtype=jnp.float32):
    return {name: {"kernel": jnp.zeros(shape, dtype), "bias": jnp.ones(shape[-1])} for name in names}


def fill(params, source="imagenet-thawed", **options):
    return fc.jax.init_depthwise(params, source, key=KEY, **options)


def changed(before, after):
    differ = jax.tree.map(lambda a, b: not np.array_equal(a, b), before, after)
    return {path[0].key for path, yes in jax.tree_util.tree_flatten_with_path(differ)[0] if yes}


@pytest.mark.parametrize(
    ("size", "sigma", "negative"), [((9,), 1.0, "clip"), ((4, 7), 1.9, "abs"), ((3, 4, 5), 0.6, "clip")]
)
def test_kernels_have_the_covariance_asked_for_also_under_jit(size, sigma, negative):
    init = fc.jax.gaussian(sigma, negative=negative)
    shape = (*size, 1, N)
    kernel = jax.jit(lambda key: init(key, shape))(KEY)
    assert (kernel.shape, kernel.dtype) == (shape, jnp.float32)
    assert kernel_faults(kernel, brute_force_covariance(size, sigma), negative) == []


def test_an_initialiser_is_called_as_those_of_jax_are():
    init, shape = fc.jax.gaussian(0.8), (5, 5, 1, 8)
    wanted = init(KEY, shape)
    np.testing.assert_array_equal(wanted, init(KEY, list(shape), jnp.float32))
    assert not np.array_equal(wanted, init(jax.random.key(2), shape))
    for dtype, rtol in ((jnp.bfloat16, 2**-7), (jnp.float8_e4m3fn, 0.07)):
        kernel = init(KEY, shape, dtype)
        assert kernel.dtype == dtype
        np.testing.assert_allclose(np.asarray(kernel, np.float32), wanted, rtol=rtol, atol=0.002)
    with jax.enable_x64(True):
        kernel = init(KEY, shape)
        assert kernel.dtype == jnp.float64
        assert not np.array_equal(kernel, kernel.astype(jnp.float32))


def too_much(size, dtype):
    params = kernels("dw", dtype=dtype)
    return jax.jit(lambda: fill(params, lambda _: size * np.eye(25)))


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (lambda: fc.jax.gaussian(0.8)(KEY, (5, 5, 8, 8)), ModelError),
        (lambda: fc.jax.gaussian(0.8)(KEY, (1, 8)), ModelError),
        (lambda: fc.jax.gaussian(0.8)(KEY, (5, 5, 1, 8), jnp.int32), ModelError),
        (lambda: fc.jax.gaussian(1.0, negative="mirror"), CovarianceError),
        (lambda: jax.jit(fc.jax.gaussian)(0.8), CovarianceError),  # a σ that is traced
        (lambda: fill(kernels("dw"), jnp.ones(3)), SourceError),
        (lambda: fill({"a": kernels("b"), **kernels("a.b")}), ModelError),
        (lambda: fill(kernels("a", "b"), order=["c"]), ModelError),
        (lambda: fill(kernels("a", "b"), order=["a", "a"]), ModelError),
        (lambda: fill(kernels("a", "b"), order=[]), ModelError),
        (too_much(1e12, "float16"), CovarianceError),
        (too_much(1e-20, "float16"), CovarianceError),
        (too_much(0, "float32"), CovarianceError),
    ],
)
def test_mistakes_are_errors_of_ours(mistake, error):
    with pytest.raises(error, match="needed"):
        mistake()


def test_every_layer_gets_the_sigma_of_its_depth():
    names = [f"block_{i}" for i in range(12)]  # which JAX sorts 0, 1, 10, 11, 2
    params = kernels(*names) | kernels("block_2", "block_10", shape=(5, 5, 1, N))
    rising = fc.QuadraticSchedule(0.3, 0.4, 1.0)
    filled = jax.jit(lambda p: fill(p, rising))(params)
    for i in (2, 10):
        cov = brute_force_covariance((5, 5), 0.3 + 0.4 * i / 11 + 0.5 * (i / 11) ** 2)
        assert kernel_faults(filled[f"block_{i}"]["kernel"], cov) == []
    assert np.array_equal(filled["block_2"]["bias"], params["block_2"]["bias"])


def test_depth_is_told_to_functions_and_counts_layers_left_alone():
    asked = []
    params = kernels("stem", "conv_0", "conv_2") | kernels("conv_1", shape=(3, 3, 1, 8))

    def source(layer):
        asked.append((layer.name, layer.depth, layer.kernel_size, layer.channels))
        return 0.5

    filled = fill(params, source, filter_fn=lambda layer: layer.name != "conv_0")
    assert asked == [("stem", 0.0, (5, 5), 8), ("conv_1", 2 / 3, (3, 3), 8), ("conv_2", 1.0, (5, 5), 8)]
    assert changed(params, filled) == {"stem", "conv_2"}
    asked.clear()
    filled = fill(params, source, order=["conv_2", "stem"])  # the others are left out
    assert [(name, depth) for name, depth, *_ in asked] == [("conv_2", 0.0), ("stem", 1.0)]
    assert changed(params, filled) == {"stem", "conv_2"}


def test_trees_of_every_kind_are_filled_alike_and_each_layer_with_its_own():
    plain = {"blocks": kernels("0", "1")}
    flat = fc.QuadraticSchedule(0.7, 0, 0)
    filled, frozen = fill(plain, flat), fill(freeze(plain), flat)
    assert type(frozen) is type(freeze(plain))
    listed = fill({"blocks": list(plain["blocks"].values())}, flat)
    network = nnx.Sequential(*(nnx.Conv(8, 8, (5, 5), feature_group_count=8, rngs=nnx.Rngs(0)) for _ in range(2)))
    nnx.update(network, fill(nnx.state(network), flat))
    for i in range(2):
        want = np.asarray(filled["blocks"][str(i)]["kernel"])
        np.testing.assert_array_equal(frozen["blocks"][str(i)]["kernel"], want)
        np.testing.assert_array_equal(listed["blocks"][i]["kernel"], want)
        np.testing.assert_array_equal(network.layers[i].kernel[...], want)
    assert not np.array_equal(filled["blocks"]["0"]["kernel"], filled["blocks"]["1"]["kernel"])


def test_only_depthwise_kernels_are_taken_for_such():
    shapes = {"dense": (5, 5, 2, 8), "grey": (5, 5, 1, 1), "query": (16, 1, 16), "linear": (1, 8)}
    others = {name: {"kernel": jnp.zeros(shape)} for name, shape in shapes.items()}
    others["embedding"] = {"embedding": jnp.zeros((9, 1, 8))}
    assert changed(others | kernels("dw"), fill(others | kernels("dw"))) == {"dw"}
    with pytest.raises(ModelError, match="found none among 5 leaves"):
        fill(others)


def test_statistics_carry_mean_and_covariance_over_and_arrays_of_jax_are_covariances():
    mean, cov = np.linspace(-1, 1, 9), fc.gaussian_covariance(3, 0.5)
    params = kernels("dw", shape=(3, 3, 1, N))
    statistics = fc.FilterStatistics((fc.LayerStatistics("measured", (3, 3), 64, mean, cov),))
    assert kernel_faults(fill(params, statistics)["dw"]["kernel"], cov, mean=mean) == []
    assert kernel_faults(fill(params, lambda _: jnp.asarray(cov))["dw"]["kernel"], cov) == []


def test_the_page_fills_its_network():
    params = run_page("jax.md")["params"]
    spread = [float(params[f"depthwise_{i}"]["kernel"].std()) for i in range(4)]
    assert spread == sorted(spread, reverse=True)  # the last example turns the order round


def test_the_example_trains_without_torch():
    arguments = ["--depth", "2", "--width", "8", "--steps", "4"]
    code = f"import runpy, sys; sys.argv[1:] = {arguments!r}; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    said, torch_imported = python(f"{code}; print('torch' in sys.modules)").stdout.splitlines()
    first, last = float(said.split()[1]), float(said.split()[3])
    assert last < first
    assert torch_imported == "False"
