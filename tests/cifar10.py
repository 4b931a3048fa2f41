"""CIFAR-10 as a zip of PNG files, train/CLASS/*.png and test/CLASS/*.png, for tests that want real images.

FILTERCOV_CIFAR10 says where it is. Tests that need it skip without it.
"""

import os
from pathlib import Path

import pytest

CIFAR10 = Path(os.environ.get("FILTERCOV_CIFAR10", "nowhere"))
needs_cifar10 = pytest.mark.skipif(not CIFAR10.is_file(), reason="FILTERCOV_CIFAR10 does not name the zip of CIFAR-10")
