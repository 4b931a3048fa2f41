"""What `filtercov stats` and `filtercov inspect` say of a fit: how good it is, and no advice where it is none."""

import numpy as np
import torch
from torch import nn
from typer.testing import CliRunner

import filtercov as fc
from filtercov.cli.app import app
from filtercov.lab.report.inspect import look
from filtercov.lab.report.page import text


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def checkpoint(path, *, source=None):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(128, 128, 7, groups=128) for _ in range(5)))
    if source:
        fc.init_(net, source)
    torch.save(net.state_dict(), path)
    return path


def test_independent_filters_are_called_noise_and_get_no_schedule(tmp_path):
    noise = checkpoint(tmp_path / "noise.pth")
    output = run("stats", noise, "--out", tmp_path / "noise.stats")
    assert "likeness  by chance" in output
    assert "schedule: noise: no layer is more like the closed form" in output
    assert "QuadraticSchedule(" not in output
    report = look(str(noise))
    assert "noise: no layer is more like" in report.page()
    assert "QuadraticSchedule(" not in report.page()
    assert report.paste_line() == ""
    numbers = report.as_json()
    assert not numbers["schedule"]["usable"]
    assert np.isclose(numbers["layers"][0]["likeness"], numbers["layers"][0]["chance_likeness"], atol=0.05)


def test_filters_of_a_schedule_get_it_back_with_its_likeness(tmp_path):
    drawn = checkpoint(tmp_path / "drawn.pth", source="cifar-p2")
    output = run("stats", drawn, "--out", tmp_path / "drawn.stats")
    assert "nearest schedule: QuadraticSchedule(" in output
    assert "schedule: follows 5 of 5 layers (likeness 0.9" in output
    report = look(str(drawn))
    assert text(report.paste_line()) in report.page()
    assert report.as_json()["schedule"]["missed"] == 0
