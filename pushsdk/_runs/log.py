"""The run log in a run file: users are claimed before the first byte of their request, and settled after.

Group commit: the events from one event loop turn, or from the time that a commit takes, share the next commit. A
commit without a sync takes tens of microseconds and is made in the event loop; a thread would cost more, and under load
up to 5 ms of latency, the interpreter's switch interval. A commit that syncs is made in a thread, and so is all that
waits for another program's lock.
"""

import asyncio
import functools
import math
from collections.abc import Callable

from pushsdk._core.body import EncodedIds
from pushsdk._core.decisions import LEFT_IN_FLIGHT
from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._io.request import resolve
from pushsdk._io.threads import Offload
from pushsdk._runs.plan import Chunk, ChunkRequest, Event, Notes, UserRange
from pushsdk._runs.run_file.file import run_file_error
from pushsdk._runs.run_file.journal import Journal

_CLAIMED, _RESENT = UserStatus(UserState.CLAIMED), UserStatus(UserState.CLAIMED, resent=True)


class _Group:
    """Events that share a commit."""

    def __init__(self) -> None:
        #: Called once the commit has succeeded or failed.
        self.waiters: list[Callable[[bool], None]] = []
        self.events: list[Event] = []
        #: The notes to write. Set by ``note``.
        self.notes: Notes | None = None
        #: True once the commit has started in a thread. Set by ``_write``.
        self.is_begun = False


class RunFileLog:
    """The ``RunLog`` for a run file: writes its users' claims and statuses."""

    longest = math.inf  # these claims never expire

    def __init__(self, journal: Journal, *, loop: asyncio.AbstractEventLoop, offload: Offload) -> None:
        self._journal = journal
        self._loop = loop
        self._offload = offload
        # The events for the next commit. Set by ``_add``.
        self._pending: _Group | None = None
        # Events in the commit that runs in a thread.
        self._committing: _Group | None = None
        #: The error of the first failed commit. Nothing was committed after that.
        self.failed: BaseException | None = None

    def give_up_claims(self) -> None:
        """Settle as UNKNOWN the users whom a killed process left CLAIMED. From now on CLAIMED means in flight."""
        unknown = UserStatus(UserState.UNKNOWN, None, LEFT_IN_FLIGHT)
        for positions in self._journal.ranges(frozenset({UserState.CLAIMED})):
            self.settle(positions, unknown)

    async def claim(self, request: ChunkRequest, *, resent: bool) -> tuple[int, EncodedIds]:
        """Commit a claim. If that fails, nothing may be sent."""
        waiter = self._loop.create_future()
        self.claim_soon(request.positions, functools.partial(resolve, waiter), resent=resent)
        await waiter
        return (request.users, request.ids) if self.failed is None else (0, EncodedIds(b""))

    def claim_soon(self, users: UserRange, then: Callable[[bool], None], *, resent: bool) -> None:
        """Commit a claim with the next commit. ``then(True)`` follows, or ``then(False)`` if nothing may be sent."""
        self._add((users.start, users.stop, _RESENT if resent else _CLAIMED)).waiters.append(then)

    def settle(self, users: UserRange, status: UserStatus) -> None:
        """Write users' status with the next commit, after a claim that is still pending."""
        self._add((users.start, users.stop, status))

    def note(self, notes: Notes) -> None:
        """Write the notes with the next commit."""
        self._group().notes = notes

    async def load(self, number: int) -> Chunk:
        """Return a chunk in the plan, read in a thread, which may have to wait."""
        return await self._offload(functools.partial(self._journal.load, number))  # type: ignore[no-any-return]

    async def flush(self) -> None:
        """Wait until all events so far are committed or have failed; then call ``check``.

        A cancelled caller waits as well: the file must not be closed while a thread writes to it.
        """
        cancelled: asyncio.CancelledError | None = None
        while (group := self._committing or self._pending) is not None:
            waiter = self._loop.create_future()
            group.waiters.append(functools.partial(resolve, waiter))
            try:
                await waiter
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def check(self) -> None:
        """Raise RunFileError if a commit has failed."""
        error = self.failed
        if isinstance(error, RunFileError):
            raise error
        if error is not None:
            why = f"a commit failed ({type(error).__name__}), so nothing more was recorded or sent: resume the run"
            raise run_file_error(self._journal.path, why, outcome=Outcome.UNKNOWN) from None

    def _add(self, event: Event) -> _Group:
        """Add an event, or extend one that is about the users before: of the last two, for claims and for answers."""
        group, (start, stop, status) = self._group(), event
        events = group.events
        for number in (-1, -2)[: len(events)]:
            first, end, same = events[number]
            if end == start and same == status:
                events[number] = (first, stop, status)
                return group
            if first < stop and start < end:
                break  # the order of events about the same users counts
        events.append(event)
        return group

    def _group(self) -> _Group:
        group = self._pending
        if group is None:
            group = self._pending = _Group()
            if self._committing is None:
                self._loop.call_soon(self._begin, group)
        return group

    def _begin(self, group: _Group) -> None:
        try:
            self._write(group, at_once=True)
        except BlockingIOError:
            self._begin_in_thread(group)
        else:
            self._pending = None
            self._end(group)

    def _begin_in_thread(self, group: _Group) -> None:
        self._pending, self._committing = None, group
        task = asyncio.ensure_future(self._offload(functools.partial(self._write, group)))
        task.add_done_callback(functools.partial(self._end_in_thread, group))

    def _end_in_thread(self, group: _Group, task: asyncio.Future[object]) -> None:
        self._committing = None
        if task.cancelled():
            # All tasks are cancelled when a loop is closed, perhaps before the commit has started.
            if not group.is_begun:
                self._write(group)
        elif (error := task.exception()) is not None:  # for example no thread could be started
            self.failed = error
        self._end(group)
        if self._pending is not None:
            self._begin_in_thread(self._pending)

    def _write(self, group: _Group, *, at_once: bool = False) -> None:
        if self.failed is None:
            group.is_begun = not at_once
            try:
                self._journal.commit(group.events, group.notes, at_once=at_once)
            except BlockingIOError:
                raise
            except Exception as error:  # noqa: BLE001 - raised by ``check``
                self.failed = error

    def _end(self, group: _Group) -> None:
        if self.failed is None:
            self._journal.apply(group.events, group.notes)
        # Later: a run that is cancelled meanwhile begins no request.
        self._loop.call_soon(self._wake, group)

    def _wake(self, group: _Group) -> None:
        for then in group.waiters:
            then(self.failed is None)
