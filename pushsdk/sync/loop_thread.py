"""An event loop in a thread: performs the calls of other threads until it is closed or the interpreter ends.

Threads take no lock to reach the loop: a signal handler or a finalizer may interrupt them and call, too. What a caller
gives to a call, an iterable or a callback, is used in the caller's thread while that waits.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import itertools
import os
import queue
import selectors
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from pushsdk._audience.chunks import ChunkSource, RequestSource
from pushsdk._core.error_mapping import closed_error
from pushsdk._core.errors import ClientClosedError, ConfigurationError, OutcomeUnknownError, ValidationError
from pushsdk._core.results import DrainReport
from pushsdk._io.forks import in_child
from pushsdk._io.threads import DaemonThreads

__all__ = ["AT_EXIT", "LoopThread", "Reader", "ThreadCall", "read", "readable"]

#: Seconds for what is in flight when the interpreter ends, or the client was dropped without being closed.
AT_EXIT = 5.0
# Seconds for closing the connections after that.
GRACE = 1.0
# Seconds that a call gets to end when its thread has stopped waiting, or the client was closed over it.
UNWIND = 5.0
# Seconds of one wait: on Windows no signal, such as Ctrl-C, is noticed during it.
CHECK_EVERY = 0.5
# The most items that are handed over together, the most seconds they are collected for, and how many are read between
# two looks at the clock.
BLOCK = 10_000
BLOCK_SECONDS = 0.02
CLOCK_EVERY = 50
# In memory, or read in a thread of its own anyway. Texts and mappings are refused elsewhere.
IN_MEMORY = (str, bytes, bytearray, memoryview, Mapping, list, tuple, set, frozenset, range)

Callback = Callable[[], object]
Close = Callable[[float], Coroutine[Any, Any, DrainReport]]


class ThreadCall:
    """One call: a thread waits for it, the loop performs it."""

    __slots__ = ("begun", "callbacks", "ended", "error", "result", "task", "work")

    #: Makes the coroutine that the loop awaits; called in the loop. Set by the thread.
    work: Callable[[], Coroutine[Any, Any, Any]]

    def __init__(self) -> None:
        #: Work for the waiting thread, from the loop. None comes last, when the call has ended.
        self.callbacks: SimpleQueue[Callback | None] = SimpleQueue()
        # Set by the loop.
        self.task: asyncio.Task[None] | None = None
        self.begun: bool = False
        self.ended: bool = False
        self.result: Any = None
        self.error: BaseException | None = None

    async def perform(self) -> None:
        """Do the work. Any exception belongs to the thread that called."""
        self.begun = True
        try:
            self.result = await self.work()
        except asyncio.CancelledError:
            self.cut_off()
        except BaseException as error:  # noqa: BLE001 - raised again, in the thread that called
            self.end(error)
        else:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Release the waiting thread."""
        self.error = error
        self.ended = True
        self.callbacks.put(None)

    def cut_off(self) -> None:
        """End a call that the loop will not perform, or not to its end: then the outcome is unknown."""
        if self.ended:
            return
        unknown = OutcomeUnknownError("outcome unknown: the client was closed before this call had ended")
        self.end(unknown if self.begun else closed_error())


Report = Callable[[ThreadCall], None]


