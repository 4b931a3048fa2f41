"""Started by torchrun: train a toy model in RUN_DIR; with a second argument R:S, rank R asks for a stop at step S.

With "slow" as second argument every batch takes a while, so that a signal can come between two.
"""

import sys
import time

from filtercov.errors import TrainingInterrupted
from filtercov.lab.training import TrainConfig, fit, process_group
from filtercov.lab.training.signals import StopRequest
from tests.lab.training.toys import ToyBatches, toy_model

CONFIG = TrainConfig(epochs=3, batch_size=8, ema_decay=0.9, lr=0.03)


def main(run_dir: str, stop_at: str = "-1:0") -> None:
    slow = stop_at == "slow"
    stop_rank, stop_step = (-1, 0) if slow else map(int, stop_at.split(":"))
    requests: list[StopRequest] = []
    enter = StopRequest.__enter__
    StopRequest.__enter__ = lambda self: (requests.append(self), enter(self))[1]  # type: ignore[method-assign]

    with process_group("cpu") as (world, _device):

        class Stopping(ToyBatches):
            def epoch(self, epoch: int, start_batch: int = 0):
                for offset, batch in enumerate(super().epoch(epoch, start_batch)):
                    if world.rank == stop_rank and epoch * len(self) + start_batch + offset == stop_step:
                        requests[0].request()
                    if slow:
                        if world.main:  # the processes share their output: two at once would mix their lines
                            print("training", flush=True)
                        time.sleep(0.2)
                    yield batch

        model = toy_model(normalisation=False, dropout=0.0)
        try:
            train, test = Stopping(world=world), ToyBatches(seed=1, world=world)
            fit(model, train, test, CONFIG, run_dir, log_interval=1)
        except TrainingInterrupted:
            if world.main:
                print("interrupted", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
