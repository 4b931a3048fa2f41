"""How much memory a file may make us use, whatever it declares: the limits, each stated once.

Numbers in a checkpoint are mapped, not read, until a layer is measured; everything else is bounded here. Together the
limits keep reading and measuring any file within `MEMORY` on top of what Python and PyTorch take by themselves.
"""

MIB = 2**20

MEMORY = 2048 * MIB  # what reading and measuring a file may take in all; the limits below add up to less

DESCRIPTION = 8 * MIB  # bytes that describe tensors: a pickle, a JSON header, an index, the directory of an archive
NAME = 1024  # characters in the name of a tensor
NESTING = 32  # dictionaries inside one another that are searched for weights

PIXELS = 4096  # weights in one filter: its covariance has their square, 128 MiB in float64; 64x64 filters fit
LAYER = 256 * MIB  # the filters of one layer in float64
MEASURED = 512 * MIB  # filters and covariances of all layers of a network in float64


def show_bytes(count: int) -> str:
    """Return a number of bytes as people say it.

    >>> show_bytes(1500), show_bytes(3 * MIB), show_bytes(81 * 10**12)
    ('1.5 kB', '3.1 MB', '81 TB')
    """
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
        value /= 1000
    raise AssertionError("the loop ends at TB")
