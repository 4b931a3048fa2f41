"""`filtercov bench`: what it says adds up; and contestants in processes of their own."""

import multiprocessing
import os
import signal
import statistics
import time

import pytest
import torch

from filtercov.cli import look as cli
from filtercov.errors import ConfigError, FiltercovError, ModelError
from filtercov.lab.bench import CHANNELS_LAST, OURS, PLAIN, Bench, bench, plain_network, race_of, rivals_of

MODEL = "convmixer_16_2_k9_p4"


def test_plain_networks_have_nothing_of_ours() -> None:
    modules = {type(module).__module__ for module in plain_network("convnext_atto_div8_p1").modules()}
    assert not any(module.startswith("filtercov.nn") for module in modules)


@pytest.fixture(scope="module")
def measured() -> Bench:
    return bench(MODEL, batch_size=4, frozen=True, seconds=1)


def test_the_table_says_what_was_measured_of_every_contestant(measured: Bench) -> None:
    assert measured.image_size == 32
    assert list(measured.times) == [OURS, PLAIN, CHANNELS_LAST]
    for row, (name, seconds) in zip(measured.table[1:], measured.times.items(), strict=True):
        assert 0 < min(seconds) < 1
        assert row[0] == name
        assert float(row[1]) == pytest.approx(1000 * min(seconds), abs=0.051)
    turns = [plain / ours for ours, plain in zip(measured.times[OURS], measured.times[PLAIN], strict=False)]
    assert measured.ratio(PLAIN).median == pytest.approx(statistics.median(turns))
    layers = [row for row in measured.tuning.layers if row.kind == "depthwise"]
    assert [row.shape for row in layers] == [(4, 16, 8, 8)] * 2
    assert 1e8 < measured.gemm < 1e14


def test_the_table_names_everything_and_a_gpu_gets_a_block_to_paste(
    measured: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.lab, "bench", lambda *_, **__: measured)
    cli.bench(MODEL)
    table = capsys.readouterr().out
    setting = f"{MODEL}, frozen depthwise filters, 4 x 3 x 32 x 32"
    for wanted in ("GFLOP/s", setting, OURS, PLAIN, CHANNELS_LAST, "blocks.0.0.fn.0", "blocks.1.0.fn.0"):
        assert wanted in table
    assert "| ---" not in table
    cli.bench(MODEL, device="cuda")
    block = capsys.readouterr().out.removeprefix(table)
    assert block.count("\n| ---") == 2
    for wanted in (measured.machine, MODEL, "| ours |", "| PyTorch, channels_last |", "| blocks.0.0.fn.0 |", "issue"):
        assert wanted in block


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_gpu_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match=device):
        bench(MODEL, device=device)


def test_images_that_a_network_cannot_take_are_one_sentence() -> None:
    with pytest.raises(ModelError, match=r"failed .*2 x 2"):
        bench(MODEL, batch_size=1, image_size=2)


class Sleeper:
    """Says that a turn took what it was told, and can do what goes wrong."""

    def __init__(self, seconds: float) -> None:
        if seconds < 0:
            raise ConfigError("seconds must not be negative")
        self.seconds = seconds

    def turn(self) -> float:
        return self.seconds

    def process(self) -> tuple[int, int]:
        os.kill(os.getpid(), signal.SIGINT)  # a terminal's Ctrl-C, which is for whoever asks
        return os.getpid(), torch.get_num_threads()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_turns_count_what_the_rivals_say_and_not_what_passes_here() -> None:
    with rivals_of(Sleeper, {"slow": (3.0,), "fast": (1.0,)}) as rivals:
        began = time.perf_counter()
        times = race_of(rivals, seconds=60, turns=4)
        assert time.perf_counter() - began < 10
        processes, threads = zip(*(rival("process") for rival in rivals.values()), strict=True)
        assert len({os.getpid(), *processes}) == 3
        assert set(threads) == {torch.get_num_threads()}
    assert times["slow"] == pytest.approx([3.0] * 4)
    assert times["fast"] == pytest.approx([1.0] * 4)
    assert not any(child.is_alive() for child in multiprocessing.active_children())


def test_what_is_raised_there_is_raised_here_and_a_process_that_dies_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="negative"), rivals_of(Sleeper, {"good": (1.0,), "bad": (-1.0,)}) as rivals:
        race_of(rivals, seconds=1, turns=1)
    with pytest.raises(FiltercovError, match="memory enough"), rivals_of(Sleeper, {"one": (1.0,)}) as rivals:
        rivals["one"]("die")
    assert not any(child.is_alive() for child in multiprocessing.active_children())