class LoopThread:
    """One loop and its thread, from ``start`` to ``close``."""

    def __init__(self, close: Close) -> None:
        self._close = close
        # Calls that were submitted and have not ended.
        self._calls: set[ThreadCall] = set()
        #: True once the shutdown has begun. Set in the loop.
        self.closing = False
        # True once the loop has nothing left to do. Set in the loop.
        self._over = False
        self.selector: selectors.BaseSelector | None = None
        if sys.platform == "win32":  # pragma: no cover - and no fork there, for which the selector is kept
            self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        else:
            self.selector = selectors.DefaultSelector()
            self.loop = asyncio.SelectorEventLoop(self.selector)
        self.loop.set_default_executor(DaemonThreads())
        self.thread = threading.Thread(target=self._run, name="pushsdk", daemon=True)
        #: True in a forked child: the thread runs in the parent only. Set by ``_leave``.
        self.is_inherited = False
        in_child(self, LoopThread._leave)

    # -- from any thread ----------------------------------------------------------------------------------------

    @property
    def has_started(self) -> bool:
        """Return True if the thread was started; it may have ended since."""
        return self.thread.ident is not None

    @property
    def is_current(self) -> bool:
        """Return True in the loop's own thread, which can't wait for the loop."""
        return self.thread.ident == threading.get_ident()

    def check_thread(self) -> None:
        """Raise ConfigurationError in the loop's own thread."""
        if self.is_current:
            raise ConfigurationError(
                "the client was called in its own thread, by on_event or an api_key callable: it would wait for "
                "itself; have another thread call it"
            )

    def start(self) -> None:
        """Start the thread. Raises ClientClosedError if the interpreter is ending."""
        _open.add(self)
        try:
            self.thread.start()
        except BaseException as error:
            if not self.has_started:
                _open.discard(self)
                self.loop.close()
            if isinstance(error, RuntimeError) and "interpreter shutdown" in str(error):
                # Python 3.12, once the main thread has ended.
                raise ClientClosedError("the interpreter is ending: make the first call before") from None
            raise

    def perform(self, call: ThreadCall, report: Report | None = None) -> Any:
        """Have the loop perform the call, and wait. An exception that ends the waiting cancels the call.

        ``report`` is called in the loop if the call had ended before, or had not begun: then nothing else reports it.
        Raises ClientClosedError.
        """
        try:
            self.submit(call)
            for callback in self.callbacks_of(call):
                callback()
            if call.error is not None:
                raise call.error
            return call.result
        except BaseException as error:
            if error is not call.error:
                self._abandon(call, report)
                raise
            # An exception holds the frames that it went through, and they hold the call.
            call.error = None
            raise

    def submit(self, call: ThreadCall) -> None:
        """Have the loop perform the call. Raises ClientClosedError after the end."""
        self._calls.add(call)
        try:
            # Copies the caller's context, with its spans and the like, for the task that begins there.
            self.loop.call_soon_threadsafe(self._begin, call)
        except RuntimeError:
            self._calls.discard(call)
            raise closed_error() from None

    def callbacks_of(self, call: ThreadCall) -> Iterator[Callback]:
        """Iterate over what the loop asks the waiting thread to do, until the call has ended."""
        while True:
            with contextlib.suppress(queue.Empty):
                callback = call.callbacks.get(timeout=CHECK_EVERY)
                if callback is None:
                    return
                yield callback

    def close(self, drain: float) -> DrainReport:
        """Close, give what is in flight ``drain`` seconds, and wait until the thread has ended.

        If several threads close, the first gets the report, and all of them wait.
        """
        try:
            report: DrainReport = self.perform(self._shutdown_call(drain))
        except ClientClosedError:
            report = DrainReport()
        self.thread.join()
        return report

    def close_soon(self, drain: float) -> bool:
        """The same without waiting, for finalizers. Return True if nothing had closed it before."""
        first = not self.closing
        try:
            self.submit(self._shutdown_call(drain))
        except ClientClosedError:
            return False
        return first

    def _abandon(self, call: ThreadCall, report: Report | None) -> None:
        """Cancel a call that its thread no longer waits for, and give it a moment to end."""
        try:
            self.loop.call_soon_threadsafe(self._cancel, call, report)
        except RuntimeError:
            return
        until = time.monotonic() + UNWIND
        while not call.ended:
            try:
                call.callbacks.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return

    def _shutdown_call(self, drain: float) -> ThreadCall:
        call = ThreadCall()
        call.work = lambda: self._shut_down(drain)
        return call

    # -- in the thread of the loop ------------------------------------------------------------------------------

    def _run(self) -> None:
        loop = self.loop
        try:
            while not self._over:
                # A user's callback that raises to end the interpreter must not end the calls of other threads.
                with contextlib.suppress(KeyboardInterrupt, SystemExit):
                    loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            _open.discard(self)
            # Submitted before the loop was closed; a later call finds it closed.
            for call in tuple(self._calls):
                call.cut_off()

    def _begin(self, call: ThreadCall) -> None:
        if self.closing:  # a task that begins now might not come to its end
            self._ended(call)
            return
        call.task = self.loop.create_task(call.perform())
        call.task.add_done_callback(lambda _: self._ended(call))

    def _ended(self, call: ThreadCall) -> None:
        self._calls.discard(call)
        call.cut_off()  # did not begin

    def _cancel(self, call: ThreadCall, report: Report | None) -> None:
        if call.task is not None:
            call.task.cancel()
        if not call.begun:
            self._calls.discard(call)
            call.cut_off()
        if call.ended and report is not None:
            report(call)

    async def _shut_down(self, drain: float) -> DrainReport:
        if self.closing:
            return DrainReport()
        self.closing = True
        try:
            return await self._close(drain)
        finally:
            # For example a broadcast whose thread is still reading its users.
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            if rest:
                await asyncio.wait(rest, timeout=UNWIND)
            self._over = True
            self.loop.stop()

    # -- in a forked child --------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Let go of what the fork has copied: the calls in flight are the parent's, and so are their connections.

        The copies of the parent's files are pointed to nowhere: closing and writing them would reach the parent's
        peer or loop, and keeping them would keep connections open that the parent has closed. The rest is never
        freed, as the thread's stack refers to it: no end of a call that goes on in the parent runs here.
        """
        self.is_inherited = True
        _open.discard(self)
        for call in self._calls:
            # Work that is queued for this thread is the parent's to do.
            while not call.callbacks.empty():
                call.callbacks.get()
            call.end(
                OutcomeUnknownError("outcome unknown: the process was forked in this call, which goes on in the parent")
            )
        selector = self.selector
        if selector is None or not selector.get_map():  # the loop was just closing
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        own = getattr(selector, "fileno", None)
        for file in (*selector.get_map(), *([own()] if own is not None else [])):
            os.dup2(nowhere, file, inheritable=False)
        os.close(nowhere)


# -- the end of the interpreter: no thread survives it -----------------------------------------------------------

_open: set[LoopThread] = set()


def _at_exit() -> None:
    """Close what is open. Threads that are no daemons have ended by now; nothing waits for the others."""
    threads = tuple(_open)
    for each in threads:
        each.close_soon(AT_EXIT)
    until = time.monotonic() + AT_EXIT + GRACE
    for each in threads:
        each.thread.join(max(0.0, until - time.monotonic()))


atexit.register(_at_exit)


# -- a caller's iterable ------------------------------------------------------------------------------------------


def read(user_ids: object, most: int) -> Any:
    """Read the ids of one send, one more than the most at most."""
    if isinstance(user_ids, IN_MEMORY) or not isinstance(user_ids, Iterable):
        return user_ids
    return tuple(itertools.islice(user_ids, most + 1))


def readable(name: str, items: object, ask: Callable[[Callback], None]) -> Any:
    """Return users or requests in a form that the loop can read. Raises ValidationError if they are async."""
    if isinstance(items, AsyncIterable):
        raise ValidationError(
            f"{name} is an async iterable, which belongs to an event loop: pass a plain one, or use AsyncPushClient"
        )
    if isinstance(items, (*IN_MEMORY, ChunkSource, RequestSource)) or not isinstance(items, Iterable):
        return items
    return Reader(items, ask)


class Reader:
    """An async iterable for the loop; each block of it is read by the thread that waits, which ``ask`` reaches."""

    def __init__(
        self, items: Iterable[Any], ask: Callable[[Callback], None], *, block: int = BLOCK, step: int = CLOCK_EVERY
    ) -> None:
        self._items = items
        self._ask = ask
        self._block = block
        self._step = step
        # Made in the thread that reads, at the first block.
        self._iterator: Iterator[Any] | None = None
        self._ended = False

    async def __aiter__(self) -> AsyncGenerator[Any]:
        while not self._ended:
            block: Future[list[Any]] = Future()
            self._ask(functools.partial(self._hand_over, block))
            try:
                items = await asyncio.wrap_future(block)
            except asyncio.CancelledError:
                # The thread no longer waits, or the client was closed over it.
                raise ClientClosedError(
                    "the client was closed before the plan was finished: nothing was sent"
                ) from None
            for item in items:
                yield item

    def _hand_over(self, block: Future[list[Any]]) -> None:
        """In the thread that waits: read a block. An exception of the iterable's is raised where the loop reads."""
        if not block.set_running_or_notify_cancel():
            return
        try:
            items = self._read_on()
        except Exception as error:  # noqa: BLE001 - it comes back to the caller with the call
            block.set_exception(error)
        else:
            block.set_result(items)

    def _read_on(self) -> list[Any]:
        if self._iterator is None:
            self._iterator = iter(self._items)
        block: list[Any] = []
        due = time.monotonic() + BLOCK_SECONDS
        while some := list(itertools.islice(self._iterator, self._step)):
            block += some
            if len(block) >= self._block or time.monotonic() >= due:
                return block
        self._ended = True
        return block
