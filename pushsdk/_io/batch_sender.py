"""A batch in flight: sent whole, or in pieces if it is too large or was rejected, until every call is settled.

The core decides what is split. ``PendingCalls`` holds the calls that have not ended, and settles each.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from pushsdk._core import idempotency, wire
from pushsdk._core.batching import SETTLED, Batch, Call
from pushsdk._core.error_mapping import error_for, partial_error, retryable
from pushsdk._core.events import Event, RequestSplit, SendAbandoned
from pushsdk._core.outcome import Evidence, Failure, Outcome, Verdict, verdict_of
from pushsdk._core.policy import Batching
from pushsdk._core.results import Counters, Receipt
from pushsdk._core.splitting import (
    BatchPart,
    CallPart,
    LearnedSizes,
    MessageRecords,
    Rejected,
    Splitter,
    attempts_of,
    call_of,
    split_calls,
)
from pushsdk._io.sender import ApiRequest, Claimant, RequestSender

__all__ = ["BatchSender", "PendingCalls", "conclude", "unsettled"]

logger = logging.getLogger("pushsdk")
ABANDONED_KEPT = 1000


class PendingCalls:
    """Settles calls, and counts what became of their users."""

    def __init__(self, counters: Counters, emit: Callable[[Event], None] | None) -> None:
        self._counters = counters
        self._emit = emit
        #: The calls that have not ended. Added by the coalescer.
        self.active: set[Call] = set()
        #: The last sends whose callers had stopped waiting.
        self.abandoned: deque[SendAbandoned] = deque(maxlen=ABANDONED_KEPT)
        #: Set by the engine while it waits for something: told of every call that ends.
        self.when_ended: Callable[[Call], None] | None = None

    def settle_piece(self, piece: BatchPart, verdict: Verdict) -> None:
        """The verdict on a request is that on the users it carried."""
        self._counters.users[verdict.outcome] += piece.users
        one: object = SETTLED
        if len(piece.units) > 1:
            if verdict.outcome is Outcome.REJECTED:
                verdict = msgspec.structs.replace(verdict, shared=True)
            elif verdict.outcome is Outcome.ACCEPTED:
                # The calls for one user each, of which there may be a crowd, have one receipt between them.
                one = Receipt(users=1, attempts=verdict.attempts)
        for segment in piece.units:
            # ``call_of``, without a call.
            call = segment.call if isinstance(segment, CallPart) else segment
            users = segment.users
            if call.settle(users, verdict, SETTLED if call.duplicates or len(users) > 1 else one) and call.abandoned:
                self.tell_abandoned(call)
        if one is not SETTLED:
            # After its callers have been told: until then nobody is to find that nothing is on its way.
            asyncio.get_running_loop().call_soon(self._end_all, piece)

    def settle(self, call: Call, users: tuple[str, ...], verdict: Verdict) -> None:
        """The verdict on users of a call that no request carried, or whose request is not known."""
        self._counters.users[verdict.outcome] += len(users)
        if call.settle(users, verdict) and call.abandoned:
            self.tell_abandoned(call)

    def tell_abandoned(self, call: Call) -> None:
        """A call ended after its caller had left: ``on_event`` is told."""
        self.end(call)
        self._counters.abandoned += 1
        for outcome in Outcome:
            ended = [(users, verdict) for users, verdict in call.parts if verdict.outcome is outcome]
            if ended:
                users = tuple(user for part, _ in ended for user in part)
                self.report(SendAbandoned(outcome=outcome, user_ids=users, attempts=attempts_of(ended)))

    def report(self, event: SendAbandoned) -> None:
        """Log the end of an abandoned send, keep it for the DrainReport, and pass it to ``on_event``."""
        self.abandoned.append(event)
        logger.info("a send of %d users ended %s after its caller had left", len(event.user_ids), event.outcome.value)
        if self._emit is not None:
            self._emit(event)

    def end(self, call: Call) -> None:
        """The call is complete, unless it never began."""
        if call in self.active:
            self.active.remove(call)
            if self.when_ended is not None:
                self.when_ended(call)

    def _end_all(self, piece: BatchPart) -> None:
        """A crowd is through: its whole calls, at once. It costs less than if each of them said so."""
        if self.when_ended is None:
            self.active.difference_update(piece.units)
            return
        for segment in [segment for segment in piece.units if segment in self.active]:
            self.end(call_of(segment))


def unsettled(call: Call) -> tuple[str, ...]:
    """Its users without a verdict."""
    settled = {user for users, _ in call.parts for user in users}
    return tuple(user for user in call.users if user not in settled)


def conclude(call: Call, rest: Verdict | None = None) -> Receipt:
    """The receipt of a call, or its error. ``rest`` is the verdict on those who have none yet."""
    if call.claims is not None and any(each.recorded for _, each in call.parts):
        told = idempotency.conclude(call.users, call.duplicates, _all_parts(call, rest))
        if isinstance(told, Receipt):
            return told
        raise told
    verdict = call.verdict
    if verdict is not None:
        if verdict.outcome is Outcome.ACCEPTED:
            return Receipt(users=len(call.users), duplicates=call.duplicates, attempts=verdict.attempts)
        raise error_for(verdict, user_ids=call.users)
    parts = _all_parts(call, rest)
    outcomes = {each.outcome for _, each in parts}
    if outcomes == {Outcome.ACCEPTED}:
        return Receipt(
            users=len(call.users), duplicates=call.duplicates, requests=len(parts), attempts=attempts_of(parts)
        )
    if len(outcomes) == 1:
        error = error_for(msgspec.structs.replace(parts[-1][1], attempts=attempts_of(parts)), user_ids=call.users)
        error.retryable = any(retryable(each) for _, each in parts)
        raise error
    raise partial_error(call.users, parts)


def _all_parts(call: Call, rest: Verdict | None) -> idempotency.Shares:
    return call.parts if rest is None else (*call.parts, (unsettled(call), rest))


class CallClaims(Claimant, Protocol):
    """The claims of the calls that a request carries."""

    @property
    def piece(self) -> BatchPart:
        """The piece to send, without the users whose claim was refused: these are settled."""
        ...


class BatchSender:
    """Sends batches that have their place."""

    def __init__(
        self, sender: RequestSender, pending: PendingCalls, *, sizes: LearnedSizes, batching: Batching
    ) -> None:
        self._sender = sender
        self._pending = pending
        self._sizes = sizes
        self._split_on = batching.split_on
        self._messages = MessageRecords()

    async def deliver(self, batch: Batch) -> None:
        """Send the batch, whole or split, until every call in it is settled. Its place is taken already."""
        pieces = split_calls(batch.calls, self._sizes, batch.frame)
        if len(pieces) > 1:
            await self._split(batch, pieces, None)
            return
        whole, verdict = await self._send(batch, pieces[0])
        if verdict.outcome is Outcome.REJECTED and verdict.status in self._split_on:
            await self._split(batch, [], (whole, verdict))
            return
        if verdict.outcome is Outcome.ACCEPTED:
            self._messages.record(batch.content).accepted = True
        self._pending.settle_piece(whole, verdict)

    async def drive(self, batch: Batch) -> None:
        """``deliver`` for several callers, in a task of its own: whatever happens to it, they are told."""
        failure = Failure.CANCELLED
        watched = None if self._sender.observer is None else self._sender.observer.batch(batch.calls, batch.users)
        try:
            await self.deliver(batch)
        except Exception:
            logger.exception("a request failed inside the client")
            failure = Failure.OTHER
        finally:
            batch.entry.close()
            self.give_back(batch)
            # Left over only where the loop is torn down, or by a bug of ours: then nothing is proven.
            for call in batch.calls:
                if call.unsettled:
                    self._pending.settle(call, unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=failure))
            if watched is not None:
                watched.end(_tally(batch))

    def give_back(self, batch: Batch) -> None:
        """The batch ended before any request took its place over."""
        if batch.has_slot:
            batch.has_slot = False
            self._sender.limiter.release()

    async def _split(self, batch: Batch, pieces: list[BatchPart], rejected: Rejected[BatchPart] | None) -> None:
        """Send the batch in pieces: because it is too large (``pieces``), or because it was rejected whole."""
        splitter = Splitter(
            pieces,
            split_on=self._split_on,
            sizes=self._sizes,
            frame=batch.frame,
            message=self._messages.record(batch.content),
        )
        if rejected is not None:
            self._report(batch, splitter, *rejected)
        wave: list[BatchPart] = []
        try:
            while wave := splitter.next_wave():
                async with asyncio.TaskGroup() as requests:
                    for _ in tuple(wave):
                        requests.create_task(self._post(batch, splitter, wave))
        except asyncio.CancelledError:
            # Every request that was begun has its verdict. The other pieces were in a rejected request, or in none.
            for piece, verdict in splitter.rest():
                self._pending.settle_piece(piece, msgspec.structs.replace(verdict, failure=Failure.CANCELLED))
            for piece in wave:
                self._pending.settle_piece(piece, verdict_of(piece.history, Evidence(), Failure.CANCELLED))
            raise
        for piece, verdict in splitter.rest():
            self._pending.settle_piece(piece, verdict)

    async def _post(self, batch: Batch, splitter: Splitter[BatchPart], wave: list[BatchPart]) -> None:
        """Send the next piece of the wave. What a cancellation leaves in the wave was not begun."""
        piece = wave.pop(0)
        # Each piece is settled as it ends: a cancellation of the others must not take its verdict along.
        self._report(batch, splitter, *await self._send(batch, piece))

    async def _send(self, batch: Batch, piece: BatchPart) -> Rejected[BatchPart]:
        """Send a piece, without the users whose claim is refused. If that is cancelled, the piece is settled."""
        claim = self._claim(batch, piece)
        job = self._job(batch, piece, claim)
        # The first request of the batch takes its place over.
        has_slot, batch.has_slot = batch.has_slot, False
        try:
            verdict = await self._sender.run(job, has_slot=has_slot)
        except asyncio.CancelledError:
            job.failure = job.failure or Failure.CANCELLED
            self._pending.settle_piece(piece if claim is None else claim.piece, job.verdict())
            raise
        return piece if claim is None else claim.piece, verdict

    def _claim(self, batch: Batch, piece: BatchPart) -> CallClaims | None:
        if not batch.content.options.keyed:
            return None
        claim: CallClaims = call_of(piece.units[0]).claims.for_request(batch.content, piece, self._pending)
        return claim

    def _report(self, batch: Batch, splitter: Splitter[BatchPart], piece: BatchPart, verdict: Verdict) -> None:
        if splitter.report(piece, verdict):
            self._pending.settle_piece(piece, verdict)
            return
        self._sender.counters.splits += 1
        if self._sender.emit is not None:
            calls = len({id(call_of(segment)) for segment in piece.units})
            self._sender.emit(RequestSplit(status=verdict.status or 0, users=piece.users, calls=calls))

    def _job(self, batch: Batch, piece: BatchPart, claim: CallClaims | None) -> ApiRequest:
        content, segments, policy = batch.content, piece.units, batch.content.options.policy
        deadline = segments[0].deadline
        if len(segments) > 1:
            deadline = max([segment.deadline for segment in segments])
        return ApiRequest(
            "push",
            wire.push_body(b"[" + piece.ids + b"]", content.message, content.custom_fields),
            users=piece.users,
            policy=policy,
            timeout=content.options.timeout,
            deadline=deadline,
            collapsible=policy.unknown == "retry_if_collapsible" and wire.is_collapsible(content.message),
            attempts=piece.history,
            claim=claim,
        )


def _tally(batch: Batch) -> dict[Outcome, int]:
    """The batch's users by outcome."""
    tally: dict[Outcome, int] = {}
    for call in batch.calls:
        for users, verdict in call.parts:
            tally[verdict.outcome] = tally.get(verdict.outcome, 0) + len(users)
    return tally
