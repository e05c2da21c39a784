"""Blocking work (host names, files) in threads. The interpreter's end does not wait for ``DaemonThreads``."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from pushsdk._core.errors import ClientClosedError, NotSentError

P = ParamSpec("P")
T = TypeVar("T")

#: Runs a function away from the event loop, and returns its result: ``in_thread``.
Offload = Callable[..., Awaitable[Any]]


@contextmanager
def system_limits() -> Iterator[None]:
    """Raise NotSentError if the system refuses a thread, or the open files that an event loop needs."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if "interpreter shutdown" in str(error):
            # Python 3.12 starts no thread once the main thread has ended.
            raise ClientClosedError("the interpreter is exiting: make the first call earlier") from None
        if isinstance(error, RuntimeError) and "new thread" not in str(error):  # such as an executor that was shut down
            raise
        raise NotSentError(
            f"no event loop or thread can be started ({error}): close clients and files that are no longer used, or "
            "raise the limits on open files and threads (ulimit -n, ulimit -u)"
        ) from None


class DaemonThreads(ThreadPoolExecutor):
    """An executor with at most ``most`` daemon threads; also as an event loop's default executor.

    The standard executor takes no work once the main thread has come to its end, though other threads may still send,
    and then waits for a host name that does not come.
    """

    def __init__(self, most: int = 16, *, name: str = "pushsdk-work") -> None:
        super().__init__(most)
        self._most = most
        self._name = name
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._resting = threading.Semaphore(0)
        self._count = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call. Call this from one thread at a time. Raises RuntimeError if no thread can be started."""
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - raised when the future is awaited
                    future.set_exception(error)

        # First a thread, then the work: work that is told to have failed must not be done.
        if not self._resting.acquire(blocking=False) and self._count < self._most:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
                self._count += 1
            except RuntimeError:
                # Python 3.12 starts none once the main thread has ended: then the work waits for the others.
                if not self._count:
                    raise
        self._todo.put(work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the queued calls. Never waits for them, whatever ``wait`` says."""
        for _ in range(self._count):
            self._todo.put(None)

    def _work(self) -> Any:
        while (work := self._todo.get()) is not None:
            work()
            # Not kept while it waits for the next: it may hold much.
            del work
            self._resting.release()


async def inline(work: Callable[[], T], *_: object) -> T:
    """Run the work in the event loop, which it blocks."""
    return work()


async def in_thread(work: Callable[[], Any], cancelled: Callable[[], object] = lambda: None) -> Any:
    """Run blocking work in a thread. A cancellation waits for its end: two threads must not use one file at once.

    ``cancelled`` is called before it waits. Raises NotSentError if no thread can be started.
    """
    # Not a task, as with to_thread: tasks are cancelled when their loop is closed, but a thread continues.
    with system_limits():
        thread = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, work)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        cancelled()
        await settled(thread)
        raise


async def settled(task: asyncio.Future[Any]) -> bool:
    """Wait until a task ends, even if the caller is cancelled. Return True if the task has a result."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            # Once more: the first one is about to be raised.
            continue
    return not task.cancelled() and task.exception() is None
