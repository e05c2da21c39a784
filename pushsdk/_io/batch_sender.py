"""Sending one batch that has a slot: at once on a pooled connection, or by a task, whole or in parts.

A batch that is answered by a plain 204 on a pooled connection needs no task. Any other has a separate task, so that
no cancelled caller takes the others along. The core decides on splits (``_core.splitting``).
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from pushsdk._core import wire
from pushsdk._core.batching import Batch, Batches, Call, Content
from pushsdk._core.body import push_body
from pushsdk._core.events import RequestSplit
from pushsdk._core.learned_limit import LearnedLimit
from pushsdk._core.operations import PUSH
from pushsdk._core.outcome import (
    ACCEPTED,
    OUT_OF_TIME,
    REJECTED,
    Attempt,
    Failure,
    Outcome,
    Verdict,
    mutable,
    verdict_of,
)
from pushsdk._core.policy import Batching
from pushsdk._core.splitting import BatchPart, CallPart, MessageRecord, Rejected, Splitter, within
from pushsdk._core.words import count
from pushsdk._io.credentials import NoKey
from pushsdk._io.pending import PendingCalls
from pushsdk._io.request import ClaimedRequest
from pushsdk._io.sender import RequestSender

logger = logging.getLogger("pushsdk")
End = Callable[[BatchPart, Verdict], Awaitable[None]]
Left = dict[Call | CallPart, Verdict]
_MAX_MESSAGES = 256


@mutable
class BatchRequest(ClaimedRequest, eq=False, gc=False):
    """A request for a batch or its part, whose calls leave it if their time is short."""

    claim: Any = None
    """The ``KeyedClaim``, which claims each attempt's users; None if nothing has to survive the process."""
    owner: Any = None
    """The ``BatchSender``."""
    batch: Any = None
    """The ``Batch``, to which the part belongs."""
    keys: Any = None
    """If the calls' keys differ, and so the request ends as REKEYED: the keys by ``ask``; None for a call that needs no
    other attempt."""

    @property
    def is_collapsible(self) -> bool:
        return self.options.policy.unknown == "retry_if_collapsible" and wire.is_collapsible(self.batch.content.message)

    def respond(self, is_plain: bool) -> None:
        """Land the batch, in its context."""
        batch = self.batch
        if batch.units and batch.task is None:  # else it was cancelled, or a task goes on with it
            batch.context.run(self.owner.land, batch, is_plain)

    async def prepare(self) -> bytes | None:
        limiter = self.owner.limiter
        if not self.narrow(limiter):
            return None
        body = self.body if self.claim is None else await super().prepare()
        if body is not None:
            # The attempt's first byte.
            self.flight.sent = limiter.times.sent(limiter.clock())
        return body

    async def claim_users(self) -> bytes | None:
        self.part, body = await self.claim.claim(self.part)
        return body  # type: ignore[no-any-return]

    def settle(self, attempt: Attempt) -> None:
        if self.claim is not None:
            self.claim.settle(verdict_of((*self.attempts, attempt), self.evidence))

    def narrow(self, limiter: Any = None) -> bool:
        due = -math.inf
        # Without a key nothing is sent, and the reason for that is the better answer.
        if limiter is not None and not isinstance(self.key, NoKey):
            due = limiter.likely_end(self.options.timeout.attempt)
        self.owner.drop(self, due)
        if not self.part.units:
            self.failure = Failure.NO_TIME
        return self.failure is None


