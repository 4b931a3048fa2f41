"""One of several gloo processes that train together, of which some fail; prints how it ended."""

import os
import sys
from pathlib import Path

from filtercov.errors import DataError, FiltercovError
from filtercov.lab.training import TrainConfig, fit, process_group
from filtercov.lab.training.rundir import RunDirectory
from tests.lab.training.toys import ToyBatches, toy_model

CONFIG = TrainConfig(epochs=3, batch_size=12)


class UnspeakableError(RuntimeError):
    """An error that cannot be pickled back: it wants another argument."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def fail(kind: str, rank: int) -> None:
    if kind == "defect":
        raise UnspeakableError("a defect", f"of rank {rank}")
    raise DataError(f"rank {rank} cannot read its images")


def main(rank: int, size: int, port: int, run_dir: Path, where: str, failing: tuple[int, ...], kind: str) -> None:
    """Train as `rank`; the ranks in `failing` fail at the place `where`. Exits as the command line does."""
    names = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_RANK": rank}
    os.environ.update({name: str(value) for name, value in names.items()})
    sys.stdout = (run_dir.parent / f"{run_dir.name}-{rank}.txt").open("w", buffering=1)
    try:
        with process_group("cpu") as (world, _device):
            fails = rank in failing

            class Batches(ToyBatches):
                def epoch(self, epoch: int, start_batch: int = 0):
                    for number, batch in enumerate(super().epoch(epoch, start_batch)):
                        if where == "checkpoint" and world.main and (epoch, number) == (0, 0):
                            RunDirectory(run_dir).state.mkdir()  # no file can take a directory's place
                        if where == "batch" and fails and (epoch, number) == (1, 2):
                            fail(kind, rank)
                        yield batch

            def on_finish(_model, _run_dir):
                if where == "finish" and fails:
                    fail(kind, rank)
                return {}

            if where == "start" and fails:
                fail(kind, rank)
            if where == "open" and world.main:
                run_dir.write_text("not a directory")
            train = Batches(world=world, batch_size=12)
            test = ToyBatches(seed=1, world=world, batch_size=12)
            model = toy_model(normalisation=False)
            identity = {"inputs": {"data": f"content {rank if where == 'identity' else 0}"}}
            fit(model, train, test, CONFIG, run_dir, identity=identity, on_finish=on_finish, recovery_interval=2)
        print("finished")
    except FiltercovError as error:
        print(f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        raise SystemExit(2) from None
