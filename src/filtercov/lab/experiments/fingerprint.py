"""What a function of somebody else's does, as a checksum: runs whose initialisation has changed are other runs.

The source is taken where it can be read, in files and notebooks; elsewhere, as after `python -c`, the compiled code.
Values that a function closes over and its defaults count where they are numbers or text. Others, such as a tensor, may
look different each time, and would make every process's run another one.
"""

import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any

from filtercov.errors import ConfigError


def fingerprint(function: Callable[..., Any], version: str | None = None) -> str:
    """The checksum of a version, or without one of what a function does.

    >>> def triple(x, factor=3): return factor * x
    >>> fingerprint(triple) == fingerprint(triple), fingerprint(triple, "1") == fingerprint(triple, "2")
    (True, False)
    """
    described = f"version {version}" if version is not None else repr(_described(function))
    return hashlib.sha256(described.encode()).hexdigest()


def _described(function: Any) -> Any:
    if isinstance(function, functools.partial):
        return _described(function.func), _plain(function.args), _plain(tuple(function.keywords.items()))
    written = inspect.unwrap(function)
    if inspect.ismethod(written):
        written = written.__func__
    if not inspect.isfunction(written):
        written = inspect.getattr_static(type(written), "__call__", None)  # an object that can be called
    if not inspect.isfunction(written):
        raise ConfigError(
            f"cannot tell when {function!r} changes, for it is not written in Python; give its version, as in "
            'register(name, function, version="1")'
        )
    try:
        body: Any = textwrap.dedent(inspect.getsource(written))
    except (OSError, TypeError):
        body = _compiled(written.__code__)
    cells = tuple(cell.cell_contents for cell in written.__closure__ or ())
    keywords = tuple((written.__kwdefaults__ or {}).items())
    return body, _plain(written.__defaults__ or ()), _plain(keywords), _plain(cells)


def _compiled(code: CodeType) -> Any:
    constants = tuple(_compiled(part) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.co_code, code.co_names, _plain(constants)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return value if isinstance(value, int | float | complex | str | bytes | None) else type(value).__qualname__
