"""The log of a run in its run file: claims users before the first byte of their request, settles them after.

Events are committed in groups: what comes in one turn of the event loop, or while a commit is under way, shares the
next commit. A commit that need not reach the disk takes tens of microseconds and is made in the event loop: a thread
would cost more, and under load up to 5 ms of latency, the interpreter's switch interval. A commit that must reach the
disk, or that waits for the lock of another program, is made in a thread.
"""

from __future__ import annotations

import asyncio
import functools
import math

from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._io.threads import Offload
from pushsdk._runs.plan import ChunkRequest, Event, StopReason, UserRange
from pushsdk._runs.run_file.journal import NEVER_SETTLED, Journal

__all__ = ["RunFileLog"]

_CLAIMED, _RESENT = UserStatus(UserState.CLAIMED), UserStatus(UserState.CLAIMED, resent=True)


class _Group:
    """Events that share a commit."""

    def __init__(self, ended: asyncio.Future[None]) -> None:
        #: Resolved when the events have been committed, or can't be.
        self.ended = ended
        self.events: list[Event] = []
        #: Resolved with ``ended``: callers that wait for their events.
        self.added: list[asyncio.Future[None]] = []
        #: The commit was begun, and waits if it has to. Set by ``_write``.
        self.is_begun = False


class RunFileLog:
    """Writes the claims and the statuses of the users of a run. See ``RunLog``."""

    def __init__(
        self, journal: Journal, *, loop: asyncio.AbstractEventLoop, offload: Offload, durable: bool = False
    ) -> None:
        """``durable``: a claim is on the disk before its request leaves."""
        self._journal = journal
        self._loop = loop
        self._offload = offload
        self._durable = durable
        # The events of the next commit. Set by ``_add``.
        self._pending: _Group | None = None
        # The commit that a thread is making.
        self._task: asyncio.Future[object] | None = None
        #: The error of the first commit that failed: nothing was committed since.
        self.failed: BaseException | None = None

    def give_up_claims(self) -> None:
        """Settle as UNKNOWN what an earlier process claimed: from now on whatever is CLAIMED is in flight."""
        unknown = UserStatus(UserState.UNKNOWN, None, NEVER_SETTLED)
        for piece in self._journal.ranges(frozenset({UserState.CLAIMED})):
            self.settle(piece, unknown)

    def claim_of(self, request: ChunkRequest, *, resent: bool) -> RunFileClaim:
        """See ``RunLog``."""
        return RunFileClaim(self, request, resent=resent)

    async def claim(self, users: UserRange, *, resent: bool) -> bool:
        """Return True when the claim is committed, False if it can't be: then nothing may be sent."""
        # Each caller has its own future: a cancelled one must not take along the others that share its commit.
        added = self._loop.create_future()
        self._add((users.start, users.stop, _RESENT if resent else _CLAIMED)).added.append(added)
        await added
        return self.failed is None

    def settle(self, users: UserRange, status: UserStatus) -> None:
        """Have the status of these users written with the next commit."""
        self._add((users.start, users.stop, status))

    def deadline(self) -> float:
        """See ``RunLog``. These claims never expire."""
        return math.inf

    async def flush(self) -> None:
        """Wait until everything so far is committed, or can't be; ``check`` tells which.

        A cancellation waits for that as well: the file must not be closed under a thread that writes to it.
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
        """Raises RunFileError if something could not be committed."""
        error = self.failed
        if isinstance(error, RunFileError):
            raise error
        if error is not None:
            why = f"the run can't be recorded any more: {type(error).__name__}"
            raise RunFileError(why, outcome=Outcome.UNKNOWN) from None

    async def record_stop(self, reason: StopReason | None) -> None:
        """Write why the sending ended before its end, or that it did not."""
        if self._durable:
            await self._offload(functools.partial(self._journal.record_stop, reason))
        else:
            self._journal.record_stop(reason)

    # -- the commits ----------------------------------------------------------------------------------------------

    def _add(self, event: Event) -> _Group:
        group = self._pending
        if group is None:
            group = self._pending = _Group(self._loop.create_future())
            if self._task is None:
                self._loop.call_soon(self._begin, group)
        group.events.append(event)
        return group

    def _next_end(self) -> asyncio.Future[object] | asyncio.Future[None] | None:
        """Return a future that is resolved after the next commit."""
        if self._task is not None:
            return self._task
        return None if self._pending is None else self._pending.ended

    def _begin(self, group: _Group) -> None:
        if self._durable or not self._write(group, at_once=True):
            self._begin_in_thread(group)
        else:
            self._pending = None
            self._end(group)

    def _begin_in_thread(self, group: _Group) -> None:
        self._pending = None
        self._task = asyncio.ensure_future(self._offload(functools.partial(self._write, group)))
        self._task.add_done_callback(functools.partial(self._end_in_thread, group))

    def _end_in_thread(self, group: _Group, task: asyncio.Future[object]) -> None:
        self._task = None
        if task.cancelled():
            # As all tasks are when a loop is closed; perhaps before the commit began.
            if not group.is_begun:
                self._write(group)
        elif (error := task.exception()) is not None:  # such as a thread that can't be started
            self.failed = error
        self._end(group)
        if self._pending is not None:
            self._begin_in_thread(self._pending)

    def _write(self, group: _Group, *, at_once: bool = False) -> bool:
        """Return False if the commit has to wait for another program, and was not to."""
        if self.failed is None:
            group.is_begun = not at_once
            try:
                return self._journal.commit(group.events, at_once=at_once)
            except Exception as error:  # noqa: BLE001 - whatever it is: the events are not known to be committed
                self.failed = error
        return True

    def _end(self, group: _Group) -> None:
        if self.failed is None:
            self._journal.apply(group.events)
        group.ended.set_result(None)
        for added in group.added:
            if not added.done():
                added.set_result(None)


class RunFileClaim:
    """See ``UsersClaim``. Every status is written, also of an attempt that came to no claim."""

    def __init__(self, log: RunFileLog, request: ChunkRequest, *, resent: bool) -> None:
        self._log = log
        self._request = request
        self._resent = resent
        self.users = request.users

    async def make(self) -> ChunkRequest | None:
        return self._request if await self._log.claim(self._request.positions, resent=self._resent) else None

    def settle(self, status: UserStatus) -> None:
        # A claim that is still to be committed is committed before this.
        self._log.settle(self._request.positions, status)
