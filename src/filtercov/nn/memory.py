"""Memory that a step frees and the next one asks for again.

A training step holds its activations until they have had their gradients. What is then freed glibc gives back to the
system, which clears each page before it hands it out again, in every step: docs/depthwise.md has what that costs.
PyTorch keeps what is freed on other devices; on the CPU the C library decides, for the whole process.
"""

import ctypes

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_FROM_THE_HEAP = 32 << 20  # glibc takes no more: larger blocks are the system's in any case


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, to use again; return whether its C library can (glibc's).

    What the process holds is then what it held at most, until it ends.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or none that can be asked
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MOST_FROM_THE_HEAP)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
