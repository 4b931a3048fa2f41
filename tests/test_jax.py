"""filtercov.jax with real JAX and Flax: the distribution, σ by depth, which leaves and in which order, training."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import filtercov as fc
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, ModelError, SourceError
from tests.distribution import distribution_faults
from tests.pages import run_page
from tests.reference import brute_force_covariance, usable_covariance

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy
nn = pytest.importorskip("flax.linen", reason="flax is not installed")
nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")
freeze = pytest.importorskip("flax.core", reason="flax is not installed").freeze
pytest.importorskip("optax", reason="optax is not installed")

N = 8_192
EXAMPLE = Path(__file__).parents[1] / "examples" / "flax_convmixer.py"
KEY = jax.random.key(0)


def samples(kernel):
    """A kernel (*kernel_size, 1, C) as filters (C, n), pixel by pixel."""
    return np.asarray(kernel, dtype=np.float64).reshape(-1, kernel.shape[-1]).T


def expected(kernel_size, sigma, negative="clip"):
    return usable_covariance(brute_force_covariance(kernel_size, sigma), negative)


def kernels(*names, shape=(5, 5, 1, 8)):
    return {name: {"kernel": jnp.zeros(shape), "bias": jnp.ones(shape[-1])} for name in names}


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
    assert distribution_faults(samples(kernel), expected(size, sigma, negative)) == []


def test_an_initialiser_is_called_as_those_of_jax_are():
    init, shape = fc.jax.gaussian(0.8), (5, 5, 1, 8)
    wanted = init(KEY, shape)
    np.testing.assert_array_equal(wanted, init(KEY, list(shape), jnp.float32))
    assert not np.array_equal(wanted, init(jax.random.key(2), shape))
    for dtype, rtol in ((jnp.float16, 2**-10), (jnp.bfloat16, 2**-7), (jnp.float8_e4m3fn, 0.07)):
        kernel = init(KEY, shape, dtype)
        assert kernel.dtype == dtype
        np.testing.assert_allclose(np.asarray(kernel, np.float32), wanted, rtol=rtol, atol=0.002)
    assert init(KEY, (5, 5, 1, 0)).shape == (5, 5, 1, 0)
    with jax.enable_x64(True):
        kernel = init(KEY, shape)
        assert kernel.dtype == jnp.float64
        assert not np.array_equal(kernel, kernel.astype(jnp.float32))


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (lambda: fc.jax.gaussian(0.8)(KEY, (5, 5, 8, 8)), ModelError),
        (lambda: fc.jax.gaussian(0.8)(KEY, (1, 8)), ModelError),
        (lambda: fc.jax.gaussian(0.8)(KEY, (5, 5, 1, 8), jnp.int32), ModelError),
        (lambda: fc.jax.gaussian(1.0, negative="mirror"), CovarianceError),
        (lambda: jax.jit(fc.jax.gaussian)(0.8), CovarianceError),  # a σ that is traced
        (lambda: fc.jax.init_depthwise(kernels("dw"), "cifar-p3", key=KEY), SourceError),
        (lambda: fc.jax.init_depthwise(kernels("dw"), "stats:efficientnet-lite0", key=KEY), SourceError),
        (lambda: fc.jax.init_depthwise(kernels("dw"), jnp.ones(3), key=KEY), SourceError),
        (lambda: fc.jax.init_depthwise(kernels("dw", shape=(3, 3, 1, 8)), key=KEY), ModelError),
        (lambda: fc.jax.init_depthwise({"a": kernels("b"), **kernels("a.b")}, key=KEY), ModelError),
        *[
            (lambda order=order: fc.jax.init_depthwise(kernels("a", "b"), key=KEY, order=order), ModelError)
            for order in (["c"], ["a", "a"], [])
        ],
    ],
)
def test_mistakes_are_errors_of_ours(mistake, error):
    with pytest.raises(error, match=r"needed|unknown|FilterStatistics"):
        mistake()


def test_every_layer_gets_the_sigma_of_its_depth():
    names = [f"block_{i}" for i in range(12)]  # which JAX sorts 0, 1, 10, 11, 2
    params = kernels(*names) | {"patches": {"kernel": jnp.zeros((2, 2, 3, 8))}}
    for name in ("block_2", "block_10"):
        params[name]["kernel"] = jnp.zeros((5, 5, 1, N))
    rising = fc.QuadraticSchedule(0.3, 0.4, 1.0)
    filled = jax.jit(lambda p, key: fc.jax.init_depthwise(p, rising, key=key))(params, jax.random.key(3))
    for i in (2, 10):
        got = samples(filled[f"block_{i}"]["kernel"])
        assert distribution_faults(got, expected((5, 5), 0.3 + 0.4 * i / 11 + 0.5 * (i / 11) ** 2)) == []
    assert changed(params, filled) == set(names)
    assert np.array_equal(filled["block_2"]["bias"], params["block_2"]["bias"])


def test_depth_is_told_to_functions_and_counts_layers_left_alone():
    asked = []
    params = kernels("stem", "conv_0", "conv_1", "conv_2")
    params["conv_1"]["kernel"] = jnp.zeros((3, 3, 1, 8))
    source = lambda k: asked.append((k.name, k.depth, k.kernel_size, k.channels)) or 0.5  # noqa: E731
    filled = fc.jax.init_depthwise(params, source, key=KEY, filter_fn=lambda k: k.name != "conv_0")
    assert asked == [("stem", 0.0, (5, 5), 8), ("conv_1", 2 / 3, (3, 3), 8), ("conv_2", 1.0, (5, 5), 8)]
    assert changed(params, filled) == {"stem", "conv_2"}
    asked.clear()
    filled = fc.jax.init_depthwise(params, source, key=KEY, order=["conv_2", "stem"])  # the others are left out
    assert [(name, depth) for name, depth, *_ in asked] == [("conv_2", 0.0), ("stem", 1.0)]
    assert changed(params, filled) == {"stem", "conv_2"}


def test_trees_of_every_kind_are_filled_alike_and_each_layer_with_its_own():
    plain = {"blocks": kernels("0", "1")}
    flat = {"source": fc.QuadraticSchedule(0.7, 0, 0), "key": KEY}
    filled = fc.jax.init_depthwise(plain, **flat)
    frozen = fc.jax.init_depthwise(freeze(plain), **flat)
    assert type(frozen) is type(freeze(plain))
    listed = fc.jax.init_depthwise({"blocks": [plain["blocks"]["0"], plain["blocks"]["1"]]}, **flat)
    network = nnx.Sequential(*(nnx.Conv(8, 8, (5, 5), feature_group_count=8, rngs=nnx.Rngs(0)) for _ in range(2)))
    nnx.update(network, fc.jax.init_depthwise(nnx.state(network), **flat))
    for i in range(2):
        want = np.asarray(filled["blocks"][str(i)]["kernel"])
        np.testing.assert_array_equal(frozen["blocks"][str(i)]["kernel"], want)
        np.testing.assert_array_equal(listed["blocks"][i]["kernel"], want)
        np.testing.assert_array_equal(network.layers[i].kernel[...], want)
    assert not np.array_equal(filled["blocks"]["0"]["kernel"], filled["blocks"]["1"]["kernel"])


def test_only_depthwise_kernels_are_taken_for_such():
    others = {
        "dense": {"kernel": jnp.zeros((5, 5, 2, 8))},
        "grey": {"kernel": jnp.zeros((5, 5, 1, 1))},
        "embedding": {"embedding": jnp.zeros((9, 1, 8))},
        "query": {"kernel": jnp.zeros((16, 1, 16))},
        "linear": {"kernel": jnp.zeros((1, 8))},
    }
    filled = fc.jax.init_depthwise(others | kernels("dw"), key=KEY)
    assert changed(others | kernels("dw"), filled) == {"dw"}
    with pytest.raises(ModelError, match="found none among 5 leaves"):
        fc.jax.init_depthwise(others, key=KEY)


def test_statistics_carry_mean_and_covariance_over_and_arrays_of_jax_are_covariances():
    mean, cov = np.linspace(-1, 1, 9), fc.gaussian_covariance(3, 0.5)
    statistics = fc.FilterStatistics((LayerStatistics("measured", (3, 3), 64, mean, cov),))
    filled = fc.jax.init_depthwise(kernels("dw", shape=(3, 3, 1, N)), statistics, key=KEY)
    assert distribution_faults(samples(filled["dw"]["kernel"]) - mean, usable_covariance(cov, "clip")) == []
    given = fc.jax.init_depthwise(kernels("dw", shape=(3, 3, 1, 8)), lambda _: jnp.asarray(cov), key=KEY)
    assert np.asarray(given["dw"]["kernel"]).std() > 0


@pytest.mark.parametrize(("dtype", "size"), [("float16", 1e12), ("bfloat16", 1e90), ("float16", 1e-20), ("float32", 0)])
def test_filters_that_their_type_cannot_hold_are_refused_by_name_also_under_jit(dtype, size):
    params = {"dw": {"kernel": jnp.zeros((5, 5, 1, 8), dtype)}}
    fill = jax.jit(lambda key: fc.jax.init_depthwise(params, lambda _: size * np.eye(25), key=key))
    with pytest.raises(CovarianceError, match=f"^dw: needed .*{dtype}"):
        fill(KEY)


def test_the_page_fills_its_network():
    params = run_page("jax.md")["params"]
    spread = [float(params[f"depthwise_{i}"]["kernel"].std()) for i in range(4)]
    assert spread == sorted(spread, reverse=True)  # the last example turns the order round


def test_the_example_trains_without_torch():
    arguments = ["--depth", "2", "--width", "8", "--steps", "4"]
    code = f"import runpy, sys; sys.argv[1:] = {arguments!r}; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    command = [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said, torch_imported = done.stdout.splitlines()
    first, last = float(said.split()[1]), float(said.split()[3])
    assert last < first
    assert torch_imported == "False"
