"""Names of layers: without the parts that wrappers add, and sorted in the order in which people build networks."""

from __future__ import annotations

import re

# What torch.compile, FSDP and activation checkpointing put between the parts of a name.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def clean_name(name: str) -> str:
    """The name of a parameter or module without the parts that wrappers add.

    >>> clean_name("_orig_mod.stages.0._orig_mod.conv_dw")
    'stages.0.conv_dw'
    """
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


# Words in the names of modules that come before their neighbours, and after them.
EARLY = {"stem", "emb", "embed", "patch", "first", "initial", "input", "start", "pre", "downsample", "encoder"}
LATE = {"mlp", "ffn", "head", "final", "last", "end", "out", "output", "post", "tail", "classifier", "decoder"}

Key = tuple[tuple[int, tuple[tuple[int, int, str], ...]], ...]


def building_key(name: str) -> Key:
    """A sorting key for the order in which people build networks: stems first, heads last, 2 before 10.

    >>> sorted(["head.dw", "stages.10.mlp", "stages.2.dw2", "stages.2.dw", "stem.1"], key=building_key)
    ['stem.1', 'stages.2.dw', 'stages.2.dw2', 'stages.10.mlp', 'head.dw']
    """
    return tuple((_rank(part), _natural(part)) for part in name.split("."))


def _rank(part: str) -> int:
    words = set(re.findall(r"[a-z]+", part.lower()))
    return bool(words & LATE) - bool(words & EARLY)


def _natural(part: str) -> tuple[tuple[int, int, str], ...]:
    pieces = [piece for piece in re.split(r"(\d+)", part) if piece]
    return tuple((1, int(piece), "") if piece.isdecimal() else (0, 0, piece) for piece in pieces)
