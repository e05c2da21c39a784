"""A send with a dedupe key: claimed in the store before it is queued, settled or released after.

What is recorded, sent and answered is decided in ``_core.dedupe``; here are the awaits, and what holds when one of them
fails: before the send nothing is sent, after it the caller gets the true outcome.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from pushsdk._core import dedupe, wire
from pushsdk._core.batching import Call, Content
from pushsdk._core.dedupe import Record, Share
from pushsdk._core.errors import ClaimStoreError, ConfigurationError, PushError
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.results import Receipt
from pushsdk._io.engine import Engine
from pushsdk._io.ledger import unsettled
from pushsdk._io.offload import settled
from pushsdk.claims.store import Claim, ClaimStore

__all__ = ["Guard", "Load", "guard_of"]

T = TypeVar("T")

logger = logging.getLogger("pushsdk")
# Another delivery may change the entry between two looks at it, but hardly so often.
LOOKS = 10
# A write that fails is tried once more: a connection may have gone stale while the push was out.
TRIES = 2
# Claims that could not be written: more than fail in a short outage of the store.
UNWRITTEN_KEPT = 10_000


class Load(Protocol):
    """What is sent under one claim: a call, or many requests that are known by one key."""

    @property
    def count(self) -> int:
        """How many users; each has a position."""
        ...

    @property
    def deadline(self) -> float:
        """When the store has to have answered, on the loop's clock."""
        ...

    async def send(self, places: tuple[int, ...]) -> None:
        """Send to the users at these positions, and return when it is known what became of them."""
        ...

    def after(self, record: Record) -> Record:
        """The record, as it stands after ``send``, whether that came to its end or was cancelled."""
        ...


class _Held(NamedTuple):
    """A claim of ours in the store."""

    key: str
    token: str
    before: Record
    """What holds if nothing is sent: open where this delivery may send."""
    record: Record
    """What the store has: the same, claimed."""


class _Visit:
    """A call, and all that it began: the client's end waits for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._left = 0

    def __enter__(self) -> None:
        self._left += 1
        self._engine.campaigns.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left -= 1
        if not self._left:
            self._engine.campaigns.discard(self)
            self._engine.ended(self)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work that nobody's cancellation ends, also not that of the call."""

        async def visiting() -> T:
            with self:
                return await work

        return asyncio.get_running_loop().create_task(visiting())


