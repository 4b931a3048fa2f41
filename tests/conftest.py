"""The browser that page tests share; where there is none, they are skipped and say so. No test has a deadline."""

from collections.abc import Iterator

import hypothesis
import pytest

from tests.browser import CHROMIUM, Browser

hypothesis.settings.register_profile("filtercov", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("filtercov")


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILTERCOV_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install Debian's `chromium` to test pages")
    with Browser() as running:
        yield running


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    yield chromium
    chromium.close_tabs()
