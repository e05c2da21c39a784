"""In the loop: takes chunks in as there is room, has each delivered under its claim, hands the outcomes out."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterable, Callable
from queue import SimpleQueue

import msgspec

from pushsdk._core import wire
from pushsdk._core.brake import Brake
from pushsdk._core.decisions import Decision, Step, decide
from pushsdk._core.errors import ClientClosedError, ValidationError
from pushsdk._core.outcome import Failure, Verdict
from pushsdk._core.policy import RetryPolicy, Share, Timeout
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._io.engine import Engine
from pushsdk._runs.plan import ChunkRequest, StoppedBy, UserRange
from pushsdk._runs.sender import ChunkSender
from pushsdk.arrow._chunks import Chunk
from pushsdk.arrow._outcomes import batch_of
from pushsdk.claims._entry import ClaimRequest, Entry, Ranges
from pushsdk.claims._log import ClaimLog, claim_error

__all__ = ["AHEAD", "Dispatcher"]


# Chunks that wait on either side, beside those on their way: to be sent, and to be fetched.
AHEAD = 16

_PENDING = UserStatus(UserState.PENDING)

Box = SimpleQueue[Callable[[], object] | None]


class Load:
    """One chunk on its way."""

    def __init__(self, chunk: Chunk, number: int, entry: Entry) -> None:
        self.chunk = chunk
        #: Among the chunks of this dispatcher.
        self.number = number
        #: The claims of its users.
        self.entry = entry
        #: Requests that are still to come.
        self.requests = 0
        #: Whether anything of it was to be sent.
        self.is_busy = False
        #: Whether a request of it is too large for the service, and its users are left open.
        self.is_too_large = False
        #: The last failure of users who are left to send to, and the failure of a claim.
        self.trouble: Verdict | None = None
        self.error: Exception | None = None

    def open(self) -> list[tuple[int, int]]:
        """Return the users who are left to send to."""
        return [(start, stop) for start, stop, each in self.entry.states().runs() if each.state is UserState.PENDING]

    def parts(self, ranges: Ranges) -> list[ChunkRequest]:
        """Return the requests for these users."""
        chunk, number = self.chunk, self.number
        if chunk.is_personal:
            places = [place for start, stop in ranges for place in range(start, stop)]
            return [ChunkRequest(UserRange(number, place, place + 1), *chunk.payloads[place]) for place in places]
        ((_, message, custom_fields),) = chunk.payloads
        return [
            ChunkRequest(UserRange(number, start, stop), self.ids(((start, stop),)), message, custom_fields)
            for start, stop in ranges
        ]

    def ids(self, ranges: Ranges) -> bytes:
        """Return these users of a chunk with one message, as they go over the wire."""
        if list(ranges) == [(0, len(self.chunk.users))]:
            return self.chunk.payloads[0][0]
        return wire.encode_user_ids([user for start, stop in ranges for user in self.chunk.users[start:stop]])[1:-1]


class PartClaim:
    """The claim of one request of a chunk. See ``_io.sender.Claimant``."""

    def __init__(self, dispatcher: Dispatcher, load: Load, part: ChunkRequest) -> None:
        self._dispatcher = dispatcher
        self._log = dispatcher._log
        self._load = load
        self._part = part
        #: How many users were claimed last: the others are those of other processes.
        self.users = 0
        # Of the attempt under way.
        self._request: ClaimRequest | None = None

    async def claim(self) -> bytes | None:
        load, part = self._load, self._part
        request = self._request = ClaimRequest(load.entry, ((part.piece.start, part.piece.stop),))
        await self._log.claim([request])
        if request.error is not None:
            load.error = claim_error(request.error)
        if not request.claimed or self._dispatcher.ending is not None:
            return None
        self.users = sum([stop - start for start, stop in request.claimed])
        if self.users == part.users:
            return part.body()
        # Another process has sent to the others.
        return msgspec.structs.replace(part, ids=load.ids(request.claimed)).body()

    def settle(self, verdict: Verdict) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        if not request.done:
            self._log.withdraw(request)
        elif verdict.failure is Failure.UNCLAIMED:
            self._log.settle(request.entry, request.claimed, _PENDING)
        else:
            self._log.settle(request.entry, request.claimed, self._dispatcher.decide(verdict).status)


class Dispatcher(ChunkSender):
    """Sends what comes, until that ends or it is stopped. Made for one call of ``push_batches``."""

    def __init__(
        self,
        engine: Engine,
        policy: RetryPolicy,
        timeout: Timeout,
        *,
        log: ClaimLog,
        brake: Brake | None,
        varied: bool,
        box: Box,
    ) -> None:
        super().__init__(engine, policy, timeout, brake=brake, varied=varied)
        self._log = log
        self._box = box
        self._most = engine.settings.limits.in_flight
        self._ready: deque[Chunk] = deque()
        self._loads: dict[int, Load] = {}
        # Requests of the chunks on their way that are still to be sent, or to be answered.
        self._requests = 0
        # Chunks so far, and the part of a rate that is held, where others have its other parts.
        self._chunks = 0
        self._share = engine.settings.rate if isinstance(engine.settings.rate, Share) else None
        # An earlier process has sent some of the plan: then chunks are looked up before they take a slot.
        self._is_resumed = False
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
                    if (load := self._opened(chunk)) is not None:
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

    def _hand_out(self, load: Load) -> None:
        unsent = "" if self.ending is None else self.ending.reason
        self._box.put(functools.partial(batch_of, load.chunk.column, load.entry.states(), unsent))

    def _fail(self, error: Exception) -> None:
        """Start nothing more; the caller is told why when all has ended."""
        if self._failure is None:
            self._failure = error
            self.end("failure", f"stopped by {type(error).__name__}")

    # -- one chunk ------------------------------------------------------------------------------------------------

    def _opened(self, chunk: Chunk) -> Load | None:
        """Return the chunk with its claims; None if it was claimed for another payload, which ends the sending."""
        try:
            entry = self._log.open(chunk.key, chunk.fingerprint, len(chunk.users))
        except ValidationError:
            self._fail(_other_payload(chunk))
            return None
        load = self._loads[self._chunks] = Load(chunk, self._chunks, entry)
        self._expect(load, len(chunk.payloads))
        return load

    async def _carry(self, load: Load) -> None:
        """Send one chunk until all of it is settled, or the sending stops."""
        try:
            await self._deliver_open(load)
            await self._log.written(load.entry, self._log.latest())
            if load.open() and load.entry.error is not None and not load.entry.is_written:
                # Users who stay claimed are not reported as not sent.
                raise claim_error(load.entry.error)
        except ValidationError:
            self._fail(_other_payload(load.chunk))
        except Exception as error:  # noqa: BLE001 - ClaimStoreError, or a bug of ours: raised to the caller
            self._fail(error)
        else:
            self._hand_out(load)
        finally:
            self._log.close(load.entry)
            del self._loads[load.number]
            self._expect(load, 0)
            if load.is_busy:
                self._busy -= 1
                self._idle_since = self._now()

    async def _deliver_open(self, load: Load) -> None:
        tries = 0
        if self._share is not None or self._is_resumed or load.number == 1:
            await self._log.look(load.entry)
            self._is_resumed |= load.entry.is_known
        if self._share is not None and load.open():
            # The first request waits for its turn among those that share the rate. What was sent before does not.
            share, self._share = self._share, None
            first = 1 if load.chunk.is_personal else len(load.chunk.users)
            self._slots.gate.begin(self._loop.time(), first, share.place / share.of)
        while self.ending is None and (ranges := load.open()):
            load.trouble = None
            await self._send_open(load, ranges)
            self._is_resumed |= load.entry.is_known
            if load.error is not None:
                raise load.error
            trouble = load.trouble
            tries = tries + 1 if trouble is not None else 0
            if trouble is None and load.is_too_large:
                break
            if trouble is not None and trouble.attempts and not await self._wait(self._backoff(tries, trouble)):
                break
            if not load.open():
                # What is found when this is written: users whom another process had, and gave back.
                await self._log.written(load.entry, self._log.latest())
        if load.open():
            # Stopped: of users who are not sent to any more another process may know more.
            await self._log.look(load.entry)

    async def _send_open(self, load: Load, ranges: Ranges) -> None:
        """Send to users who are open, once; what is not taken stays open."""
        if not load.is_busy:
            load.is_busy = True
            self._busy += 1
            if self._busy == 1:
                self._left_out += self._now() - self._idle_since
        parts = load.parts(ranges)
        self._expect(load, len(parts))
        if len(parts) == 1:
            await self._deliver_part(load, parts[0])
            return
        async with asyncio.TaskGroup() as sending:
            for part in parts:
                sending.create_task(self._deliver_part(load, part))

    async def _deliver_part(self, load: Load, part: ChunkRequest) -> None:
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

    async def _send(self, part: ChunkRequest, *, in_doubt: bool) -> Verdict | None:
        load = self._loads[part.piece.chunk]
        if load.error is not None or not await self._take_place(part.users):
            return None
        job = self._job(part, self._log.latest())
        job.claim = claim = PartClaim(self, load, part)
        try:
            verdict = await self._engine.sender.run(job, has_slot=True)
        except asyncio.CancelledError:
            self._count(claim.users, self.decide(job.verdict()).status)
            raise
        if verdict.failure is Failure.UNCLAIMED:
            # Other processes have these users, or the store failed.
            return None
        step, status = self.decide(verdict)
        if step is Step.SPLIT:
            return verdict
        self._count(claim.users or part.users, status)
        if step is Step.SETTLE:
            return verdict
        if step is Step.LEAVE:
            self._leave(part, verdict)
            return verdict
        load.trouble = verdict
        if step is Step.STOP:
            self._stop_for(verdict)
        return None

    def _leave(self, part: ChunkRequest, verdict: Verdict) -> None:
        self._loads[part.piece.chunk].is_too_large = True
        super()._leave(part, verdict)

    def decide(self, verdict: Verdict) -> Decision:
        """Decide on the verdict on a request."""
        return decide(verdict, split_on=self._split_on)

    def _write(self, piece: UserRange, status: UserStatus) -> None:
        self._log.settle(self._loads[piece.chunk].entry, ((piece.start, piece.stop),), status)


def _other_payload(chunk: Chunk) -> ValidationError:
    return ValidationError(
        f"chunk {chunk.name}: it was claimed in this run for another payload (users, message, fields or base_url "
        "differ), and was not sent: give each run a name of its own"
    )
