"""The operators refuse whatever does not belong together, and read no memory that is not theirs.

Every case runs in a child process, so that a fault would be a failed test and not the end of the suite.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from filtercov.errors import ConvolutionError, FiltercovError, NormalisationError
from filtercov.nn import gelu_batch_norm, ops

CHANNELS = 32
Case = tuple[str, tuple[object, ...]]


def image(*shape: int) -> Tensor:
    return torch.ones(shape).to(memory_format=torch.channels_last)


def cases() -> dict[str, Case]:
    """Return operator and arguments by name: one thing wrong in each."""
    c = CHANNELS
    x, y, weight, bias = image(2, c, 12, 12), image(2, c, 12, 12), torch.ones(c, 1, 9, 9), torch.ones(c)
    steps, sparse = ((1, 1), (1, 1)), torch.ones(c).to_sparse()
    same = (4, 4, 4, 4), *steps
    mistakes: dict[str, dict[str, tuple[object, ...]]] = {
        "depthwise_conv": {
            "x of 2 dimensions": (x[0, 0], weight, bias, *same),
            "x of 6 dimensions": (x[None, None], weight, bias, *same),
            "too few filters": (x, weight[:2], None, *same),
            "several filters a channel": (x, weight.repeat(2, 1, 1, 1), None, *same),
            "filters of 3 dimensions": (x, weight[:, 0], bias, *same),
            "filters over channels": (x, weight.expand(c, c, 9, 9), bias, *same),
            "double filters": (x, weight.double(), None, *same),
            "integer filters": (x, weight.long(), None, *same),
            "integers": (x.long(), weight.long(), None, *same),
            "complex numbers": (x.cfloat(), weight.cfloat(), None, *same),
            "short bias": (x, weight, bias[:2], *same),
            "scalar bias": (x, weight, torch.ones(()), *same),
            "double bias": (x, weight, bias.double(), *same),
            "sparse bias": (x, weight, sparse, *same),
            "sparse x": (x.to_sparse(), weight, None, *same),
            "x in oneDNN's layout": (x.contiguous().to_mkldnn(), weight, None, *same),
            "filters elsewhere": (x, weight.to("meta"), None, *same),
            "bias elsewhere": (x, weight, bias.to("meta"), *same),
            "negative padding": (x, weight, bias, (4, 4, -1, 4), *steps),
            "padding of two": (x, weight, bias, (4, 4), *steps),
            "padding of six": (x, weight, bias, (4, 4, 4, 4, 4, 4), *steps),
            "kernel larger than image": (x, torch.ones(c, 1, 30, 9), bias, *same),
            "no pixels": (x[:, :, :0], weight, bias, *same),
            "no taps": (x, weight[:, :, :0], bias, *same),
            "a line, filters of a plane": (x[..., 0], weight, bias, *same),
            "stride of zero": (x, weight, bias, same[0], (0, 1), (1, 1)),
            "stride of one number": (x, weight, bias, same[0], (2,), (1, 1)),
            "dilation of zero": (x, weight, bias, same[0], (1, 1), (1, 0)),
            "dilation too wide": (x, weight, bias, same[0], (1, 1), (5, 1)),
            "no channels": (x[:, :0], weight[:0], None, *same),
        },
        "depthwise_conv_input_grad": {
            "grad_y of 3 dimensions": (y[0], weight, *same, (12, 12), True),
            "too few filters": (y, weight[:2], *same, (12, 12), True),
            "double filters": (y, weight.double(), *same, (12, 12), True),
            "images too large": (y, weight, *same, (400, 400), True),
            "images too small": (y, weight, *same, (2, 2), True),
            "no image": (y, weight, *same, (0, 12), True),
            "a size of three": (y, weight, *same, (12, 12, 12), True),
            "negative size": (y, weight, *same, (-12, 12), True),
            "negative padding": (y, weight, (-4, 12, 4, 4), *steps, (12, 12), True),
            "grad_y smaller than the output": (y[:, :, :3], weight, *same, (12, 12), True),
            "filters elsewhere": (y, weight.to("meta"), *same, (12, 12), True),
            "integer grad_y": (y.long(), weight.long(), *same, (12, 12), True),
        },
        "depthwise_conv_weight_grad": {
            "x of 3 dimensions": (y, x[0], *same, (9, 9)),
            "fewer images than gradients": (y, x[:1], *same, (9, 9)),
            "fewer gradients than images": (y[:1], x, *same, (9, 9)),
            "fewer channels": (y, image(2, 5, 12, 12), *same, (9, 9)),
            "double x": (y, x.double(), *same, (9, 9)),
            "kernel too large for grad_y": (y, x, *same, (15, 15)),
            "kernel larger than image": (y, x, *same, (31, 31)),
            "empty kernel": (y, x, *same, (0, 9)),
            "negative kernel": (y, x, *same, (-9, 9)),
            "kernel of one": (y, x, *same, (9,)),
            "grad_y smaller than the output": (y[:, :, :3], x, *same, (9, 9)),
            "x elsewhere": (y, x.to("meta"), *same, (9, 9)),
        },
        "channel_sum": {
            "a vector": (bias,),
            "six dimensions": (x[None, None],),
            "integers": (x.long(),),
            "sparse": (x.to_sparse(),),
        },
        "gelu_batch_norm": {
            "x of 3 dimensions": (x[0], bias, bias, 1e-5),
            "short weight": (x, bias[:2], bias, 1e-5),
            "short bias": (x, bias, bias[:2], 1e-5),
            "scalar weight": (x, torch.ones(()), bias, 1e-5),
            "double weight": (x, bias.double(), bias, 1e-5),
            "integer weight": (x, bias.long(), bias, 1e-5),
            "integer bias": (x, bias, bias.long(), 1e-5),
            "integers": (x.long(), bias.long(), bias.long(), 1e-5),
            "sparse weight": (x, sparse, bias, 1e-5),
            "weight elsewhere": (x, bias.to("meta"), bias, 1e-5),
            "residual of another shape": (x, bias, bias, 1e-5, x[:1]),
            "residual to be broadcast": (x, bias, bias, 1e-5, bias[:, None, None]),
            "double residual": (x, bias, bias, 1e-5, x.double()),
            "sparse residual": (x, bias, bias, 1e-5, x.to_sparse()),
            "residual elsewhere": (x, bias, bias, 1e-5, x.to("meta")),
            "one value per channel": (x[:1, :, :1, :1], bias, bias, 1e-5),
            "no image": (x[:0], bias, bias, 1e-5),
            "no channels": (x[:, :0], bias[:0], bias[:0], 1e-5),
        },
        "gelu_batch_norm_backward": {
            "grad_y of 3 dimensions": (y[0], x, bias, bias, bias),
            "grad_y of another shape": (y[:1], x, bias, bias, bias),
            "short weight": (y, x, bias[:2], bias, bias),
            "short mean": (y, x, bias, bias[:2], bias),
            "short inverse_std": (y, x, bias, bias, bias[:2]),
            "double mean": (y, x, bias, bias.double(), bias),
            "integer weight": (y, x, bias.long(), bias, bias),
            "double grad_y": (y.double(), x, bias, bias, bias),
            "mean elsewhere": (y, x, bias, bias.to("meta"), bias),
        },
        "batch_norm_act": {
            "x of 3 dimensions": (x[0], bias, bias, 1e-5, "relu"),
            "short weight": (x, bias[:2], bias, 1e-5, "relu"),
            "short bias": (x, bias, bias[:2], 1e-5, "relu"),
            "double weight": (x, bias.double(), bias, 1e-5, "relu"),
            "integers": (x.long(), bias.long(), bias.long(), 1e-5, "relu"),
            "sparse weight": (x, sparse, bias, 1e-5, "relu"),
            "weight elsewhere": (x, bias.to("meta"), bias, 1e-5, "relu"),
            "one value per channel": (x[:1, :, :1, :1], bias, bias, 1e-5, "relu"),
            "no image": (x[:0], bias, bias, 1e-5, "relu"),
            "no channels": (x[:, :0], bias[:0], bias[:0], 1e-5, "relu"),
            "no such activation": (x, bias, bias, 1e-5, "swish"),
        },
        "settled_norm": {
            "x of 3 dimensions": (x[0], *[bias] * 4, 1e-5, "relu", True),
            "short weight": (x, bias[:2], *[bias] * 3, 1e-5, "relu", True),
            "short bias": (x, bias, bias[:2], bias, bias, 1e-5, "relu", False),
            "short mean": (x, bias, bias, bias[:2], bias, 1e-5, "relu", True),
            "short variance": (x, *[bias] * 3, bias[:2], 1e-5, "relu", True),
            "double mean": (x, bias, bias, bias.double(), bias, 1e-5, "relu", True),
            "integers": (x.long(), *[bias.long()] * 4, 1e-5, "relu", True),
            "sparse weight": (x, sparse, *[bias] * 3, 1e-5, "relu", True),
            "variance elsewhere": (x, *[bias] * 3, bias.to("meta"), 1e-5, "relu", True),
            "no such activation": (x, *[bias] * 4, 1e-5, "swish", True),
            "residual of another shape": (x, *[bias] * 4, 1e-5, "gelu", True, x[:1]),
            "residual before the activation": (x, *[bias] * 4, 1e-5, "gelu", False, x),
            "double residual": (x, *[bias] * 4, 1e-5, "gelu", True, x.double()),
        },
        "gelu": {"integers": (x.long(),), "sparse": (x.to_sparse(),)},
        "gelu_backward": {
            "grad_y of another shape": (y[:1], x),
            "double grad_y": (y.double(), x),
            "grad_y elsewhere": (y.to("meta"), x),
        },
        "batch_norm_act_backward": {
            "grad_y of 3 dimensions": (y[0], x, *[bias] * 4, "relu"),
            "grad_y of another shape": (y[:1], x, *[bias] * 4, "relu"),
            "short weight": (y, x, bias[:2], *[bias] * 3, "relu"),
            "short bias": (y, x, bias, bias[:2], bias, bias, "relu"),
            "short mean": (y, x, bias, bias, bias[:2], bias, "relu"),
            "short inverse_std": (y, x, *[bias] * 3, bias[:2], "relu"),
            "double mean": (y, x, bias, bias, bias.double(), bias, "relu"),
            "double grad_y": (y.double(), x, *[bias] * 4, "relu"),
            "mean elsewhere": (y, x, bias, bias, bias.to("meta"), bias, "relu"),
            "no such activation": (y, x, *[bias] * 4, ""),
        },
    }
    return {f"{op}: {name}": (op, args) for op, wrong in mistakes.items() for name, args in wrong.items()}


def refusal(case: Case) -> str:
    """Return the error's class and message, or what happened instead."""
    name, arguments = case
    try:
        result = getattr(torch.ops.filtercov, name)(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"returned {type(result).__name__}"


def wanted(name: str) -> str:
    operator = name.partition(":")[0]
    error = NormalisationError if "norm" in operator or operator.startswith("gelu") else ConvolutionError
    return f"{error.__name__}: "


SCRIPT = """
from tests.nn.test_checks import cases, refusal
for name, case in cases().items():
    print(name, refusal(case), sep="\\t", flush=True)
"""


@pytest.fixture(scope="module")
def refusals() -> dict[str, str]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2]
    )
    lines = dict(line.split("\t", 1) for line in run.stdout.splitlines() if "\t" in line)
    return {"": f"{run.returncode} {run.stderr}", **lines}


