"""Where data of ours may be kept."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return $FILTERCOV_CACHE, or ~/.cache/filtercov; it need not exist."""
    configured = os.environ.get("FILTERCOV_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "filtercov"
