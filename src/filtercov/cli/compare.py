"""`filtercov compare`: whether an initialisation helps a network on one's own images."""

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from filtercov.cli import options
from filtercov.cli.reproduce import interruptible
from filtercov.cli.say import say, say_table
from filtercov.lab.comparison import compare as run_comparison
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.run_one import Machine
from filtercov.lab.report.results import check_place


def compare(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="One of ours, such as convnext_atto_p2, or a name timm knows.")],
    data: Annotated[str, typer.Option(help="embedded, cifar10 or folder:PATH (a directory or a zip).")] = "embedded",
    init: Annotated[
        str, typer.Option(help="Initialisations with commas between; default is the network's own. See train --init.")
    ] = "default,closed-form",
    seeds: Annotated[int, typer.Option(callback=options.within(1), help="Runs of each, with seeds from 0.")] = 3,
    epochs: Annotated[int, typer.Option(callback=options.within(1), help="Passes over the training images.")] = 10,
    freeze_filters: Annotated[str, typer.Option(help="no, yes or both: keep the filters as they start.")] = "no",
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    data_limit: options.DataLimit = None,
    img_size: options.ImageSize = None,
    augment: Annotated[str | None, typer.Option(help="none, light, randaugment, cifar or a1.")] = None,
    runs: options.Runs = options.RUNS,
    workers: options.Workers = 1,
    engine: options.EngineName = "local",
    ray_address: options.RayAddress = None,
    cpus_per_run: options.CpusPerRun = 1.0,
    gpus_per_run: options.GpusPerRun = 0.0,
    device: options.Device = "cpu",
    data_root: options.DataRoot = None,
    download: options.Download = False,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("compare.html"),
) -> None:
    """Train a network from several initialisations, and say which ends higher, by how much, and how sure that is."""
    options.check_ray_options(engine, ray_address, cpus_per_run, gpus_per_run)
    check_place(out)
    with interruptible():
        result = run_comparison(
            model,
            data,
            inits=[name.strip() for name in init.split(",") if name.strip()],
            seeds=seeds,
            epochs=epochs,
            freeze_filters=cast(Literal["no", "yes", "both"], freeze_filters),
            run_dir=runs,
            batch_size=batch_size,
            lr=lr,
            augment=augment,
            image_size=img_size,
            data_limit=data_limit,
            engine=Engine(engine, workers, ray_address, cpus_per_run, gpus_per_run),
            machine=Machine(data_root=data_root, download=download, device=device),
            say=lambda text: say(text, err=True),
            command=context.obj,
        )
    say(result.answer)
    say_table(result.table, right=range(1, len(result.table[0])))
    say(result.note)
    say(f"wrote {result.write(out)}")
