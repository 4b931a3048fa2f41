"""Where data of ours may be kept."""

import os
from pathlib import Path

from filtercov.errors import ConfigError


def cache_directory() -> Path:
    """Return $FILTERCOV_CACHE, or ~/.cache/filtercov; it need not exist."""
    configured = os.environ.get("FILTERCOV_CACHE")
    try:
        return Path(configured or "~/.cache/filtercov").expanduser()
    except RuntimeError:
        came = f"FILTERCOV_CACHE={configured}, a home that is not known" if configured else "a user without a home"
        raise ConfigError(
            f"needed a directory to keep data in, got {came}; set FILTERCOV_CACHE to the path of one"
        ) from None
