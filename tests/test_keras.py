"""filtercov.keras with real Keras: the distribution, σ by depth, every kind of depthwise layer, saving, training."""

from importlib.util import find_spec

import numpy as np
import pytest

import filtercov as fc
from filtercov.errors import CovarianceError, ModelError, SourceError
from tests.pages import run_page
from tests.processes import python
from tests.reference import brute_force_covariance, kernel_faults

keras = pytest.importorskip("keras", minversion="3", reason="keras is not installed")
layers = keras.layers
# Keras reads its own variables with NumPy in a way that NumPy 2 will not allow.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

N = 8_192


def array(tensor):
    return np.array(keras.ops.convert_to_numpy(tensor), dtype=np.float64)


def network(*parts, channels=8, pixels=(9, 9)):
    return keras.Sequential([keras.Input((*pixels, channels)), *parts])


def depthwise(kernel_size, **options):
    return layers.DepthwiseConv2D(kernel_size, padding="same", **options)


def values(model):
    return [array(v) for v in model.weights]


def equal(some, others):
    return all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize(
    ("shape", "negative"), [((9, N, 1), "clip"), ((4, 7, N // 4, 4), "abs"), ((3, 4, 5, 1, N), "clip")]
)
def test_kernels_have_the_covariance_asked_for(shape, negative):
    kernel = fc.keras.Gaussian(0.7, seed=1, negative=negative)(shape)
    assert tuple(kernel.shape) == shape
    assert kernel_faults(array(kernel), brute_force_covariance(shape[:-2], 0.7), negative) == []


def test_filters_are_rounded_once():
    [root] = fc.covariance.root.gaussian_roots(5, [0.9], negative="clip")  # over the whole filter
    exact = (np.random.default_rng(1).standard_normal((4096, 25)) @ root.matrix).T.reshape(5, 5, 4096, 1)
    got = array(fc.keras.Gaussian(0.9, seed=1)((5, 5, 4096, 1), dtype="float16"))
    np.testing.assert_array_equal(got, exact.astype(np.float16))


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
        depthwise(5, name="plain"),
        layers.Conv2D(8, 5, padding="same", groups=4),
        depthwise(5, depth_multiplier=N // 8, name="multiplied"),
        layers.SeparableConv2D(8, 1, padding="same", name="small"),
        layers.Conv2D(N, 5, padding="same", groups=8, name="grouped"),
        layers.SeparableConv2D(8, 5, padding="same", name="separable"),
    )
    before = {id(variable): array(variable) for variable in model.weights}
    report = fc.keras.init_(model, fc.QuadraticSchedule(0.3, 0.4, 1.0), seed=0)
    assert [row.name for row in report] == ["plain", "multiplied", "small", "grouped", "separable"]
    assert [row.depth for row in report] == [0, 0.25, 0.5, 0.75, 1]
    assert [row.channels for row in report] == [8, N, N, N, N]
    sigmas = {row.name: row.sigma for row in report.initialised}
    assert sigmas == pytest.approx({"plain": 0.3, "multiplied": 0.43125, "grouped": 0.88125, "separable": 1.2})
    filled = set()
    for name, sigma in sigmas.items():
        layer = model.get_layer(name)
        kernel = layer.depthwise_kernel if name == "separable" else layer.kernel
        filled.add(id(kernel))
        assert name == "plain" or kernel_faults(array(kernel), brute_force_covariance((5, 5), sigma)) == []
    changed = {id(variable) for variable in model.weights if not np.array_equal(array(variable), before[id(variable)])}
    assert changed == filled


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = depthwise(5, name="first"), depthwise(7, name="second")

    def build(self, shape):
        self.first.build(shape)
        self.second.build(shape)

    def call(self, x):
        return self.second(self.first(x))


def test_layers_inside_others_come_in_order_and_shared_ones_once():
    shared = depthwise(9, name="shared")
    inner = network(shared, Block(name="block"))
    x = keras.Input((9, 9, 8))
    model = keras.Model(x, shared(inner(shared(x))))
    assert [(row.kernel_size[0], row.depth) for row in fc.keras.init_(model, seed=0)] == [(9, 0), (5, 0.5), (7, 1)]


def test_statistics_carry_mean_and_covariance_over():
    mean, cov = np.linspace(-1, 1, 9), fc.gaussian_covariance(3, 0.5)
    model = network(depthwise(3, depth_multiplier=N // 8))
    report = fc.keras.init_(model, lambda _: fc.LayerStatistics("measured", (3, 3), 64, mean, cov), seed=0)
    assert report[0].source_layer == "measured"
    assert kernel_faults(array(model.layers[0].kernel), cov, mean=mean) == []


@pytest.mark.parametrize(
    ("dtype", "size", "seed", "error"),
    [
        ("float32", 1.0, -1, SourceError),
        ("float32", 0.0, 0, CovarianceError),
        ("float16", 1e12, 0, CovarianceError),
        ("bfloat16", 1e90, 0, CovarianceError),
        ("float16", 1e-20, 0, CovarianceError),
    ],
)
def test_mistakes_are_errors_of_ours_and_change_nothing(dtype, size, seed, error):
    model = network(*(depthwise(5, name=name, dtype=dtype) for name in ("a", "b")))
    before = values(model)
    with pytest.raises(error, match=r"^b: |^seed: "):
        fc.keras.init_(model, lambda layer: size * np.eye(25) if layer.name == "b" else 0.5, seed=seed)
    assert equal(before, values(model))


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
    report = run_page("keras.md")["report"]
    assert len(report.initialised) == len(report) == 18
    assert [row.name.split("_", 2)[2] for row in report] == [
        f"stage_{stage}_block_{block}_depthwise_conv" for stage, n in enumerate((3, 3, 9, 3)) for block in range(n)
    ]


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
        said.append(python(DRAWN, KERAS_BACKEND=backend).stdout)
    assert len(set(said)) == 1 < len(said)
    assert len(set(said[0].split())) == 3


def test_a_seed_or_else_keras_own_decides_the_filters():
    def drawn(seed, own):
        keras.utils.set_random_seed(own)
        net = network(depthwise(5), depthwise(5))
        fc.keras.init_(net, fc.QuadraticSchedule(0.7, 0, 0), seed=seed)
        initialiser = fc.keras.Gaussian(0.8, seed=seed)
        return [*(array(layer.kernel) for layer in net.layers), *(array(initialiser((7, 7, 16, 1))) for _ in range(2))]

    first, second, one, again = drawn(3, own=0)
    assert not np.array_equal(first, second)
    assert np.array_equal(one, again)
    assert equal(drawn(3, own=0), drawn(3, own=1))
    assert equal(drawn(None, own=3), drawn(None, own=3))
    for other in (drawn(4, own=0), drawn(None, own=0), drawn(None, own=4)):
        assert not np.array_equal(first, other[0])
        assert not np.array_equal(one, other[2])
