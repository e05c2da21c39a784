"""A fake of the second effect, time: an event loop on which a wait costs nothing.

Its clock jumps to the next timer as soon as nothing else can run. No sockets, no threads: only what waits for timers
and for other tasks runs here.
"""

from __future__ import annotations

import asyncio
import functools
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from pushsdk._public import set_public_module

__all__ = ["HangError", "VirtualLoop", "virtual_time"]

P = ParamSpec("P")
# Not a round number of anything: absolute and relative times, and ticks, can't be confused unseen.
_START = 1000.0013


class HangError(AssertionError):
    """Nothing can run and no timer is set: some task waits for what will never come on virtual time."""


class _Selector(selectors.SelectSelector):
    """Never blocks: the time that a select would take has passed when it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.now = _START

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            waiting = "\n  ".join(map(repr, asyncio.all_tasks(asyncio.get_running_loop())))
            raise HangError(
                "nothing can run and no timer is set (sockets and threads are not served on virtual time);"
                f" these tasks wait:\n  {waiting}"
            )
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer; a ``loop_factory`` for `asyncio.Runner`."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._virtual.now


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate an async test: it becomes a sync one that runs on a `VirtualLoop`, with seeded dice.

    So it needs no pytest plugin, and random waits are the same each time. Its fixtures are those of a sync test.
    Raises `HangError` where it waits for what will never come.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        dice = random.getstate()
        random.seed(0)
        try:
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                runner.run(test(*args, **kwargs))
        finally:
            random.setstate(dice)

    return run


set_public_module(__name__, "pushsdk.testing")
