"""The loop in its thread: takes the calls of other threads in, performs them, and comes to an end.

What threads say to it takes no lock: a signal handler or a finalizer may come in between and call, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from pushsdk._core.errors import ClientClosedError
from pushsdk._core.results import DrainReport
from pushsdk._io.clock import fork_generation
from pushsdk._io.threads import DaemonThreads
from pushsdk._sync.call import Call

__all__ = ["Late", "Worker", "closed"]

# Seconds that a call gets to end when its thread has stopped waiting, or the client was closed over it.
UNWIND = 5.0

Close = Callable[[float], Coroutine[Any, Any, DrainReport]]
Late = Callable[[Call], None]


def closed() -> ClientClosedError:
    """What every call is told after the end."""
    return ClientClosedError("the client is closed: make a new one")


class Worker:
    """One loop and its thread, from ``thread.start()`` to ``end``."""

    def __init__(self, close: Close) -> None:
        self._close = close
        self.forks = fork_generation()
        self._inbox: deque[Call] = deque()
        # Whether the loop is about to look into the inbox.
        self._awake = False
        self._calls: set[Call] = set()
        #: No more calls. Set by ``end``.
        self.closing = False
        # Whoever takes it begins the end: one thread of all.
        self._ends = [True]
        # Its call. Set by ``end``.
        self._ending: Call | None = None
        # Set in the loop, when it has nothing left to do.
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

    def submit(self, call: Call) -> None:
        """Have the call performed. One wake-up of the loop does for all that come until it looks."""
        self._inbox.append(call)
        if not self._awake:
            self._awake = True
            self.wake()

    def wake(self) -> None:
        """Have the loop look into the inbox. Raises ClientClosedError after its end."""
        try:
            self.loop.call_soon_threadsafe(self._take)
        except RuntimeError:
            raise closed() from None

    def abandon(self, call: Call, late: Late | None = None) -> None:
        """The thread stops waiting: the call is cancelled, and gets a moment to end.

        ``late`` is called in the loop where the call had ended before, or had not begun: then nobody else tells.
        """
        if self.forks != fork_generation():
            return
        try:
            self.loop.call_soon_threadsafe(self._cancel, call, late)
        except RuntimeError:
            return
        until = time.monotonic() + UNWIND
        while not call.ended:
            try:
                call.box.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return

    def end(self, drain: float) -> Call | None:
        """Begin the end: ``drain`` seconds for what is on its way. None where it has begun before."""
        try:
            self._ends.pop()
        except IndexError:
            return None
        call = self._ending = Call()
        call.work = lambda: self._end(drain)
        try:
            self.closing = True
            self.submit(call)
        except BaseException:
            self.abandon(call)
            if call.task is None:
                self._ends.append(True)
            raise
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
            self.closing = True
            loop.close()
            # From now on, who comes finds the loop closed.
            self._awake = False
            self._ends.clear()
            while self._inbox:
                self._inbox.popleft().end(closed())

    def _take(self) -> None:
        # In this order: who comes in between is seen now, or wakes us again.
        self._awake = False
        inbox, calls, create_task = self._inbox, self._calls, self.loop.create_task
        while inbox:
            call = inbox.popleft()
            calls.add(call)
            call.task = create_task(call.perform(calls), context=call.context)

    def _cancel(self, call: Call, late: Late | None) -> None:
        self._take()
        if call is self._ending and call.task is not None and not call.begun:
            # Cancelled before it begins, the end would never come: nobody else may begin it.
            self.loop.call_soon(self._cancel, call, late)
            return
        if call.task is not None and not call.ended:
            call.task.cancel()
        if not call.begun:
            self._calls.discard(call)
            call.end(asyncio.CancelledError())
        if call.ended and late is not None:
            late(call)

    async def _end(self, drain: float) -> DrainReport:
        try:
            return await self._close(drain)
        finally:
            own = asyncio.current_task()
            # A broadcast that reads its users from a thread that is in no hurry.
            rest = [call.task for call in self._calls if call.task is not None and call.task is not own]
            for task in rest:
                task.cancel()
            if rest:
                await asyncio.wait(rest, timeout=UNWIND)
            self._over = True
            self.loop.stop()
