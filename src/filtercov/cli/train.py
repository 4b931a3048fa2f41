"""`filtercov train`: one run, from flags that keep timm's names where timm has one."""

from pathlib import Path
from typing import Annotated

import typer

from filtercov.cli import options
from filtercov.cli.say import say
from filtercov.lab.experiments import initialisations
from filtercov.lab.experiments.execute import execute
from filtercov.lab.experiments.runspec import AUGMENTATIONS, RunSpec
from filtercov.lab.training import RECIPES, Silent, process_group, progress_on
from filtercov.printable import counted

# Without those by which a table's runs start from one another.
_INITS = [entry.usage for entry in map(initialisations.find, initialisations.names()) if entry.argument != "RUN"]


def train(
    model: Annotated[
        str, typer.Option(help="One of ours, such as convmixer_256_8_k9_p2 or convnext_atto_p1, or a name timm knows.")
    ],
    data: Annotated[str, typer.Option(help="embedded, cifar10 or folder:PATH (a directory or a zip).")] = "embedded",
    runs: options.Runs = options.RUNS,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run's own directory; under --runs, named by a hash, if not given.")
    ] = None,
    recipe: Annotated[str, typer.Option(help=f"Where settings not given come from: {', '.join(RECIPES)}.")] = "cifar",
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training images; the recipe's if not given.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", "-b", help="Images per step, of all processes together.")
    ] = None,
    seed: Annotated[
        int, typer.Option(callback=options.SEEDS, help="Decides weights, order of images and augmentation.")
    ] = 0,
    init: Annotated[
        str,
        typer.Option(
            help=f"Filters: {', '.join(_INITS)} (statistics, or a checkpoint's filters); stats: also takes a name that "
            "`filtercov info` lists."
        ),
    ] = "uniform",
    schedule: options.Schedule = None,
    negative: Annotated[
        str, typer.Option(help="What becomes of a covariance's negative eigenvalues: clip (to zero) or abs.")
    ] = "clip",
    freeze_filters: Annotated[bool, typer.Option(help="Keep the depthwise filters as they are initialised.")] = False,
    data_limit: Annotated[
        int | None, typer.Option(help="Use only so many training images, the classes in proportion.")
    ] = None,
    img_size: Annotated[int | None, typer.Option(help="Scale a folder's images to this size.")] = None,
    evaluate: Annotated[
        str, typer.Option(help="test, or validation (a tenth of the training images, or val/) for choosing settings.")
    ] = "test",
    augment: Annotated[str | None, typer.Option(help=f"One of {', '.join(AUGMENTATIONS)}.")] = None,
    drop_path: Annotated[float | None, typer.Option(help="Stochastic depth's rate at the last block.")] = None,
    opt: Annotated[str | None, typer.Option(help="adamw or sgd.")] = None,
    opt_eps: Annotated[float | None, typer.Option(help="ε of AdamW.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of sgd.")] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    filter_lr: Annotated[
        float | None, typer.Option(help="Learning rate of the depthwise filters, as a fraction of --lr.")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    decay_norms: Annotated[
        bool | None, typer.Option(help="Decay norms and biases too: cifar does, imagenet (as timm) does not.")
    ] = None,
    sched: Annotated[str | None, typer.Option(help="triangular, cosine or constant.")] = None,
    warmup_epochs: Annotated[float | None, typer.Option(help="Linear rise of cosine and constant.")] = None,
    smoothing: Annotated[float | None, typer.Option(help="Label smoothing.")] = None,
    clip_grad: Annotated[float | None, typer.Option(help="Clip the gradient to this norm.")] = None,
    amp: Annotated[bool, typer.Option("--amp", help="Mixed precision.")] = False,
    amp_dtype: Annotated[str, typer.Option(help="bfloat16, or float16 on a GPU.")] = "bfloat16",
    model_ema: Annotated[bool, typer.Option("--model-ema", help="Keep a moving average of the weights.")] = False,
    model_ema_decay: Annotated[
        float, typer.Option(help="Decay of the moving average, from 0 to 1; higher is slower.")
    ] = 0.9998,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or another of PyTorch's.")] = "auto",
    data_root: options.DataRoot = None,
    download: options.Download = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-j", callback=options.within(0), help="Processes that decode large images."),
    ] = None,
    log_interval: Annotated[
        int, typer.Option(callback=options.within(1), help="Steps between lines of metrics.jsonl.")
    ] = 50,
    recovery_interval: Annotated[
        int | None,
        typer.Option(
            callback=options.within(1), help="Steps between checkpoints inside an epoch; there is one after each epoch."
        ),
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's files too.")] = False,
    watch: Annotated[
        int | None,
        typer.Option(
            callback=options.within(1), help="Steps between looks at the depthwise filters, kept in filters.watched."
        ),
    ] = None,
) -> None:
    """Train a network; run the same command again to continue where it stopped.

    Settings that are not given are the recipe's.

    Under `torchrun --nproc-per-node N $(which filtercov) train …` N processes train together.
    """
    settings = {
        "epochs": epochs,
        "batch_size": batch_size,
        "opt": opt,
        "opt_eps": opt_eps,
        "momentum": momentum,
        "lr": lr,
        "filter_lr": filter_lr,
        "weight_decay": weight_decay,
        "decay_norms": decay_norms,
        "sched": sched,
        "warmup_epochs": warmup_epochs,
        "smoothing": smoothing,
        "clip_grad": clip_grad,
        "amp": amp_dtype if amp else None,
        "ema_decay": model_ema_decay if model_ema else None,
        "compile": compile,
        "seed": seed,
    }
    choices = {"augment": augment, "drop_path": drop_path}
    spec = RunSpec.recipe(
        recipe,
        train={name: value for name, value in settings.items() if value is not None},
        model=model,
        data=data,
        data_limit=data_limit,
        image_size=img_size,
        init=init,
        schedule=schedule,
        negative=negative,
        freeze_filters=freeze_filters,
        evaluate=evaluate,
        **{name: value for name, value in choices.items() if value is not None},
    )
    directory = run_dir or options.runs_directory(runs, "filtercov train") / spec.key
    with process_group(device) as (world, chosen):
        result = execute(
            spec,
            directory,
            data_root=data_root,
            download=download,
            workers=workers,
            device=chosen,
            progress=progress_on() if world.main else Silent(),
            log_interval=log_interval,
            recovery_interval=recovery_interval,
            tensorboard=tensorboard,
            watch_interval=watch,
        )
    if world.main:
        accuracy = f"{result.test_accuracy:.2f} % {spec.evaluate} accuracy"
        say(f"{accuracy} after {counted(result.epochs, 'epoch')}; the run is {directory}")
