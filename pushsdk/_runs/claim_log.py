"""The log of calls with idempotency keys: claims that a claim store keeps, written in groups.

What comes in one loop turn, or while a write is under way, shares the next write: a batch of 1,000 calls costs one
round trip. What an entry holds and which claims are granted is decided in ``_entry``; here are the awaits. A write that
fails is repeated until the store answers again, for as long as the client is open.
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
from pushsdk._runs.claim_entry import ClaimEntry, ClaimRequest, Ranges
from pushsdk.claims.store import ClaimStore

__all__ = ["ClaimLog", "claim_error"]

logger = logging.getLogger("pushsdk")
# A write that fails is tried once more at once: a connection may have gone stale while the push was out.
TRIES = 2
# Seconds between two tries of a store that fails: the first, and the longest.
PAUSE, LONGEST_PAUSE = 0.1, 1.0
# Entries that wait for a failing store: more than come in during a short outage.
KEPT = 10_000
# How often the writer starts again after a cancellation of all tasks of the loop.
BEGUN_AGAIN = 10


class ClaimLog:
    """The entries of one claim store that a client uses, or that are still to be written."""

    def __init__(self, store: object, engine: Engine) -> None:
        if not isinstance(store, ClaimStore):
            raise ConfigurationError("claims must be a claim store, for example pushsdk.claims.SqliteClaims(path)")
        self._store = store
        self._engine = engine
        self._entries: dict[str, ClaimEntry] = {}
        # Entries to be written, the oldest first; and the entries of writes that failed.
        self._queue: dict[ClaimEntry, None] = {}
        self._failed: dict[ClaimEntry, None] = {}
        # The task that writes the queue, while there is one; resolved after each write; set when a request comes.
        self._writer: asyncio.Task[None] | None = None
        self._wrote: asyncio.Future[None]
        self._wake = asyncio.Event()
        self._begun_again = 0

    def latest(self) -> float:
        """Return when the last request under a claim of now must be over: a claim must not expire while one is out."""
        return asyncio.get_running_loop().time() + self._store.claim_ttl / 2

    def open(self, key: str, fingerprint: str, users: int) -> ClaimEntry:
        """Return the entry of a call, the same for all calls of one key. ``close`` it. Raises ValidationError."""
        entry = self._entries.get(key)
        if entry is None or not (entry.uses or entry.fingerprint == fingerprint):
            entry = self._entries[key] = ClaimEntry(key, fingerprint, users, time.time())
        entry.check(fingerprint, users)
        entry.uses += 1
        return entry

    def close(self, entry: ClaimEntry) -> None:
        """End a use of an entry. An entry that is still to be written is kept."""
        entry.uses -= 1
        self._forget(entry)

    async def claim(self, requests: Sequence[ClaimRequest]) -> None:
        """Claim, all requests in one write. They are ``done`` when this returns, each with its users or its error."""
        for request in requests:
            request.entry.requests.append(request)
            self._enqueue(request.entry)
        self._wake.set()
        while not all(request.done for request in requests):
            await asyncio.wait([self._wrote])

    def withdraw(self, request: ClaimRequest) -> None:
        """Withdraw a request, whether its claim was made or not."""
        request.entry.withdraw(request)

    def settle(self, entry: ClaimEntry, ranges: Ranges, status: UserStatus) -> None:
        """Write the status of users with the next group."""
        if ranges:
            entry.settle(ranges, status)
            self._enqueue(entry)

    async def written(self, entry: ClaimEntry, deadline: float) -> None:
        """Wait until the entry is written, its write has failed twice, or the deadline has passed.

        A cancelled caller waits as well, whatever the deadline.
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

    async def look(self, entry: ClaimEntry) -> None:
        """Read what the store holds of an entry, without a claim. Raises ClaimStoreError or ValidationError."""
        try:
            async with asyncio.timeout(self._store.timeout):
                (found,) = await self._store.get([entry.key])
            entry.look(found)
        except PushError:
            raise
        except Exception as error:
            raise ClaimStoreError(f"the claim store failed ({type(error).__name__})") from error

    # -- the writes ---------------------------------------------------------------------------------------------

    def _enqueue(self, entry: ClaimEntry) -> None:
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
            # Entries that came after its last look at the queue; not after a bug of ours.
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

    def _next(self) -> list[ClaimEntry]:
        """Return what is written next, each key once: what is new, or what failed, singly after its second failure."""
        if self._queue:
            return _by_key(islice(self._queue, self._store.at_once))
        if not self._failed:
            return []
        # An entry that the store never takes must not hold up the others.
        first = next((entry for entry in self._failed if entry.requests), next(iter(self._failed)))
        if first.failures >= TRIES:
            return [first]
        return _by_key(entry for entry in islice(self._failed, self._store.at_once) if entry.failures < TRIES)

    async def _write(self, entries: list[ClaimEntry]) -> Exception | None:
        """Write these entries, once. Return the error if that fails."""
        puts = {entry: put for entry in entries if (put := entry.prepare()) is not None}
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._store.timeout):
                found = await self._store.put(list(puts.values()), self._store.claim_ttl) if puts else []
            if len(found) != len(puts):
                raise ValueError(f"the claim store answered {len(found)} of {len(puts)} puts")
        except asyncio.CancelledError:
            self._fail(list(puts), TimeoutError())
            raise
        except Exception as failure:  # noqa: BLE001 - whatever it is: the calls are told, and the store later
            error = failure
            self._fail(list(puts), error)
        else:
            for entry, other in zip(puts, found, strict=False):
                if other is None:
                    entry.stored()
                elif not entry.refused(other):
                    logger.warning("a claim was gone when its outcome was to be written: a redelivery may push again")
        for entry in entries:
            self._requeue(entry)
        if len(self._failed) > KEPT:
            self._give_up(list(self._failed)[: len(self._failed) - KEPT], f"more than {KEPT} calls wait to be settled")
        return error

    def _requeue(self, entry: ClaimEntry) -> None:
        """Put what is left of an entry behind all others."""
        self._queue.pop(entry, None)
        self._failed.pop(entry, None)
        if entry.is_changed or entry.requests:
            (self._failed if entry.failures else self._queue)[entry] = None
        else:
            self._forget(entry)

    def _fail(self, entries: Sequence[ClaimEntry], error: Exception) -> None:
        for entry in entries:
            entry.failed(error)
            if isinstance(error, PushError):
                # No later try would fare better, as with the store of another loop.
                entry.give_up()
        if isinstance(error, TimeoutError):
            # A silent store ends all that wait for it: else each would wait for a timeout of its own.
            for entry in (*self._queue, *self._failed):
                entry.fail_waiting(error)
        if any(entry.failures == TRIES for entry in entries):
            logger.warning(
                "the claim store failed (%s): until it answers, calls that have ended are unknown to other processes",
                type(error).__name__,
            )

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _is_over(self, error: Exception) -> bool:
        """Return True if the client is closed, or is being closed while the store fails at once.

        An error at once is hardly ever a short outage, and often a wrong address. A silent store is waited for as long
        as the drain lasts.
        """
        return self._engine.sender.closed or (self._engine.closed and not isinstance(error, TimeoutError))

    def _give_up(self, entries: Sequence[ClaimEntry], why: str) -> None:
        for entry in entries:
            entry.fail_waiting(TimeoutError())
            entry.give_up()
            self._requeue(entry)
        if entries:
            logger.warning(
                "%s: the outcomes of %d calls were not written to the claim store, and stay unknown to other processes",
                why,
                len(entries),
            )

    def _announce(self) -> None:
        wrote, self._wrote = self._wrote, asyncio.get_running_loop().create_future()
        wrote.set_result(None)

    def _forget(self, entry: ClaimEntry) -> None:
        if not entry.uses and entry.is_written and self._entries.get(entry.key) is entry:
            del self._entries[entry.key]


def _by_key(entries: Iterable[ClaimEntry]) -> list[ClaimEntry]:
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
