"""The journal as the runner sees it: group commits, and slow work kept away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pushsdk._broadcast.journal import Journal
from pushsdk._broadcast.plan import Ending, Event, Kind
from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._io.offload import Offload

__all__ = ["Recorder"]

CLAIMS = frozenset({Kind.CLAIMED, Kind.RESENT})


class Recorder:
    """Writes events in groups: what comes in one loop turn, or while a commit is under way, shares the next commit.

    A commit that need not reach the disk takes tens of microseconds and is made in the event loop: a thread would
    cost more, and under load up to 5 ms of latency, the interpreter's switch interval. One that must (``durable``), or
    that another program's lock holds up, is made in a thread.
    """

    def __init__(
        self, journal: Journal, *, loop: asyncio.AbstractEventLoop, offload: Offload, durable: bool = False
    ) -> None:
        self._journal = journal
        self._loop = loop
        self._offload = offload
        self._durable = durable
        self._pending: list[Event] = []
        # Resolved when what is pending has been written, or can't be.
        self._written: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        #: Users of what is claimed and not settled yet, by what has been written.
        self.on_their_way = 0
        #: Why nothing can be recorded any more; then nothing may be sent either.
        self.failed: RunFileError | None = None

    def note(self, event: Event) -> None:
        """Have it written with the next commit."""
        self._pending.append(event)
        self._arrange()

    async def claim(self, event: Event) -> None:
        """Committed when this returns. Raises RunFileError where it can't be."""
        self._pending.append(event)
        # A cancelled claim must not take along those that share its commit.
        await asyncio.shield(self._arrange())
        self._check()

    async def flush(self) -> None:
        """Wait until everything noted so far is committed. Raises RunFileError where it can't be."""
        while self._written is not None or self._task is not None:
            await asyncio.wait([self._task or self._arrange()])
        self._check()

    async def end(self, ending: Ending | None) -> None:
        """See ``Journal.end``."""
        if self._durable:
            await self._offload(lambda: self._journal.end(ending))
        else:
            self._journal.end(ending)

    def _check(self) -> None:
        if self.failed is not None:
            raise self.failed

    def _arrange(self) -> asyncio.Future[None]:
        if self._written is None:
            self._written = self._loop.create_future()
            if self._task is None:
                if self._durable:
                    self._begin_in_thread()
                else:
                    self._loop.call_soon(self._commit)
        return self._written

    def _commit(self) -> None:
        if self._write(self._pending, at_once=True):
            self._done(*self._take())
        else:
            self._begin_in_thread()

    def _begin_in_thread(self) -> None:
        self._task = self._loop.create_task(self._commit_in_thread())

    async def _commit_in_thread(self) -> None:
        try:
            while self._written is not None:
                events, written = self._take()
                try:
                    await self._offload(lambda events=events: self._write(events))  # type: ignore[misc]
                except Exception as error:  # noqa: BLE001 - such as a thread that can't be started
                    self._fail(error)
                self._done(events, written)
        finally:
            self._task = None

    def _take(self) -> tuple[list[Event], asyncio.Future[None]]:
        events, written = self._pending, self._written
        assert written is not None  # noqa: S101 - arranged with the first event
        self._pending, self._written = [], None
        return events, written

    def _done(self, events: Sequence[Event], written: asyncio.Future[None]) -> None:
        if self.failed is None:
            for event in events:
                users = event.stop - event.start
                self.on_their_way += users if event.kind in CLAIMS else -users
        written.set_result(None)

    def _write(self, events: Sequence[Event], *, at_once: bool = False) -> bool:
        """False where it has to wait for another program, and that was not wanted."""
        if self.failed is None:
            try:
                return self._journal.write(events, at_once=at_once)
            except Exception as error:  # noqa: BLE001 - whatever it is: what was claimed is not known to be written
                self._fail(error)
        return True

    def _fail(self, error: Exception) -> None:
        if isinstance(error, RunFileError):
            self.failed = error
        else:
            why = f"the run can't be recorded any more: {type(error).__name__}"
            self.failed = RunFileError(why, outcome=Outcome.UNKNOWN)
