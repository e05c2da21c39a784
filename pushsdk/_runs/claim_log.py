"""The log for calls with idempotency keys: claims in a claim store, written in groups.

All entries from one event loop turn, or from the time that a write takes, share the next write: a batch of 1,000
calls costs one round trip. ``ClaimEntry`` decides; ``ClaimLog`` awaits. A failed write is retried until the store
answers, for as long as the client is open.
"""

import asyncio
import errno
import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from itertools import islice

from pushsdk._core.errors import ClaimStoreError, PushError
from pushsdk._core.user_states import UserStatus
from pushsdk._core.words import count
from pushsdk._io.work import Work
from pushsdk._runs.claim_entry import ClaimEntry, ClaimRequest, Ranges
from pushsdk.claims.store import ClaimStore, ObjectStoreError, Put, Stored

logger = logging.getLogger("pushsdk")
# The first retry is immediate: a connection may have gone stale during the push.
TRIES = 2
# Seconds between later retries: the first pause, doubled up to the longest.
PAUSE, MAX_PAUSE = 0.1, 1.0
# Entries kept for a failing store: more than come in during a short outage.
MAX_FAILED = 10_000
# Jobs that a log line names.
_MOST_NAMED = 20
# Writer restarts after all tasks in the loop were cancelled.
MAX_RESTARTS = 10


class ClaimLog:
    """The entries in one claim store that are in use or still to be written."""

    def __init__(self, store: ClaimStore, work: Work) -> None:
        self._store = store
        #: Seconds after its claim in which a request must be complete.
        self.longest = store.claim_ttl / 2
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._entries: dict[str, ClaimEntry] = {}
        # How many calls use an entry.
        self._uses: Counter[ClaimEntry] = Counter()
        # Entries to write together, and those whose write has failed ``TRIES`` times. Both oldest first.
        self._queue: dict[ClaimEntry, None] = {}
        self._failed: dict[ClaimEntry, None] = {}
        # True while the store fails: a log line has said so.
        self._is_failing = False
        # The task that writes; a future for its next write; an event set by each new request.
        self._writer: asyncio.Task[None] | None = None
        self._wrote: asyncio.Future[None]
        self._wake = asyncio.Event()
        self._restarts = 0

    def deadline(self) -> float:
        """Return the loop time by which a request that is claimed now must be complete: before its claim expires."""
        return self._loop.time() + self.longest

    def open(self, key: str, fingerprint: str, users: int) -> ClaimEntry:
        """Return the entry for a key, to be closed by ``close``. Raise ValidationError for another payload."""
        entry = self._entries.get(key)
        if entry is None or not (self._uses[entry] or entry.fingerprint == fingerprint):
            entry = self._entries[key] = ClaimEntry(key, fingerprint, users, time.time())
        entry.check(fingerprint, users)
        self._uses[entry] += 1
        return entry

    def close(self, entry: ClaimEntry) -> None:
        """End an entry's use by one call. An entry that is still to be written is kept."""
        self._uses[entry] -= 1
        self._forget(entry)

    async def claim(self, requests: Sequence[ClaimRequest]) -> None:
        """Make claims in one write. Afterwards each request is ``done``, with its claimed users or its error.

        Requests that are withdrawn meanwhile are not waited for.
        """
        for request in requests:
            request.entry.requests.append(request)
            self._enqueue(request.entry)
        self._wake.set()
        while not all(request.done or request.withdrawn for request in requests):
            await asyncio.wait([self._wrote])

    def settle(self, entry: ClaimEntry, ranges: Ranges, status: UserStatus) -> None:
        if ranges:
            entry.settle(ranges, status)
            self._enqueue(entry)

    async def written(self, entry: ClaimEntry, deadline: float) -> None:
        """Wait until the entry is written, its write has failed twice, or the deadline expires.

        A cancelled caller waits as well, without the deadline.
        """
        cancelled: asyncio.CancelledError | None = None
        while not entry.is_written and entry.failures < TRIES:
            seconds = None if cancelled else max(0.0, deadline - self._loop.time())
            try:
                done, _ = await asyncio.wait([self._wrote], timeout=seconds)
            except asyncio.CancelledError as error:
                cancelled = error
            else:
                if not done:
                    break
        if cancelled is not None:
            raise cancelled

    async def refresh(self, entry: ClaimEntry) -> None:
        """Read an entry without claiming. Raise ClaimStoreError, or ValidationError for another payload."""
        try:
            async with asyncio.timeout(self._store.timeout):
                (stored,) = await self._store.get([entry.key])
            entry.refresh(stored)
        except PushError:
            raise
        except Exception as error:
            raise claim_error(error) from error

    def _enqueue(self, entry: ClaimEntry) -> None:
        self._queue_for(entry)[entry] = None
        if self._writer is None:
            self._wrote = self._loop.create_future()
            self._work.late.add(self)
            self._start()

    def _queue_for(self, entry: ClaimEntry) -> dict[ClaimEntry, None]:
        return self._failed if entry.failures >= TRIES else self._queue

    def _start(self) -> None:
        self._writer = self._loop.create_task(self._write_all())
        self._writer.add_done_callback(self._writer_ended)

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        self._restarts += writer.cancelled()
        # Entries may be queued after the writer last read the queue. No restart after a bug.
        left = [*self._failed, *self._queue]
        if left and (self._restarts <= MAX_RESTARTS if writer.cancelled() else writer.exception() is None):
            self._start()
            return
        self._writer = None
        self._give_up(left, "all tasks were cancelled")
        self._announce()
        self._work.late.discard(self)
        self._work.ended(self)

    async def _write_all(self) -> None:
        pause = PAUSE
        while entries := self._next():
            self._wake.clear()
            error = await self._write(entries)
            if (excess := len(self._failed) - MAX_FAILED) > 0:
                why = f"more than {MAX_FAILED} calls wait for the claim store"
                self._give_up(list(islice(self._failed, excess)), why)
            self._announce()
            if error is None:
                pause, self._restarts = PAUSE, 0
            elif entries[0].failures >= TRIES:
                # A closing client waits for a silent store, but not for one that fails at once: often a wrong address.
                is_closing = self._work.drained is not None and not isinstance(error, TimeoutError)
                if self._work.closed or is_closing:
                    self._give_up(list(self._failed), "the client was closed")
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._wake.wait()
                    pause = min(2 * pause, MAX_PAUSE)

    def _next(self) -> list[ClaimEntry]:
        """Return the entries to write next, each key once."""
        entries = list(islice(self._queue, self._store.at_once))
        if self._failed and not entries:
            # Singly: an entry that the store never accepts must not block the others.
            entries = [next((entry for entry in self._failed if entry.requests), next(iter(self._failed)))]
        return list({entry.key: entry for entry in entries}.values())

    async def _write(self, entries: list[ClaimEntry]) -> Exception | None:
        """Write entries once. Return the error if that fails."""
        puts = {entry: put for entry in entries if (put := entry.prepare()) is not None}
        error: Exception | None = None
        try:
            results = await self._put(list(puts.values()))
        except asyncio.CancelledError:
            self._fail(list(puts), TimeoutError())
            raise
        except Exception as failure:  # noqa: BLE001 - any error from any store
            error = failure
            self._fail(list(puts), error)
        else:
            for entry, stored in zip(puts, results, strict=True):
                if not entry.answered(stored):
                    message = "job %s: its claim was changed before its outcome: a redelivery goes by the changed claim"
                    logger.warning(message, entry.job)
        for entry in entries:
            self._requeue(entry)
        return error

    async def _put(self, puts: list[Put]) -> Stored:
        if not puts:
            return []
        async with asyncio.timeout(self._store.timeout):
            results = await self._store.put(puts, self._store.claim_ttl)
        self._is_failing = False
        if len(results) != len(puts):
            raise ValueError(f"put() must return one result per put, {len(puts)}; got {len(results)}")
        return results

    def _requeue(self, entry: ClaimEntry) -> None:
        """Queue an entry behind all others if it has more to write."""
        for queue in (self._queue, self._failed):
            queue.pop(entry, None)
        if entry.requests or not entry.is_written:
            self._queue_for(entry)[entry] = None
        else:
            self._forget(entry)

    def _fail(self, entries: Sequence[ClaimEntry], error: Exception) -> None:
        for entry in entries:
            entry.failed(error)
            if isinstance(error, PushError):
                # A later try would fail, too, for example with a store from another loop.
                entry.give_up()
        if isinstance(error, TimeoutError):
            # A silent store fails all waiting requests: otherwise each would wait for a timeout.
            for entry in (*self._queue, *self._failed):
                entry.fail_requests(error)
        if not self._is_failing and any(entry.failures == TRIES for entry in entries):
            self._is_failing = True
            logger.warning(
                "the claim store failed (%s): until it answers, other processes can't read the outcomes of new calls",
                type(error).__name__,
            )

    def _give_up(self, entries: Sequence[ClaimEntry], why: str) -> None:
        for entry in entries:
            entry.fail_requests(TimeoutError())
            entry.give_up()
            self._requeue(entry)
        if lost := [entry.job for entry in entries if entry.has_outcomes]:
            message = (
                "%s: the outcomes of %s were not written to the claim store and stay unknown to other processes: %s"
            )
            logger.warning(message, why, count(len(lost), "job"), ", ".join(lost[:_MOST_NAMED]))

    def _announce(self) -> None:
        wrote, self._wrote = self._wrote, self._loop.create_future()
        wrote.set_result(None)

    def _forget(self, entry: ClaimEntry) -> None:
        if not self._uses[entry] and entry.is_written:
            del self._uses[entry]
            if self._entries.get(entry.key) is entry:
                del self._entries[entry.key]


