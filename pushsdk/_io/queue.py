"""Send queue: room, merging, lingering, waiting for a slot.

``submit`` is the one entry: it returns the caller's awaitable, and ``PendingCalls.conclude`` then returns the receipt
or raises. The core decides which calls share a batch (``_core.batching``). A batch that has
a slot is sent by ``batch_sender``.
"""

import asyncio
import functools
import math
from contextvars import copy_context
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from pushsdk._core.batching import Batch, Batches, Call, Content
from pushsdk._core.body import EncodedIds, encode_user_ids
from pushsdk._core.errors import PushError
from pushsdk._core.learned_limit import LearnedLimit
from pushsdk._core.outcome import OUT_OF_TIME, Failure, Outcome, Verdict
from pushsdk._core.policy import Batching, Limits
from pushsdk._core.results import Receipt
from pushsdk._io.batch_sender import BatchSender
from pushsdk._io.credentials import NoKey, keys_of
from pushsdk._io.pending import PendingCalls, unsettled
from pushsdk._io.sender import RequestSender
from pushsdk._io.timers import TICKS_PER_SECOND

# Loop turns from the cancellation of an attempt to the verdict on its request, connecting included.
TURNS_TO_UNWIND = 4


class SendQueue:
    """A queue that sends calls in as few requests as possible, and settles each."""

    def __init__(
        self, sender: RequestSender, pending: PendingCalls, *, learned: LearnedLimit, batching: Batching, limits: Limits
    ) -> None:
        self._sender = sender
        self._work = sender.work
        self._observer = sender.observer
        self.timers = sender.timers
        self._loop = sender.timers.loop
        self._limiter = sender.limiter
        self._backlog = sender.backlog
        self._linger = batching.linger
        self._raise_when_full = limits.when_full == "raise"
        self.pending = pending
        self._batches = Batches(batching, learned)
        #: Sends the batches that have a slot.
        self.batch_sender = BatchSender(sender, pending, self._batches, learned=learned, batching=batching)
        # The batches opened in this loop turn, which are dispatched at its end.
        self._opened: list[Batch] = []
        # The timers for the batches that linger.
        self._lingering: dict[Batch, asyncio.TimerHandle] = {}
        #: Kept while calls are pending. Set by ``Lifetime``.
        self.until_end: object = None

    async def wait_for_room(self, call: Call) -> None:
        """Wait until the queue is below its limits, before the call has any bytes. Raises PushError if it can't."""
        self._work.calls.add(call)
        if self._observer is not None:
            call.caller = self._observer.caller(self._loop.time())
        call.ids = EncodedIds(b"")
        is_paused = self._limiter.rate_limiter.paused_until > call.deadline
        failure = Failure.QUEUE_FULL if self._raise_when_full else Failure.THROTTLED if is_paused else None
        try:
            failure = failure or await self._backlog.wait_for_room(self.timers, call.deadline)
        except asyncio.CancelledError:
            self.cancel(call)
            raise
        if failure is not None:
            self.refuse(call, failure)
        call.ids = encode_user_ids(call.users)

    def refuse(self, call: Call, reason: Failure) -> None:
        """Raise the error for a call that is not queued."""
        self._end_unsent(call, reason)
        self.pending.conclude(call)

    async def send(self, call: Call, content: Content) -> Receipt:
        """Send a call for which there was room. Returns its receipt or raises its PushError."""
        try:
            receipt = await self.submit(call, content)
        except BaseException as error:
            await self.unwind(call, error)
            raise
        return receipt or self.pending.conclude(call)

    def submit(self, call: Call, content: Content) -> asyncio.Future[Receipt | None]:
        """Queue the call, and return its future.

        Its result is the receipt; if it is None, call ``conclude``. If the await raises, call ``unwind``.
        """
        future: asyncio.Future[Receipt | None] = call.future
        if future is None:
            future = call.future = asyncio.Future()
        if content.api_key is None:
            self._ask(call, content)
            return future
        try:
            self._work.calls.add(call)
            if self._observer is not None and call.caller is None:
                call.caller = self._observer.caller(self._loop.time())
            if self.pending.only_users is not None and not self.pending.restrict(call):
                return future
            # A call whose deadline falls within the linger time can't linger.
            may_linger = not self._linger or call.deadline - self._loop.time() > self._linger
            batch = self._batches.join(content, call) if may_linger else None
            if batch is None:
                self._open(call, content, may_linger)
            else:
                self._backlog.enter(call.unsettled, len(call.ids) + 1)
                if batch.entry is not None:  # it lingers, or is queued for a slot
                    self._expect(batch, call.deadline)
                    if batch in self._lingering and self._batches.is_full(batch):
                        self._dispatch(batch)
        except Exception:  # noqa: BLE001 - logged there
            if call.batch is None:
                self.pending.fail([call])
            else:
                self._fail(call.batch)
        return future

    def _ask(self, call: Call, content: Content) -> None:
        """Submit the call with the key that its callable returns, in a copy of this context.

        The call is queued while an async callable runs.
        """
        call.ask = functools.partial(copy_context().run, call.ask)
        answer: Any = call.ask()
        if asyncio.isfuture(answer):
            self._work.calls.add(call)
            self._backlog.enter(len(call.users), len(call.ids))
            task = self._loop.create_task(keys_of([answer], self.timers, content.options.timeout, call.deadline))
            call.future.add_done_callback(lambda _: task.cancel())
            task.add_done_callback(functools.partial(self._submit_later, call, content, answer))
        else:
            self.submit(call, replace(content, api_key=answer))

    def _submit_later(self, call: Call, content: Content, answer: Any, task: Any) -> None:
        self._backlog.leave(len(call.users), len(call.ids))
        answer.cancel()  # the task may have been cancelled before its first step
        if call.unsettled and task.cancelled():  # with the loop's other tasks, not with its future
            self._end_unsent(call, Failure.CANCELLED)
        elif call.unsettled:
            self.submit(call, replace(content, api_key=task.result()[0]))

    def _open(self, call: Call, content: Content, may_linger: bool) -> None:
        """Open a batch for the call, and dispatch it: now, soon, or after the linger time."""
        batch = self._batches.open(content, call, copy_context(), may_linger)
        self._backlog.enter(batch.users, batch.size)
        if content.options.is_urgent:
            # Now: thousands of calls in this loop turn may come before callbacks scheduled by ``call_soon``.
            self._dispatch(batch)
        elif self._linger and may_linger and not self._batches.is_full(batch):
            self._lingering[batch] = self._loop.call_later(self._linger, self._dispatch, batch)
            self._expect(batch, call.deadline)
        else:
            # The other tasks in this loop turn may submit calls that join.
            if not self._opened:
                self._loop.call_soon(self._dispatch_opened)
            self._opened.append(batch)

    async def unwind(self, call: Call, error: BaseException) -> None:
        """Cancel a call whose task ends, wait for its request's end, and note the outcome at the error."""
        task = self.cancel(call)
        while task is not None and not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                task.cancel()
        error.add_note(self.pending.note(call))

    def cancel(self, call: Call) -> asyncio.Task[None] | None:
        """Remove a call whose caller was cancelled. Returns the task that ends its request, unless others need that.

        If an attempt for others, too, is in flight, its end is reported later.
        """
        batch, call.abandoned = call.batch, True
        if not call.unsettled:
            self.pending.report_abandoned(call)
        elif batch is None or not batch.units:
            # The attempts in flight have their verdict. No other user was sent to.
            self.pending.settle(call, unsettled(call), self._not_sent(Failure.CANCELLED))
        elif batch.is_waiting:
            self.leave(call, batch, Failure.CANCELLED)
        elif any(other.unsettled for other in batch.units if other is not call):
            self.batch_sender.leave(batch)
        else:
            return self.batch_sender.cancel(batch)
        return None

    def flush(self) -> None:
        """Send the lingering batches now."""
        for batch in tuple(self._lingering):
            self._dispatch(batch)

    def _expect(self, batch: Batch, deadline: float) -> None:
        """Give the calls' earliest deadline to the timers, and end the calls that can't wait."""
        entry, is_closed = batch.entry, self._work.closed
        until = math.inf if is_closed else self._limiter.rate_limiter.paused_until
        if entry is None:
            entry = batch.entry = QueuedBatch(self, batch, deadline)
        elif deadline < entry.deadline:
            entry.include(deadline)
        if until >= deadline:
            entry.fail(Failure.CLOSED if is_closed else Failure.THROTTLED, until=until)

    def leave(self, call: Call, batch: Batch, reason: Failure) -> None:
        """Remove the call from a batch that is not in flight: its users are proven not sent."""
        batch.remove(call)
        self._backlog.leave(len(call.users), len(call.ids) + 1)
        if not batch.units:
            self._backlog.leave(0, batch.size)
            self._close(batch)
        key = batch.content.api_key
        if isinstance(key, NoKey) and reason in OUT_OF_TIME:
            # It would have been sent nothing: the callable took its time.
            reason = key.failure
        # Last, as ``on_event`` may send or cancel.
        self._end_unsent(call, reason)

    def _end_unsent(self, call: Call, reason: Failure) -> None:
        reason = self._limiter.reason_for(reason)
        self.pending.settle(call, call.users, self._not_sent(reason))
        if reason in OUT_OF_TIME:
            self._sender.note_not_begun(len(call.users), call.deadline, reason)

    def _not_sent(self, reason: Failure) -> Verdict:
        pause = self._limiter.rate_limiter.pause_left(self._loop.time()) if reason is Failure.THROTTLED else None
        return Verdict(outcome=Outcome.NOT_SENT, failure=reason, retry_after=pause or None)

    def _dispatch_opened(self) -> None:
        """Dispatch the batches that were opened in the last loop turn."""
        opened, self._opened = self._opened, []
        for batch in opened:
            if batch.units:  # else all have left
                self._dispatch(batch)

    def _dispatch(self, batch: Batch) -> None:
        """Send the batch at once, or queue it for a slot: calls may join until it has one."""
        try:
            # A batch that neither waits nor was joined has one call, which may have been cancelled since.
            is_lone = (batch.entry or batch.taken) is None and not batch.units[0].future.done()
            if is_lone and self._limiter.try_acquire(batch.users):
                self._backlog.leave(batch.users, batch.size)
                self.batch_sender.start(batch)
            else:
                batch.context.run(self._enqueue, batch)
        except Exception:  # noqa: BLE001 - logged there
            self._fail(batch)

    def _enqueue(self, batch: Batch) -> None:
        self._expect(batch, min([call.deadline for call in batch.units]))
        if batch.units:
            self._stop_lingering(batch)
            self._limiter.enqueue(batch.entry)

    def start(self, batch: Batch, *, is_probe: bool) -> int | None:
        """Put a queued batch in flight; as a probe one call, so that no other is in doubt if the service hangs.

        Return the request's number of users; None if no call is left to be begun.
        """
        try:
            self._drop_late(batch)
            if not batch.units:
                return None
            if is_probe and len(batch.units) > 1:
                batch = self._split_off(batch)
            if self._observer is not None:
                self._observer.dequeued(batch.units, self._loop.time())
            self._backlog.leave(batch.users, batch.size)
            self.batch_sender.start(batch)
        except Exception:  # noqa: BLE001 - logged there
            self._fail(batch)
            return None
        return batch.users

    def _split_off(self, batch: Batch) -> Batch:
        """Move the call with the most time into a separate batch."""
        call = max(batch.units, key=attrgetter("deadline"))
        batch.remove(call)
        self._backlog.enter(0, batch.frame)
        return self._batches.open(batch.content, call, batch.context.copy(), is_joinable=False)

    def _drop_late(self, batch: Batch) -> None:
        """Remove the calls whose time is short, or that were cancelled."""
        batch.entry.fail(Failure.NO_TIME, until=self._limiter.likely_end(batch.content.options.timeout.attempt))
        for call in [call for call in batch.units if call.future.done()]:
            # Cancelled; its task has not run since.
            self.leave(call, batch, Failure.CANCELLED)

    def abandon(self, batch: Batch, due: float, turns: int = TURNS_TO_UNWIND) -> None:
        """Wake a batch's calls with a deadline until then, after so many loop turns.

        The request may end with these calls: then its verdict arrives within the turns.
        """
        if turns:
            self._loop.call_soon(self.abandon, batch, due, turns - 1)
            return
        self.batch_sender.leave(batch, due)
        for call in batch.units:
            if call.deadline <= due and not call.future.done():
                call.future.set_result(None)

    def _fail(self, batch: Batch) -> None:
        """End a batch that met a bug in this package. One in flight is ended by its request."""
        calls = batch.units if batch.is_waiting else []
        self.pending.fail(calls)
        if calls:
            self._backlog.leave(batch.users, batch.size)
            self._close(batch)

    def _close(self, batch: Batch) -> None:
        """End a batch that is not in flight, and whose calls have left or are settled."""
        self._stop_lingering(batch)
        self.batch_sender.finish(batch)

    def _stop_lingering(self, batch: Batch) -> None:
        if timer := self._lingering.pop(batch, None):
            timer.cancel()


