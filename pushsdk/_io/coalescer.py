"""From ``send()`` calls to requests and back: admission, joining, departure, splitting, and who is told what.

What joins and what is split is decided in the core. A lone call is posted in its caller's own task; a request that
several callers share runs in a task of its own, so that nobody's cancellation takes the others along.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence

import msgspec

from pushsdk._core import wire
from pushsdk._core.batching import FRAME, Backlog, Batch, Batches, Call, Content
from pushsdk._core.counters import Counters
from pushsdk._core.events import Event, RequestSplit, SendAbandoned
from pushsdk._core.explain import error_for, partial_error
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.policy import Batching, Limits
from pushsdk._core.results import Receipt
from pushsdk._core.splitting import Hopeless, LearnedSizes, Piece, Settled, Splitter, attempts_of, pieces_of
from pushsdk._io.clock import Deadlines
from pushsdk._io.sender import Job, Sender
from pushsdk._io.slots import Slots

__all__ = ["Coalescer"]

logger = logging.getLogger("pushsdk")
# What a waiting caller is told, beside the Failure that ends its wait.
GO = "post it yourself"
SETTLED = "settled"
ABANDONED_KEPT = 1000
# From the cancellation of an attempt to the verdict on its request, connecting included.
TURNS_TO_UNWIND = 4


@types.coroutine
def _next_turn() -> Generator[None, None, None]:
    """Let the other tasks of this loop turn run: they may have something to send with us."""
    yield


class Coalescer:
    """Takes calls in, sends them in as few requests as may be, and tells each caller what became of its users."""

    def __init__(
        self,
        sender: Sender,
        *,
        loop: asyncio.AbstractEventLoop,
        deadlines: Deadlines,
        slots: Slots,
        backlog: Backlog,
        counters: Counters,
        batching: Batching,
        limits: Limits,
        emit: Callable[[Event], None] | None,
    ) -> None:
        self._sender = sender
        self._loop = loop
        self._deadlines = deadlines
        self._slots = slots
        self._backlog = backlog
        self._counters = counters
        self._batching = batching
        self._raise_when_full = limits.when_full == "raise"
        self._emit = emit
        self._sizes = LearnedSizes()
        self._hopeless = Hopeless()
        self._batches = Batches(batching, self._sizes)
        # Calls that wait until the backlog has room, first come first served.
        self._admissions: OrderedDict[Call, int] = OrderedDict()
        # The same by their deadlines, with those that have gone since: a pause ends the first of them.
        self._impatient: list[tuple[float, int, Call]] = []
        self._arrivals = itertools.count()
        # Batches that wait for company, and what ends that.
        self._lingering: dict[Batch, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: The calls that have not ended. Kept by ``send``.
        self.active: set[Call] = set()
        #: The last sends whose callers had stopped waiting.
        self.abandoned: deque[SendAbandoned] = deque(maxlen=ABANDONED_KEPT)
        #: Set by the engine: told of every call that ends.
        self.when_ended: Callable[[Call], None] = lambda call: None
        backlog.when_room = self._admit_next

    async def send(self, call: Call, content: Content, repeated: int) -> Receipt:
        """Send one call. Raises PushError unless all of its users were accepted."""
        self.active.add(call)
        batch: Batch | None = None
        try:
            size = len(call.ids) + 1 + FRAME + content.size
            if self._admissions or not self._backlog.fits(len(call.users), size):
                await self._be_admitted(call, size)
            if call.left:
                batch = self._join(call, content)
                # Who opened a batch that does not linger leads it: it looks who came along in this loop turn.
                leads = batch.calls[0] is call and not batch.queued and batch not in self._lingering
                if leads:
                    await _next_turn()
                if leads and len(batch.calls) == 1 and not batch.queued and self._slots.try_take(batch.users):
                    self._start(batch)
                    await self._deliver(batch)
                else:
                    await self._travel(call, batch, leads=leads)
        except asyncio.CancelledError:
            self._walk_away(call, batch)
            raise
        except Exception:  # noqa: BLE001 - logged there
            self._fail(call, batch)
        if call.left:
            # Past its deadline while a shared request is out: its end is told to on_event.
            call.gone = True
            rest = Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE)
            return _conclude(call, [*call.parts, (_unsettled(call), rest)], repeated)
        self._end(call)
        return _conclude(call, call.parts, repeated)

    def flush(self) -> None:
        """Send what lingers now."""
        for batch in tuple(self._lingering):
            self._depart(batch)

    def close(self) -> None:
        """End everything that has not left the queue, as CLOSED."""
        for call in (*self._admissions, *(call for batch in self._lingering for call in batch.calls)):
            call.expire(Failure.CLOSED)
        self._slots.give_up(Failure.CLOSED)

    def pause(self, until: float) -> None:
        """Nothing starts before ``until``: what waits for room or for company and can't wait so long ends at once."""
        for batch in self._lingering:
            for call in batch.calls:
                if call.deadline < until:
                    call.expire(Failure.PAUSED)
        while self._impatient and self._impatient[0][0] < until:
            call = heapq.heappop(self._impatient)[2]
            if call in self._admissions:
                call.expire(Failure.PAUSED)

    # -- getting in ---------------------------------------------------------------------------------------------

    async def _be_admitted(self, call: Call, size: int) -> None:
        """Wait until there is room. A call that is told something else is settled, as not sent."""
        barred = Failure.QUEUE_FULL if self._raise_when_full else self._barred(call)
        if barred is not None:
            self._settle(call, call.users, self._unsent(barred))
            return
        self._admissions[call] = size
        if len(self._impatient) > 2 * len(self._admissions) + 1000:
            self._impatient = [place for place in self._impatient if place[2] in self._admissions]
            heapq.heapify(self._impatient)
        heapq.heappush(self._impatient, (call.deadline, next(self._arrivals), call))
        call.waiter = self._loop.create_future()
        try:
            told = await self._told(call)
        except asyncio.CancelledError:
            self._forgo_admission(call, size)
            raise
        call.waiter = None
        if told is GO:
            # The room was held for us until now; the batch counts it from here on.
            self._backlog.leave(len(call.users), size, quietly=True)
        else:
            self._forgo_admission(call, size)
            self._settle(call, call.users, self._unsent(told))

    def _forgo_admission(self, call: Call, size: int) -> None:
        if self._admissions.pop(call, None) is None:
            self._backlog.leave(len(call.users), size)
        self._admit_next()

    def _admit_next(self) -> None:
        while self._admissions:
            call, size = next(iter(self._admissions.items()))
            # One that was told something else is about to leave, and then admits the next.
            if call.waiter.done() or not self._backlog.fits(len(call.users), size):
                return
            self._admissions.popitem(last=False)
            self._backlog.enter(len(call.users), size)
            call.waiter.set_result(GO)

    def _join(self, call: Call, content: Content) -> Batch:
        linger = self._batching.linger
        if linger and call.deadline - self._loop.time() <= linger:
            # No time to wait for company.
            batch, is_new = self._batches.alone(content, call), True
        else:
            batch, is_new = self._batches.join(content, call)
            if self._batches.is_full(batch):
                self._batches.close(batch)
                if batch in self._lingering:
                    self._depart(batch)
            elif is_new and linger:
                self._lingering[batch] = self._loop.call_later(linger, self._depart, batch)
        self._backlog.enter(len(call.users), batch.size if is_new else len(call.ids) + 1)
        return batch

    async def _travel(self, call: Call, batch: Batch, *, leads: bool) -> None:
        """Go with the batch, or leave it when told to."""
        barred = self._barred(call)
        if barred is not None:
            self._leave(call, batch, barred)
            if leads and batch.calls:
                self._depart(batch)
            return
        call.waiter = self._loop.create_future()
        if leads:
            self._depart(batch)
        told = await self._told(call)
        if told is GO:
            await self._deliver(batch)
        elif call.left and not batch.started:
            self._leave(call, batch, told)
        elif call.left and call.deadline >= max([other.deadline for other in batch.calls]):
            # The request ends with this call: its verdict comes within these turns.
            for _ in range(TURNS_TO_UNWIND):
                await _next_turn()

    def _barred(self, call: Call) -> Failure | None:
        """Why this call can't go now or later."""
        if self._sender.closed:
            return Failure.CLOSED
        return Failure.PAUSED if self._slots.paused_until > call.deadline else None

    async def _told(self, call: Call) -> object:
        """Wait until this call is told something: GO, SETTLED, or the Failure that ends its wait."""
        tick = self._deadlines.add(call, call.deadline) if call.deadline < math.inf else None
        try:
            return await call.waiter
        finally:
            if tick is not None:
                self._deadlines.remove(call, tick)

    # -- getting out --------------------------------------------------------------------------------------------

    def _depart(self, batch: Batch) -> None:
        """The batch gets in line for a place on the wire; until it has one, others may still join."""
        timer = self._lingering.pop(batch, None)
        if timer is not None:
            timer.cancel()
        batch.queued = True
        departure = _Departure(self, batch)
        self._slots.enqueue(departure)
        # Those that came while it was in no line, and can't wait for the end of a pause.
        departure.give_up(Failure.PAUSED, before=self._slots.paused_until)

    def _start(self, batch: Batch) -> None:
        """The batch has its place: nobody joins or leaves any more."""
        batch.started = batch.has_slot = True
        self._batches.close(batch)
        self._backlog.leave(batch.users, batch.size)

    def depart(self, batch: Batch) -> bool:
        """Take the place that was granted; False where everybody has left."""
        for call in tuple(batch.calls):
            if call.waiter is not None and call.waiter.done():
                self._leave(call, batch, Failure.CANCELLED if call.waiter.cancelled() else call.waiter.result())
        if not batch.calls:
            return False
        self._start(batch)
        if len(batch.calls) == 1 and batch.calls[0].waiter is not None:
            batch.calls[0].waiter.set_result(GO)
        else:
            batch.shared = True
            task = self._loop.create_task(self._drive(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    def _leave(self, call: Call, batch: Batch, reason: object) -> None:
        """The call goes before its batch does: proven not sent."""
        batch.remove(call)
        self._backlog.leave(len(call.users), len(call.ids) + 1)
        if not batch.calls:
            self._batches.close(batch)
            self._backlog.leave(0, batch.size)
            timer = self._lingering.pop(batch, None)
            if timer is not None:
                timer.cancel()
        self._settle(call, call.users, self._unsent(reason))

    def _walk_away(self, call: Call, batch: Batch | None) -> None:
        """The caller was cancelled: its users leave with it, or go on without it."""
        was_settled = not call.left
        call.gone = True
        if batch is not None and not batch.shared:
            self._give_back(batch)
        if was_settled:
            self._tell_abandoned(call)
        elif batch is None or (batch.started and not batch.shared):
            # What was on the wire has its verdict: the rest never was there.
            self._settle(call, _unsettled(call), self._unsent(Failure.CANCELLED))
        elif not batch.started:
            leads = batch.calls[0] is call and not batch.queued and batch not in self._lingering
            self._leave(call, batch, Failure.CANCELLED)
            if leads and batch.calls:
                self._depart(batch)

    def _fail(self, call: Call, batch: Batch | None) -> None:
        """A bug of ours ended the call: then nothing is proven, and the caller is told so."""
        logger.exception("a request failed inside the client")
        if batch is not None:
            self._give_back(batch)
        if call.left:
            self._settle(call, _unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=Failure.OTHER))

    def _give_back(self, batch: Batch) -> None:
        """The batch ended before any request took its place over."""
        if batch.has_slot:
            batch.has_slot = False
            self._slots.release()

    # -- on the wire --------------------------------------------------------------------------------------------

    async def _deliver(self, batch: Batch) -> None:
        """Send the batch, whole or split, until every call in it is settled. Its place is taken already."""
        pieces = pieces_of(batch.calls, self._sizes, batch.frame)
        if len(pieces) > 1:
            await self._split(batch, pieces, None)
            return
        whole = pieces[0]
        verdict = await self._post(batch, whole)
        if verdict.outcome is Outcome.REJECTED and verdict.status in self._batching.split_on:
            await self._split(batch, [], Settled(whole, verdict))
            return
        if verdict.outcome is Outcome.ACCEPTED:
            self._hopeless.discard(batch.content.key)
            if self._sizes.users is not None:
                self._sizes.accepted(whole.users, batch.frame + len(whole.ids))
        self._settle_piece(whole, verdict)

    async def _drive(self, batch: Batch) -> None:
        """``_deliver`` for several callers, in a task of its own: whatever happens to it, they are told."""
        failure = Failure.CANCELLED
        try:
            await self._deliver(batch)
        except Exception:
            logger.exception("a request failed inside the client")
            failure = Failure.OTHER
        finally:
            self._give_back(batch)
            # Left over only where the loop is torn down, or by a bug of ours: then nothing is proven.
            for call in batch.calls:
                if call.left:
                    self._settle(call, _unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=failure))

    async def _split(self, batch: Batch, pieces: list[Piece], rejected: Settled[Piece] | None) -> None:
        """Send the batch in pieces: because it is too large (``pieces``), or because it was rejected whole."""
        key = batch.content.key
        splitter = Splitter(
            pieces,
            split_on=self._batching.split_on,
            sizes=self._sizes,
            frame=batch.frame,
            worth=key not in self._hopeless,
        )
        if rejected is not None:
            self._report(batch, splitter, *rejected)
        while wave := splitter.next_wave():
            await asyncio.gather(*(self._post_piece(batch, splitter, piece) for piece in wave))
        for piece, verdict in splitter.rest():
            self._settle_piece(piece, verdict)
        if splitter.gave_up:
            self._hopeless.add(key)

    async def _post_piece(self, batch: Batch, splitter: Splitter[Piece], piece: Piece) -> None:
        # Each piece is settled as it ends: a cancellation of the others must not take its verdict along.
        self._report(batch, splitter, piece, await self._post(batch, piece))

    def _report(self, batch: Batch, splitter: Splitter[Piece], piece: Piece, verdict: Verdict) -> None:
        if splitter.report(piece, verdict) is None:
            self._note_split(piece, verdict)
            return
        if verdict.outcome is Outcome.ACCEPTED:
            self._hopeless.discard(batch.content.key)
        self._settle_piece(piece, verdict)

    async def _post(self, batch: Batch, piece: Piece) -> Verdict:
        content, segments = batch.content, piece.segments
        job = Job(
            "push",
            wire.push_body(b"[" + piece.ids + b"]", content.message, content.custom_fields),
            users=piece.users,
            policy=content.policy,
            timeout=content.timeout,
            deadline=segments[0].call.deadline,
            collapsible=content.collapsible,
        )
        if len(segments) > 1:
            job.deadline = max([segment.call.deadline for segment in segments])
        if piece.history:
            job.attempts.extend(piece.history)
        # The first request of the batch takes its place over.
        has_slot, batch.has_slot = batch.has_slot, False
        try:
            return await self._sender.run(job, has_slot=has_slot)
        except asyncio.CancelledError:
            job.failure = job.failure or Failure.CANCELLED
            self._settle_piece(piece, job.verdict())
            raise

    def _note_split(self, piece: Piece, verdict: Verdict) -> None:
        self._counters.splits += 1
        if self._emit is not None:
            calls = len({id(segment.call) for segment in piece.segments})
            self._emit(RequestSplit(status=verdict.status or 0, users=piece.users, calls=calls))

    # -- who is told what ---------------------------------------------------------------------------------------

    def _settle_piece(self, piece: Piece, verdict: Verdict) -> None:
        for segment in piece.segments:
            self._settle(segment.call, segment.users, verdict)

    def _settle(self, call: Call, users: tuple[str, ...], verdict: Verdict) -> None:
        self._counters.users[verdict.outcome] += len(users)
        if not call.settle(users, verdict):
            return
        if call.gone:
            self._tell_abandoned(call)
        elif call.waiter is not None and not call.waiter.done():
            call.waiter.set_result(SETTLED)

    def _unsent(self, reason: object) -> Verdict:
        paused = self._slots.paused_until - self._loop.time() if reason is Failure.PAUSED else None
        return Verdict(
            outcome=Outcome.NOT_SENT, failure=reason if isinstance(reason, Failure) else None, retry_after=paused
        )

    def _tell_abandoned(self, call: Call) -> None:
        self._end(call)
        self._counters.abandoned += 1
        for outcome in Outcome:
            ended = [(users, verdict) for users, verdict in call.parts if verdict.outcome is outcome]
            if not ended:
                continue
            users = tuple(user for part, _ in ended for user in part)
            event = SendAbandoned(outcome=outcome, user_ids=users, attempts=attempts_of(ended))
            self.abandoned.append(event)
            logger.info("a send of %d users ended %s after its caller had left", len(users), outcome.value)
            if self._emit is not None:
                self._emit(event)

    def _end(self, call: Call) -> None:
        self.active.discard(call)
        self.when_ended(call)


