"""An event loop in a thread: performs calls for other threads until it is closed or the interpreter exits.

Threads take no lock to reach the loop, because a signal handler or a finalizer may interrupt them and call as well. A
thread that waits for its call meanwhile calls the functions that the loop asks for (``caller_thread``).

Why not anyio's blocking portal: an unclosed one keeps the interpreter from exiting, a forked child hangs in its first
call, Ctrl-C leaves the call running, and a call costs four times as much.
"""

import asyncio
import atexit
import contextlib
import os
import queue
import selectors
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, cast

from pushsdk._core.error_mapping import closed_error
from pushsdk._core.errors import (
    ClientClosedError,
    ConfigurationError,
    OutcomeUnknownError,
    caller,
    warn_caller,
)
from pushsdk._core.results import DrainReport
from pushsdk._io.forks import in_child
from pushsdk._io.lifetime import CANCEL_TIMEOUT
from pushsdk._io.threads import DaemonThreads, system_limits

#: Seconds for the calls in flight when the interpreter exits, or when a client is dropped without being closed.
EXIT_DRAIN = 5.0
# Seconds for closing the connections after that.
EXIT_CLOSE = 1.0
# Seconds that one wait lasts: on Windows a waiting thread notices no signal, such as Ctrl-C.
WAIT_STEP = 0.5

T = TypeVar("T")
Callback = Callable[[], object]
Close = Callable[[float], Coroutine[Any, Any, DrainReport]]


class ThreadCall(Generic[T]):
    """A call that the loop performs while a thread waits for it. ``work`` makes the coroutine that the loop awaits.

    ``report`` is called in the loop for an interrupted call that was done already, or had not started: no event reports
    such a call.
    """

    def __init__(
        self, work: Callable[[], Coroutine[Any, Any, T]], report: Callable[["ThreadCall[T]"], None] = lambda _: None
    ) -> None:
        self._work = work
        self.report = report
        #: Functions for the waiting thread to call, put by the loop; None follows the last one.
        self.callbacks: queue.SimpleQueue[Callback | None] = queue.SimpleQueue()
        self.caller: list[Any] = [sys._getframe(2)]  # until the call is done
        # Set in the loop.
        self.task: Any = None
        self.started: bool = False
        self.done: bool = False
        self.result: Any = None
        self.error: BaseException | None = None

    async def run(self) -> None:
        """Await the work. Its exceptions are raised in the calling thread."""
        self.started = True
        caller.set(self.caller)
        current.set(self)
        try:
            self.result = await self._work()
        except asyncio.CancelledError:
            self.abort()
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            self.finish(error)
        else:
            self.finish()

    def finish(self, error: BaseException | None = None) -> None:
        """Release the waiting thread."""
        self.error = error
        self.done = True
        self.caller.clear()
        self.callbacks.put(None)

    def abort(self) -> None:
        """End a call that the loop does not perform, or performs no further. Once started, its outcome is UNKNOWN."""
        if self.done:
            return
        unknown = OutcomeUnknownError("outcome unknown: the client was closed during this call")
        self.finish(unknown if self.started else closed_error())


current: ContextVar[ThreadCall[Any]] = ContextVar("current")
"""The call in whose context a task in the loop runs."""


