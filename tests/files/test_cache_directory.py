"""Where data is kept, for users with a home, without one, and with a place of their own."""

from pathlib import Path

import pytest

from filtercov.errors import ConfigError
from filtercov.files.cache_directory import cache_directory
from filtercov.lab.costs.machine_speed import kept_speed
from filtercov.lab.data.cifar10 import load_cifar10


@pytest.fixture
def homeless(monkeypatch):
    """A user of whom the system does not know a home."""

    def unknown(path):
        if str(path).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return path

    monkeypatch.delenv("FILTERCOV_CACHE", raising=False)
    monkeypatch.setattr(Path, "expanduser", unknown)


def test_the_cache_is_where_the_environment_says_or_in_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FILTERCOV_CACHE", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "filtercov"
    monkeypatch.setenv("FILTERCOV_CACHE", "~/elsewhere")
    assert cache_directory() == tmp_path / "elsewhere"


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_is_told_what_to_set(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match=r"got a user without a home; set FILTERCOV_CACHE"):
        load_cifar10()
    monkeypatch.setenv("FILTERCOV_CACHE", "~nobody-of-that-name/cache")
    with pytest.raises(ConfigError, match=r"got FILTERCOV_CACHE=~nobody-of-that-name/cache, .*; set FILTERCOV_CACHE"):
        load_cifar10()
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path


@pytest.mark.usefixtures("homeless")
def test_what_only_looks_into_the_cache_does_without_one():
    assert kept_speed() is None
