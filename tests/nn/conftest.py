"""Let small images, which tests have, come through the operators as large ones do."""

import pytest

from filtercov.nn import routing


@pytest.fixture(autouse=True)
def no_call_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the operators whatever it costs."""
    monkeypatch.setattr(routing, "LEAST_WORK", 0)
    monkeypatch.setattr(routing, "LEAST_SCALED", 0)
    monkeypatch.setattr(routing, "LEAST_NORMALISED", 0)
