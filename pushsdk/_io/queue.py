"""From ``send()`` calls to batches that leave: room, joining, waiting, departure.

What joins is decided in the core. A lone call is posted in its caller's own task; a request that several callers
share runs in a task of its own, so that nobody's cancellation takes the others along.
"""

from __future__ import annotations

import asyncio
import logging
import math
import types
from collections.abc import Generator

from pushsdk._core import wire
from pushsdk._core.batching import Batch, Batches, Call, Content, Key
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.policy import Batching, Limits
from pushsdk._core.results import Receipt
from pushsdk._core.splitting import LearnedSizes
from pushsdk._io.batch_sender import BatchSender, PendingCalls, conclude, unsettled
from pushsdk._io.sender import RequestSender
from pushsdk._io.timers import NEVER, TICKS_PER_SECOND

__all__ = ["SendQueue"]

logger = logging.getLogger("pushsdk")
# What a waiting caller is told, beside SETTLED and the Failure that ends its wait.
GO = "post it yourself"
# From the cancellation of an attempt to the verdict on its request, connecting included.
TURNS_TO_UNWIND = 4


@types.coroutine
def _next_turn() -> Generator[None, None, None]:
    """Let the other tasks of this loop turn run: they may have something to send with us."""
    yield


class SendQueue:
    """Takes calls in, sends them in as few requests as may be, and tells each caller what became of its users."""

    def __init__(self, sender: RequestSender, *, sizes: LearnedSizes, batching: Batching, limits: Limits) -> None:
        self._sender = sender
        self._observer = sender.observer
        self._loop = sender.timers.loop
        self.timers = sender.timers
        self._limiter = sender.limiter
        self._rate_limiter = sender.limiter.rate_limiter
        self._backlog = sender.backlog
        self._linger = batching.linger
        self._raise_when_full = limits.when_full == "raise"
        self._batches = Batches(batching, sizes)
        self.pending = PendingCalls(sender.counters, sender.emit)
        self._active = self.pending.active
        self._batch_sender = BatchSender(sender, self.pending, sizes=sizes, batching=batching)
        # Batches that wait for company, and what ends that.
        self._lingering: dict[Batch, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, call: Call, content: Key) -> Receipt:
        """Send one call. Raises PushError unless all of its users were accepted."""
        return await self.wait(call, self.join(call, content))

    async def wait_for_room(self, call: Call) -> None:
        """Wait until the queue is below its limits, without the bytes of the call. Raises PushError if it can't."""
        self._active.add(call)
        if self._observer is not None:
            call.caller = self._observer.caller(self._loop.time())
        call.ids = b""
        failure = Failure.QUEUE_FULL if self._raise_when_full else self._barred(call)
        if failure is None:
            try:
                failure = await self._backlog.wait_for_room(self.timers, call.deadline)
            except asyncio.CancelledError:
                self.cancel(call, None)
                raise
        if failure is not None:
            self.pending.settle(call, call.users, self._unsent(failure))
            self.pending.end(call)
            conclude(call)
        call.ids = wire.encode_user_ids(call.users)[1:-1]

    def join(self, call: Call, content: Key) -> Batch | None:
        """Put the call into a batch; None after a bug of ours, which is the verdict. Then ``wait``.

        If others lead the batch, ``call.waiter`` is set. A Receipt there is all that the caller has to know.
        """
        try:
            self._active.add(call)
            if self._observer is not None and call.caller is None:
                call.caller = self._observer.caller(self._loop.time())
            linger = self._linger
            # With less time than that it can't wait for company.
            is_hasty = linger and call.deadline - self._loop.time() <= linger
            batch = None if is_hasty else self._batches.join(content, call)
            if batch is None:
                batch = self._batches.create(Content(*content), call)
                self._backlog.enter(batch.users, batch.size)
                if not is_hasty:
                    self._batches.open(batch)
                if is_hasty or not linger or batch.is_full:
                    return batch
                self._lingering[batch] = self._loop.call_later(linger, self._dispatch, batch)
            else:
                self._backlog.enter(call.unsettled, len(call.ids) + 1)
            self._wait(call, batch)
            if linger and batch.is_full and batch in self._lingering:
                self._dispatch(batch)
            return batch
        except Exception:  # noqa: BLE001 - logged there
            self._fail(call, None)
            return None

    async def wait(self, call: Call, batch: Batch | None) -> Receipt:
        """Wait for the end of a call that has joined. Raises PushError unless all of its users were accepted."""
        try:
            if batch is not None and call.unsettled:
                if call.waiter is None:
                    # It opened a batch that does not linger, and leads it: it looks who came along in this loop turn.
                    await _next_turn()
                    if len(batch.calls) == 1 and self._limiter.try_acquire(batch.users):
                        self._start(batch)
                        await self._batch_sender.deliver(batch)
                    else:
                        self._wait(call, batch)
                    if not batch.started and batch.calls:
                        self._dispatch(batch)
                if call.waiter is not None:
                    await self._handle(call, batch, await call.waiter)
        except asyncio.CancelledError:
            self.cancel(call, batch)
            raise
        except Exception:  # noqa: BLE001 - logged there
            self._fail(call, batch)
        if call.unsettled:
            # Past its deadline while a shared request is out: its end is told to on_event.
            call.abandoned = True
            return conclude(call, Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE))
        self.pending.end(call)
        return conclude(call)

    def flush(self) -> None:
        """Send what lingers now."""
        for batch in tuple(self._lingering):
            self._dispatch(batch)

    def close(self) -> None:
        """End everything that has not left the queue, as CLOSED."""
        for batch in self._lingering:
            for call in batch.calls:
                call.expire(Failure.CLOSED)
        self._limiter.fail(Failure.CLOSED)

    def pause(self, until: float) -> None:
        """Nothing starts before ``until``: what waits for room or for company and can't wait so long ends at once."""
        for batch in self._lingering:
            for call in batch.calls:
                if call.deadline < until:
                    call.expire(Failure.PAUSED)
        self._backlog.fail(Failure.PAUSED, before=until)

    # -- going along --------------------------------------------------------------------------------------------

    def _wait(self, call: Call, batch: Batch) -> None:
        """From now on the call can be told something: GO, SETTLED, its Receipt, or the Failure that ends its wait."""
        if self._sender.closed or self._rate_limiter.paused_until > call.deadline:
            self._leave(call, batch, self._barred(call))
            return
        entry = batch.entry
        if entry is None:
            entry = batch.entry = QueuedBatch(self, batch)
        if call.deadline < entry.deadline:
            entry.include(call.deadline)
        call.waiter = self._loop.create_future()

    def _barred(self, call: Call) -> Failure | None:
        """Why this call can't go now or later."""
        if self._sender.closed:
            return Failure.CLOSED
        return Failure.PAUSED if self._rate_limiter.paused_until > call.deadline else None

    async def _handle(self, call: Call, batch: Batch, told: object) -> None:
        if told is GO:
            await self._batch_sender.deliver(batch)
        elif not call.unsettled:
            return
        elif not batch.started:
            self._leave(call, batch, told)
        elif call.deadline >= batch.latest - 1 / TICKS_PER_SECOND:
            # The request ends with this call: its verdict comes within these turns.
            for _ in range(TURNS_TO_UNWIND):
                await _next_turn()

    # -- getting out --------------------------------------------------------------------------------------------

    def _dispatch(self, batch: Batch) -> None:
        """The batch gets in line for a place on the wire; until it has one, others may still join."""
        timer = self._lingering.pop(batch, None)
        if timer is not None:
            timer.cancel()
        batch.queued = True
        entry: QueuedBatch = batch.entry
        self._limiter.enqueue(entry)
        if entry.deadline < self._rate_limiter.paused_until:
            # Calls that came while the batch was in no line, and can't wait for the end of a pause.
            entry.fail(Failure.PAUSED, before=self._rate_limiter.paused_until)

    def _start(self, batch: Batch) -> None:
        """The batch has its place: nobody joins or leaves any more."""
        batch.started = batch.has_slot = True
        self._batches.close(batch)
        self._backlog.leave(batch.users, batch.size)

    def dispatch(self, batch: Batch) -> bool:
        """Take the place that was granted; False where everybody has left."""
        for call in [call for call in batch.calls if call.waiter.done()]:
            self._leave(call, batch, Failure.CANCELLED if call.waiter.cancelled() else call.waiter.result())
        if not batch.calls:
            return False
        self._start(batch)
        if self._observer is not None:
            self._observer.dequeued(batch.calls, self._loop.time())
        if len(batch.calls) == 1:
            batch.entry.close()
            batch.calls[0].waiter.set_result(GO)
        else:
            batch.shared = True
            task = self._loop.create_task(self._batch_sender.drive(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    def _leave(self, call: Call, batch: Batch, reason: object) -> None:
        """The call goes before its batch does: proven not sent."""
        batch.remove(call)
        self._backlog.leave(len(call.users), len(call.ids) + 1)
        if not batch.calls:
            if batch.entry is not None:
                batch.entry.close()
            self._batches.close(batch)
            self._backlog.leave(0, batch.size)
            timer = self._lingering.pop(batch, None)
            if timer is not None:
                timer.cancel()
        self.pending.settle(call, call.users, self._unsent(reason))

    def cancel(self, call: Call, batch: Batch | None) -> None:
        """The caller was cancelled: its users leave with it, or go on without it."""
        was_settled = not call.unsettled
        call.abandoned = True
        # Where the batch went without it, the place that it has is the others'.
        if batch is not None and not batch.shared and call in batch.calls:
            self._batch_sender.give_back(batch)
        if was_settled:
            self.pending.tell_abandoned(call)
        elif batch is None or (batch.started and not batch.shared):
            # What was on the wire has its verdict: the rest never was there.
            self.pending.settle(call, unsettled(call), self._unsent(Failure.CANCELLED))
        elif not batch.started:
            leads = batch.calls[0] is call and not batch.queued and batch not in self._lingering
            self._leave(call, batch, Failure.CANCELLED)
            if leads and batch.calls:
                self._dispatch(batch)

    def _fail(self, call: Call, batch: Batch | None) -> None:
        """A bug of ours ended the call: then nothing is proven, and the caller is told so."""
        logger.exception("a request failed inside the client")
        if batch is not None:
            self._batch_sender.give_back(batch)
        if call.unsettled:
            self.pending.settle(call, unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=Failure.OTHER))

    def _unsent(self, reason: object) -> Verdict:
        paused = self._rate_limiter.paused_until - self._loop.time() if reason is Failure.PAUSED else None
        return Verdict(
            outcome=Outcome.NOT_SENT, failure=reason if isinstance(reason, Failure) else None, retry_after=paused
        )


class QueuedBatch:
    """A batch in which calls wait: an entry of the timer wheel, and of the line for slots."""

    __slots__ = ("_batch", "_queue", "_tick", "deadline")

    def __init__(self, queue: SendQueue, batch: Batch) -> None:
        self._queue = queue
        self._batch = batch
        self._tick = NEVER
        #: The earliest deadline of its calls; infinite if there is none. Set by ``include``.
        self.deadline = math.inf

    def include(self, deadline: float) -> None:
        """Include a call with this deadline."""
        if deadline < self.deadline:
            timers = self._queue.timers
            timers.remove(self, self._tick)
            self.deadline = deadline
            self._tick = timers.add(self, deadline)

    def expire(self, reason: Failure) -> None:
        """Expire the calls whose deadline has come, and wait for the next deadline."""
        # Rounding may put a deadline at the very end of its tick.
        due, rest = self._tick / TICKS_PER_SECOND, math.inf
        if due < self._batch.latest <= due + 1 / TICKS_PER_SECOND:
            # The calls of a crowd: all end with the last of them, whose deadline is that of their request.
            self.deadline = math.inf
            self.include(self._batch.latest)
            return
        for call in self._batch.calls:
            if call.deadline <= due:
                call.expire(reason)
            elif call.deadline < rest:
                rest = call.deadline
        self.deadline = math.inf
        self.include(rest)

    def close(self) -> None:
        """Leave the timer wheel: no call waits any more."""
        self._queue.timers.remove(self, self._tick)

    @property
    def users(self) -> int:
        """See ``slots.Waiting``."""
        return self._batch.users

    def acquire(self) -> bool:
        """See ``slots.Waiting``."""
        return self._queue.dispatch(self._batch)

    def fail(self, reason: Failure, *, before: float) -> None:
        """See ``slots.Waiting``."""
        for call in self._batch.calls:
            if call.deadline < before or before == math.inf:
                call.expire(reason)
