"""A fake for time: an event loop whose clock jumps to the next timer as soon as no task can run.

Without sockets and threads: tasks may wait only for timers and for other tasks.
"""

import asyncio
import functools
import inspect
import random
import selectors
import socket
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


class HangError(AssertionError):
    """A task waits forever: no task can run and no timer is set."""


class _Selector(selectors.SelectSelector):
    """A selector that never blocks but advances the clock by the timeout."""

    now = 1000.0013  # not a round number, so that a test fails if it confuses absolute and relative times

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            waiting = "\n  ".join(map(repr, asyncio.all_tasks(asyncio.get_running_loop())))
            raise HangError(
                "no task can run and no timer is set (virtual time serves no sockets or threads);"
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
        """Return the virtual time in seconds."""
        return self._virtual.now

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Refuse: no network is as fast as virtual time. Of an error about addresses the client shows the text."""
        raise socket.gaierror(socket.EAI_FAIL, "virtual time serves no sockets, use FakeService")


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Turn an async test into a sync test on a `VirtualLoop`, with a seeded random module.

    Needs no pytest plugin; random delays are equal in every run, and fixtures are as in a sync test. The test raises
    `HangError` if it waits forever.
    """

    if not inspect.iscoroutinefunction(inspect.unwrap(test)):
        raise TypeError(f"virtual_time needs a test with `async def`; got {getattr(test, '__qualname__', test)}")

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(f"{test.__name__} has its own event loop: call it without await, outside of async code")
        state = random.getstate()
        random.seed(0)
        try:
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                runner.run(test(*args, **kwargs))
        finally:
            random.setstate(state)

    return run