class Guard:
    """Sends with dedupe keys, by one store. Shared by a client and its views."""

    def __init__(self, store: ClaimStore, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        # What this process knows better than the store, which could not be told; ``before`` is what holds.
        self._unwritten: dict[str, _Held] = {}

    async def send(self, call: Call, content: Content, repeated: int, *, dedupe_key: object) -> Receipt:
        """As ``Coalescer.send``, for those of the call that no earlier delivery has reached or holds."""
        key = dedupe.digest_of(dedupe_key)
        fingerprint = dedupe.fingerprint_of(
            str(dedupe_key),
            self._engine.settings.base_url,
            ids=call.ids,
            message=content.message,
            custom_fields=content.custom_fields,
        )
        call.deadline = min(call.deadline, self.latest())
        load = _Sending(self._engine, call, content, repeated)
        before = await self.deliver(load, key=key, fingerprint=fingerprint)
        return _told(load.conclude(before))

    def latest(self) -> float:
        """When the last request under a claim of now has to be over: the claim must not expire while one is out."""
        return asyncio.get_running_loop().time() + self._store.claim_ttl / 2

    async def deliver(self, load: Load, *, key: str, fingerprint: str) -> Record:
        """Send the load to those that no earlier delivery has reached or holds: those open in the record returned.

        Raises ClaimStoreError, and ValidationError for another payload, before anything is sent.
        """
        visit = _Visit(self._engine)
        with visit:
            held = await self._claim(visit, load, key, dedupe.begin(fingerprint, load.count, time.time()))
            if isinstance(held, Record):
                return held
            try:
                await load.send(held.before.open())
            except asyncio.CancelledError:
                await settled(visit.start(self._put(held, load.after(held.record))))
                raise
            await self._settle(visit, held, load.after(held.record), load.deadline)
            return held.before

    # -- before the send ----------------------------------------------------------------------------------------

    async def _claim(self, visit: _Visit, load: Load, key: str, ours: Record) -> _Held | Record:
        """Claimed for this delivery; or what is recorded, where it leaves nothing to send."""
        task = visit.start(self._take(visit, key, ours))
        try:
            await asyncio.wait([task], timeout=_seconds_to(load.deadline))
        except asyncio.CancelledError:
            await settled(visit.start(self._undo(task)))
            raise
        if not task.done():
            visit.start(self._undo(task))
            raise ClaimStoreError("not sent: the claim store did not answer within the call's timeout")
        return task.result()

    async def _take(self, visit: _Visit, key: str, ours: Record) -> _Held | Record:
        store, token = self._store, secrets.token_hex(16)
        held = fresh = _Held(key, token, ours.opened(), ours)
        try:
            async with asyncio.timeout(store.timeout):
                for _ in range(LOOKS):
                    held = fresh
                    found = await store.add(key, Claim(token, ours.encode()), store.claim_ttl)
                    # A store that asks again after a lost answer meets its own claim.
                    if found is None or found.token == token:
                        return fresh
                    record = self._read(visit, key, found, ours)
                    if not record.open():
                        return record
                    held = _Held(key, token, record, record.taken())
                    if await store.swap(key, found.token, Claim(token, held.record.encode()), store.claim_ttl):
                        self._unwritten.pop(key, None)
                        return held
                raise TimeoutError
        except PushError:
            raise
        except Exception as error:
            # It may have been written all the same.
            visit.start(self._put(held, held.before))
            raise ClaimStoreError(f"not sent: the claim store failed ({type(error).__name__})") from error

    def _read(self, visit: _Visit, key: str, found: Claim, ours: Record) -> Record:
        record = dedupe.read(found.record, ours)
        known = self._unwritten.get(key)
        if known is None or known.token != found.token:
            return record
        if not known.before.open():
            # What could not be written then may be now.
            visit.start(self._put(known, known.before))
        return known.before

    async def _undo(self, task: asyncio.Task[_Held | Record]) -> None:
        """The call has gone: what it claimed is given back, once that is known."""
        if await settled(task) and isinstance(held := task.result(), _Held):
            await self._put(held, held.before)

    # -- after the send -----------------------------------------------------------------------------------------

    async def _settle(self, visit: _Visit, held: _Held, record: Record, deadline: float) -> None:
        """Written when this returns, but for a store that is slower than the call may be."""
        if record == held.record:
            return
        task = visit.start(self._put(held, record))
        try:
            await asyncio.wait([task], timeout=_seconds_to(deadline))
        except asyncio.CancelledError:
            await settled(task)
            raise

    async def _put(self, held: _Held, record: Record) -> None:
        """Write what became of a claim, or give it back. Raises nothing: what was sent is as it is."""
        store, (key, token, _, _) = self._store, held
        known = self._unwritten[key] = held._replace(before=record)
        why = ""
        for _ in range(TRIES):
            try:
                async with asyncio.timeout(store.timeout):
                    if record.is_void:
                        await store.remove(key, token)
                        found = True
                    else:
                        found = await store.swap(key, token, Claim(token, record.encode()), store.claim_ttl)
            except Exception as error:  # noqa: BLE001 - whatever it is: the outcome is the caller's, not the store's
                why = type(error).__name__
                continue
            if self._unwritten.get(key) is known:
                del self._unwritten[key]
            if not found:
                logger.warning("the claim of a push had gone when it was to be settled: a redelivery would push again")
            return
        logger.warning("the claim store failed (%s): a push that has ended stays claimed, which is unknown", why)
        while len(self._unwritten) > UNWRITTEN_KEPT:
            del self._unwritten[next(iter(self._unwritten))]


class _Sending:
    """One call under one claim."""

    def __init__(self, engine: Engine, call: Call, content: Content, repeated: int) -> None:
        self._engine = engine
        self._call = call
        self._content = content
        self._repeated = repeated
        # What of the call is sent: all of it, or a part of its users; and what that was answered. Set by ``send``.
        self._part: Call | None = None
        self._told: Receipt | PushError | None = None

    @property
    def count(self) -> int:
        return len(self._call.users)

    @property
    def deadline(self) -> float:
        return self._call.deadline

    async def send(self, places: tuple[int, ...]) -> None:
        call = part = self._call
        if len(places) < len(call.users):
            users = tuple(call.users[place] for place in places)
            part = Call(users, wire.encode_user_ids(users)[1:-1], call.deadline, len(users))
        self._part = part
        try:
            self._told = await self._engine.coalescer.send(part, self._content, self._repeated)
        except PushError as error:
            self._told = error

    def after(self, record: Record) -> Record:
        assert self._part is not None  # noqa: S101 - set by ``send``, which comes before
        # Cancelled, only what is known by now is.
        shares = tuple(self._part.parts) if self._told is None else _shares(self._part)
        return record.after(self._call.users, shares)

    def conclude(self, before: Record) -> Receipt | PushError:
        """What the caller is told."""
        if self._told is not None and self._part is self._call:
            return self._told
        shares = () if self._part is None else _shares(self._part)
        return dedupe.conclude(self._call.users, self._repeated, before=before, shares=shares)


def guard_of(claims: object, engine: Engine) -> Guard | None:
    """The guard by this store, None where there is none. Raises ConfigurationError."""
    if claims is None:
        return None
    if not isinstance(claims, ClaimStore):
        raise ConfigurationError("claims is a claim store, as pushsdk.claims.SqliteClaims(path)")
    return Guard(claims, engine)


def _shares(call: Call) -> tuple[Share, ...]:
    """The verdicts on all users of a call that has ended for its caller."""
    if not call.left:
        return tuple(call.parts)
    return (*call.parts, (unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE)))


def _seconds_to(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())


def _told(told: Receipt | PushError) -> Receipt:
    if isinstance(told, PushError):
        raise told
    return told
