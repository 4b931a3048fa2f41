"""Names of layers without what wrappers put into them."""

from __future__ import annotations

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
