"""`RunSpec`: everything that decides how one training run ends, and a name for it."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast, get_args

from filtercov.errors import ConfigError
from filtercov.lab import models
from filtercov.lab.data import Augment
from filtercov.lab.data.augment.pipeline import Preset
from filtercov.lab.experiments.initialisations import find, parse_schedule
from filtercov.lab.models.lookup import is_ours
from filtercov.lab.training import RECIPES, TrainConfig
from filtercov.lab.training.config import FORMAT, choice, number, refuse_unknown, text, whole

# Raised whenever equal specifications come to mean another run, so that none is taken for one of before.
VERSION = 2
AUGMENTATIONS: tuple[str, ...] = get_args(Preset)
# By recipe; that of CIFAR-10 has what the paper names and no more (docs/training.md).
AUGMENTED = {"cifar": "randaugment", "imagenet": "a1"}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run: network, data, initialisation and recipe. Equal specifications are the same run.

    A closed-form run without a schedule gets the paper's for its patch size.

    >>> spec = RunSpec(model="convmixer_32_8_k9_p2", data="embedded", init="closed-form")
    >>> spec.schedule, len(spec.key)
    ('cifar-p2', 16)
    >>> RunSpec.from_dict(spec.to_dict()) == spec
    True
    """

    model: str
    data: str
    data_limit: int | None = None  # training images to use, the classes in proportion
    image_size: int | None = None
    init: str = "uniform"
    schedule: str | None = None
    negative: Literal["clip", "abs"] = "clip"
    freeze_filters: bool = False
    augment: str = "randaugment"
    drop_path: float = 0.0
    evaluate: Literal["test", "validation"] = "test"  # settings are chosen on validation images, and reported on others
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        for name in ("model", "data", "init", *(["schedule"] if self.schedule is not None else [])):
            text(name, getattr(self, name))
        ours = is_ours(self.model)
        initialisation = find(self.init)
        choice("augment", self.augment, AUGMENTATIONS)
        choice("negative", self.negative, ("clip", "abs"))
        choice("evaluate", self.evaluate, ("test", "validation"))
        number("drop_path", self.drop_path, least=0.0, below=1.0)
        for name in ("data_limit", "image_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=1, most=2**31)
        if not isinstance(self.freeze_filters, bool):
            raise ConfigError(f"freeze_filters must be true or false, got {self.freeze_filters!r}")
        if not isinstance(self.train, TrainConfig):
            raise ConfigError(f"train must be a TrainConfig, got {self.train!r}")
        if initialisation.schedule == "required" and self.schedule is None:
            patch_size = models.parse(self.model).patch_size if ours else None
            object.__setattr__(self, "schedule", default_schedule(patch_size, frozen=self.freeze_filters))
        if self.schedule is not None:
            if initialisation.schedule == "none":
                raise ConfigError(f"schedule {self.schedule!r} has no use with init {self.init!r}; leave it out")
            parse_schedule(self.schedule)

    @classmethod
    def recipe(cls, name: str, *, train: Mapping[str, Any] | None = None, **fields: Any) -> Self:
        """Return a specification by one of the paper's recipes, `cifar` or `imagenet`, with what is given changed.

        >>> RunSpec.recipe("imagenet", model="convmixer_512_12_k9_p14", data="folder:imagenet").drop_path
        0.05
        """
        choice("recipe", name, tuple(RECIPES))
        settings = RECIPES[name].to_dict() | dict(train or {})
        defaults = {"augment": AUGMENTED[name], "drop_path": 0.05 if name == "imagenet" else 0.0}
        refuse_unknown(fields, [item.name for item in dataclasses.fields(cls)])
        return cls(train=TrainConfig.from_dict(settings), **{**defaults, **fields})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values; that a run is judged on test images goes without saying."""
        values = dataclasses.asdict(self) | {"train": self.train.to_dict()}
        return values if self.evaluate == "validation" else {k: v for k, v in values.items() if k != "evaluate"}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the specification of a mapping, refusing names it does not know."""
        refuse_unknown(values, [item.name for item in dataclasses.fields(cls)])
        for name in ("model", "data"):
            if name not in values:
                raise ConfigError(f"a run needs a {name}, which is missing")
        train = values.get("train", {})
        if not isinstance(train, Mapping):
            raise ConfigError(f"train must be a mapping of settings, got {train!r}")
        return cls(**{**values, "train": TrainConfig.from_dict(train)})

    @property
    def key(self) -> str:
        """A name that depends on every field and on what fields mean, registered code included: 16 hexadecimal digits.

        What is behind the names of files and data is not in it, so that runs can be planned where those are not: that
        is in the run's `config.json`.
        """
        code = find(self.init).code
        registered = {} if code is None else {"code": code}
        return key_of({"format": FORMAT, "version": VERSION, **registered, **self.to_dict()})

    def augmentation(self) -> Augment:
        """Return the augmentation that the specification names."""
        return Augment.preset(cast(Preset, self.augment))


def key_of(described: Mapping[str, Any]) -> str:
    """Return the name of the run that JSON-ready values describe, in whatever order they come."""
    canonical = json.dumps(described, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def default_schedule(patch_size: int | None, *, frozen: bool) -> str:
    """Return the preset the paper found for a patch size: above 2, or where there is none as in timm's, ImageNet's.

    >>> default_schedule(1, frozen=False), default_schedule(4, frozen=True)
    ('cifar-p1', 'imagenet-frozen')
    """
    if patch_size is not None and patch_size <= 2:
        return "cifar-p1" if patch_size == 1 else "cifar-p2"
    return "imagenet-frozen" if frozen else "imagenet-thawed"
