"""In the loop: takes chunks in as there is room, has each delivered under its claim, hands the outcomes out."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable
from itertools import groupby
from queue import SimpleQueue

from pushsdk._broadcast.courier import Courier
from pushsdk._broadcast.parts import Part
from pushsdk._broadcast.plan import Piece, StoppedBy
from pushsdk._core import wire
from pushsdk._core.brake import Brake
from pushsdk._core.decisions import Decision, Step, decide
from pushsdk._core.dedupe import Record
from pushsdk._core.errors import ClientClosedError, ValidationError
from pushsdk._core.outcome import Verdict
from pushsdk._core.policy import RetryPolicy, Share, Timeout
from pushsdk._core.user_states import UserStatus
from pushsdk._io.engine import Engine
from pushsdk.arrow._chunks import Chunk
from pushsdk.arrow._outcomes import Places, batch_of
from pushsdk.claims._guard import Guard

__all__ = ["AHEAD", "Dispatcher"]


# Chunks that wait on either side, beside those on their way: to be sent, and to be fetched.
AHEAD = 16

Box = SimpleQueue[Callable[[], object] | None]


class Load:
    """One chunk under its claim: see ``claims._guard.Load``."""

    def __init__(self, chunk: Chunk, number: int, send: Callable[[Load, tuple[int, ...]], Awaitable[None]]) -> None:
        self._send = send
        self.chunk = chunk
        #: Among the chunks of this dispatcher.
        self.number = number
        self.count = len(chunk.users)
        self.deadline = 0.0
        #: Until when its requests may wait for their places. Both are set for each claim, by ``due``.
        self.latest_start = 0.0
        self.places = Places(self.count)
        #: Requests that are still to come.
        self.requests = 0
        #: Whether anything of it was to be sent.
        self.is_busy = False
        #: Whether a place on the wire is taken that no request has taken over yet.
        self.has_place = False
        #: Whether a request of it is too large for the service, and its users are left open.
        self.is_too_large = False
        #: The last failure of somebody who is left to send to.
        self.trouble: Verdict | None = None
        # Who is sent to under this claim. Set by ``send``.
        self._claimed: tuple[int, ...] = ()

    def due(self, now: float, deadline: float, attempt: float | None) -> None:
        """It is claimed now, until that deadline, and an attempt takes so many seconds."""
        half = (deadline - now) / 2
        self.deadline = deadline
        # An attempt that is cut is UNKNOWN. One that was not begun is made under the next claim.
        self.latest_start = deadline - min(half, half if attempt is None else attempt)

    async def send(self, places: tuple[int, ...]) -> None:
        self._claimed = places
        await self._send(self, places)

    def after(self, record: Record) -> Record:
        return self.places.after(record, self._claimed)

    def parts(self, places: tuple[int, ...]) -> list[Part]:
        """The requests for these."""
        chunk = self.chunk
        if chunk.is_personal:
            return [Part(Piece(self.number, place, place + 1), *chunk.payloads[place]) for place in places]
        ((ids, message, custom_fields),) = chunk.payloads
        if len(places) == self.count:
            return [Part(Piece(self.number, 0, self.count), ids, message, custom_fields)]
        parts = []
        for _, run in groupby(enumerate(places), key=lambda each: each[1] - each[0]):
            alike = [place for _, place in run]
            start, stop = alike[0], alike[-1] + 1
            ids = wire.encode_user_ids(chunk.users[start:stop])[1:-1]
            parts.append(Part(Piece(self.number, start, stop), ids, message, custom_fields))
        return parts


class Dispatcher(Courier):
    """Sends what comes, until that ends or it is stopped. Made for one call of ``push_batches``."""

    def __init__(
        self,
        engine: Engine,
        policy: RetryPolicy,
        timeout: Timeout,
        *,
        guard: Guard,
        brake: Brake | None,
        varied: bool,
        box: Box,
    ) -> None:
        super().__init__(engine, policy, timeout, brake=brake, varied=varied)
        self._guard = guard
        self._box = box
        self._most = engine.settings.limits.in_flight
        self._ready: deque[Chunk] = deque()
        self._loads: dict[int, Load] = {}
        # Requests of the chunks on their way that are still to be sent, or to be answered.
        self._requests = 0
        # Chunks so far, and the part of a rate that is held, where others have its other parts.
        self._chunks = 0
        self._share = engine.settings.rate if isinstance(engine.settings.rate, Share) else None
        # Chunks of which something was sent and that are not through; and since when there was none.
        self._busy = 0
        self._idle_since = self._now()
        # Whether nothing more comes in. Set by ``_feed``.
        self._fed = False
        self._changed, self._taken = asyncio.Event(), asyncio.Event()
        # Why it is not enough to report the rest as not sent: raised at the end. Set by ``_fail``.
        self._failure: Exception | None = None
        #: Whether it waits until there is room for more outcomes: who fetches one calls ``wake`` then.
        self.waits = False

    async def run(self, chunks: AsyncIterable[Chunk]) -> None:
        """Send until all is through, or it is stopped. Raises what went wrong with the input or the claim store."""
        engine = self._engine
        engine.runs.add(self)
        self._watch.started(self._now())
        feeder, ticker = self._loop.create_task(self._feed(chunks)), self._loop.create_task(self._tick())
        try:
            async with asyncio.TaskGroup() as on_their_way:
                while (chunk := await self._next()) is not None:
                    self._chunks += 1
                    load = self._loads[self._chunks] = Load(chunk, self._chunks, self.send)
                    self._expect(load, len(chunk.payloads))
                    on_their_way.create_task(self._carry(load))
        finally:
            for task in (feeder, ticker):
                task.cancel()
            await asyncio.wait([feeder, ticker])
            self.waits = False
            engine.runs.discard(self)
            engine.ended(self)
        if self._is_closed():
            raise ClientClosedError("it was closed before the end of the plan: take the plan up again")
        if self._failure is not None:
            raise self._failure

    def end(self, by: StoppedBy, reason: str) -> None:
        super().end(by, reason)
        self.wake()

    def wake(self) -> None:
        """Something has changed that ``run`` may wait for."""
        self._changed.set()

    # -- chunks in, outcomes out ----------------------------------------------------------------------------------

    async def _feed(self, chunks: AsyncIterable[Chunk]) -> None:
        try:
            async for chunk in chunks:
                self._ready.append(chunk)
                self.wake()
                while len(self._ready) >= AHEAD:
                    self._taken.clear()
                    await self._taken.wait()
        except Exception as error:  # noqa: BLE001 - the caller's, and raised there
            self._fail(error)
        self._fed = True
        self.wake()

    async def _next(self) -> Chunk | None:
        """The next chunk, once there is room for it; None where there is none, or nothing more is wanted."""
        while True:
            self._changed.clear()
            self.waits = True
            if self._failure is not None or self._is_closed():
                return None
            if self._ready:
                has_room = len(self._loads) + self._box.qsize() < self._most + AHEAD
                if has_room and (self._requests < self._most or self.ending is not None):
                    self.waits = False
                    self._taken.set()
                    return self._ready.popleft()
            elif self._fed:
                return None
            await self._changed.wait()

    def _is_closed(self) -> bool:
        """Whether nobody is there any more, or nobody can be waited for."""
        return self.ending is not None and self.ending.by == "closed"

    def _hand_out(self, chunk: Chunk, places: Places) -> None:
        unsent = "" if self.ending is None else self.ending.reason
        self._box.put(functools.partial(batch_of, chunk.column, places.runs(unsent)))

    def _fail(self, error: Exception) -> None:
        """Start nothing more; the caller is told why when all has ended."""
        if self._failure is None:
            self._failure = error
            self.end("failure", f"stopped by {type(error).__name__}")

    # -- one chunk ------------------------------------------------------------------------------------------------

    async def _carry(self, load: Load) -> None:
        """One chunk, until all of it is through or it is stopped."""
        try:
            await self._deliver_open(load)
        except ValidationError:
            self._fail(
                ValidationError(
                    f"chunk {load.chunk.name}: it was claimed in this run for another payload (users, message, fields "
                    "or base_url differ), and was not sent: give each run a name of its own"
                )
            )
        except Exception as error:  # noqa: BLE001 - ClaimStoreError, or a bug of ours: raised to the caller
            self._fail(error)
        else:
            self._hand_out(load.chunk, load.places)
        finally:
            del self._loads[load.number]
            self._expect(load, 0)
            if load.is_busy:
                self._busy -= 1
                self._idle_since = self._now()

    async def _deliver_open(self, load: Load) -> None:
        tries = 0
        chunk = load.chunk
        first = 1 if chunk.is_personal else load.count
        if self._share is not None:
            await self._begin(load, first)
        while load.places.open() and await self._take_place(first):
            load.has_place, load.trouble = True, None
            load.due(self._loop.time(), self._guard.latest(), self._patience.attempt)
            try:
                before = await self._guard.deliver(load, key=chunk.key, fingerprint=chunk.fingerprint)
            finally:
                if load.has_place:
                    load.has_place = False
                    self._slots.return_unused(first)
            load.places.learn(before)
            trouble = load.trouble
            tries = tries + 1 if trouble is not None else 0
            if trouble is None and load.is_too_large:
                break
            if trouble is not None and trouble.attempts and not await self._wait(self._backoff(tries, trouble)):
                break
        if load.places.open():
            # Stopped: of those who are not sent to any more another delivery may know more by now.
            load.places.learn(await self._recorded(load))

    async def _begin(self, load: Load, first: int) -> None:
        """Have the first request wait for its turn among those that share the rate. What was sent before does not."""
        load.places.learn(await self._recorded(load))
        share = self._share
        if share is not None and load.places.open():
            self._share = None
            self._slots.gate.begin(self._loop.time(), first, share.place / share.of)

    async def _recorded(self, load: Load) -> Record:
        chunk = load.chunk
        return await self._guard.recorded(key=chunk.key, fingerprint=chunk.fingerprint, users=load.count)

    async def send(self, load: Load, places: tuple[int, ...]) -> None:
        """Send to those who are open, once; what is not taken stays open."""
        if self.ending is not None:
            return
        if not load.is_busy:
            load.is_busy = True
            self._busy += 1
            if self._busy == 1:
                self._left_out += self._now() - self._idle_since
        parts = load.parts(places)
        self._expect(load, len(parts))
        if len(parts) == 1:
            await self._deliver_part(load, parts[0])
            return
        async with asyncio.TaskGroup() as sending:
            for part in parts:
                sending.create_task(self._deliver_part(load, part))

    async def _deliver_part(self, load: Load, part: Part) -> None:
        await self._deliver(part, in_doubt=False)
        self._expect(load, load.requests - 1)

    def _expect(self, load: Load, requests: int) -> None:
        """So many requests of a chunk are still to come: what leaves room for another chunk."""
        self._requests += requests - load.requests
        load.requests = requests
        self.wake()

    def _look(self, now: float) -> None:
        # While there is nothing to send, nothing is accepted.
        if self._busy:
            super()._look(now)

    async def _send(self, part: Part, *, in_doubt: bool) -> Verdict | None:
        load = self._loads[part.piece.chunk]
        # Half of a request that was split goes on where nobody waits, however late it is: under the next claim
        # all of it would begin anew.
        if not load.has_place and not await self._take_place(part.users, until=load.latest_start):
            return None
        load.has_place = False
        job = self._job(part, load.deadline)
        try:
            verdict = await self._engine.sender.run(job, has_slot=True)
        except asyncio.CancelledError:
            status = self._decide(job.verdict()).status
            self._write(part.piece, status)
            self._count(part, status)
            raise
        step, status = self._decide(verdict)
        self._write(part.piece, status)
        if step is Step.SPLIT:
            return verdict
        self._count(part, status)
        if step is Step.SETTLE:
            return verdict
        if step is Step.LEAVE:
            self._leave(part, verdict)
            return verdict
        load.trouble = verdict
        if step is Step.STOP:
            self._stop_for(verdict)
        return None

    def _leave(self, part: Part, verdict: Verdict) -> None:
        self._loads[part.piece.chunk].is_too_large = True
        super()._leave(part, verdict)

    def _decide(self, verdict: Verdict) -> Decision:
        return decide(verdict, split_on=self._split_on)

    def _write(self, piece: Piece, status: UserStatus) -> None:
        self._loads[piece.chunk].places.note(piece.start, piece.stop, status)
