"""The native library and its convolution passes: found or explained, exact, accurate, the same on any thread count."""

import sys
from math import prod

import pytest
import torch

from filtercov.nn import native, native_status
from tests.nn.support import Case, centred, last, needs_native, random_cases, same_for_any_threads
from tests.processes import python, run

UNIT = 2.0**-24  # unit roundoff of float32


def reason(folder, **environment):
    library, status = native.load(folder, environment)
    assert library is None
    assert not status.available
    return status.reason


def test_a_missing_or_broken_library_is_explained(tmp_path):
    assert "no record of a build" in reason(tmp_path)
    (tmp_path / "_native_build.txt").write_text("CompileError: no g++ here\n")
    assert "CompileError: no g++ here" in reason(tmp_path)
    (tmp_path / "_native.so").write_bytes(b"not a library")
    assert "does not load" in reason(tmp_path)


@needs_native
def test_the_environment_turns_it_off_or_picks_the_instruction_set_and_another_version_is_refused(monkeypatch):
    assert "FILTERCOV_NATIVE=0" in reason(native.PACKAGE, FILTERCOV_NATIVE="0")
    assert "FILTERCOV_ISA=sse9" in reason(native.PACKAGE, FILTERCOV_ISA="sse9")
    assert native.load(native.PACKAGE, {})[1].isa == native_status().isas[-1]
    for isa in native_status().isas:
        assert native.load(native.PACKAGE, {"FILTERCOV_ISA": isa})[1].isa == isa
    monkeypatch.setattr(native, "ABI_VERSION", 999)
    assert "needed is 999" in reason(native.PACKAGE)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert str(native_status()).startswith(f"native kernels on: {native_status().isa}, 2 threads (")


SCRIPT = """
import torch, warnings
from filtercov.nn import DepthwiseConv2d, accelerate_, native, native_status
native.PACKAGE = native.Path({folder!r})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    layer = DepthwiseConv2d(16, 16, 9, padding=4, groups=16)
    x = torch.randn(64, 16, 9, 9).to(memory_format=torch.channels_last).requires_grad_()
    layer(x).square().sum().backward()
    net = torch.nn.Sequential(layer, torch.nn.GELU(), torch.nn.BatchNorm2d(16))
    accelerate_(net)
    net(x).sum().backward()
print(native_status())
print(len(caught), *[w.message for w in caught])
"""


@pytest.mark.parametrize("off", [True, False])
def test_without_the_library_everything_works_and_one_warning_says_why(tmp_path, off):
    ended = python(SCRIPT.format(folder=str(tmp_path)), **({"FILTERCOV_NATIVE": "0"} if off else {}))
    status, warned = ended.stdout.strip().splitlines()
    assert status.startswith("native kernels off: ")
    assert warned == "0" if off else warned.startswith("1 filtercov's native kernels are off: they were not built")


def test_a_failed_build_still_succeeds_and_records_the_reason(tmp_path):
    folders = [f"--build-lib={tmp_path}/lib", f"--build-temp={tmp_path}/temp"]
    missing = dict.fromkeys(("CC", "CXX"), "no-such-compiler")
    run(sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", *folders, **missing)
    assert "no-such-compiler" in reason(tmp_path / "lib" / "filtercov")


# The three passes.


def passes(case, x, weight, bias, grad_y):
    ops, how, all_natively = torch.ops.filtercov, case.geometry, 7
    return (
        ops.depthwise_conv(x, weight, bias, *how, all_natively),
        ops.depthwise_conv_input_grad(grad_y, weight, *how, case.size, case.channels_last, all_natively),
        ops.depthwise_conv_weight_grad(grad_y, x, *how, case.kernel, all_natively),
    )


KNOWN = [  # widths with a kernel of their own, columns, and a large output
    *(centred(3, 35, (5, width), kernel) for width in (4, 7, 8, 14, 16) for kernel in (1, 3, 5, 7, 9, 11)),
    centred(2, 20, (9, 8), (11, 1)),
    centred(2, 20, (9, 8, 6), (1, 5, 1)),
    centred(2, 16, (444, 445), 3),  # 24 MiB and more are written past the caches
]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("axes", "count"), [(1, 150), (2, 250), (3, 120), (0, 0)])
def test_small_integers_give_float64_results_exactly(axes, count):
    generator = torch.Generator().manual_seed(0)
    for case in random_cases(axes, count, seed=0) if axes else KNOWN:
        inputs = case.tensors(generator, largest=2 if case.size[0] > 400 else 32)
        for name, a, b in zip("yxw", passes(case, *inputs), case.exact(*inputs), strict=True):
            assert torch.equal(a.double(), b), f"{name} differs for {case}"


REAL = [
    centred(8, 48, (16, 16), 9),
    centred(2, 17, (70, 70), 5),
    centred(3, 16, (8, 8), 31),
    centred(3, 33, (700,), 31, channels_last=False),
    centred(2, 17, (12, 13, 14), 5),
    Case(4, 33, (29, 30), (7, 7), centred(1, 1, (1, 1), 7).geometry._replace(stride=(2, 2)), channels_last=False),
]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("case", REAL, ids=lambda case: "x".join(map(str, (*case.size, *case.kernel))))
def test_real_numbers_stay_within_the_running_error_bound_and_twice_pytorchs_rms(case):
    x, weight, bias, grad_y = (torch.randn_like(t) for t in case.tensors(torch.Generator()))
    magnitude = case.exact(x.abs(), weight.abs(), bias.abs(), grad_y.abs())
    terms = prod(case.kernel) + 1, prod(case.kernel), case.batch * prod(case.out)
    found, wanted = passes(case, x, weight, bias, grad_y), case.exact(x, weight, bias, grad_y)
    theirs = case.exact(x, weight, bias, grad_y, dtype=torch.float32)
    for ours, exact, size, n, other in zip(found, wanted, magnitude, terms, theirs, strict=True):
        assert ((ours.double() - exact).abs() <= n * UNIT / (1 - n * UNIT) * size).all()
        assert (ours.double() - exact).square().mean() <= 4 * (other.double() - exact).square().mean()


@pytest.mark.usefixtures("isa")
def test_results_are_identical_for_any_number_of_threads():
    for case in (REAL[0], *REAL[3:], centred(7, 5, (12, 12), 5)):
        inputs = [torch.randn_like(t) for t in case.tensors(torch.Generator())]
        assert same_for_any_threads(lambda: (*passes(case, *inputs), native.channel_sum(last(inputs[0]))))  # noqa: B023


@pytest.mark.usefixtures("isa")
def test_a_nan_in_one_channel_stays_in_that_channel():
    for channels_last in (True, False):
        case = centred(2, 20, (9, 9), 5, channels_last=channels_last)
        x, weight, bias, grad_y = (torch.randn_like(t) for t in case.tensors(torch.Generator()))
        x[:, 3], grad_y[:, 3] = torch.nan, torch.nan
        for result, channel in zip(passes(case, x, weight, bias, grad_y), (1, 1, 0), strict=True):
            assert torch.equal(result.movedim(channel, 0).flatten(1).isnan().all(1), torch.arange(20) == 3)
            assert result.isnan().sum() == result.numel() // 20
