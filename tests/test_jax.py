"""filtercov.jax with real JAX and Flax: the distribution, σ by depth, which leaves and in which order, training."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import filtercov as fc
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, ModelError, NothingChosenError, SourceError
from tests.distribution import distribution_faults
from tests.pages import run_page
from tests.reference import brute_force_covariance, usable_covariance

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy
nn = pytest.importorskip("flax.linen", reason="flax is not installed")
nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")
freeze = pytest.importorskip("flax.core", reason="flax is not installed").freeze
pytest.importorskip("optax", reason="optax is not installed")

N = 16_384
EXAMPLE = Path(__file__).parents[1] / "examples" / "flax_convmixer.py"
RISING = fc.QuadraticSchedule(0.3, 0.4, 1.0)


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


@pytest.mark.parametrize("negative", ["clip", "abs"])
@pytest.mark.parametrize(("size", "sigma"), [((9,), 1.0), ((7, 7), 0.3), ((4, 7), 1.9), ((3, 4, 5), 0.6)])
def test_kernels_have_the_covariance_asked_for_also_under_jit(size, sigma, negative):
    init = fc.jax.gaussian(sigma, negative=negative)
    shape = (*size, 1, N)
    kernel = jax.jit(lambda key: init(key, shape))(jax.random.key(0))
    assert kernel.shape == shape
    assert kernel.dtype == jnp.float32
    assert distribution_faults(samples(kernel), expected(size, sigma, negative)) == []


def test_the_distribution_test_notices_pixels_in_another_order():
    kernel = fc.jax.gaussian(1.0)(jax.random.key(0), (5, 7, 1, N))
    swapped = jnp.swapaxes(kernel, 0, 1)
    assert distribution_faults(samples(swapped), expected((5, 7), 1.0)) != []


def test_an_initialiser_is_called_as_those_of_jax_are():
    key, init = jax.random.key(1), fc.jax.gaussian(0.8)
    assert init(key, (5, 5, 1, 8), jnp.bfloat16).dtype == jnp.bfloat16
    np.testing.assert_array_equal(init(key, (5, 5, 1, 8)), init(key, [5, 5, 1, 8], jnp.float32))
    assert not np.array_equal(init(key, (5, 5, 1, 8)), init(jax.random.key(2), (5, 5, 1, 8)))
    half = np.asarray(init(key, (5, 5, 1, 8), jnp.float16), np.float32)
    np.testing.assert_allclose(half, init(key, (5, 5, 1, 8)), rtol=2**-10, atol=1e-6)


def test_double_precision_is_drawn_in_double_precision():
    with jax.enable_x64(True):
        kernel = fc.jax.gaussian(0.8)(jax.random.key(0), (5, 5, 1, 8))
        assert kernel.dtype == jnp.float64
        assert not np.array_equal(kernel, kernel.astype(jnp.float32))


def test_layers_of_flax_take_it_as_their_initialiser():
    init = fc.jax.gaussian(0.8)
    linen = nn.Conv(N, (5, 5), feature_group_count=N, kernel_init=init)
    shapes = jax.eval_shape(linen.init, jax.random.key(0), jnp.zeros((1, 5, 5, N)))
    assert shapes["params"]["kernel"].shape == (5, 5, 1, N)
    layer = nnx.Conv(N, N, (5, 5), feature_group_count=N, kernel_init=init, rngs=nnx.Rngs(0))
    assert distribution_faults(samples(layer.kernel[...]), expected((5, 5), 0.8)) == []


@pytest.mark.parametrize("shape", [(5, 5, 8, 8), (1, 8), (3, 3, 3, 3, 1, 8)])
def test_shapes_that_are_not_depthwise_are_refused(shape):
    with pytest.raises(ModelError, match=r"\(\*kernel_size, 1, channels\), got \("):
        fc.jax.gaussian(0.8)(jax.random.key(0), shape)


def test_wrong_arguments_are_refused_when_they_are_given():
    with pytest.raises(CovarianceError, match="sigma"):
        fc.jax.gaussian(-1.0)
    with pytest.raises(CovarianceError, match="negative"):
        fc.jax.gaussian(1.0, negative="mirror")
    with pytest.raises(ModelError, match="floating-point kernel, got int32"):
        fc.jax.gaussian(1.0)(jax.random.key(0), (5, 5, 1, 8), jnp.int32)


def test_every_layer_gets_the_sigma_of_its_depth():
    names = [f"block_{i}" for i in range(12)]  # which JAX sorts 0, 1, 10, 11, 2
    params = kernels(*names, shape=(5, 5, 1, 8)) | {"patches": {"kernel": jnp.zeros((2, 2, 3, 8))}}
    for name in ("block_2", "block_10"):
        params[name]["kernel"] = jnp.zeros((5, 5, 1, N))
    filled = jax.jit(lambda p, key: fc.jax.init_depthwise(p, RISING, key=key))(params, jax.random.key(3))
    for i in (2, 10):
        got = samples(filled[f"block_{i}"]["kernel"])
        assert distribution_faults(got, expected((5, 5), 0.3 + 0.4 * i / 11 + 0.5 * (i / 11) ** 2)) == []
    assert changed(params, filled) == set(names)
    assert all(np.array_equal(filled[n]["bias"], params[n]["bias"]) for n in names)


def test_depth_is_told_to_functions_and_counts_layers_left_alone():
    asked = {}
    params = kernels("stem", "conv_0", "conv_1", "conv_2")
    params["conv_1"]["kernel"] = jnp.zeros((3, 3, 1, 8))

    def source(kernel):
        asked[kernel.name] = (kernel.depth, kernel.kernel_size, kernel.channels)
        return 0.5

    filled = fc.jax.init_depthwise(params, source, key=jax.random.key(0), filter_fn=lambda k: k.name != "conv_0")
    assert asked == {"stem": (0.0, (5, 5), 8), "conv_1": (2 / 3, (3, 3), 8), "conv_2": (1.0, (5, 5), 8)}
    assert changed(params, filled) == {"stem", "conv_2"}


def test_order_overrides_the_names_and_leaves_out_what_it_does_not_name():
    asked = []
    order = ["second", "first"]
    params = kernels("first", "second", "grey")
    filled = fc.jax.init_depthwise(
        params, lambda k: asked.append((k.name, k.depth)) or 0.5, key=jax.random.key(0), order=order
    )
    assert asked == [("second", 0.0), ("first", 1.0)]
    assert changed(params, filled) == {"first", "second"}
    for bad, said in ((["third"], "'third'"), (["first", "first"], "twice"), ([], "no names")):
        with pytest.raises(ModelError, match=rf"order: needed each name once, .* got .*{said}"):
            fc.jax.init_depthwise(params, key=jax.random.key(0), order=bad)


def test_a_key_gives_the_same_filters_again_and_each_layer_its_own():
    flat = fc.QuadraticSchedule(0.7, 0, 0)
    one, again = (fc.jax.init_depthwise(kernels("a", "b"), flat, key=jax.random.key(4)) for _ in range(2))
    assert changed(one, again) == set()
    assert not np.array_equal(one["a"]["kernel"], one["b"]["kernel"])


def test_trees_of_every_kind_are_filled_alike():
    plain = {"blocks": kernels("0", "1")}
    key = jax.random.key(0)
    filled = fc.jax.init_depthwise(plain, key=key)
    frozen = fc.jax.init_depthwise(freeze(plain), key=key)
    assert type(frozen) is type(freeze(plain))
    listed = fc.jax.init_depthwise({"blocks": [plain["blocks"]["0"], plain["blocks"]["1"]]}, key=key)
    network = nnx.Sequential(*(nnx.Conv(8, 8, (5, 5), feature_group_count=8, rngs=nnx.Rngs(0)) for _ in range(2)))
    nnx.update(network, fc.jax.init_depthwise(nnx.state(network), key=key))
    for i in range(2):
        want = np.asarray(filled["blocks"][str(i)]["kernel"])
        np.testing.assert_array_equal(frozen["blocks"][str(i)]["kernel"], want)
        np.testing.assert_array_equal(listed["blocks"][i]["kernel"], want)
        np.testing.assert_array_equal(network.layers[i].kernel[...], want)


def test_only_depthwise_kernels_are_taken_for_such():
    others = {
        "dense": {"kernel": jnp.zeros((5, 5, 2, 8))},
        "grey": {"kernel": jnp.zeros((5, 5, 1, 1))},
        "embedding": {"embedding": jnp.zeros((9, 1, 8))},
        "query": {"kernel": jnp.zeros((16, 1, 16))},
        "linear": {"kernel": jnp.zeros((1, 8))},
    }
    filled = fc.jax.init_depthwise(others | kernels("dw"), key=jax.random.key(0))
    assert changed(others | kernels("dw"), filled) == {"dw"}
    with pytest.raises(ModelError, match="found none among 5 leaves"):
        fc.jax.init_depthwise(others, key=jax.random.key(0))


def test_statistics_carry_mean_and_covariance_over_and_the_nearest_types_fit():
    mean, cov = np.linspace(-1, 1, 9), fc.gaussian_covariance(3, 0.5)

    class Measured:
        def at(self, depth):
            assert depth == 0.0
            return LayerStatistics("measured", (3, 3), 64, mean, cov)

    filled = fc.jax.init_depthwise(kernels("dw", shape=(3, 3, 1, N)), Measured(), key=jax.random.key(0))
    assert distribution_faults(samples(filled["dw"]["kernel"]) - mean, usable_covariance(cov, "clip")) == []
    given = fc.jax.init_depthwise(kernels("dw", shape=(3, 3, 1, 8)), lambda _: jnp.asarray(cov), key=jax.random.key(0))
    assert np.asarray(given["dw"]["kernel"]).std() > 0


def test_mistakes_are_named():
    key = jax.random.key(0)
    with pytest.raises(SourceError, match=r"init_depthwise: unknown preset 'cifar-p3'.*did you mean 'cifar-p2'"):
        fc.jax.init_depthwise(kernels("dw"), "cifar-p3", key=key)
    with pytest.raises(NothingChosenError, match=r"init_depthwise: needed a layer.*3x3 is under min_kernel_size=5"):
        fc.jax.init_depthwise(kernels("dw", shape=(3, 3, 1, 8)), key=key)
    with pytest.raises(CovarianceError, match="dw: needed a covariance that is not all zero"):
        fc.jax.init_depthwise(kernels("dw"), lambda _: np.zeros((25, 25)), key=key)
    with pytest.raises(ModelError, match=r"got two called 'a\.b'"):
        fc.jax.init_depthwise({"a": kernels("b"), **kernels("a.b")}, key=key)
    with pytest.raises(SourceError, match="needed a preset name"):
        fc.jax.init_depthwise(kernels("dw"), jnp.ones(3), key=key)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("dtype", "size", "said"),
    [
        ("float16", 1e12, r"dw: needed filters that float16 can hold, got numbers up to .*; use smaller ones"),
        ("bfloat16", 1e90, "dw: needed filters that bfloat16 can hold, got numbers up to"),
        ("float16", 1e-20, "dw: needed a covariance that is not all zero, or too small for float16"),
    ],
)
def test_filters_that_their_type_cannot_hold_are_refused(dtype, size, said, jit):
    params = {"dw": {"kernel": jnp.zeros((5, 5, 1, 8), dtype)}}
    fill = lambda key: fc.jax.init_depthwise(params, lambda _: size * np.eye(25), key=key)  # noqa: E731
    with pytest.raises(CovarianceError, match=said):
        (jax.jit(fill) if jit else fill)(jax.random.key(0))


def test_the_page_fills_its_network():
    params = run_page("jax.md")["params"]
    spread = [float(params[f"depthwise_{i}"]["kernel"].std()) for i in range(4)]
    assert spread == sorted(spread, reverse=True)  # the last example turns the order round


def test_the_example_trains_without_torch():
    arguments = ["--depth", "2", "--width", "8", "--steps", "4"]
    code = f"import runpy, sys; sys.argv[1:] = {arguments!r}; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, torch_imported = done.stdout.splitlines()
    first, last = float(said.split()[1]), float(said.split()[3])
    assert last < first
    assert torch_imported == "False"


def test_types_of_eight_bits_no_channels_and_orders_that_are_none():
    kernel = fc.jax.gaussian(0.8)(jax.random.key(0), (5, 5, 1, 64), jnp.float8_e4m3fn)
    assert kernel.dtype == jnp.float8_e4m3fn
    wanted = fc.jax.gaussian(0.8)(jax.random.key(0), (5, 5, 1, 64))
    np.testing.assert_allclose(np.asarray(kernel, np.float32), wanted, rtol=0.07, atol=0.002)
    assert fc.jax.gaussian(0.8)(jax.random.key(0), (5, 5, 1, 0)).shape == (5, 5, 1, 0)
    with pytest.raises(ModelError, match="order: needed the names of kernels in forward order, got 3"):
        fc.jax.init_depthwise(kernels("a"), key=jax.random.key(0), order=3)


def test_a_sigma_that_is_traced_is_refused_with_a_sentence():
    with pytest.raises(CovarianceError, match="sigma: needed a positive, finite number"):
        jax.jit(lambda sigma: fc.jax.gaussian(sigma)(jax.random.key(0), (5, 5, 1, 8)))(0.8)
