"""The log of calls with idempotency keys: claims that a claim store keeps, written in groups.

What comes in one loop turn, or while a write is under way, shares the next write: a batch of 1,000 calls costs one
round trip. What an entry says and which claims it grants is decided in ``_entry``; here are the awaits. The store is
told what is true once it answers again, for as long as the client is open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from itertools import islice

from pushsdk._core.errors import ClaimStoreError, ConfigurationError, PushError
from pushsdk._core.user_states import UserStatus
from pushsdk._io.engine import Engine
from pushsdk.claims._entry import ClaimRequest, Entry, Ranges
from pushsdk.claims.store import ClaimStore

__all__ = ["ClaimLog", "claim_error"]

logger = logging.getLogger("pushsdk")
# Entries per write.
AT_ONCE = 1000
# A write that fails is tried once more at once: a connection may have gone stale while the push was out.
TRIES = 2
# Seconds between two tries of a store that fails: the first, and the longest.
PAUSE, LONGEST_PAUSE = 0.1, 1.0
# Entries that a failing store could not be told of: more than come in during a short outage.
KEPT = 10_000
# A writer that a cancellation of all tasks ended begins again. Whoever cancels more often than this means it.
BEGUN_AGAIN = 10


class ClaimLog:
    """The entries of one claim store that are in use by a client, or that the store is still to be told of."""

    def __init__(self, store: object, engine: Engine) -> None:
        if not isinstance(store, ClaimStore):
            raise ConfigurationError("claims must be a claim store, for example pushsdk.claims.SqliteClaims(path)")
        self._store = store
        self._engine = engine
        self._entries: dict[str, Entry] = {}
        # Entries that the store is to be told of, the oldest first; and those of writes that failed.
        self._queue: dict[Entry, None] = {}
        self._failed: dict[Entry, None] = {}
        # Writes the queue, while there is one; resolved after each write; set when a claim comes.
        self._writer: asyncio.Task[None] | None = None
        self._wrote: asyncio.Future[None]
        self._wake = asyncio.Event()
        self._begun_again = 0

    def latest(self) -> float:
        """Return when the last request under a claim of now must be over: a claim must not expire while one is out."""
        return asyncio.get_running_loop().time() + self._store.claim_ttl / 2

    def open(self, key: str, fingerprint: str, users: int) -> Entry:
        """Return the entry of a call, the same for all calls of one key. ``close`` it. Raises ValidationError."""
        entry = self._entries.get(key)
        if entry is None or not (entry.uses or entry.fingerprint == fingerprint):
            entry = self._entries[key] = Entry(key, fingerprint, users, time.time())
        entry.check(fingerprint, users)
        entry.uses += 1
        return entry

    def close(self, entry: Entry) -> None:
        """End a use of an entry. It is kept while the store is to be told of it."""
        entry.uses -= 1
        self._forget(entry)

    async def claim(self, requests: Sequence[ClaimRequest]) -> None:
        """Ask for claims, all in one write. They are ``done`` when this returns; errors are in them."""
        for request in requests:
            request.entry.requests.append(request)
            self._enqueue(request.entry)
        self._wake.set()
        while not all(request.done for request in requests):
            await asyncio.wait([self._wrote])

    def withdraw(self, request: ClaimRequest) -> None:
        """Give up a claim that may be made all the same."""
        request.entry.withdraw(request)

    def settle(self, entry: Entry, ranges: Ranges, status: UserStatus) -> None:
        """Have it written what became of users that were claimed."""
        if ranges:
            entry.settle(ranges, status)
            self._enqueue(entry)

    async def written(self, entry: Entry, deadline: float) -> None:
        """Wait until the store says what is true, until it has failed twice, or until the deadline.

        A cancellation waits for that as well, whatever the deadline.
        """
        cancelled: asyncio.CancelledError | None = None
        while not entry.is_written and entry.failures < TRIES:
            left = None if cancelled else max(0.0, deadline - asyncio.get_running_loop().time())
            try:
                done, _ = await asyncio.wait([self._wrote], timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
            else:
                if not done:
                    break
        if cancelled is not None:
            raise cancelled

    async def look(self, entry: Entry) -> None:
        """Learn what the store says of an entry, without a claim. Raises ClaimStoreError or ValidationError."""
        try:
            async with asyncio.timeout(self._store.timeout):
                (found,) = await self._store.get([entry.key])
            entry.look(found)
        except PushError:
            raise
        except Exception as error:
            raise ClaimStoreError(f"the claim store failed ({type(error).__name__})") from error

    # -- the writes ---------------------------------------------------------------------------------------------

    def _enqueue(self, entry: Entry) -> None:
        if entry not in self._failed:
            self._queue[entry] = None
        if self._writer is None:
            self._wrote = asyncio.get_running_loop().create_future()
            self._engine.late.add(self)
            self._start()

    def _start(self) -> None:
        self._writer = asyncio.get_running_loop().create_task(self._write_all())
        self._writer.add_done_callback(self._ended)

    def _ended(self, writer: asyncio.Task[None]) -> None:
        if (self._queue or self._failed) and self._may_begin_again(writer):
            self._start()
            return
        self._writer = None
        self._give_up([*self._queue, *self._failed], "all tasks were cancelled")
        self._announce()
        self._engine.late.discard(self)
        self._engine.ended(self)

    def _may_begin_again(self, writer: asyncio.Task[None]) -> bool:
        if not writer.cancelled():
            # What came after its last look at the queue; not after a bug of ours.
            return writer.exception() is None
        self._begun_again += 1
        return self._begun_again <= BEGUN_AGAIN

    async def _write_all(self) -> None:
        pause = PAUSE
        while entries := self._next():
            self._wake.clear()
            error = await self._write(entries)
            self._announce()
            if error is None:
                pause, self._begun_again = PAUSE, 0
            elif entries[0].failures >= TRIES:
                if self._is_over(error):
                    self._give_up([each for each in self._failed if each.failures >= TRIES], "the client was closed")
                else:
                    await self._rest(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)

    def _next(self) -> list[Entry]:
        """Return what is written next, each key once: what is new, or what failed, singly after its second failure."""
        if self._queue:
            return _by_key(islice(self._queue, AT_ONCE))
        if not self._failed:
            return []
        # An entry that the store never takes must not hold up the others.
        first = next((entry for entry in self._failed if entry.requests), next(iter(self._failed)))
        if first.failures >= TRIES:
            return [first]
        return _by_key(entry for entry in islice(self._failed, AT_ONCE) if entry.failures < TRIES)

    async def _write(self, entries: list[Entry]) -> Exception | None:
        """Tell the store of these entries, once. Return why it failed."""
        puts = {entry: put for entry in entries if (put := entry.prepare()) is not None}
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._store.timeout):
                found = await self._store.put(list(puts.values()), self._store.claim_ttl) if puts else []
        except asyncio.CancelledError:
            self._fail(list(puts), TimeoutError())
            raise
        except Exception as failure:  # noqa: BLE001 - whatever it is: the calls are told, and the store later
            error = failure
            self._fail(list(puts), error)
        else:
            for entry, other in zip(puts, found, strict=True):
                if other is None:
                    entry.stored()
                elif not entry.refused(other):
                    logger.warning("the claim of a push had gone when it was to be settled: it may be pushed again")
        for entry in entries:
            self._requeue(entry)
        if len(self._failed) > KEPT:
            self._give_up(list(self._failed)[: len(self._failed) - KEPT], f"more than {KEPT} calls wait to be settled")
        return error

    def _requeue(self, entry: Entry) -> None:
        """Put what is left of an entry behind all others."""
        self._queue.pop(entry, None)
        self._failed.pop(entry, None)
        if entry.is_changed or entry.requests:
            (self._failed if entry.failures else self._queue)[entry] = None
        else:
            self._forget(entry)

    def _fail(self, entries: Sequence[Entry], error: Exception) -> None:
        for entry in entries:
            entry.failed(error)
            if isinstance(error, PushError | ValueError):
                # What no later try would change, such as the store of another loop.
                entry.give_up()
        if isinstance(error, TimeoutError):
            # Nobody waits behind a store that is silent.
            for entry in (*self._queue, *self._failed):
                entry.fail_waiting(error)
        if any(entry.failures == TRIES for entry in entries):
            logger.warning(
                "the claim store failed (%s): until it is told, calls that have ended are unknown to other processes",
                type(error).__name__,
            )

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _is_over(self, error: Exception) -> bool:
        """Return True if the client is closed, or is being closed while the store fails at once.

        That is hardly ever a short outage, and often a wrong address; for a silent store it waits as long as its drain.
        """
        return self._engine.sender.closed or (self._engine.closed and not isinstance(error, TimeoutError))

    def _give_up(self, entries: Sequence[Entry], why: str) -> None:
        for entry in entries:
            entry.fail_waiting(TimeoutError())
            entry.give_up()
            self._requeue(entry)
        if entries:
            logger.warning(
                "%s: the claim store was not told of %d calls, which stay unknown to other processes", why, len(entries)
            )

    def _announce(self) -> None:
        wrote, self._wrote = self._wrote, asyncio.get_running_loop().create_future()
        wrote.set_result(None)

    def _forget(self, entry: Entry) -> None:
        if not entry.uses and entry.is_written and self._entries.get(entry.key) is entry:
            del self._entries[entry.key]


def _by_key(entries: Iterable[Entry]) -> list[Entry]:
    return list({entry.key: entry for entry in entries}.values())


def claim_error(why: Exception | None) -> PushError:
    """Return the error for a call whose claim was not made; ``why`` is None if the call's deadline came first."""
    if isinstance(why, PushError):
        return copy(why)  # one for each caller
    if why is None:
        return ClaimStoreError("not sent: the claim store did not answer within the call's timeout")
    error = ClaimStoreError(f"not sent: the claim store failed ({type(why).__name__})")
    error.__cause__ = why
    return error