# The base's: nest_asyncio replaces ``asyncio.Future``.
_set_result = asyncio.Future.set_result


class SubmittedSend(asyncio.Future[Receipt]):
    """A future for a call without a task. Need not be awaited: its error is reported like an abandoned call's."""

    # With a dict and a constructor, a merged send would take a quarter more time.
    __slots__ = ("call", "queue")
    queue: SendQueue
    call: Any  # None once done, as the cycle collector does not know calls

    def set_result(self, receipt: Receipt | None, /) -> None:
        """End with the receipt. None means: look at the call."""
        call, self.call = self.call, None
        if receipt is None:
            try:
                receipt = self.queue.pending.conclude(call)
            except PushError as error:
                # Without its traceback, which refers to this future; and retrieved, so that asyncio logs nothing.
                self.set_exception(error.with_traceback(None))
                self.exception()
                self.queue.pending.warn(error)
                call.abandoned = True
                return
        _set_result(self, receipt)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the call, as a task that awaits ``send`` would."""
        if is_cancelled := super().cancel(msg):
            call, self.call = self.call, None
            if call.batch is None or call.batch.task is None:
                self.queue.cancel(call)
            else:
                # In the next turn, as for a task: there the first call that leaves takes along all that are cancelled.
                self.get_loop().call_soon(self.queue.cancel, call)
        return is_cancelled


class QueuedBatch:
    """A batch whose callers wait: an entry in the timer wheel, and in the queue for slots (``SlotWaiter``)."""

    __slots__ = ("_batch", "_queue", "_tick", "deadline")

    def __init__(self, queue: SendQueue, batch: Batch, deadline: float) -> None:
        self._queue = queue
        self._batch = batch
        self._tick = queue.timers.add(self, deadline)
        #: The calls' earliest deadline, as of the last look; infinite if there is none. Set by ``include``.
        self.deadline = deadline

    def include(self, deadline: float) -> None:
        """Include a call with this deadline."""
        self._tick.pop(self, None)
        self.deadline = deadline
        self._tick = self._queue.timers.add(self, deadline)

    def expire(self, reason: Failure) -> None:
        """End the calls whose deadline has expired, and wait for the next deadline."""
        batch = self._batch
        # Rounding may put a deadline at the very end of its tick.
        due = (math.floor(self.deadline * TICKS_PER_SECOND) + 1) / TICKS_PER_SECOND
        latest = max([call.deadline for call in batch.units], default=math.inf)
        if due < latest <= due + 1 / TICKS_PER_SECOND:
            # If the latest deadline falls into this tick, expire all calls together then.
            self.include(latest)
            return
        self.include(min([call.deadline for call in batch.units if call.deadline > due], default=math.inf))
        if batch.is_waiting:
            self.fail(reason, until=due)
        else:
            self._queue.abandon(batch, due)

    def close(self) -> None:
        """Leave the timer wheel: no caller waits any more, or its request has the deadline."""
        self._tick.pop(self, None)

    @property
    def is_waiting(self) -> bool:
        return self._batch.is_waiting

    @property
    def is_urgent(self) -> bool:
        return self._batch.content.options.is_urgent

    @property
    def tenant(self) -> object:
        return self._batch.content.api_key

    @property
    def is_merged(self) -> bool:
        return len(self._batch.units) > 1

    def acquire(self, *, is_probe: bool) -> int | None:
        # It stays in the queue for slots after its calls have left.
        return self._queue.start(self._batch, is_probe=is_probe) if self.is_waiting else None

    def fail(self, reason: Failure, *, until: float) -> None:
        batch = self._batch
        if batch.is_waiting:
            for call in [call for call in batch.units if call.deadline <= until]:
                # Done if it was cancelled, perhaps by ``on_event`` for another.
                if not call.future.done():
                    self._queue.leave(call, batch, reason)