def claim_error(why: Exception | None) -> PushError:
    """Return the error for a call without a claim. ``why`` is None if the call's deadline expired first."""
    if isinstance(why, PushError):
        return copy(why)  # one per caller
    if why is None:
        return ClaimStoreError("not sent: the claim store did not answer within the call's timeout")
    return ClaimStoreError(f"not sent: {store_failure(why)}")


def store_failure(why: Exception) -> str:
    reason = ": is it up, its address right, a pool connection free?" if isinstance(why, TimeoutError) else _reason(why)
    return f"the claim store failed ({type(why).__name__}{reason})"


def _reason(why: Exception) -> str:
    """Return the reason and the fix, for errors from the system, SQLite and object stores.

    A driver's text may hold an address.
    """
    if isinstance(why, ObjectStoreError):
        return f": {why}"
    cause = why.__cause__ or why.__context__ or why
    if hasattr(cause, "sqlite_errorname"):
        from pushsdk._runs.run_file.file import why_failed  # loads SQLite, which the store has loaded

        return f": {why_failed(cause, 'deliver the job again', otherwise='it is damaged')}"
    if not isinstance(cause, OSError) or not cause.errno:
        return ""
    path = f" {cause.filename!r}" if cause.filename else ""
    return f": {os.strerror(cause.errno)}{path}; {_FIXES.get(cause.errno, 'is the store up, and its address right?')}"


_FIXES = {errno.ENOENT: "does its folder exist?", errno.ENOSPC: "make room, then deliver the job again"}
