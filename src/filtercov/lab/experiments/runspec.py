"""`RunSpec`: everything that decides how one training run ends. `Run`: that, and the run whose filters it starts from.

A run is known by `RunSpec.key`, a hash of its settings. Settings only name images and files, so what is behind those
names is known by checksum: `read_inputs`, kept in the run's `config.json`.

The initialisation follows the rule of `init_`: without a schedule σ is that of `imagenet-thawed`, and the closed form
leaves filters under 5x5 alone. The paper's tables ask for something else, and say so: `catalogue` gives every run its
schedule and `min_kernel_size=2`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, get_args

from filtercov.errors import ConfigError
from filtercov.files import file_sha256
from filtercov.lab import models
from filtercov.lab.data.augment import Preset
from filtercov.lab.experiments.initialisations import DEFAULT_SCHEDULE, find, parse_schedule, reference_key, shown_init
from filtercov.lab.models.lookup import is_ours
from filtercov.lab.training import RECIPES, TrainConfig, read_result
from filtercov.lab.training.config import FORMAT, choice, flag, number, refuse_unknown, whole
from filtercov.plan import CLOSED_FORM_MIN_KERNEL
from filtercov.printable import counted
from filtercov.statistics.shipped import locate

# Raised whenever equal specifications come to mean another run, so that none is taken for one of before.
VERSION = 2
EVERY_KERNEL = 2  # the `min_kernel_size` of all the paper's runs, which their keys do not mention
AUGMENTATIONS: tuple[str, ...] = get_args(Preset)
# By recipe; that of CIFAR-10 has what the paper names and no more (docs/training.md).
AUGMENTED = {"cifar": "randaugment", "imagenet": "a1"}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run: network, data, initialisation and recipe. Equal specifications are the same run.

    >>> spec = RunSpec(model="convmixer_32_8_k9_p2", data="embedded", init="closed-form")
    >>> spec.schedule, len(spec.key)
    ('imagenet-thawed', 16)
    >>> RunSpec.from_dict(spec.to_dict()) == spec
    True
    """

    model: str
    data: str
    data_limit: int | None = None  # training images to use, the classes in proportion
    image_size: int | None = None
    init: str = "uniform"
    schedule: str | None = None
    min_kernel_size: int | None = None  # of the closed form alone, which leaves smaller filters as they are; None: 5
    negative: Literal["clip", "abs"] = "clip"
    freeze_filters: bool = False
    augment: str = "randaugment"
    drop_path: float = 0.0
    evaluate: Literal["test", "validation"] = "test"  # settings are chosen on validation images, and reported on others
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        choice("augment", self.augment, AUGMENTATIONS)
        choice("negative", self.negative, ("clip", "abs"))
        choice("evaluate", self.evaluate, ("test", "validation"))
        number("drop_path", self.drop_path, least=0.0, below=1.0)
        for name in ("data_limit", "image_size", "min_kernel_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=1, most=2**31)
        flag("freeze_filters", self.freeze_filters)
        ours, initialisation = is_ours(self.model), find(self.init)
        if initialisation.schedule == "required" and self.schedule is None:
            object.__setattr__(self, "schedule", DEFAULT_SCHEDULE)
        if self.schedule is not None:
            if initialisation.schedule == "none":
                raise ConfigError(f"schedule {self.schedule!r} has no use with init {self.init!r}; leave it out")
            parse_schedule(self.schedule)
        least = None
        if self.init == "closed-form":
            least = self.min_kernel_size or CLOSED_FORM_MIN_KERNEL
            if ours and models.parse(self.model).kernel_size >= least:
                least = EVERY_KERNEL  # a bound that leaves out nothing makes no new run
        object.__setattr__(self, "min_kernel_size", least)

    @classmethod
    def recipe(cls, name: str, *, train: Mapping[str, Any] | None = None, **fields: Any) -> Self:
        """A specification by one of the paper's recipes, `cifar` or `imagenet`, with what is given changed.

        >>> RunSpec.recipe("imagenet", model="convmixer_512_12_k9_p14", data="folder:imagenet").drop_path
        0.05
        """
        choice("recipe", name, tuple(RECIPES))
        settings = RECIPES[name].to_dict() | dict(train or {})
        defaults = {"augment": AUGMENTED[name], "drop_path": 0.05 if name == "imagenet" else 0.0}
        return cls(train=TrainConfig.from_dict(settings), **{**defaults, **fields})

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-ready values, without those that the first runs did not have."""
        values = dataclasses.asdict(self) | {"train": self.train.to_dict()}
        if self.evaluate == "test":
            del values["evaluate"]
        if self.min_kernel_size in (None, EVERY_KERNEL):
            del values["min_kernel_size"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The specification that `to_dict` wrote, refusing names it does not know."""
        refuse_unknown(values, [item.name for item in dataclasses.fields(cls)])
        unmentioned = {"min_kernel_size": EVERY_KERNEL} if values.get("init") == "closed-form" else {}
        return cls(**{**unmentioned, **values, "train": TrainConfig.from_dict(values.get("train", {}))})

    @property
    def key(self) -> str:
        """The run's name, 16 hexadecimal digits: a hash of every field and of an initialisation's code.

        The content of files and images is not in it, so that runs can be planned where those are not.
        """
        return key_of({"format": FORMAT, "version": VERSION, **self.to_dict()}, find(self.init).code)


def key_of(described: Mapping[str, Any], code: str | None = None) -> str:
    """The name of the run that JSON-ready values describe, and the code of its initialisation if that can change."""
    return checksum_of(described if code is None else {**described, "code": code})[:16]


def checksum_of(values: Mapping[str, Any]) -> str:
    """The SHA-256 of JSON-ready values, in whatever order they come."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True)
class Run:
    """A training run and, if its initialisation starts from another run, that run."""

    spec: RunSpec
    reference: "Run | None" = None

    @cached_property
    def key(self) -> str:
        """The name of the run's directory."""
        return self.spec.key

    def __str__(self) -> str:
        """One line for people."""
        spec, train = self.spec, self.spec.train
        filters = "frozen" if spec.freeze_filters else "thawed"
        init = shown_init(spec.init, spec.schedule)
        origin = f" {self.reference.spec.model}" if self.reference else ""
        return f"{self.key}  {spec.model} {filters} {init}{origin}, {counted(train.epochs, 'epoch')}, seed {train.seed}"


def in_order(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Runs and all they start from, each once, references first."""
    found: dict[str, Run] = {}
    for run in runs:
        before = in_order([run.reference]) if run.reference else ()
        for needed in (*before, run):
            found.setdefault(needed.key, needed)
    return tuple(found.values())


def read_inputs(spec: RunSpec, content: str | None, *, init_root: Path | str = ".") -> dict[str, str]:
    """The checksums of the images, `content`, of the file or run that filters come from, of registered code.

    What is not there is left out.
    """
    init = _init_checksum(spec.init, Path(init_root))
    found = {"data": content, "init": init, "code": find(spec.init).code}
    return {name: checksum for name, checksum in found.items() if checksum is not None}


def _init_checksum(init: str, root: Path) -> str | None:
    key = reference_key(init)
    if key is not None:
        result = read_result(root / key)
        return result.weights_sha256 if result else None
    _, _, argument = init.partition(":")
    entry = find(init)
    path = locate(argument, root) or root / argument if entry.name == "stats" else root / argument
    # Others' initialisations may read a file whose name is their argument; ours say whether theirs is a file.
    if not argument or (entry.ours and entry.argument != "FILE") or not path.is_file():
        return None
    return file_sha256(path)