@pytest.mark.parametrize("name", cases())
def test_what_does_not_belong_together_is_refused(name: str, refusals: dict[str, str]) -> None:
    assert refusals.get(name, refusals[""]).startswith(wanted(name))


# A fake is dense, and all are in one place.
FAKEABLE = [name for name in cases() if not any(word in name for word in ("elsewhere", "sparse", "oneDNN"))]


@pytest.mark.parametrize("name", FAKEABLE)
def test_fakes_refuse_the_same(name: str) -> None:
    operator, arguments = cases()[name]
    with FakeTensorMode() as mode:
        fakes = tuple(mode.from_tensor(a) if isinstance(a, Tensor) else a for a in arguments)
        assert refusal((operator, fakes)).startswith(wanted(name))
    metas = tuple(a.to("meta") if isinstance(a, Tensor) else a for a in arguments)
    assert refusal((operator, metas)).startswith(wanted(name))


def test_the_public_function_is_checked_as_the_operator_is() -> None:
    with pytest.raises(NormalisationError, match=r"32 channels need a weight of \(32,\), got \(2,\)"):
        gelu_batch_norm(image(2, 32, 4, 4), torch.ones(2), torch.ones(32), 1e-5)
    assert issubclass(NormalisationError, FiltercovError)


def test_strided_vectors_are_read_by_their_strides() -> None:
    torch.manual_seed(0)
    grad_y, x = (torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last) for _ in range(2))
    dense = tuple(torch.rand(8) for _ in range(3))
    strided = tuple(torch.stack([v, -v], 1)[:, 0] for v in dense)
    assert not any(v.is_contiguous() for v in strided)
    backward = torch.ops.filtercov.gelu_batch_norm_backward
    for ours, theirs in zip(backward(grad_y, x, *strided), backward(grad_y, x, *dense), strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(gelu_batch_norm(x, *strided[:2], 1e-5), gelu_batch_norm(x, *dense[:2], 1e-5), strict=True):
        assert torch.equal(ours, theirs)


def test_no_images_are_an_empty_batch_not_a_mistake() -> None:
    x, weight = image(0, CHANNELS, 12, 12), torch.ones(CHANNELS, 1, 9, 9)
    same = (4, 4, 4, 4), (1, 1), (1, 1)
    assert ops.convolve(x, weight, None, *same).shape == x.shape
    assert ops.input_grad(x, weight, *same, (12, 12), True).shape == x.shape
    assert torch.equal(ops.weight_grad(x, x, *same, (9, 9)), torch.zeros(CHANNELS, 1, 9, 9))
    assert torch.equal(ops.channel_sum(x), torch.zeros(CHANNELS))
