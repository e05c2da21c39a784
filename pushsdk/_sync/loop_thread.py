"""An event loop in a thread: performs the calls of other threads until it is closed or the interpreter ends.

Threads take no lock to reach it: a signal handler or a finalizer may interrupt them and call, too.
"""

from __future__ import annotations

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
from queue import SimpleQueue
from typing import Any

from pushsdk._core.errors import ClientClosedError, ConfigurationError, OutcomeUnknownError
from pushsdk._core.explain import closed_error
from pushsdk._core.results import DrainReport
from pushsdk._io.clock import fork_generation
from pushsdk._io.threads import DaemonThreads

__all__ = ["AT_EXIT", "Call", "LoopThread"]

#: Seconds for what is in flight when the interpreter ends, or the client was dropped without being closed.
AT_EXIT = 5.0
# Seconds for closing the connections after that.
GRACE = 1.0
# Seconds that a call gets to end when its thread has stopped waiting, or the client was closed over it.
UNWIND = 5.0
# Seconds between two checks of a waiting thread whether the loop's thread is still there.
CHECK_EVERY = 0.5

Callback = Callable[[], object]
Close = Callable[[float], Coroutine[Any, Any, DrainReport]]


class Call:
    """One call: a thread waits for it, the loop performs it."""

    __slots__ = ("begun", "callbacks", "ended", "error", "result", "task", "work")

    #: Makes the coroutine that the loop awaits; called in the loop. Set by the thread.
    work: Callable[[], Coroutine[Any, Any, Any]]

    def __init__(self) -> None:
        #: What the loop asks the waiting thread to do. None comes last, when the call has ended.
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
        if not self.ended:
            self.end(asyncio.CancelledError() if self.begun else closed_error())


Late = Callable[[Call], None]


