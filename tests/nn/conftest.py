"""Let small images, which tests have, come through the operators as large ones do; run tests on each kind of kernel."""

import pytest

from filtercov.nn import native, native_status, routing


@pytest.fixture(autouse=True)
def no_call_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the operators whatever it costs."""
    monkeypatch.setattr(routing, "LEAST_WORK", 0)
    monkeypatch.setattr(routing, "LEAST_SCALED", 0)
    monkeypatch.setattr(routing, "LEAST_NORMALISED", 0)


@pytest.fixture(params=native_status().isas or [pytest.param("", marks=pytest.mark.skip("native kernels not built"))])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with the kernels of each instruction set."""
    monkeypatch.setattr(native, "_other_isa", native.ISAS.index(request.param))
