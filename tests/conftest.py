"""The browser that page tests share; where there is none, they are skipped and say so. No test has a deadline."""

from collections.abc import Iterator

import hypothesis
import pytest
from playwright import sync_api as playwright

from tests.browser import CHROMIUM, Browser

hypothesis.settings.register_profile("filtercov", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("filtercov")


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILTERCOV_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[playwright.Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install Debian's `chromium` to test pages")
    with playwright.sync_playwright() as running:
        yield running.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu", "--disable-dev-shm-usage"])


@pytest.fixture
def browser(chromium: playwright.Browser) -> Iterator[Browser]:
    yield Browser(chromium)
    for context in chromium.contexts:
        context.close()
