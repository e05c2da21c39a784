"""The journal as the runner sees it: group commits, and slow work kept away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pushsdk._broadcast.journal import Journal
from pushsdk._broadcast.plan import Event
from pushsdk._core.errors import RunFileError
from pushsdk._io.offload import Offload

__all__ = ["Recorder"]


class Recorder:
    """Writes events in groups: what comes in one loop turn, or while a commit is under way, shares the next commit.

    A commit that need not reach the disk takes tens of microseconds and is made in the event loop: a thread would
    cost more, and under load up to 5 ms of latency, the interpreter's switch interval. One that must (``durable``) is
    made in a thread.
    """

    def __init__(self, journal: Journal, *, loop: asyncio.AbstractEventLoop, offload: Offload | None) -> None:
        self._journal = journal
        self._loop = loop
        # Set where commits are made in a thread.
        self._offload = offload
        self._pending: list[Event] = []
        # Resolved when what is pending has been written, or can't be.
        self._written: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        #: Why nothing can be recorded any more; then nothing may be sent either.
        self.failed: RunFileError | None = None

    def note(self, event: Event) -> None:
        """Have it written with the next commit."""
        self._pending.append(event)
        self._arrange()

    async def claim(self, event: Event) -> None:
        """Committed when this returns. Raises RunFileError where it can't be."""
        self._pending.append(event)
        await self._arrange()
        self._check()

    async def flush(self) -> None:
        """Wait until everything noted so far is committed. Raises RunFileError where it can't be."""
        while self._written is not None or self._task is not None:
            await asyncio.wait([self._task or self._arrange()])
        self._check()

    def _check(self) -> None:
        if self.failed is not None:
            raise self.failed

    def _arrange(self) -> asyncio.Future[None]:
        if self._written is None:
            self._written = self._loop.create_future()
            if self._offload is None:
                self._loop.call_soon(self._commit)
            elif self._task is None:
                self._task = self._loop.create_task(self._commit_in_thread(self._offload))
        return self._written

    def _commit(self) -> None:
        events, written = self._take()
        self._write(events)
        if not written.done():
            written.set_result(None)

    async def _commit_in_thread(self, offload: Offload) -> None:
        try:
            while self._written is not None:
                events, written = self._take()
                await offload(lambda events=events: self._write(events))  # type: ignore[misc]
                if not written.done():
                    written.set_result(None)
        finally:
            self._task = None

    def _take(self) -> tuple[list[Event], asyncio.Future[None]]:
        events, written = self._pending, self._written
        assert written is not None  # noqa: S101 - arranged with the first event
        self._pending, self._written = [], None
        return events, written

    def _write(self, events: Sequence[Event]) -> None:
        if self.failed is None:
            try:
                self._journal.write(events)
            except RunFileError as error:
                self.failed = error
