"""filtercov.keras with real Keras: the distribution, σ by depth, every kind of depthwise layer, saving, training."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import filtercov as fc
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, ModelError, SourceError
from tests.distribution import distribution_faults
from tests.pages import run_page
from tests.reference import brute_force_covariance, usable_covariance

keras = pytest.importorskip("keras", minversion="3", reason="keras is not installed")
layers = keras.layers
# Keras reads its own variables with NumPy in a way that NumPy 2 will not allow.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

N = 8_192
RISING = fc.QuadraticSchedule(0.3, 0.4, 1.0)


def array(tensor):
    return np.array(keras.ops.convert_to_numpy(tensor), dtype=np.float64)


def samples(kernel):
    """A kernel (*kernel_size, a, b) as filters (a * b, n), pixel by pixel."""
    kernel = array(kernel)
    return kernel.reshape(-1, kernel.shape[-2] * kernel.shape[-1]).T


def expected(kernel_size, sigma, negative="clip"):
    return usable_covariance(brute_force_covariance(kernel_size, sigma), negative)


def network(*parts, channels=8, pixels=(9, 9)):
    return keras.Sequential([keras.Input((*pixels, channels)), *parts])


def values(model):
    return [array(v) for v in model.weights]


@pytest.mark.parametrize(
    ("shape", "negative"), [((9, N, 1), "clip"), ((4, 7, N // 4, 4), "abs"), ((3, 4, 5, 1, N), "clip")]
)
def test_kernels_have_the_covariance_asked_for(shape, negative):
    kernel = fc.keras.Gaussian(0.7, seed=1, negative=negative)(shape)
    assert tuple(kernel.shape) == shape
    assert distribution_faults(samples(kernel), expected(shape[:-2], 0.7, negative)) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_filters_are_rounded_once(dtype):
    shape = (9, 9, 512, 1)
    got = array(fc.keras.Gaussian(0.7, seed=1)(shape, dtype=dtype)).ravel()
    [root] = fc.covariance.root.gaussian_roots(9, [0.7], negative="clip")
    drawn = np.random.default_rng(1).standard_normal((512, len(root.matrix))) @ root.matrix
    exact = np.zeros((512, 9, 9))
    exact[(slice(None), *root.window)] = drawn.reshape(512, *(s.stop - s.start for s in root.window))
    exact = np.moveaxis(exact, 0, -1).ravel()
    digits = {"float16": 11, "bfloat16": 8}[dtype]
    normal = np.abs(exact) > 2.0**-14  # of halves
    _, exponent = np.frexp(exact[normal])
    unit = np.exp2(exponent - digits)
    assert (got[normal] == np.round(exact[normal] / unit) * unit).all()


def test_the_initialiser_survives_saving_a_model(tmp_path):
    model = network(layers.DepthwiseConv2D(5, depthwise_initializer=fc.keras.Gaussian(0.7, seed=5, negative="abs")))
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras").layers[0].depthwise_initializer
    assert isinstance(back, fc.keras.Gaussian)
    assert back.get_config() == {"sigma": 0.7, "seed": 5, "negative": "abs"}
    np.testing.assert_array_equal(array(back((5, 5, 8, 1))), array(model.layers[0].kernel))
    assert fc.keras.Gaussian(0.3).get_config()["seed"] is None


def test_every_kind_of_depthwise_layer_gets_the_sigma_of_its_depth():
    model = network(
        layers.Conv2D(8, 5, padding="same"),
        layers.DepthwiseConv2D(5, padding="same", name="plain"),
        layers.Conv2D(8, 5, padding="same", groups=4),
        layers.DepthwiseConv2D(5, padding="same", depth_multiplier=N // 8, name="multiplied"),
        layers.SeparableConv2D(8, 1, padding="same", name="small"),
        layers.Conv2D(N, 5, padding="same", groups=8, name="grouped"),
        layers.SeparableConv2D(8, 5, padding="same", name="separable"),
    )
    before = {layer.name: values(layer) for layer in model.layers}
    report = fc.keras.init_(model, RISING, seed=0)
    assert [row.name for row in report] == ["plain", "multiplied", "small", "grouped", "separable"]
    assert [row.depth for row in report] == [0, 0.25, 0.5, 0.75, 1]
    assert [row.channels for row in report] == [8, N, N, N, N]
    sigmas = {row.name: row.sigma for row in report}
    assert {row.name for row in report.skipped} == {"small"}
    assert [row.sigma for row in report.initialised] == pytest.approx([0.3, 0.43125, 0.88125, 1.2])
    for name in ("multiplied", "grouped", "separable"):
        layer = model.get_layer(name)
        kernel = layer.depthwise_kernel if name == "separable" else layer.kernel
        assert distribution_faults(samples(kernel), expected((5, 5), sigmas[name])) == []
    for layer in model.layers:
        kept = values(layer) if layer.name not in sigmas or layer.name == "small" else values(layer)[1:]
        old = before[layer.name][len(before[layer.name]) - len(kept) :]
        assert all(np.array_equal(a, b) for a, b in zip(old, kept, strict=True)), layer.name


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.DepthwiseConv2D(5, padding="same", name="first")
        self.second = layers.DepthwiseConv2D(7, padding="same", name="second")

    def build(self, shape):
        self.first.build(shape)
        self.second.build(shape)

    def call(self, x):
        return self.second(self.first(x))


def test_layers_inside_others_come_in_order_and_shared_ones_once():
    shared = layers.DepthwiseConv2D(9, padding="same", name="shared")
    inner = network(shared, Block(name="block"))
    x = keras.Input((9, 9, 8))
    model = keras.Model(x, shared(inner(shared(x))))
    report = fc.keras.init_(model, seed=0)
    assert [row.kernel_size[0] for row in report] == [9, 5, 7]
    assert [row.depth for row in report] == [0, 0.5, 1]


def test_statistics_carry_mean_and_covariance_over():
    mean, cov = np.linspace(-1, 1, 9), fc.gaussian_covariance(3, 0.5)
    model = network(layers.DepthwiseConv2D(3, depth_multiplier=N // 8))
    report = fc.keras.init_(model, lambda _: LayerStatistics("measured", (3, 3), 64, mean, cov), seed=0)
    assert report[0].source_layer == "measured"
    assert distribution_faults(samples(model.layers[0].kernel) - mean, usable_covariance(cov, "clip")) == []


@pytest.mark.parametrize(
    ("dtype", "source", "options", "error"),
    [
        ("float32", "cifar-p3", {}, SourceError),
        ("float32", "imagenet-thawed", {"seed": -1}, SourceError),
        ("float32", lambda layer: np.eye(9) if layer.name == "b" else 0.5, {}, CovarianceError),
        *[
            (dtype, lambda layer, size=size: size * np.eye(25) if layer.name == "b" else 0.5, {}, CovarianceError)
            for dtype, size in (("float32", 0.0), ("float16", 1e12), ("bfloat16", 1e90), ("float16", 1e-20))
        ],
    ],
)
def test_mistakes_are_errors_of_ours_and_change_nothing(dtype, source, options, error):
    own = [layers.DepthwiseConv2D(5, padding="same", name=name, dtype=dtype) for name in ("a", "b")]
    model = network(*own)
    before = values(model)
    with pytest.raises(error, match=r"^b: |did you mean|not chosen|seed: "):
        fc.keras.init_(model, source, **options)
    assert all(np.array_equal(a, b) for a, b in zip(before, values(model), strict=True))


def test_models_without_depthwise_kernels_that_can_be_set_are_refused():
    adapted = network(layers.Conv2D(8, 5, groups=8, name="adapted"))
    adapted.layers[0].enable_lora(2)  # its kernel is computed from others
    unbuilt = keras.Sequential([layers.DepthwiseConv2D(5, name="lonely")])
    for model in (adapted, unbuilt, network(layers.Conv2D(8, 5, name="dense")), {}):
        with pytest.raises(ModelError, match="needed"):
            fc.keras.init_(model)
    with pytest.raises(ModelError):
        fc.keras.Gaussian(0.5)((3, 8))
    with pytest.raises(CovarianceError, match="got int32"):
        fc.keras.Gaussian(0.8, seed=0)((7, 7, 16, 1), "int32")


def test_the_page_fills_a_convnext_by_depth():
    page = run_page("keras.md")
    model, report = page["model"], page["report"]
    assert len(report.initialised) == len(report) == 18
    assert [row.name.split("_", 2)[2] for row in report] == [
        f"stage_{stage}_block_{block}_depthwise_conv" for stage, n in enumerate((3, 3, 9, 3)) for block in range(n)
    ]
    # 0.15 + 0.25 d + 0.5 d², which is also what filtercov.init_ gives timm's network of 18 layers.
    assert [row.sigma for row in report] == pytest.approx(
        [0.15 + 0.25 * i / 17 + 0.5 * (i / 17) ** 2 for i in range(18)]
    )
    last = samples(model.get_layer(report[17].name).kernel)
    assert last.var() == pytest.approx(np.trace(expected((7, 7), 0.9)) / 49, rel=0.1)


DRAWN = """
import sys, keras
before = "torch" in sys.modules
import filtercov.keras
model = keras.Sequential([keras.Input((9, 9, 8)), *(keras.layers.DepthwiseConv2D(5) for _ in range(2))])
filtercov.keras.init_(model, seed=7)
drawn = [filtercov.keras.Gaussian(0.5, seed=1)((5, 5, 8, 1)), *(layer.kernel.value for layer in model.layers)]
print(*(keras.ops.convert_to_numpy(one).tobytes().hex() for one in drawn))
assert ("torch" in sys.modules) == before
"""


def test_another_backend_draws_the_same_filters_and_no_torch_is_imported():
    said = []
    for backend in ("numpy", *(name for name in ("jax", "torch") if find_spec(name))):
        done = subprocess.run(
            [sys.executable, "-c", DRAWN],
            env=os.environ | {"KERAS_BACKEND": backend},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert len(set(said)) == 1 < len(said)
    assert len(set(said[0].split())) == 3


def test_a_seed_or_else_keras_own_decides_the_filters():
    def drawn(seed, own):
        keras.utils.set_random_seed(own)
        net = network(*(layers.DepthwiseConv2D(5, padding="same") for _ in range(2)))
        fc.keras.init_(net, fc.QuadraticSchedule(0.7, 0, 0), seed=seed)
        initialiser = fc.keras.Gaussian(0.8, seed=seed)
        again = initialiser((7, 7, 16, 1))
        np.testing.assert_array_equal(array(initialiser((7, 7, 16, 1))), array(again))
        first, second = (array(layer.kernel) for layer in net.layers)
        assert not np.array_equal(first, second)
        return np.concatenate([first.ravel(), second.ravel(), array(again).ravel()])

    assert np.array_equal(drawn(3, own=0), drawn(3, own=1))
    assert np.array_equal(drawn(None, own=3), drawn(None, own=3))
    assert not (drawn(3, own=0) == drawn(4, own=0)).all()
    assert not (drawn(None, own=3) == drawn(None, own=4)).all()
