"""The laboratory: networks, data, training, the paper's experiments and reports. The library knows nothing of it.

`reproduce` runs a table of the paper; it is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from filtercov.lab.reproduction import ResultTable, reproduce

__all__ = ["ResultTable", "reproduce"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, once."""
    if name not in __all__:
        raise AttributeError(f"filtercov.lab has no {name!r}")
    value = getattr(import_module("filtercov.lab.reproduction"), name)
    globals()[name] = value
    return value
