"""Settings of a run as flags of `filtercov train`, which has timm's names where timm has one."""

from typing import Any

_NAMES = {"image_size": "--img-size"}


def flag(name: str, value: Any) -> list[str]:
    """Return the words that give a field of `RunSpec` or `TrainConfig` a value, which None, the absence of one, is not.

    >>> flag("decay_norms", False), flag("amp", "bfloat16")
    (['--no-decay-norms'], ['--amp', '--amp-dtype', 'bfloat16'])
    """
    if name == "amp":
        return ["--amp", "--amp-dtype", value]
    if name == "ema_decay":
        return ["--model-ema", "--model-ema-decay", str(value)]
    written = _NAMES.get(name, f"--{name.replace('_', '-')}")
    if isinstance(value, bool):
        return [written if value else written.replace("--", "--no-", 1)]
    return [written, str(value)]
