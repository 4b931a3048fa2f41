"""Memory that a step frees and the next one asks for again.

A training step holds its activations until they have had their gradients. What is then freed glibc gives back to the
system, which clears each page before it hands it out again, in every step: docs/depthwise.md has what that costs.
PyTorch keeps what is freed on other devices; on the CPU the C library decides, for the whole process.
"""

import ctypes

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Larger blocks are the system's in any case: glibc takes no more. Untold it learns from what is freed, up to this, and
# gives back what is free at the end of its heap from twice as much on.
_MOST_FROM_THE_HEAP = 32 << 20
_ALL_THERE_IS = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, to use again; return whether its C library can (glibc's).

    What the process holds is then what it held at most. `return_freed_memory` ends it.
    """
    return _give_back_from(_ALL_THERE_IS)


def return_freed_memory() -> bool:
    """Let this process give freed memory back as glibc does untold, where it has learned to keep the most."""
    return _give_back_from(2 * _MOST_FROM_THE_HEAP)


def _give_back_from(size: int) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or none that can be asked
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MOST_FROM_THE_HEAP)) and bool(mallopt(_TRIM_THRESHOLD, size))
