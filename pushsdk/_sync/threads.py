"""Threads for the blocking work of a loop (host names, run files) that nobody waits for when the interpreter ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["DaemonThreads"]

P = ParamSpec("P")
T = TypeVar("T")
MOST = 16


class DaemonThreads(ThreadPoolExecutor):
    """A default executor for an event loop, of daemon threads.

    The one that a loop makes for itself takes no work once the main thread has come to its end, though other threads
    may go on sending, and then waits for a host name that does not come.
    """

    def __init__(self) -> None:
        super().__init__(MOST)
        self._todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._resting = threading.Semaphore(0)
        self._count = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have it called; from one thread only, that of the loop."""
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                    future.set_exception(error)

        self._todo.put(work)
        if not self._resting.acquire(blocking=False) and self._count < MOST:
            self._start()
        return future

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="pushsdk-work", daemon=True).start()
        except RuntimeError:
            # Python 3.12 starts none once the main thread has ended: then it waits for those there are.
            if not self._count:
                raise
        else:
            self._count += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads go when they have done what there is; whatever was asked, nobody waits for them."""
        for _ in range(self._count):
            self._todo.put(None)

    def _work(self) -> Any:
        while (work := self._todo.get()) is not None:
            work()
            # Not kept while it waits for the next: it may hold much.
            del work
            self._resting.release()
