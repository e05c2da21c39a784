"""From ``send()`` calls to batches that leave: admission, joining, waiting, departure.

What joins is decided in the core. A lone call is posted in its caller's own task; a request that several callers
share runs in a task of its own, so that nobody's cancellation takes the others along.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import types
from collections import OrderedDict
from collections.abc import Callable, Generator

from pushsdk._core.batching import Backlog, Batch, Batches, Call, Content, Key
from pushsdk._core.events import Event
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.policy import Batching, Limits
from pushsdk._core.results import Counters, Receipt
from pushsdk._core.splitting import LearnedSizes
from pushsdk._io.clock import Company, Deadlines
from pushsdk._io.delivery import Delivery
from pushsdk._io.ledger import Ledger, conclude, unsettled
from pushsdk._io.observer import Observer
from pushsdk._io.sender import Sender
from pushsdk._io.slots import Slots

__all__ = ["Coalescer"]

logger = logging.getLogger("pushsdk")
# What a waiting caller is told, beside SETTLED and the Failure that ends its wait.
GO = "post it yourself"
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
        sizes: LearnedSizes,
        batching: Batching,
        limits: Limits,
        emit: Callable[[Event], None] | None,
        observer: Observer | None = None,
    ) -> None:
        self._sender = sender
        self._observer = observer
        self._loop = loop
        self._deadlines = deadlines
        self._slots = slots
        self._rate_limiter = slots.rate_limiter
        self._backlog = backlog
        self._linger = batching.linger
        self._raise_when_full = limits.when_full == "raise"
        self._batches = Batches(batching, sizes)
        self.ledger = Ledger(counters, emit)
        self._active = self.ledger.active
        self._delivery = Delivery(
            sender,
            self.ledger,
            slots=slots,
            sizes=sizes,
            batching=batching,
            counters=counters,
            emit=emit,
            observer=observer,
        )
        # Calls that wait until the backlog has room, first come first served.
        self._admissions: OrderedDict[Call, int] = OrderedDict()
        # The same by their deadlines, with those that have gone since: a pause ends the first of them.
        self._impatient: list[tuple[float, int, Call]] = []
        self._arrivals = itertools.count()
        # Batches that wait for company, and what ends that.
        self._lingering: dict[Batch, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        backlog.when_room = self._admit_next

    async def send(self, call: Call, content: Key) -> Receipt:
        """Send one call. Raises PushError unless all of its users were accepted."""
        return await self.see_through(call, content, self.join(call, content))

    def join(self, call: Call, content: Key, *, is_room_held: bool = False) -> Batch | None:
        """Put the call into a batch; None where it has to wait for room first. Then ``see_through``.

        Where others lead it, ``call.waiter`` is set. Told a Receipt there, it is through. ``is_room_held`` after a wait
        for room: it is in the backlog already, with a batch of its own.
        """
        try:
            if not is_room_held:
                self._active.add(call)
                if self._observer is not None:
                    call.caller = self._observer.caller(self._loop.time())
                if self._admissions or not self._backlog.admit(call.left, len(call.ids) + 1):
                    return None
            linger = self._linger
            # With less time than that it can't wait for company.
            is_hasty = linger and call.deadline - self._loop.time() <= linger
            batch = None if is_hasty else self._batches.join(content, call)
            if batch is None:
                batch = self._batches.alone(Content(*content), call)
                if not is_room_held and not self._has_room(batch):
                    return None
                if not is_hasty:
                    self._batches.open(batch)
                if is_hasty or not linger or batch.is_full:
                    return batch
                self._lingering[batch] = self._loop.call_later(linger, self._depart, batch)
            elif is_room_held:
                self._backlog.leave(0, batch.frame, quietly=True)
            self._wait(call, batch)
            if linger and batch.is_full and batch in self._lingering:
                self._depart(batch)
            return batch
        except Exception:  # noqa: BLE001 - logged there
            self._fail(call, None)
            return None

    async def see_through(self, call: Call, content: Key, batch: Batch | None) -> Receipt:
        """What is left to do for a call that has joined. Raises PushError unless all of its users were accepted."""
        try:
            if batch is None and call.left:
                batch = await self._be_admitted(call, content)
            if batch is not None and call.left:
                if call.waiter is None:
                    # It opened a batch that does not linger, and leads it: it looks who came along in this loop turn.
                    await _next_turn()
                    if len(batch.calls) == 1 and self._slots.try_take(batch.users):
                        self._start(batch)
                        await self._delivery.deliver(batch)
                    else:
                        self._wait(call, batch)
                    if not batch.started and batch.calls:
                        self._depart(batch)
                if call.waiter is not None:
                    await self._heed(call, batch, await call.waiter)
        except asyncio.CancelledError:
            self.walk_away(call, batch)
            raise
        except Exception:  # noqa: BLE001 - logged there
            self._fail(call, batch)
        if call.left:
            # Past its deadline while a shared request is out: its end is told to on_event.
            call.gone = True
            return conclude(call, Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE))
        self.ledger.end(call)
        return conclude(call)

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

    async def _be_admitted(self, call: Call, content: Key) -> Batch | None:
        """Join once there is room. A call that is told something else is settled, as not sent."""
        barred = Failure.QUEUE_FULL if self._raise_when_full else self._barred(call)
        if barred is not None:
            self.ledger.settle(call, call.users, self._unsent(barred))
            return None
        self._admissions[call] = size = len(call.ids) + 1 + Content(*content).frame
        if len(self._impatient) > 2 * len(self._admissions) + 1000:
            self._impatient = [place for place in self._impatient if place[2] in self._admissions]
            heapq.heapify(self._impatient)
        heapq.heappush(self._impatient, (call.deadline, next(self._arrivals), call))
        call.waiter = self._loop.create_future()
        tick = self._deadlines.add(call, call.deadline)
        try:
            told = await call.waiter
        except asyncio.CancelledError:
            self._forgo_admission(call, size)
            raise
        finally:
            self._deadlines.remove(call, tick)
        call.waiter = None
        if told is GO:
            return self.join(call, content, is_room_held=True)
        self._forgo_admission(call, size)
        self.ledger.settle(call, call.users, self._unsent(told))
        return None

    def _forgo_admission(self, call: Call, size: int) -> None:
        if self._admissions.pop(call, None) is None:
            self._backlog.leave(len(call.users), size)
        self._admit_next()

    def _admit_next(self) -> None:
        while self._admissions:
            call, size = next(iter(self._admissions.items()))
            # One that was told something else is about to leave, and then admits the next.
            if call.waiter.done() or not self._backlog.admit(len(call.users), size):
                return
            self._admissions.popitem(last=False)
            call.waiter.set_result(GO)

    def _has_room(self, batch: Batch) -> bool:
        """Count the batch of a call in the backlog, instead of the call, where there is room for it."""
        self._backlog.leave(batch.users, batch.size - batch.frame, quietly=True)
        return self._backlog.admit(batch.users, batch.size)

    # -- going along --------------------------------------------------------------------------------------------

    def _wait(self, call: Call, batch: Batch) -> None:
        """From now on the call can be told something: GO, SETTLED, its Receipt, or the Failure that ends its wait."""
        if self._sender.closed or self._rate_limiter.paused_until > call.deadline:
            self._leave(call, batch, self._barred(call))
            return
        company = batch.company
        if company is None:
            company = batch.company = Company(self._deadlines, batch.calls)
        if call.deadline < company.deadline:
            company.include(call.deadline)
        call.waiter = self._loop.create_future()

    def _barred(self, call: Call) -> Failure | None:
        """Why this call can't go now or later."""
        if self._sender.closed:
            return Failure.CLOSED
        return Failure.PAUSED if self._rate_limiter.paused_until > call.deadline else None

    async def _heed(self, call: Call, batch: Batch, told: object) -> None:
        if told is GO:
            await self._delivery.deliver(batch)
        elif not call.left:
            return
        elif not batch.started:
            self._leave(call, batch, told)
        elif call.deadline >= max([other.deadline for other in batch.calls]):
            # The request ends with this call: its verdict comes within these turns.
            for _ in range(TURNS_TO_UNWIND):
                await _next_turn()

    # -- getting out --------------------------------------------------------------------------------------------

    def _depart(self, batch: Batch) -> None:
        """The batch gets in line for a place on the wire; until it has one, others may still join."""
        timer = self._lingering.pop(batch, None)
        if timer is not None:
            timer.cancel()
        batch.queued = True
        departure = _Departure(self, batch)
        self._slots.enqueue(departure)
        if batch.company is not None and batch.company.deadline < self._rate_limiter.paused_until:
            # Those that came while it was in no line, and can't wait for the end of a pause.
            departure.give_up(Failure.PAUSED, before=self._rate_limiter.paused_until)

    def _start(self, batch: Batch) -> None:
        """The batch has its place: nobody joins or leaves any more."""
        batch.started = batch.has_slot = True
        self._batches.close(batch)
        self._backlog.leave(batch.users, batch.size)

    def depart(self, batch: Batch) -> bool:
        """Take the place that was granted; False where everybody has left."""
        for call in [call for call in batch.calls if call.waiter.done()]:
            self._leave(call, batch, Failure.CANCELLED if call.waiter.cancelled() else call.waiter.result())
        if not batch.calls:
            return False
        self._start(batch)
        if self._observer is not None:
            self._observer.dequeued(batch.calls, self._loop.time())
        if len(batch.calls) == 1:
            batch.company.close()
            batch.calls[0].waiter.set_result(GO)
        else:
            batch.shared = True
            task = self._loop.create_task(self._delivery.drive(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    def _leave(self, call: Call, batch: Batch, reason: object) -> None:
        """The call goes before its batch does: proven not sent."""
        batch.remove(call)
        self._backlog.leave(len(call.users), len(call.ids) + 1)
        if not batch.calls:
            if batch.company is not None:
                batch.company.close()
            self._batches.close(batch)
            self._backlog.leave(0, batch.size)
            timer = self._lingering.pop(batch, None)
            if timer is not None:
                timer.cancel()
        self.ledger.settle(call, call.users, self._unsent(reason))

    def walk_away(self, call: Call, batch: Batch | None) -> None:
        """The caller was cancelled: its users leave with it, or go on without it."""
        was_settled = not call.left
        call.gone = True
        # Where the batch went without it, the place that it has is the others'.
        if batch is not None and not batch.shared and call in batch.calls:
            self._delivery.give_back(batch)
        if was_settled:
            self.ledger.tell_abandoned(call)
        elif batch is None or (batch.started and not batch.shared):
            # What was on the wire has its verdict: the rest never was there.
            self.ledger.settle(call, unsettled(call), self._unsent(Failure.CANCELLED))
        elif not batch.started:
            leads = batch.calls[0] is call and not batch.queued and batch not in self._lingering
            self._leave(call, batch, Failure.CANCELLED)
            if leads and batch.calls:
                self._depart(batch)

    def _fail(self, call: Call, batch: Batch | None) -> None:
        """A bug of ours ended the call: then nothing is proven, and the caller is told so."""
        logger.exception("a request failed inside the client")
        if batch is not None:
            self._delivery.give_back(batch)
        if call.left:
            self.ledger.settle(call, unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=Failure.OTHER))

    def _unsent(self, reason: object) -> Verdict:
        paused = self._rate_limiter.paused_until - self._loop.time() if reason is Failure.PAUSED else None
        return Verdict(
            outcome=Outcome.NOT_SENT, failure=reason if isinstance(reason, Failure) else None, retry_after=paused
        )


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
