"""A send with a dedupe key: claimed in the store before it is queued, settled or released after.

What is recorded, sent and answered is decided in ``_core.dedupe``, what the store is asked in ``_owed``; here are the
awaits, and what holds when one of them fails: before the send nothing is sent, after it the caller gets the true
outcome. Either way the store is told what is true once it answers again, for as long as the client is open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from pushsdk._core import dedupe, wire
from pushsdk._core.batching import Call, Content
from pushsdk._core.dedupe import Record, Share
from pushsdk._core.errors import ClaimStoreError, ConfigurationError, PushError
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.results import Receipt
from pushsdk._io.engine import Engine
from pushsdk._io.ledger import unsettled
from pushsdk._io.offload import settled
from pushsdk.claims._owed import Debt, Get, Held, Op, Owed, Steps, Swap, Taking, looking
from pushsdk.claims._turns import Turns
from pushsdk.claims.store import Claim, ClaimStore, Put

__all__ = ["Guard", "Load", "guard_of"]


T = TypeVar("T")

logger = logging.getLogger("pushsdk")
# Visits to the store at a time.
AT_A_TIME = 16
# A write that fails is tried once more: a connection may have gone stale while the push was out.
TRIES = 2
# Work that somebody's cancellation of all tasks ended is begun again. Who cancels more often than this means it.
BEGUN_AGAIN = 10
# Seconds between two tries to tell a store that fails: the first, and the longest.
PAUSE, LONGEST_PAUSE = 0.1, 1.0
# What a store that fails leaves behind.
SENT = "a push that has ended stays claimed, which is unknown to other processes"
UNUSED = "a claim that nothing was sent under stays, which is unknown to other processes"


class Sending:
    """See ``_guard.Load``."""

    __slots__ = ("_call", "_content", "_engine", "_ids", "_part", "_told", "_users")

    def __init__(self, engine: Engine, call: Call, content: Content) -> None:
        self._engine = engine
        self._call = call
        self._content = content
        # Its users by position, and they as JSON: whatever order the caller's were in.
        self._users, self._ids = dedupe.by_position(call.users), call.ids
        if self._users != call.users:
            self._ids = wire.encode_user_ids(self._users)[1:-1]
        # What of the call is sent: all of it, or a part of its users; and what that was answered. Set by ``send``.
        self._part: Call | None = None
        self._told: Receipt | PushError | None = None

    @property
    def count(self) -> int:
        return len(self._users)

    @property
    def deadline(self) -> float:
        return self._call.deadline

    def fingerprint(self, dedupe_key: str) -> str:
        """Of exactly what is sent, and where."""
        return dedupe.fingerprint_of(
            dedupe_key,
            self._engine.settings.base_url,
            ids=self._ids,
            message=self._content.message,
            custom_fields=self._content.custom_fields,
        )

    async def send(self, places: tuple[int, ...]) -> None:
        call = part = self._call
        if len(places) < len(call.users):
            users = tuple(self._users[place] for place in places)
            part = Call(users, wire.encode_user_ids(users)[1:-1], call.deadline, len(users), call.repeated)
        self._part = part
        try:
            self._told = await self._engine.coalescer.send(part, self._content)
        except PushError as error:
            self._told = error

    def after(self, record: Record) -> Record:
        assert self._part is not None  # noqa: S101 - set by ``send``, which comes before
        # Cancelled, only what is known by now is.
        shares = tuple(self._part.parts) if self._told is None else _shares(self._part)
        return record.after(self._users, shares)

    def conclude(self, before: Record) -> Receipt | PushError:
        """What the caller is told."""
        if self._told is not None and self._part is self._call:
            return self._told
        shares = () if self._part is None else _shares(self._part)
        return dedupe.conclude(self._call.users, self._call.repeated, before=before, shares=shares)

    def fail(self) -> None:
        """The store failed before anything was sent: that counts, and is in the report of the client's end."""
        ledger, call = self._engine.coalescer.ledger, self._call
        ledger.settle(call, call.users, Verdict(outcome=Outcome.NOT_SENT))
        ledger.end(call)

    def abandon(self) -> None:
        """The caller was cancelled: ``on_event`` is told how it ended, as of any send."""
        ledger, call = self._engine.coalescer.ledger, self._call
        if self._part is None:
            call.gone = True
            ledger.settle(call, call.users, Verdict(outcome=Outcome.NOT_SENT, failure=Failure.CANCELLED))
        elif self._told is not None and not self._part.left:
            self._part.gone = True
            ledger.tell_abandoned(self._part)
        # Else it left in the middle of its sending, and the coalescer tells.


def _shares(call: Call) -> tuple[Share, ...]:
    """The verdicts on all users of a call that has ended for its caller."""
    if not call.left:
        return tuple(call.parts)
    return (*call.parts, (unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE)))


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


