"""Sending of one batch, whole or in parts if it is too large or was rejected, and the calls that have not ended.

The core decides what is split (``_core.splitting``).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol

import msgspec

from pushsdk._core import wire
from pushsdk._core.batching import Batch, Call, Content
from pushsdk._core.error_mapping import conclude
from pushsdk._core.errors import PushError
from pushsdk._core.events import Event, RequestSplit, SendAbandoned
from pushsdk._core.learned_sizes import LearnedSizes
from pushsdk._core.operations import PUSH, Target
from pushsdk._core.outcome import ACCEPTED, REJECTED, Evidence, Failure, Outcome, Verdict, verdict_of
from pushsdk._core.policy import Batching
from pushsdk._core.results import Counters, Receipt
from pushsdk._core.splitting import (
    BatchPart,
    CallPart,
    MessageRecord,
    Rejected,
    Splitter,
    attempts_of,
    call_of,
    split_calls,
)
from pushsdk._core.words import count
from pushsdk._io.credentials import NoKey
from pushsdk._io.fast_post import Claim
from pushsdk._io.sender import RequestSender
from pushsdk._io.timers import let_read
from pushsdk._io.transport import ApiRequest, Claimant

logger = logging.getLogger("pushsdk")
End = Callable[[BatchPart, Verdict], Awaitable[None]]


class PendingCalls:
    """The calls that have not ended: settles them, counts outcomes, and tells waiters when all have ended."""

    def __init__(self, counters: Counters, emit: Callable[[Event], None] | None, target: Target) -> None:
        self._counters = counters
        #: Where pushes go, for the texts of errors.
        self.target = target
        self._emit = emit
        #: The calls that have not ended. Added by the queue.
        self.active: set[Call] = set()
        #: The last sends that ended after their callers had stopped waiting.
        self.abandoned: deque[SendAbandoned] = deque(maxlen=1000)
        #: The calls that ended since the client is being closed; None before. Set by the engine.
        self.drained: list[Call] | None = None
        # True once an abandoned send that may have been pushed was logged as a warning: the others are not.
        self._has_warned = False
        # What each waiter still waits for, and its future.
        self._waiters: list[tuple[set[object], asyncio.Future[None]]] = []

    def settle_part(self, part: BatchPart, verdict: Verdict) -> None:
        """Settle the users of one request with its verdict."""
        self._counters.users[verdict.outcome] += part.users
        receipt: Receipt | None = None
        if len(part.units) > 1:
            if verdict.outcome is REJECTED:
                verdict = msgspec.structs.replace(verdict, shared=True)
            elif verdict.outcome is ACCEPTED:
                # One receipt for all calls with one user, of which there may be thousands.
                receipt = Receipt(users=1, attempts=verdict.attempts)
        for unit in part.units:
            # ``call_of``, without a call.
            call = unit.call if isinstance(unit, CallPart) else unit
            users = unit.users
            if call.settle(users, verdict, None if call.duplicates or len(users) > 1 else receipt) and call.abandoned:
                self.report_abandoned(call)
        if receipt is not None:
            # Later: a waiter for idleness must find these calls pending until their callers have run.
            asyncio.get_running_loop().call_soon(self._end_all, part)

    def settle(self, call: Call, users: tuple[str, ...], verdict: Verdict) -> None:
        """Settle users of a call that no request carried, or whose request is unknown."""
        self._counters.users[verdict.outcome] += len(users)
        if call.settle(users, verdict) and call.abandoned:
            self.report_abandoned(call)

    def conclude(self, call: Call) -> Receipt:
        """Return the receipt of a call that its caller has stopped waiting for, or raise its PushError."""
        if not call.unsettled:
            self.end(call)
        verdict = call.verdict
        if verdict is not None and verdict.outcome is ACCEPTED and not verdict.recorded:
            # Nearly every call.
            return Receipt(users=len(call.users), duplicates=call.duplicates, attempts=verdict.attempts)
        parts = call.parts
        if call.unsettled:
            # The deadline has expired during a shared request, whose end is reported to ``on_event``.
            call.abandoned = True
            parts = (*parts, (unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE)))
        options = None if call.batch is None else call.batch.content.options
        return conclude(call.users, call.duplicates, parts, self.target, options)

    def report_abandoned(self, call: Call) -> None:
        """Report the end of a call whose caller had stopped waiting."""
        self.end(call)
        self._counters.abandoned += 1
        for outcome in Outcome:
            if parts := [(users, verdict) for users, verdict in call.parts if verdict.outcome is outcome]:
                users = tuple(user for part, _ in parts for user in part)
                self.report(SendAbandoned(outcome=outcome, user_ids=users, attempts=attempts_of(parts)))

    def report(self, event: SendAbandoned) -> None:
        """Log the end of an abandoned send, keep it for the DrainReport, and pass it to ``on_event``."""
        is_news = event.outcome is Outcome.UNKNOWN and self._emit is None and not self._has_warned
        self._has_warned = self._has_warned or is_news
        level = logging.WARNING if is_news else logging.INFO
        self.abandoned.append(event)
        users = count(len(event.user_ids))
        logger.log(level, "a send to %s ended as %s after its caller had stopped waiting", users, event.outcome.value)
        if self._emit is not None:
            self._emit(event)

    def note(self, call: Call) -> str:
        """Return the outcomes of a cancelled call so far, for whoever sees only the cancellation."""
        found = {verdict.outcome for _, verdict in call.parts} | ({Outcome.UNKNOWN} if call.unsettled else set())
        text = f"pushsdk: the outcome of the cancelled call to {count(len(call.users))} is {', '.join(sorted(found))}"
        if Outcome.UNKNOWN in found:
            text += (
                ": another send may push twice. To learn the outcome, use send(timeout=...) instead of asyncio.timeout"
            )
        return text

    def warn(self, error: PushError) -> None:
        """Log the error of a submitted send as a warning, unless ``on_event`` gets it: perhaps nobody awaits it."""
        if self._emit is None:
            reason = error.attempts[-1].reason if error.attempts else str(error)
            users = count(len(error.user_ids))
            logger.warning("a submitted send to %s ended as %s: %s", users, error.outcome.value, reason)

    def end(self, call: Call) -> None:
        """Remove a call that is complete. Does nothing if the call never began."""
        if call in self.active:
            self.active.remove(call)
            if self.drained is not None:
                self.drained.append(call)
            if self._waiters:
                self.ended(call)

    def ended(self, item: object) -> None:
        """Tell the waiters that a call, or something else that they wait for, has ended."""
        for items, future in tuple(self._waiters):
            items.discard(item)
            if not items and not future.done():
                future.set_result(None)

    async def wait(self, items: set[object], seconds: float | None) -> bool:
        """Wait until these calls, and other items, have ended. Return False if that takes longer than ``seconds``."""
        waiter = (items, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await asyncio.wait([waiter[1]], timeout=seconds)
            await let_read()  # if the loop is late, the answers come after its timers
            return waiter[1].done()
        finally:
            self._waiters.remove(waiter)

    def _end_all(self, part: BatchPart) -> None:
        """End the whole calls of a shared request, at once: for thousands of calls that is much faster."""
        if self.drained is None and not self._waiters:
            self.active.difference_update(part.units)
            return
        for unit in [unit for unit in part.units if unit in self.active]:
            self.end(call_of(unit))


def unsettled(call: Call) -> tuple[str, ...]:
    """Return the call's users without a verdict."""
    settled = {user for users, _ in call.parts for user in users}
    return tuple(user for user in call.users if user not in settled)


