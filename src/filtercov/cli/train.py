"""`filtercov train`: one run, from flags that keep timm's names where timm has one."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Option

from filtercov.cli import options
from filtercov.cli.options import say
from filtercov.errors import ConfigError
from filtercov.lab.experiments import initialisations
from filtercov.lab.experiments.execute import execute, load_data
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import RECIPES, Progress, RunDirectory, TrainConfig, process_group, progress_on
from filtercov.lab.training.config import parsed, refuse_unknown
from filtercov.plan import InitReport
from filtercov.printable import counted

# Without those by which a table's runs start from one another.
_INITS = [entry.usage for entry in map(initialisations.find, initialisations.names()) if entry.argument != "RUN"]
# What --set reaches, and the type of each: settings of training, of the run beside them, and intervals of `fit`.
_TRAIN = get_type_hints(TrainConfig)
_RUN = {"drop_path": float, "negative": str}
_INTERVALS = {"log_interval": int, "recovery_interval": int}
_SETTINGS: dict[str, Any] = {**_TRAIN, **_RUN, **_INTERVALS}


def train(
    model: options.Network,
    data: options.Images = "embedded",
    runs: options.Runs = options.RUNS,
    run_dir: Annotated[
        Path | None, Option(help="The run's own directory; under --runs, named by a hash, if not given.")
    ] = None,
    recipe: Annotated[str, Option(help=f"Where settings not given come from: {', '.join(RECIPES)}.")] = "cifar",
    epochs: Annotated[int | None, Option(min=1, help="Passes over the training images.")] = None,
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    weight_decay: Annotated[float | None, Option(help="Weight decay.")] = None,
    seed: options.Seed = 0,
    init: Annotated[str, Option(help=f"Filters: {', '.join(_INITS)}.")] = "uniform",
    schedule: options.Schedule = None,
    min_kernel_size: options.MinKernelSize = None,
    freeze_filters: Annotated[
        bool, Option("--freeze-filters", help="Keep the depthwise filters as they are initialised.")
    ] = False,
    data_limit: options.DataLimit = None,
    img_size: options.ImageSize = None,
    augment: options.Augment = None,
    evaluate: Annotated[
        str, Option(help="test, or validation (a tenth of the training images, or val/) for choosing settings.")
    ] = "test",
    amp: Annotated[bool, Option("--amp", help="Mixed precision, bfloat16.")] = False,
    more: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help=f"Any other setting, may be repeated: {', '.join(_SETTINGS)}."),
    ] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or another of PyTorch's.")] = "auto",
    data_root: options.DataRoot = None,
    download: options.Download = False,
    workers: Annotated[int | None, Option("--workers", "-j", min=0, help="Processes that decode large images.")] = None,
    watch: Annotated[
        int | None, Option(min=1, help="Steps between looks at the depthwise filters, kept in filters.watched.")
    ] = None,
) -> None:
    """Train a network; run the same command again to continue where it stopped.

    Settings that are not given are the recipe's.

    Under `torchrun --nproc-per-node N $(which filtercov) train …` N processes train together.
    """
    flags = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay, "augment": augment}
    flags |= {"seed": seed, "amp": "bfloat16" if amp else None}
    given = {name: value for name, value in flags.items() if value is not None} | _settings(more or [])

    def given_of(names: Collection[str]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name in names}

    spec = RunSpec.recipe(
        recipe,
        train=given_of(_TRAIN),
        model=model,
        data=data,
        data_limit=data_limit,
        image_size=img_size,
        init=init,
        schedule=schedule,
        min_kernel_size=min_kernel_size,
        freeze_filters=freeze_filters,
        evaluate=evaluate,
        **given_of({*_RUN, "augment"}),
    )
    directory = run_dir or Runs(runs).root / spec.key
    with process_group(device) as (world, chosen):
        if world.main and RunDirectory(directory).done:
            say("this run was finished before; nothing is trained again", err=True)
        result = execute(
            spec,
            directory,
            data=load_data(spec, root=data_root, download=download, workers=workers),
            device=chosen,
            progress=progress_on() if world.main else Progress(),
            watch_interval=watch,
            on_init=_say_report if world.main else None,
            **given_of(_INTERVALS),
        )
    if world.main:
        accuracy = f"{result.test_accuracy:.2f} % {spec.evaluate} accuracy"
        say(f"{accuracy} after {counted(result.epochs, 'epoch')}; the run is {directory}")


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Settings of KEY=VALUE texts, by the types of their fields."""
    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set: needed KEY=VALUE, got {pair!r}; write --set opt_eps=1e-5")
        refuse_unknown({name: text}, _SETTINGS)
        values[name] = parsed(name, text, _SETTINGS[name])
    return values


def _say_report(report: object) -> None:
    """Print what was done to each layer, where the initialisation says so."""
    if isinstance(report, InitReport):
        say(str(report), err=True)