class _Visit:
    """A call, and all that it began, among those that the client's end waits for."""

    __slots__ = ("_engine", "_items", "_left")

    def __init__(self, engine: Engine, items: set[object]) -> None:
        self._engine = engine
        self._items = items
        self._left = 0

    def begin(self) -> None:
        """One thing more is to end."""
        self._left += 1
        if self._left == 1:
            self._items.add(self)

    def end(self) -> None:
        """One of them has."""
        self._left -= 1
        if not self._left:
            self._items.discard(self)
            self._engine.ended(self)

    def start(self, work: Coroutine[Any, Any, T], then: Callable[[], None]) -> asyncio.Task[T]:
        """Work that a cancellation of the call does not end; ``then`` is called after it, also if it never began."""

        def ended(_: asyncio.Task[T]) -> None:
            then()
            self.end()

        self.begin()
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(ended)
        return task

    def see_to(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Future[None]:
        """Work that nobody's cancellation ends, also not one of all tasks of the loop. It raises nothing."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        again = BEGUN_AGAIN

        def ended(task: asyncio.Task[None]) -> None:
            nonlocal again
            if task.cancelled() and again:
                again -= 1
                loop.create_task(work()).add_done_callback(ended)
                return
            done.set_result(None)
            self.end()

        self.begin()
        loop.create_task(work()).add_done_callback(ended)
        return done


class Guard:
    """Sends with dedupe keys, by one store. Shared by a client and its views."""

    def __init__(self, store: ClaimStore, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._turns = Turns(AT_A_TIME)
        self._owed = Owed()
        # Tells the store what it could not be told at once, while there is such. Set by ``_pay``.
        self._late: asyncio.Task[None] | None = None

    async def send(self, call: Call, content: Content, *, dedupe_key: object) -> Receipt:
        """As ``Coalescer.send``, for those of the call that no earlier delivery has reached or holds."""
        key = dedupe.digest_of(dedupe_key)
        call.deadline = min(call.deadline, self.latest())
        load = Sending(self._engine, call, content)
        try:
            before = await self.deliver(load, key=key, fingerprint=load.fingerprint(str(dedupe_key)))
        except ClaimStoreError:
            load.fail()
            raise
        except asyncio.CancelledError:
            load.abandon()
            raise
        told = load.conclude(before)
        if isinstance(told, PushError):
            raise told
        return told

    def latest(self) -> float:
        """When the last request under a claim of now has to be over: the claim must not expire while one is out."""
        return asyncio.get_running_loop().time() + self._store.claim_ttl / 2

    async def deliver(self, load: Load, *, key: str, fingerprint: str) -> Record:
        """Send the load to those that no earlier delivery has reached or holds: those open in the record returned.

        Raises ClaimStoreError, and ValidationError for another payload, before anything is sent.
        """
        visit = _Visit(self._engine, self._engine.campaigns)
        visit.begin()
        try:
            held = await self._claim(visit, load, key, dedupe.begin(fingerprint, load.count, time.time()))
            if isinstance(held, Record):
                return held
            try:
                await load.send(held.before.open())
            except asyncio.CancelledError:
                await settled(self._settle(visit, held, load.after(held.record)))
                raise
            if (record := load.after(held.record)) != held.record:
                written = self._settle(visit, held, record)
                try:
                    # Written when this returns, but for a store that is slower than the call may be.
                    await asyncio.wait([written], timeout=_seconds_to(load.deadline))
                except asyncio.CancelledError:
                    await settled(written)
                    raise
            return held.before
        finally:
            visit.end()

    async def recorded(self, *, key: str, fingerprint: str, users: int) -> Record:
        """What earlier deliveries recorded of so many users; open where nothing is. Nothing is claimed.

        What could not be settled before is settled now. Raises ClaimStoreError, ValidationError for another payload.
        """
        ours = dedupe.begin(fingerprint, users, time.time())
        try:
            return await self._in_turn(key, looking(key, ours, self._owed))
        except PushError:
            raise
        except Exception as error:
            raise ClaimStoreError(f"the claim store failed ({type(error).__name__})") from error

    # -- before the send ----------------------------------------------------------------------------------------

    async def _claim(self, visit: _Visit, load: Load, key: str, ours: Record) -> Held | Record:
        """Claimed for this delivery; or what is recorded, where it leaves nothing to send."""
        try:
            await self._turns.take(load.deadline)
        except TimeoutError as error:
            raise _failed(error if _seconds_to(load.deadline) else None) from error
        taking = Taking(key, ours, self._owed)
        task = visit.start(self._walk(key, taking.steps()), then=self._turns.give)
        try:
            await asyncio.wait([task], timeout=_seconds_to(load.deadline))
        except asyncio.CancelledError:
            await settled(self._undo(visit, taking, task))
            raise
        if task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        self._undo(visit, taking, task)
        if not task.done():
            raise _failed(None)
        why = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(why, PushError):
            raise why
        raise _failed(why) from why

    def _undo(self, visit: _Visit, taking: Taking, task: asyncio.Task[Held | Record]) -> asyncio.Future[Any]:
        """The call has gone, or failed: from here on a delivery of this process finds nothing claimed by it."""
        task.cancel()
        if not taking.written:
            return task
        return self._tell(visit, taking.key, taking.undoing, UNUSED)

    # -- after the send -----------------------------------------------------------------------------------------

    def _settle(self, visit: _Visit, held: Held, record: Record) -> asyncio.Future[None]:
        """What was sent is as it is, whatever the store answers."""
        return self._tell(visit, held.key, lambda: held.settling(record), UNUSED if record == held.before else SENT)

    # -- the store ----------------------------------------------------------------------------------------------

    def _tell(self, visit: _Visit, key: str, debt: Debt, lost: str) -> asyncio.Future[None]:
        """Have the store told. Ends when it was, or when that is left to ``_late``."""
        self._owed.add(key, debt)
        return visit.see_to(lambda: self._pay(key, lost))

    async def _pay(self, key: str, lost: str) -> None:
        why: Exception | None = None
        for _ in range(TRIES):
            try:
                _check_paid(await self._in_turn(key, self._owed.paying(key)))
                return
            except Exception as error:  # noqa: BLE001 - whatever it is: the outcome is the caller's, not the store's
                why = error
        assert why is not None  # noqa: S101 - there is one try at least
        logger.warning("the claim store failed (%s): %s", type(why).__name__, lost)
        self._owed.postpone(key, why)
        # After the drain nothing is begun any more.
        if (self._late is None or self._late.done()) and not self._engine.sender.closed:
            visit = _Visit(self._engine, self._engine.late)
            self._late = visit.start(self._pay_late(), then=lambda: None)

    async def _pay_late(self) -> None:
        """Tell the store what it could not be told, for as long as that takes and the client is open.

        A client that closes waits for a store that is silent, as long as its drain, but not for one that fails at
        once: that is hardly ever a short outage, and often a wrong address.
        """
        pause, is_hopeless = PAUSE, False
        while keys := self._owed.overdue(AT_A_TIME):
            if self._engine.sender.closed or is_hopeless:
                logger.warning("the client was closed before the claim store could be told: %s", UNUSED)
                return
            tries = [self._in_turn(key, self._owed.paying(key)) for key in keys]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            failed = {key: why for key, why in zip(keys, answers, strict=True) if isinstance(why, BaseException)}
            for key, why in failed.items():
                self._owed.postpone(key, why)
            _check_paid(False not in answers)
            is_silent = any(isinstance(why, TimeoutError) for why in failed.values())
            is_hopeless = bool(failed) and not is_silent and self._engine.closed
            if failed and not is_hopeless:
                await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE) if failed else PAUSE

    async def _in_turn(self, key: str, steps: Steps[T]) -> T:
        await self._turns.take()
        try:
            return await self._walk(key, steps)
        finally:
            self._turns.give()

    async def _walk(self, key: str, steps: Steps[T]) -> T:
        """Ask the store step by step, within its timeout. Needs a turn."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._store.timeout):
                op = next(steps)
                while True:
                    answer = await self._ask(key, op)
                    self._turns.heard()
                    op = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        except TimeoutError:
            self._turns.silent(began)
            raise

    async def _ask(self, key: str, op: Op) -> Claim | bool | None:
        store = self._store
        if isinstance(op, Get):
            (found,) = await store.get([key])
            return found
        expected = (op.token,) if isinstance(op, Swap) else ()
        (found,) = await store.put([Put(key, op.claim, expected)], store.claim_ttl)
        return found is None if isinstance(op, Swap) else found


def guard_of(claims: object, engine: Engine) -> Guard | None:
    """The guard by this store, None where there is none. Raises ConfigurationError."""
    if claims is None:
        return None
    if not isinstance(claims, ClaimStore):
        raise ConfigurationError("claims is a claim store, as pushsdk.claims.SqliteClaims(path)")
    return Guard(claims, engine)


def _check_paid(is_there: bool) -> None:
    if not is_there:
        logger.warning("the claim of a push had gone when it was to be settled: a redelivery would push again")


def _failed(why: BaseException | None) -> ClaimStoreError:
    """Its error, or the call's deadline that came first."""
    if why is None:
        return ClaimStoreError("not sent: the claim store did not answer within the call's timeout")
    return ClaimStoreError(f"not sent: the claim store failed ({type(why).__name__})")


def _seconds_to(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())
