"""Contestants that take turns, each in a process of its own.

What a step of training frees, and whether the system or the next step gets it, depends on everything that a process has
done before. Contestants that share one find memory as the others left it, which none of their users would.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

from filtercov.errors import FiltercovError
from filtercov.nn.timing import race


class Rival:
    """A contestant that `build(*arguments)` made in a process of its own, with as many threads as this one has.

    `build` and its arguments have to be picklable. What its methods raise there is raised here; `turn` takes a turn and
    returns its seconds.
    """

    def __init__(self, build: Callable[..., Any], *arguments: Any) -> None:
        methods = multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            # So that they are imported once; the last by PyTorch's optimisers at their first step.
            context.set_forkserver_preload([__name__, build.__module__, "torch._dynamo"])
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, torch.get_num_threads(), build, arguments))
        self._process.daemon = True
        self._process.start()
        theirs.close()
        self._answer()

    def ask(self, method: str) -> Any:
        """What a method of the contestant returns."""
        self._pipe.send(method)
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()

    def _answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            raise FiltercovError(
                f"the process that was measured ended with exit code {self._process.exitcode}; is there memory enough?"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


@contextmanager
def rivals_of(build: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Rival]]:
    """Start a rival for each of several arguments of `build`, and end them all, also where one cannot be built."""
    rivals: dict[str, Rival] = {}
    try:
        for name, given in arguments.items():
            rivals[name] = Rival(build, *given)
        yield rivals
    finally:
        for rival in rivals.values():
            rival.close()


def race_of(rivals: Mapping[str, Rival], *, seconds: float, turns: int) -> dict[str, list[float]]:
    """The seconds of each rival's turns, by `filtercov.nn.timing.race`; only one runs at a time."""
    spent = 0.0

    def turn(rival: Rival) -> None:
        nonlocal spent
        spent += rival.ask("turn")

    contestants = {name: lambda rival=rival: turn(rival) for name, rival in rivals.items()}
    return race(contestants, seconds=seconds, turns=turns, clock=lambda: spent)


def _serve(pipe: Connection, threads: int, build: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Build a contestant, and answer until nobody asks any more."""
    torch.set_num_threads(threads)
    try:
        contestant = build(*arguments)
        pipe.send(None)
        while True:
            try:
                method = pipe.recv()
            except EOFError:
                return
            pipe.send(getattr(contestant, method)())
    except KeyboardInterrupt:
        return  # whoever pressed the key hears of it from the process that asks
    except Exception as error:
        pipe.send(error)