class CallClaims(Claimant, Protocol):
    """Claims of the calls that one request carries."""

    part: BatchPart
    """The part to send; after a claim without the users whose claim was refused, which are settled."""


class BatchRequest(ApiRequest, eq=False, gc=False):
    """The request of a part of a batch, whose calls leave it if they are short of time."""

    owner: Any = None
    """The ``BatchSender``."""
    content: Any = None
    """The batch's ``Content``."""
    part: Any = None
    """The ``BatchPart`` to send: without the calls that left."""

    @property
    def is_urgent(self) -> bool:
        return bool(self.content.options.is_urgent)

    @property
    def prepare(self) -> Claim:
        return self._prepare

    def has_time(self) -> bool:
        # Without a key nothing is sent, and the reason for that is the better answer.
        return isinstance(self.key, NoKey) or bool(self.owner.drop_late(self))

    def take(self, part: BatchPart) -> None:
        """Send this part, whose calls are some of those before."""
        self.part, self.units = part, part.units

    async def _prepare(self) -> bytes | None:
        body: bytes | None = self.body if self.has_time() else None
        if body is not None and self.claim is not None:
            claim: Any = self.claim
            claim.part = self.part
            body = await claim.claim()
            self.take(claim.part)
        if body is not None:
            self.owner.note_sent(self)
        return body


