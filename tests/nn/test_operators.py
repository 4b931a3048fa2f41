"""The operators behind the layers: gradients of every order, torch's own checks, and refusal of wrong arguments.

Wrong arguments run in a child process, so that a memory fault would be a failed test and not the end of the suite.
"""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.nn.support import images, last
from tests.nn.test_conv import OURS
from tests.processes import python

ops = torch.ops.filtercov


def norm(activation, *, first=False):
    return lambda x, w, b, *residual: ops.batch_norm_act_train(x, w, b, 1e-5, activation, first, *residual)[0]


def block(x, shortcut, weight, bias, *rest):
    return ops.norm_mlp_forward(x, shortcut, weight, bias, 1e-6, *rest, True)[0]


IMAGE, VECTOR = (3, 2, 2, 2), (2,)
DIFFERENTIABLE = {  # functions, and the shapes of their arguments
    "conv1d": (partial(OURS[1], padding=2, dilation=2, passes=7), (1, 2, 4), (2, 1, 2), VECTOR),
    "conv1d without a kernel": (partial(OURS[1], padding=2, dilation=2, stride=2), (1, 2, 4), (2, 1, 2), VECTOR),
    "conv2d": (partial(OURS[2], padding="same", dilation=2, passes=7), (1, 2, 4, 3), (2, 1, 2, 3), VECTOR),
    "conv3d": (partial(OURS[3], padding=1, stride=2, passes=7), (1, 2, 4, 3, 2), (2, 1, 2, 3, 2), VECTOR),
    **{name: (norm(name), IMAGE, VECTOR, VECTOR) for name in ("identity", "relu6", "silu", "hardswish", "gelu")},
    "gelu first and a residual": (norm("gelu", first=True), IMAGE, VECTOR, VECTOR, IMAGE),
    "gelu alone": (ops.gelu, IMAGE),
    "block": (block, *[(2, 4, 2, 2)] * 2, (4,), (4,), (5, 4), (5,), (4, 5), (4,), (4,)),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_operators_agree_with_finite_differences_to_second_order(name):
    function, *shapes = DIFFERENTIABLE[name]
    x, *others = (torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes)
    inputs = last(x), *others
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)
    found = []
    for dtype in (torch.float32, torch.float64):  # the kernels', and what was just checked
        leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
        first = torch.autograd.grad(function(*leaves).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves))
    assert all((a - b).norm() <= 1e-4 * b.norm() + 1e-4 for a, b in zip(*found, strict=True))


# One argument is wrong in each case: its position, and what it is instead.


def convolution(size, kernel, how, channels_last=True):
    """Return arguments of the operators of a convolution that belong together."""
    x = images(2, 8, *size) if channels_last else torch.randn(2, 8, *size)
    weight, bias = torch.randn(8, 1, *kernel), torch.rand(8)
    y = ops.depthwise_conv(x, weight, bias, *how)
    return {
        "depthwise_conv": [x, weight, bias, *how, -1],
        "depthwise_conv_input_grad": [y, weight, *how, size, channels_last, -1],
        "depthwise_conv_weight_grad": [y, x, *how, kernel, -1],
        "channel_sum": [y],
    }


def right():
    """Return arguments of every operator that belong together."""
    x, y, v = images(2, 8, 6, 6), images(2, 8, 6, 6), torch.rand(8)
    w1, b1, w2 = torch.randn(16, 8), torch.randn(16), torch.randn(8, 16)
    kept = torch.rand(72), torch.rand(72), torch.randn(72, 16)
    return {
        **convolution((6, 6), (5, 5), ((2, 2, 2, 2), (1, 1), (1, 1))),
        "batch_norm_act_train": [x, v, v, 1e-5, "gelu", True, y],
        "batch_norm_act_backward": [y, x, v, v, v, v, "gelu", False],
        "batch_norm_act_eval": [x, v, v, v, v, 1e-5, "gelu", True, y],
        "gelu": [x],
        "gelu_backward": [y, x],
        "norm_mlp_forward": [x, y, v, v, 1e-6, w1, b1, w2, v, v, True],
        "norm_mlp_backward": [y, x, *kept, v, v, w1, b1, w2, v, v],
    }


def wrong_tensors(tensor):
    """Yield what is wrong of a tensor anywhere, beside others."""
    yield "of another shape", tensor[1:] if tensor.dim() < 4 else tensor[:1, 1:]
    yield "of another dtype", tensor.double()
    yield "elsewhere", tensor.to("meta")