class LoopThread:
    """An event loop and its thread, from ``start`` to ``close``. ``close`` is awaited in the loop at the end."""

    def __init__(self, close: Close) -> None:
        self._close = close
        #: Closed after that, the last one first.
        self.closing_last: contextlib.AsyncExitStack = contextlib.AsyncExitStack()
        # Submitted calls that are not done.
        self._calls: set[ThreadCall[Any]] = set()
        #: True once the shutdown has begun. Set in the loop.
        self.closing: bool = False
        # True once the shutdown is complete. Set in the loop.
        self._closed = False
        self.selector: selectors.BaseSelector | None = None
        with system_limits():
            if sys.platform == "win32":  # pragma: no cover - no fork there, so no selector is needed
                self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
            else:
                self.selector = selectors.DefaultSelector()
                self.loop = asyncio.SelectorEventLoop(self.selector)
        self.loop.set_default_executor(DaemonThreads())
        self.thread: threading.Thread = threading.Thread(target=self._run, name="pushsdk", daemon=True)
        #: True in a forked child, where the thread does not run. Set by ``_detach``.
        self.is_inherited: bool = False
        in_child(self, LoopThread._detach)

    @property
    def has_started(self) -> bool:
        """Return True if the thread was started, even if it has ended."""
        return self.thread.ident is not None

    @property
    def is_current(self) -> bool:
        """Return True in the loop's thread."""
        # Not by number: a thread that was started after the loop's thread had ended may have the same.
        return threading.current_thread() is self.thread

    def check_thread(self) -> None:
        """Raise ConfigurationError in the loop's thread, which would wait for itself; warn in another loop's thread."""
        if self.is_current:
            raise ConfigurationError(
                "on_event and api_key callables must not call the client, which would wait for itself: "
                "call the client in another thread"
            )
        # A notebook has a loop, and its cells may block that.
        is_blocking = "ipykernel" not in sys.modules and asyncio._get_running_loop() is not None
        if is_blocking and not _is_green():
            warn_caller("PushClient blocks the event loop of this thread until its call ends: use AsyncPushClient")

    def start(self) -> None:
        """Start the thread. Raises NotSentError if it can't be started."""
        _open.add(self)
        try:
            if _is_green():
                raise ConfigurationError(
                    "gevent and eventlet run one event loop for all threads: keep one PushClient open at a time, and "
                    "use its with_options"
                )
            with system_limits():
                self.thread.start()
        except BaseException:
            if not self.has_started:
                _open.discard(self)
                self.loop.close()
            raise

    def perform(self, call: ThreadCall[T]) -> T:
        """Return the call's result, or raise its error. An exception that interrupts the waiting cancels the call.

        Raises ClientClosedError if the loop is closed.
        """
        try:
            self.submit(call)
            for callback in self.callbacks_of(call):
                callback()
            if call.error is not None:
                raise call.error
            return cast("T", call.result)
        except BaseException as error:
            if error is not call.error:
                self._abandon(call)
                raise
            # Breaks a cycle: the exception holds this frame, and the frame holds the call.
            call.error = None
            raise

    def submit(self, call: ThreadCall[Any]) -> None:
        """Have the loop perform the call, in a copy of this context. Raises ClientClosedError if the loop is closed."""
        self._calls.add(call)
        try:
            self.loop.call_soon_threadsafe(self._begin, call)
        except RuntimeError:
            self._calls.discard(call)
            raise closed_error() from None

    def callbacks_of(self, call: ThreadCall[Any]) -> Iterator[Callback]:
        """Iterate over the functions that the loop wants called in this thread, until the call is done."""
        while True:
            with contextlib.suppress(queue.Empty):
                callback = call.callbacks.get(timeout=WAIT_STEP)
                if callback is None:
                    return
                yield callback

    def close(self, drain: float) -> DrainReport:
        """Close, with ``drain`` seconds for the calls in flight, and wait until the thread has ended.

        If several threads close, the first gets the report, and all wait.
        """
        try:
            report = self.perform(ThreadCall(lambda: self._shut_down(drain)))
        except ClientClosedError:
            report = DrainReport()
        self.thread.join()
        return report

    def close_soon(self, drain: float) -> bool:
        """Close without waiting, for finalizers. Return True if this is the first close."""
        first = not self.closing
        try:
            self.submit(ThreadCall(lambda: self._shut_down(drain)))
        except ClientClosedError:
            return False
        return first

    def _abandon(self, call: ThreadCall[Any]) -> None:
        """Cancel a call that its thread no longer waits for, and give the call a moment to end."""
        try:
            self.loop.call_soon_threadsafe(self._cancel, call)
        except RuntimeError:
            return
        deadline = time.monotonic() + CANCEL_TIMEOUT
        while not call.done:
            try:
                call.callbacks.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return

    def _run(self) -> None:  # in the loop's thread, like all that it calls
        loop = self.loop
        try:
            while not self._closed:
                # A user's callback that raises them must not end other threads' calls.
                with contextlib.suppress(KeyboardInterrupt, SystemExit):
                    loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            _open.discard(self)
            # Submitted too late to start. After this point ``submit`` raises.
            for call in tuple(self._calls):
                call.abort()

    def _begin(self, call: ThreadCall[Any]) -> None:
        if self.closing:
            self._finish(call)
            return
        call.task = self.loop.create_task(call.run())
        call.task.add_done_callback(lambda _: self._finish(call))

    def _finish(self, call: ThreadCall[Any]) -> None:
        self._calls.discard(call)
        call.abort()  # does nothing unless the call was cancelled before it started

    def _cancel(self, call: ThreadCall[Any]) -> None:
        if call.task is not None:
            call.task.cancel()
        if not call.started:
            self._finish(call)
        if call.done:
            call.report(call)

    async def _shut_down(self, drain: float) -> DrainReport:
        if self.closing:
            return DrainReport()
        self.closing = True
        try:
            async with self.closing_last:
                return await self._close(drain)
        finally:
            # For example a broadcast whose thread is still reading its users.
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT)
            self._closed = True
            self.loop.stop()

    def _detach(self) -> None:
        """Detach from the copies that the fork has made: calls in flight and connections belong to the parent.

        File descriptors are redirected to the null device. Closing or writing them would reach the parent's peer or
        loop, and keeping them would hold connections open that the parent has closed. Other objects stay referenced
        by the thread's stack, so no finalizer for a call that continues in the parent runs here.
        """
        self.is_inherited = True
        _open.discard(self)
        for call in self._calls:
            call.callbacks = queue.SimpleQueue()  # the parent calls what is queued
            call.finish(OutcomeUnknownError("outcome unknown: the process forked; this call continues in the parent"))
        selector = self.selector
        if selector is None or not selector.get_map():  # the loop was closing
            return
        devnull = os.open(os.devnull, os.O_RDWR)
        own = getattr(selector, "fileno", None)
        for file in (*selector.get_map(), *([own()] if own is not None else [])):
            os.dup2(devnull, file, inheritable=False)
        os.close(devnull)


_open: set[LoopThread] = set()


def _is_green() -> bool:
    """Return True if our loop runs here, but for another thread: gevent and eventlet do that."""
    running = asyncio._get_running_loop()
    return any(thread.loop is running and not thread.is_current for thread in tuple(_open))


def _at_exit() -> None:
    """Close every open loop, and wait a bounded time. Threads that are no daemons have ended by now."""
    threads = tuple(_open)
    for thread in threads:
        thread.close_soon(EXIT_DRAIN)
    deadline = time.monotonic() + EXIT_DRAIN + EXIT_CLOSE
    for thread in threads:
        thread.thread.join(max(0.0, deadline - time.monotonic()))


atexit.register(_at_exit)
