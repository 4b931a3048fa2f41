"""Names of layers: without what wrappers put into them, and in the order in which people build networks.

safetensors' own writer sorts tensors by type and name, so that `stages.10` lies before `stages.2` and every stage
before `stem`. Other writers lay tensors out as they were given, and that order is taken where it looks like a model's.
Else names are put in order as people count and build: 2 before 10, stems first, heads last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise, takewhile

# What trainers keep a network under: Lightning's modules by habit, DDP and AveragedModel by construction.
HOLDERS = ("model", "module", "net", "network")
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
LEADING = ("module", *WRAPPERS)  # what a name that a wrapper changed may begin with


def clean_name(name: str) -> str:
    """Return a parameter or module name without what wrappers put into it.

    >>> clean_name("module._orig_mod.stages.0._orig_mod.conv_dw")
    'stages.0.conv_dw'
    """
    parts = name.split(".")
    while len(parts) > 1 and parts[0] in LEADING:
        parts.pop(0)
    return ".".join(part for part in parts if part not in WRAPPERS)


def cleaner(names: Iterable[str]) -> Callable[[str], str]:
    """Return what cleans all names of a network, as `clean_name` does, but makes no two of them one.

    Where it would, a `module` that not all of them begin with is the network's own, and stays.

    >>> [cleaner(names)(names[0]) for names in (["module.dw", "module.norm"], ["module.dw", "dw"])]
    ['dw', 'module.dw']
    """
    known = set(names)
    wrapped = _common_wrappers(known)

    def clean_inside(name: str) -> str:
        return ".".join(part for part in name.removeprefix(wrapped).split(".") if part not in WRAPPERS)

    for clean in (clean_name, clean_inside):
        if len({clean(name) for name in known}) == len(known):
            return clean
    return str


def last_name(name: str) -> str:
    """Return what a module is called where it lies.

    >>> last_name("stages.0.blocks.1.conv_dw")
    'conv_dw'
    """
    return name.rpartition(".")[2]


def common_holder(names: Sequence[str]) -> str:
    """Return the beginning, with its dots, that all names share because a trainer put it there; empty if there is none.

    >>> common_holder(["model.net.0", "model.net.1"]), common_holder(["model.0", "head"])
    ('model.net.', '')
    """
    holder = ""
    while names:
        first = {name.removeprefix(holder).partition(".")[0] for name in names if "." in name.removeprefix(holder)}
        if len(first) != 1 or not first <= set(HOLDERS) or any("." not in name.removeprefix(holder) for name in names):
            break
        holder += f"{first.pop()}."
    return holder


# Words in names of modules, for what comes before its neighbours and what after them.
EARLY = {"stem", "emb", "embed", "patch", "first", "initial", "input", "start", "pre", "downsample", "encoder"}
LATE = {"mlp", "ffn", "head", "final", "last", "end", "out", "output", "post", "tail", "classifier", "decoder"}

Key = tuple[tuple[int, tuple[tuple[int, int, str], ...]], ...]


def building_key(name: str) -> Key:
    """Return what to sort names by for the order in which people build networks.

    >>> sorted(["head.dw", "stages.10.mlp", "stages.2.dw2", "stages.2.dw", "stem.1"], key=building_key)
    ['stem.1', 'stages.2.dw', 'stages.2.dw2', 'stages.10.mlp', 'head.dw']
    """
    parts = name.split(".")
    # Many networks call their stem conv1 and what follows it by other names.
    first = -1 if re.fullmatch(r"conv_?1", parts[0]) else _rank(parts[0])
    return ((first, _counted(parts[0])), *((_rank(part), _counted(part)) for part in parts[1:]))


def looks_built(names: Sequence[str]) -> bool:
    """Tell whether names lie as a model registers them, and not sorted or shuffled by whoever wrote them.

    Then each module's tensors lie together, numbered modules count upward, and some name lies after one that sorting
    would put behind it.

    >>> looks_built(["stem.0", "stages.0", "stages.1", "stages.2", "head"])
    True
    >>> looks_built(["head", "stages.0", "stages.1", "stages.2", "stem.0"])
    False
    """
    series: dict[tuple[str, ...], list[int]] = {}
    for level in range(1, max((name.count(".") for name in names), default=0) + 2):
        heads = [tuple(name.split(".")[:level]) for name in names if name.count(".") >= level - 1]
        runs = [head for head, _ in groupby(heads)]
        if len(set(runs)) != len(runs):
            return False
        for *parents, last in runs:
            if last.isdecimal():
                series.setdefault(tuple(parents), []).append(int(last))
    counting = all(a < b for numbers in series.values() for a, b in pairwise(numbers))
    evidence = max(map(len, series.values()), default=0) > 2
    return counting and evidence and any(a > b for a, b in pairwise(names))


def sorted_by_writer(names: Sequence[str]) -> bool:
    """Tell whether names were sorted: a model registers the weight of a layer before its bias.

    >>> sorted_by_writer(["0.bias", "0.weight", "1.weight"]), sorted_by_writer(["0.weight", "0.bias", "1.weight"])
    (True, False)
    """
    known = set(names)
    paired = any(name.endswith("bias") and name.removesuffix("bias") + "weight" in known for name in names)
    return paired and list(names) == sorted(names)


def differ_in_numbers_only(names: Iterable[str]) -> bool:
    """Tell whether names are those of one numbered series, whose order nobody has to guess.

    >>> differ_in_numbers_only(["blocks.0.dw", "blocks.10.dw"]), differ_in_numbers_only(["stem", "blocks.0"])
    (True, False)
    """
    return len({without_numbers(name) for name in names}) <= 1


def without_numbers(name: str) -> str:
    """Return a name with every number made the same.

    >>> without_numbers("stages.2.blocks.10.conv1")
    'stages.#.blocks.#.conv#'
    """
    return re.sub(r"\d+", "#", name)


def _common_wrappers(names: Iterable[str]) -> str:
    """Return the wrappers, with their dots, that all names inside of modules begin with."""
    levels = zip(*(name.split(".")[:-1] for name in names if "." in name), strict=False)
    common = takewhile(lambda level: len(set(level)) == 1 and level[0] in LEADING, levels)
    return "".join(f"{level[0]}." for level in common)


def _rank(part: str) -> int:
    words = set(re.findall(r"[a-z]+", part.lower()))
    return bool(words & LATE) - bool(words & EARLY)


def _counted(part: str) -> tuple[tuple[int, int, str], ...]:
    pieces = [piece for piece in re.split(r"(\d+)", part) if piece]
    return tuple((1, int(piece), "") if piece.isdecimal() else (0, 0, piece) for piece in pieces)