class BatchSender:
    """Sends batches that have a slot."""

    def __init__(
        self, sender: RequestSender, pending: PendingCalls, *, sizes: LearnedSizes, batching: Batching
    ) -> None:
        self._sender = sender
        self._pending = pending
        self._sizes = sizes
        self._split_on = batching.split_on
        self._max_users = batching.max_users
        # The records of the last 256 messages.
        self._message = lru_cache(256)(lambda content: MessageRecord())

    def begin(self, batch: Batch, respond: Callable[[bool], None]) -> bool:
        """Post the batch, if that can be done at once: see ``RequestSender.begin``."""
        parts = batch.parts = split_calls(batch.calls, self._sizes, batch.frame, self._max_users)
        if len(parts) > 1 or batch.content.options.keyed:
            return False
        request = batch.request = self._request(batch, parts[0])
        batch.has_slot = not self._sender.begin(request, respond)
        return not batch.has_slot

    def drop_late(self, request: BatchRequest) -> bool:
        """End the calls of a request that are short of time. Return False if no call is left."""
        sender, part = self._sender, request.part
        earliest = sender.limiter.clock() + sender.limiter.needs()
        if request.deadline < earliest:
            request.failure = Failure.NO_TIME
            sender.note_not_begun(part.users, request.deadline)
            return False
        late = [unit for unit in part.units if unit.deadline < earliest]
        if late:
            in_time = [unit for unit in part.units if unit.deadline >= earliest]
            request.take(BatchPart.of(in_time, part.history))
            request.users, request.body = request.part.users, _body_of(request.content, request.part)
            verdict = verdict_of(request.attempts, Evidence(), Failure.NO_TIME)
            for unit in late:
                self._pending.settle(call_of(unit), unit.users, verdict)
                sender.note_not_begun(len(unit.users), unit.deadline)
        return True

    def note_sent(self, request: BatchRequest) -> None:
        """Note the first byte of an attempt."""
        request.sent = self._sender.limiter.clock()
        self._sender.limiter.times.sent(request.sent)

    def accept(self, batch: Batch) -> bool:
        """Settle a batch whose response to ``begin`` is a plain 204. Return False if it has to be delivered."""
        if not self._sender.accept(batch.request):
            return False
        self._settle(batch, batch.parts[0], batch.request.verdict())
        return True

    def abort(self, batch: Batch) -> None:
        """Give up a batch that was begun."""
        self._sender.abort(batch.request)
        self._pending.settle_part(batch.parts[0], batch.request.verdict())

    async def deliver(self, batch: Batch) -> None:
        """Send the batch, or go on with a request that was begun, until every call in it is settled."""
        if len(batch.parts) > 1:
            await self._split(batch, batch.parts, None)
        else:
            request = batch.request or self._request(batch, batch.parts[0])
            await self._send(batch, batch.parts[0], request, partial(self._end, batch))

    async def _end(self, batch: Batch, whole: BatchPart, verdict: Verdict) -> None:
        if verdict.outcome is REJECTED and verdict.status in self._split_on:
            await self._split(batch, (), (whole, verdict))
        else:
            self._settle(batch, whole, verdict)

    def _settle(self, batch: Batch, whole: BatchPart, verdict: Verdict) -> None:
        if verdict.outcome is ACCEPTED:
            self._message(batch.content).accepted = True
        self._pending.settle_part(whole, verdict)

    async def _split(self, batch: Batch, parts: Sequence[BatchPart], rejected: Rejected[BatchPart] | None) -> None:
        """Send the batch in parts: it is too large (``parts``), or was ``rejected`` as a whole."""
        splitter = Splitter(
            parts, split_on=self._split_on, sizes=self._sizes, frame=batch.frame, message=self._message(batch.content)
        )
        # Settled as each ends: if other parts are cancelled, its verdict must not be lost.
        report = partial(self._report, batch, splitter)
        try:
            if rejected is not None:
                await report(*rejected)
            while wave := splitter.next_wave():
                await self._send_all(batch, [(part, self._request(batch, part)) for part in wave], report)
        except asyncio.CancelledError:
            # Every request in flight has its verdict. The other parts were in a rejected request.
            for part, verdict in splitter.rest():
                self._pending.settle_part(part, msgspec.structs.replace(verdict, failure=Failure.CANCELLED))
            raise
        for part, verdict in splitter.rest():
            self._pending.settle_part(part, verdict)

    async def _send_all(self, batch: Batch, requests: list[tuple[BatchPart, BatchRequest]], end: End) -> None:
        """Send parts at the same time. Settles all of them if cancelled."""

        async def send() -> None:
            await self._send(batch, *requests.pop(0), end)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in tuple(requests):
                    tasks.create_task(send())
        except asyncio.CancelledError:
            # What a cancellation leaves here was not sent.
            for part, _ in requests:
                self._pending.settle_part(part, verdict_of(part.history, Evidence(), Failure.CANCELLED))
            raise

    async def _send(self, batch: Batch, part: BatchPart, request: BatchRequest, end: End) -> None:
        """Send a part and await its ``end``, without the users whose claim is refused or whose time is short.

        Settles the part if cancelled.
        """
        # The first request of the batch takes over the slot.
        has_slot, batch.has_slot = batch.has_slot, False
        try:
            verdict = await self._sender.run(request, has_slot=has_slot)
        except asyncio.CancelledError:
            request.failure = request.failure or Failure.CANCELLED
            self._pending.settle_part(request.part, request.verdict())
            raise
        part = request.part
        if request.failure is Failure.REKEYED:
            await self._send_all(batch, self._by_key(batch, part, request), end)
        else:
            await end(part, verdict)

    def _by_key(self, batch: Batch, part: BatchPart, request: ApiRequest) -> list[tuple[BatchPart, BatchRequest]]:
        """Return a request for the calls of each key, which goes on where this one ended."""
        groups: dict[object, list[Call | CallPart]] = {}
        for unit in part.units:
            groups.setdefault(request.keys[unit.ask], []).append(unit)
        requests = []
        for key, units in groups.items():
            own = BatchPart.of(units, request.attempts)
            next_request = self._request(batch, own)
            for name in ("own", "number", "rekeyed", "evidence"):
                setattr(next_request, name, getattr(request, name))
            next_request.is_asked, next_request.key = key is not None, key or request.key
            requests.append((own, next_request))
        return requests

    async def _report(self, batch: Batch, splitter: Splitter[BatchPart], part: BatchPart, verdict: Verdict) -> None:
        if splitter.report(part, verdict):
            self._pending.settle_part(part, verdict)
            return
        self._sender.counters.splits += 1
        logger.info("a request for %s is split after HTTP %s", count(part.users), verdict.status)
        if self._sender.emit is not None:
            calls = len({id(call_of(unit)) for unit in part.units})
            self._sender.emit(RequestSplit(status=verdict.status or 0, users=part.users, calls=calls))

    def _request(self, batch: Batch, part: BatchPart) -> BatchRequest:
        content, units, options = batch.content, part.units, batch.content.options
        claim: CallClaims | None = None
        if options.keyed:
            claim = call_of(units[0]).claims.for_request(content, part, self._pending)
        deadline = units[0].deadline
        if len(units) > 1:
            deadline = max([unit.deadline for unit in units])
        return BatchRequest(
            PUSH,
            _body_of(content, part),
            users=part.users,
            policy=options.policy,
            timeout=options.timeout,
            deadline=deadline,
            key=content.api_key,
            units=units,
            is_asked=not part.history,
            collapsible=options.policy.unknown == "retry_if_collapsible" and wire.is_collapsible(content.message),
            attempts=part.history,
            claim=claim,
            owner=self,
            content=content,
            part=part,
        )


def _body_of(content: Content, part: BatchPart) -> bytes:
    return wire.push_body(part.ids, content.message, content.custom_fields)
