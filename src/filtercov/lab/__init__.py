"""The laboratory: networks, data, training, the paper's experiments and reports. The library knows nothing of it.

`compare` says whether an initialisation helps a network on one's own images, `reproduce` runs a table of the paper;
both are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from filtercov.lab.comparison import Comparison, compare
    from filtercov.lab.reproduction import ResultTable, reproduce

_HOMES = dict.fromkeys(("Comparison", "compare"), "comparison")
_HOMES |= dict.fromkeys(("ResultTable", "reproduce"), "reproduction")

__all__ = ["Comparison", "ResultTable", "compare", "reproduce"]


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"filtercov.lab has no {name!r}")
    return getattr(import_module(f"filtercov.lab.{_HOMES[name]}"), name)
