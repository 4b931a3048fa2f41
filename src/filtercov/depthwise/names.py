"""Names of layers without what wrappers put into them."""

from __future__ import annotations

from collections.abc import Sequence

# What trainers keep a network under: Lightning's modules by habit, DDP and AveragedModel by construction.
HOLDERS = ("model", "module", "net", "network")
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def clean_name(name: str) -> str:
    """Return a parameter or module name without what wrappers put into it.

    >>> clean_name("module._orig_mod.stages.0._orig_mod.conv_dw")
    'stages.0.conv_dw'
    """
    parts = name.split(".")
    while len(parts) > 1 and parts[0] in ("module", *WRAPPERS):
        parts.pop(0)
    return ".".join(part for part in parts if part not in WRAPPERS)


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