class _Departure:
    """A batch in line for a place on the wire: see ``slots.Waiting``."""

    __slots__ = ("_batch", "_coalescer")

    def __init__(self, coalescer: Coalescer, batch: Batch) -> None:
        self._coalescer = coalescer
        self._batch = batch

    @property
    def users(self) -> int:
        return self._batch.users

    def grant(self) -> bool:
        return self._coalescer.depart(self._batch)

    def give_up(self, reason: Failure, *, before: float) -> None:
        for call in self._batch.calls:
            if call.deadline < before or before == math.inf:
                call.expire(reason)


def _unsettled(call: Call) -> tuple[str, ...]:
    settled = {user for users, _ in call.parts for user in users}
    return tuple(user for user in call.users if user not in settled)


def _conclude(call: Call, parts: Sequence[tuple[tuple[str, ...], Verdict]], repeated: int) -> Receipt:
    """The receipt of a call that is through, or its error."""
    users, verdict = parts[-1]
    if len(parts) == 1:
        if verdict.outcome is Outcome.ACCEPTED:
            return Receipt(users=len(users), repeated=repeated, attempts=verdict.attempts)
        raise error_for(verdict, user_ids=call.users)
    outcomes = {each.outcome for _, each in parts}
    if outcomes == {Outcome.ACCEPTED}:
        return Receipt(users=len(call.users), repeated=repeated, requests=len(parts), attempts=attempts_of(parts))
    if len(outcomes) == 1:
        raise error_for(msgspec.structs.replace(verdict, attempts=attempts_of(parts)), user_ids=call.users)
    raise partial_error(call.users, parts)