class LoopThread:
    """One loop and its thread, from ``start`` to ``close``."""

    def __init__(self, close: Close) -> None:
        self._close = close
        self._forks = fork_generation()
        # Calls that were submitted and have not ended.
        self._calls: set[Call] = set()
        #: Whether the shutdown has begun. Set in the loop.
        self.closing = False
        # Whether the loop has nothing left to do. Set in the loop.
        self._over = False
        self.selector: selectors.BaseSelector | None = None
        if sys.platform == "win32":  # pragma: no cover - and no fork there, for which the selector is kept
            self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        else:
            self.selector = selectors.DefaultSelector()
            self.loop = asyncio.SelectorEventLoop(self.selector)
        self.loop.set_default_executor(DaemonThreads())
        self.thread = threading.Thread(target=self._run, name="pushsdk", daemon=True)

    # -- from any thread ----------------------------------------------------------------------------------------

    @property
    def is_inherited(self) -> bool:
        """Whether a fork has copied it: its thread runs in the parent only."""
        return self._forks != fork_generation()

    @property
    def has_started(self) -> bool:
        """Whether the thread was started; it may have ended since."""
        return self.thread.ident is not None

    @property
    def is_current(self) -> bool:
        """Whether the caller is the loop's own thread, which can't wait for the loop."""
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
            if _ending:
                raise ClientClosedError("the interpreter is ending: nothing more is sent")
            self.thread.start()
        except BaseException as error:
            if not self.has_started:
                _open.discard(self)
                self.loop.close()
            if isinstance(error, RuntimeError) and "interpreter shutdown" in str(error):
                # Python 3.12, once the main thread has ended.
                raise ClientClosedError("the interpreter is ending: make the first call before") from None
            raise

    def perform(self, call: Call, late: Late | None = None) -> Any:
        """Have the loop perform the call, and wait. An exception that ends the waiting cancels the call.

        ``late`` is called in the loop if the call had ended before, or had not begun: then nothing else reports it.
        Raises ClientClosedError.
        """
        try:
            self.submit(call)
            for callback in self.callbacks_of(call):
                if callback is not None:
                    callback()
            if call.error is not None:
                raise call.error
            return call.result
        except BaseException as error:
            if error is not call.error:
                self._abandon(call, late)
                raise
            # An exception holds the frames that it went through, and they hold the call.
            call.error = None
            raise

    def submit(self, call: Call) -> None:
        """Have the loop perform the call. Raises ClientClosedError after the end."""
        self._calls.add(call)
        try:
            # Copies the caller's context, with its spans and the like, for the task that begins there.
            self.loop.call_soon_threadsafe(self._begin, call)
        except RuntimeError:
            self._calls.discard(call)
            raise closed_error() from None

    def callbacks_of(self, call: Call) -> Iterator[Callback | None]:
        """What the loop asks this thread to do, until the call has ended; None if it asked nothing for a while."""
        while True:
            try:
                callback = call.callbacks.get(timeout=CHECK_EVERY)
            except queue.Empty:
                self.check(call)
                yield None
            else:
                if callback is None:
                    break
                yield callback
        if isinstance(call.error, asyncio.CancelledError):
            raise OutcomeUnknownError("outcome unknown: the client was closed before this call had ended")

    def check(self, call: Call) -> None:
        """Make sure that the call can still end. Raises OutcomeUnknownError in a child of a fork."""
        if self.is_inherited:
            raise OutcomeUnknownError(
                "outcome unknown: the process was forked in this call, which goes on in the parent"
            )
        if not self.thread.is_alive():
            call.cut_off()

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

    def _abandon(self, call: Call, late: Late | None) -> None:
        """Cancel a call that its thread no longer waits for, and give it a moment to end."""
        if self.is_inherited:
            return
        try:
            self.loop.call_soon_threadsafe(self._cancel, call, late)
        except RuntimeError:
            return
        until = time.monotonic() + UNWIND
        while not call.ended:
            try:
                call.callbacks.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return

    def _shutdown_call(self, drain: float) -> Call:
        call = Call()
        call.work = lambda: self._shut_down(drain)
        return call

    # -- in the thread of the loop ------------------------------------------------------------------------------

    def _run(self) -> None:
        loop = self.loop
        try:
            while not self._over:
                # What a callback of the user's raises to end the interpreter must not end everybody's calls.
                with contextlib.suppress(KeyboardInterrupt, SystemExit):
                    loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            _open.discard(self)
            # Submitted before the loop was closed; a later call finds it closed.
            for call in tuple(self._calls):
                call.cut_off()

    def _begin(self, call: Call) -> None:
        if self.closing:  # a task that begins now might not come to its end
            self._ended(call)
            return
        call.task = self.loop.create_task(call.perform())
        call.task.add_done_callback(lambda _: self._ended(call))

    def _ended(self, call: Call) -> None:
        self._calls.discard(call)
        call.cut_off()  # did not begin

    def _cancel(self, call: Call, late: Late | None) -> None:
        if call.task is not None:
            call.task.cancel()
        if not call.begun:
            self._calls.discard(call)
            call.end(asyncio.CancelledError())
        if call.ended and late is not None:
            late(call)

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


# -- the end of the interpreter, and forks: no thread survives either of them ------------------------------------

_open: set[LoopThread] = set()
_inherited: list[LoopThread] = []
_ending = False


def _at_exit() -> None:
    """Close what is open. Threads that are no daemons have ended by now; nothing waits for the others."""
    global _ending
    _ending = True
    threads = tuple(_open)
    for each in threads:
        each.close_soon(AT_EXIT)
    until = time.monotonic() + AT_EXIT + GRACE
    for each in threads:
        each.thread.join(max(0.0, until - time.monotonic()))


def _in_child() -> None:
    """Let go of what a fork has copied: the calls in flight are the parent's, and so are their connections.

    The copies of its files are pointed to nowhere: closing and writing them would reach the parent's peer or loop, and
    keeping them would keep connections open that the parent has closed. The rest is kept for good: collected, it would
    run the ends of calls that go on elsewhere.
    """
    global _ending
    _ending = False
    threads = tuple(_open)
    _open.clear()
    for each in threads:
        _inherited.append(each)
        _make_immortal(each)
        _disconnect(each)


def _disconnect(inherited: LoopThread) -> None:
    selector = inherited.selector
    if selector is None or not selector.get_map():  # the loop was just closing
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    own = getattr(selector, "fileno", None)
    for file in (*selector.get_map(), *([own()] if own is not None else [])):
        os.dup2(nowhere, file, inheritable=False)
    os.close(nowhere)


def _make_immortal(inherited: LoopThread) -> None:
    """Also beyond the end of the child's interpreter, which would take every module and what it holds apart."""
    try:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
    except (ImportError, AttributeError):  # pragma: no cover - not CPython
        pass


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows
    os.register_at_fork(after_in_child=_in_child)
