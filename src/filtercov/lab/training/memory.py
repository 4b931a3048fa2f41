"""Memory that a step gives back and the next one asks for again."""

import ctypes

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_FROM_THE_HEAP = 32 << 20  # glibc takes no more


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, to use again; return whether its C library can (glibc's).

    Activations of some MiB are otherwise given back to the system in every step, which clears each page before it hands
    it out again. What the process holds is then what it held at most.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or none that can be asked
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MOST_FROM_THE_HEAP)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
