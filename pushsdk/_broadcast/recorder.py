"""The journal as the runner sees it: group commits, and slow work kept away from the event loop."""

from __future__ import annotations

import asyncio
import functools

import msgspec

from pushsdk._broadcast.journal import Journal
from pushsdk._broadcast.plan import Ending, Event, Kind
from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._io.offload import Offload

__all__ = ["Recorder"]

CLAIMS = frozenset({Kind.CLAIMED, Kind.RESENT})


class _Group(msgspec.Struct, eq=False):
    """Events that share a commit."""

    written: asyncio.Future[None]
    """Resolved when they have been written, or can't be."""
    events: list[Event] = []
    tried: bool = False
    """Whether they have been handed to the journal. Set by ``_write``."""


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
        # What the next commit takes. Set by ``_arrange``.
        self._pending: _Group | None = None
        # The commit that a thread makes now.
        self._task: asyncio.Future[object] | None = None
        #: Users of what is claimed and not settled yet, by what has been written.
        self.on_their_way = 0
        #: Why nothing can be recorded any more; then nothing may be sent either.
        self.failed: RunFileError | None = None

    def note(self, event: Event) -> None:
        """Have it written with the next commit."""
        self._arrange(event)

    async def claim(self, event: Event) -> None:
        """Committed when this returns. Raises RunFileError where it can't be."""
        # A cancelled claim must not take along those that share its commit.
        await asyncio.shield(self._arrange(event))
        self.check()

    async def flush(self) -> None:
        """Wait until everything noted so far is committed, or can't be: which of them, ``check`` says.

        A cancellation waits for that as well: the journal must not be closed under a thread that writes to it.
        """
        cancelled: asyncio.CancelledError | None = None
        while (end := self._next_end()) is not None:
            try:
                await asyncio.wait([end])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def check(self) -> None:
        """Raises RunFileError where something could not be recorded."""
        if self.failed is not None:
            raise self.failed

    async def end(self, ending: Ending | None) -> None:
        """See ``Journal.end``."""
        if self._durable:
            await self._offload(functools.partial(self._journal.end, ending))
        else:
            self._journal.end(ending)

    def _arrange(self, event: Event) -> asyncio.Future[None]:
        group = self._pending
        if group is None:
            group = self._pending = _Group(self._loop.create_future())
            if self._task is None:
                self._loop.call_soon(self._commit, group)
        group.events.append(event)
        return group.written

    def _next_end(self) -> asyncio.Future[object] | asyncio.Future[None] | None:
        """What is resolved when the next commit has been made."""
        if self._task is not None:
            return self._task
        return None if self._pending is None else self._pending.written

    def _commit(self, group: _Group) -> None:
        if self._durable or not self._write(group, at_once=True):
            self._commit_in_thread(group)
        else:
            self._pending = None
            self._done(group)

    def _commit_in_thread(self, group: _Group) -> None:
        self._pending = None
        self._task = asyncio.ensure_future(self._offload(functools.partial(self._write, group)))
        self._task.add_done_callback(functools.partial(self._back, group))

    def _back(self, group: _Group, task: asyncio.Future[object]) -> None:
        """The thread is through with the group."""
        self._task = None
        if task.cancelled():
            # As all tasks are where a loop is closed; perhaps before it began.
            if not group.tried:
                self._write(group)
        elif (error := task.exception()) is not None:  # such as a thread that can't be started
            self._fail(error)
        self._done(group)
        if self._pending is not None:
            self._commit_in_thread(self._pending)

    def _done(self, group: _Group) -> None:
        if self.failed is None:
            for event in group.events:
                users = event.stop - event.start
                self.on_their_way += users if event.kind in CLAIMS else -users
        group.written.set_result(None)

    def _write(self, group: _Group, *, at_once: bool = False) -> bool:
        """False where it has to wait for another program, and that was not wanted."""
        if self.failed is None:
            group.tried = not at_once
            try:
                return self._journal.write(group.events, at_once=at_once)
            except Exception as error:  # noqa: BLE001 - whatever it is: what was claimed is not known to be written
                self._fail(error)
        return True

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, RunFileError):
            self.failed = error
        else:
            why = f"the run can't be recorded any more: {type(error).__name__}"
            self.failed = RunFileError(why, outcome=Outcome.UNKNOWN)