WRONG = {  # by operator and position
    ("depthwise_conv", 0): [torch.ones(shape) for shape in ((2, 8, 0, 6), (2, 8, 6))],
    ("depthwise_conv", 1): [
        torch.ones(s) for s in ((8, 1, 30, 5), (8, 1, 0, 5), (8, 1, 5), (16, 1, 5, 5), (8, 8, 5, 5))
    ],
    ("depthwise_conv", 3): [(-1, 2, 2, 2), (2, 2), (2,) * 6],
    ("depthwise_conv", 4): [(0, 1), (1,)],
    ("depthwise_conv", 5): [(0, 1), (1,), (9, 1)],
    ("depthwise_conv_input_grad", 2): [(-1, 2, 2, 2), (2, 2)],
    ("depthwise_conv_input_grad", 5): [(400, 400), (0, 6), (6, 6, 6), (-6, 6)],
    ("depthwise_conv_weight_grad", 2): [(2, 2, 2, 3), (40,) * 4],
    ("depthwise_conv_weight_grad", 3): [(9, 9), (1,)],
    ("depthwise_conv_weight_grad", 5): [(15, 15), (0, 5), (5,), (-5, 5)],
    ("channel_sum", 0): [torch.ones(shape) for shape in ((8,), (2, 8), (1, 1, 2, 8, 6, 6), (2, 0, 6, 6))],
    ("batch_norm_act_train", 4): ["swish", "relu"],  # the second cannot come first
    ("batch_norm_act_train", 5): [False],  # with a residual
    ("batch_norm_act_backward", 6): ["swish"],
    ("batch_norm_act_eval", 6): ["swish"],
    ("batch_norm_act_eval", 7): [False],
    ("norm_mlp_forward", 7): [torch.ones(8, 16, 3, 3)],
}


def cases():
    """Return operator and arguments by name."""
    found = {}
    for operator, arguments in right().items():
        tensors = [at for at, value in enumerate(arguments) if isinstance(value, Tensor)]
        for at in tensors if len(tensors) > 1 else ():
            for what, wrong in wrong_tensors(arguments[at]):
                found[f"{operator}: {at} {what}"] = operator, [*arguments[:at], wrong, *arguments[at + 1 :]]
    for (operator, at), values in WRONG.items():
        arguments = right()[operator]
        for i, wrong in enumerate(values):
            found[f"{operator}: {at}, wrong {i}"] = operator, [*arguments[:at], wrong, *arguments[at + 1 :]]
    for shape in ((1, 8, 1, 1), (0, 8, 2, 2)):  # one value per channel, and no image
        few = [images(*shape), torch.ones(8), torch.ones(8), 1e-5, "relu"]
        found[f"batch_norm_act_train: {shape}"] = "batch_norm_act_train", few
    return found


def refusal(operator, arguments):
    """Return the class of the error, or what happened instead."""
    try:
        getattr(ops, operator)(*arguments)
    except Exception as error:
        return type(error).__name__
    return "accepted"


SCRIPT = """
from tests.nn.test_operators import cases, refusal
for name, case in cases().items():
    print(name, refusal(*case), sep="\\t", flush=True)
"""


def test_what_does_not_belong_together_is_refused():
    run = python(SCRIPT, check=False, PYTHONWARNINGS="ignore")
    found = dict(line.rsplit("\t", 1) for line in run.stdout.splitlines() if "\t" in line)
    assert {name: found.get(name, run.stderr[-500:]) for name in cases()} == dict.fromkeys(cases(), "KernelError")


def test_fakes_refuse_the_same():
    for name, (operator, arguments) in cases().items():
        if "elsewhere" in name:  # all fakes are in one place
            continue
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(a) if isinstance(a, Tensor) else a for a in arguments]
            assert refusal(operator, fakes) == "KernelError", name


TAKEN = {
    "": right(),
    "2d strided": convolution((9, 9), (7, 7), ((4, 2, 3, 3), (2, 2), (1, 1))),
    "1d dilated": convolution((40,), (31,), ((30, 30), (1,), (2,)), channels_last=False),
    "3d": convolution((6, 7, 8), (3, 5, 3), ((1, 1, 3, 1, 1, 1), (1, 1, 2), (1, 1, 1))),
}


@pytest.mark.parametrize(("case", "operator"), [(case, operator) for case in TAKEN for operator in TAKEN[case]])
def test_what_belongs_together_is_taken_and_passes_torchs_own_checks(case, operator):
    has_gradient = not operator.endswith("backward") and operator != "batch_norm_act_eval"
    arguments = [a.requires_grad_(has_gradient) if isinstance(a, Tensor) else a for a in TAKEN[case][operator]]
    checks = {} if has_gradient else {"test_utils": ("test_schema", "test_faketensor")}
    torch.library.opcheck(getattr(ops, operator).default, arguments, **checks, rtol=1e-4, atol=1e-4)