class BatchSender:
    """A sender for batches that have a slot."""

    def __init__(
        self,
        sender: RequestSender,
        pending: PendingCalls,
        batches: Batches,
        *,
        learned: LearnedLimit,
        batching: Batching,
    ) -> None:
        self._sender = sender
        #: The client's limiter, for its requests.
        self.limiter = sender.limiter
        self._pending = pending
        self._batches = batches
        self._learned = learned
        self._split_on = batching.split_on
        # The contents that the service accepted last, and the records for those that were split.
        self._accepted: dict[Content, None] = {}
        self._record_of = lru_cache(_MAX_MESSAGES)(lambda _: MessageRecord())

    def start(self, batch: Batch) -> None:
        """Put a batch in flight, which has a slot: at once if that needs no await, else by a task."""
        try:
            self._batches.close(batch)
            if not self.launch(batch):
                batch.has_slot = True
                self._create_task(batch)
        except Exception:  # noqa: BLE001 - logged there
            batch.has_slot = True
            self._fail(batch)

    def launch(self, batch: Batch) -> bool:
        """Write the batch's request at once, if that needs no await. It has taken over the slot then."""
        sender, observer = self._sender, self._sender.observer
        if batch.users > self._learned.users:
            return False
        # For merged calls, the span is current in a task.
        if observer is not None and len(batch.units) > 1:
            return False
        request = self._request(batch, batch)
        batch.requests = [request]
        if not sender.reserve(request):
            return False
        if observer is not None:
            # A copy, as the batch may be dispatched in its context.
            request.flight.span = batch.context.copy().run(partial(observer.attempt, PUSH, batch.users, 0, first=True))
        flight = request.flight
        if not sender.begin(request, request.respond, flight.started):
            return False
        flight.sent = sender.limiter.times.sent(flight.started)
        return True

    def land(self, batch: Batch, is_plain: bool) -> None:
        """End a batch without a task: its response is a plain 204. Anything else is left to a task."""
        (request,) = batch.requests
        try:
            verdict = self._sender.accept(request) if is_plain else None
            if verdict is None:
                self._create_task(batch)
            else:
                self._settle(batch, request.part, verdict)
                self.finish(batch)
        except Exception:  # noqa: BLE001 - logged there
            self._fail(batch)

    def cancel(self, batch: Batch) -> asyncio.Task[None] | None:
        """Cancel a batch in flight. Returns the task that ends it; None if it has ended, or is about to."""
        task: asyncio.Task[None] | None = batch.task
        if task is not None:
            task.cancel()
        elif batch.requests and batch.requests[0].is_begun:
            self._abort(batch)
        return task

    def _create_task(self, batch: Batch) -> None:
        # Not by the loop's task factory: with an eager one, a batch that ends at once would start the next one, inside
        # the limiter, and that its next one.
        batch.task = asyncio.Task(self._deliver(batch), loop=self._sender.loop, context=batch.context.copy())
        batch.task.add_done_callback(lambda _: self._abort(batch))

    def _abort(self, batch: Batch) -> None:
        """End a batch that is in flight without a task, or whose task was cancelled before its first step.

        Or one whose task an exit has ended: then nothing is proven.
        """
        if not batch.units:
            return
        outcome = Outcome.UNKNOWN if batch.task is not None and not batch.task.cancelled() else Outcome.NOT_SENT
        for request in batch.requests:
            if request.is_begun:
                self._pending.settle_part(request.part, self._sender.give_up(request))
            else:
                self._sender.end_span(request)
        self._pending.settle_rest(batch.units, Verdict(outcome=outcome, failure=Failure.CANCELLED))
        self.finish(batch)

    def _fail(self, batch: Batch) -> None:
        self._pending.fail(batch.units)
        self.finish(batch)

    def finish(self, batch: Batch) -> None:
        """End a batch whose calls are settled, or have left."""
        if batch.entry is not None:
            batch.entry.close()
        if batch.has_slot:
            batch.has_slot = False
            self.limiter.release()
        if batch.is_waiting:
            self._batches.close(batch)
        # The calls refer to the batch, and neither is known to the cycle collector.
        batch.entry = batch.context = batch.task = None
        batch.units, batch.requests, batch.splitters = [], (), ()

    async def _deliver(self, batch: Batch) -> None:
        """Send a batch, or go on with it. Every call is settled at the end, whatever happens."""
        span, observer = None, self._sender.observer
        if observer is not None and len(batch.units) > 1:
            span = observer.batch(batch.units, batch.users)
        # The client's end waits for the task, too: its calls may have left it.
        with self._sender.work.including(batch):
            try:
                await self._send_batch(batch)
            except asyncio.CancelledError:
                self.leave(batch, math.inf, Failure.CANCELLED)
                raise
            except Exception:  # noqa: BLE001 - logged there
                self._pending.fail(batch.units)
            finally:
                # An exit may come between an answer and its attempt: nothing is proven.
                self._pending.settle_rest(batch.units, Verdict(outcome=Outcome.UNKNOWN, failure=Failure.CANCELLED))
                if span is not None:
                    span.end(_tally(batch.units))
                self.finish(batch)

    async def _send_batch(self, batch: Batch) -> None:
        if not batch.requests:
            parts = list(within(BatchPart.of(batch.units), self._learned.users))
            if len(parts) > 1:
                await self._split(batch, parts, None)
                return
            batch.requests = [self._request(batch, parts[0])]
        (request,) = batch.requests
        if request.part is batch:  # which is not split
            request.part = BatchPart.of(batch.units)
        await self._send(batch, request, partial(self._end, batch))

    def leave(self, batch: Batch, due: float = -math.inf, reason: Failure = Failure.NO_TIME) -> None:
        """End the batch's calls that have left, wherever no attempt may reach the service. See ``drop``.

        A batch without other calls is cancelled.
        """
        for request in batch.requests:
            if request.flight is None or request.flight.sent is None:
                self.drop(request, due, reason)
        left: Left = {}
        for splitter in batch.splitters:
            splitter.narrow(partial(_without, left, due))
        self._end_left(left, reason)
        if not any(call.unsettled for call in batch.units):
            self.cancel(batch)

    def drop(self, request: BatchRequest, due: float, reason: Failure = Failure.NO_TIME) -> None:
        """End the request's calls that nobody waits for, or that have a deadline until ``due``.

        The attempts so far tell their outcome.
        """
        left: Left = {}
        part = request.part = _without(left, due, request.part, request.verdict())
        if left:
            content = request.batch.content
            request.body = push_body(part.ids, content.message, content.custom_fields)
            if request.claim is not None:
                request.claim.leave(part)
        self._end_left(left, reason)

    def _end_left(self, left: Left, reason: Failure) -> None:
        """End the calls after they have left their requests, as ``on_event`` may cancel others."""
        reason = self.limiter.reason_for(reason)
        for unit, verdict in left.items():
            if reason in OUT_OF_TIME and not (verdict.attempts or unit.call.future.done()):
                self._sender.note_not_begun(len(unit.users), unit.deadline, reason)
            self._pending.settle(unit.call, unit.users, msgspec.structs.replace(verdict, failure=reason))

    async def _end(self, batch: Batch, whole: BatchPart, verdict: Verdict) -> None:
        if verdict.outcome is REJECTED and verdict.status in self._split_on:
            await self._split(batch, (), (whole, verdict))
        else:
            self._settle(batch, whole, verdict)

    def _settle(self, batch: Batch, whole: Batch | BatchPart, verdict: Verdict) -> None:
        if verdict.outcome is ACCEPTED:
            if len(self._accepted) >= _MAX_MESSAGES:
                self._accepted.clear()  # faster than to drop the oldest
            self._accepted[batch.content] = None
        self._pending.settle_part(whole, verdict)

    async def _split(self, batch: Batch, parts: Sequence[BatchPart], rejected: Rejected[BatchPart] | None) -> None:
        """Send the batch in parts: it is too large (``parts``), or was ``rejected`` as a whole."""
        record = self._record_of(batch.content)
        splitter = Splitter(parts, split_on=self._split_on, learned=self._learned, frame=batch.frame, message=record)
        batch.splitters = (*batch.splitters, splitter)
        # Settled as each ends: if other parts are cancelled, its verdict must not be lost.
        report = partial(self._report, batch, splitter)
        if rejected is not None:
            await report(*rejected)
        while wave := splitter.next_wave():
            await self._send_all(batch, [self._request(batch, part) for part in wave], report)
        for part, verdict in splitter.rest():
            self._pending.settle_part(part, verdict)

    async def _send_all(self, batch: Batch, requests: list[BatchRequest], end: End) -> None:
        """Send parts at the same time."""
        batch.requests = [*batch.requests, *requests]
        async with asyncio.TaskGroup() as tasks:
            for request in requests:
                tasks.create_task(self._send(batch, request, end))

    async def _send(self, batch: Batch, request: BatchRequest, end: End) -> None:
        """Send a request and await its part's ``end``.

        The part is without the users whose claim is refused or whose time is short.
        """
        # The batch's first request takes over the slot.
        has_slot, batch.has_slot = batch.has_slot, False
        try:
            verdict = await self._sender.run(request, has_slot=has_slot)
        except Exception:
            # A bug in this package: nothing is proven, so no call may leave with the attempts so far.
            batch.requests.remove(request)
            raise
        batch.requests.remove(request)
        if request.keys is not None:
            await self._send_all(batch, self._by_key(request, request.keys), end)
        else:
            await end(request.part, verdict)

    def _by_key(self, request: BatchRequest, keys: Mapping[Any, Any]) -> list[BatchRequest]:
        """Return a request for each key's calls, which goes on where this one ended."""
        groups: dict[object, list[Call | CallPart]] = {}
        for unit in request.part.units:
            groups.setdefault(keys[unit.ask], []).append(unit)
        requests = []
        for key, units in groups.items():
            next_request = self._request(request.batch, BatchPart.of(units, request.attempts))
            next_request.is_asked, next_request.key = key is not None, key or request.key
            next_request.own, next_request.number = request.own, request.number
            next_request.rekeyed, next_request.evidence = request.rekeyed, request.evidence
            requests.append(next_request)
        return requests

    async def _report(self, batch: Batch, splitter: Splitter[BatchPart], part: BatchPart, verdict: Verdict) -> None:
        splitter.message.accepted |= batch.content in self._accepted
        if splitter.report(part, verdict):
            self._pending.settle_part(part, verdict)
            return
        self._sender.counters.splits += 1
        logger.info("a request for %s is split after HTTP %s", count(part.users), verdict.status)
        if self._sender.emit is not None:
            calls = len({id(unit.call) for unit in part.units})
            self._sender.emit(RequestSplit(status=verdict.status or 0, users=part.users, calls=calls))

    def _request(self, batch: Batch, part: Batch | BatchPart) -> BatchRequest:
        content, units, history, claim = batch.content, part.units, part.history, None
        options = content.options
        if options.keyed:
            claim = units[0].call.claims.for_request(content, part)
        ids, deadline = units[0].ids, units[0].deadline
        if len(units) > 1:
            ids, deadline = part.ids, max([unit.deadline for unit in units])
        return BatchRequest(
            PUSH,
            push_body(ids, content.message, content.custom_fields),
            part,
            options,
            deadline,
            content.api_key,
            not history,
            attempts=history,
            claim=claim,
            owner=self,
            batch=batch,
        )


def _without(left: Left, due: float, part: BatchPart, verdict: Verdict) -> BatchPart:
    """Return the part without its units that have left. Adds them to ``left``. See ``BatchSender.drop``."""
    late = {unit: verdict for unit in part.units if unit.deadline <= due or unit.call.future.done()}
    left.update(late)
    return BatchPart.of([unit for unit in part.units if unit not in late], part.history) if late else part


def _tally(calls: Iterable[Call]) -> Mapping[Outcome, int]:
    """Return the number of users by outcome."""
    tally: Counter[Outcome] = Counter()
    for call in calls:
        for users, verdict in call.parts:
            tally[verdict.outcome] += len(users)
    return tally
