"""A training step on this machine: ours beside PyTorch's, and where its time goes."""

from filtercov.lab.bench.comparison import (
    BATCH,
    CHANNELS_LAST,
    KINDS,
    MODEL,
    OURS,
    PLAIN,
    TURNS,
    Bench,
    Subject,
    bench,
    describe_machine,
    gemm_rate,
    plain_network,
    profile,
    steps_of,
)
from filtercov.lab.bench.rivals import Rival, race_of, rivals_of

__all__ = [
    "BATCH",
    "CHANNELS_LAST",
    "KINDS",
    "MODEL",
    "OURS",
    "PLAIN",
    "TURNS",
    "Bench",
    "Rival",
    "Subject",
    "bench",
    "describe_machine",
    "gemm_rate",
    "plain_network",
    "profile",
    "race_of",
    "rivals_of",
    "steps_of",
]
