"""The sending of chunks as they come in, while there is room: opens their claims, sends them, hands outcomes out."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterable, Callable
from queue import SimpleQueue

import msgspec

from pushsdk._core import wire
from pushsdk._core.decisions import TOO_LARGE
from pushsdk._core.errors import ClientClosedError, ValidationError
from pushsdk._core.policy import RetryPolicy, Share, Timeout
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._io.engine import Engine
from pushsdk._runs.claim_entry import ClaimEntry, ClaimRequest, Ranges
from pushsdk._runs.claim_log import ClaimLog, claim_error
from pushsdk._runs.plan import ChunkRequest, StopCause, UserRange
from pushsdk._runs.sender import ChunkSender
from pushsdk.arrow._chunks import PreparedChunk
from pushsdk.arrow._schemas import batch_of

__all__ = ["AHEAD", "PlanSender"]


# Chunks that wait on either side, beside those in flight: to be sent, and to be fetched.
AHEAD = 16

OutcomeQueue = SimpleQueue[Callable[[], object] | None]


class ChunkInFlight:
    """One chunk in flight."""

    def __init__(self, chunk: PreparedChunk, number: int, entry: ClaimEntry) -> None:
        self.chunk = chunk
        #: Among the chunks of this dispatcher.
        self.number = number
        #: The claims of its users.
        self.entry = entry
        #: Requests that are still to come. Set by ``PlanSender._expect``.
        self.requests = 0
        #: Users are left open for a later call: their request is too large, or the message seems to be to blame.
        self.is_left_open = False
        #: Why a claim failed: nothing more of the chunk is sent. Set by ``PartClaim``.
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
    """The claim of one request of a chunk. See ``_runs.sender.UsersClaim``."""

    def __init__(self, log: ClaimLog, chunk: ChunkInFlight, part: ChunkRequest) -> None:
        self._log = log
        self._chunk = chunk
        self._part = part
        self.users = part.users
        # Set by ``make``.
        self._request: ClaimRequest | None = None

    async def make(self) -> ChunkRequest | None:
        chunk, part = self._chunk, self._part
        if chunk.error is not None:
            return None
        request = self._request = ClaimRequest(chunk.entry, ((part.positions.start, part.positions.stop),))
        await self._log.claim([request])
        if request.error is not None:
            chunk.error = claim_error(request.error)
        self.users = sum([stop - start for start, stop in request.claimed])
        if self.users == part.users:
            return part
        # Another process has sent to the others.
        return msgspec.structs.replace(part, ids=chunk.ids(request.claimed)) if request.claimed else None

    def settle(self, status: UserStatus) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        self._chunk.is_left_open |= status.status == TOO_LARGE
        if request.done:
            self._log.settle(request.entry, request.claimed, status)
        else:
            self._log.withdraw(request)


class ChunkLog:
    """The claims of the chunks in flight, in a claim store. See ``_runs.sender.RunLog``."""

    def __init__(self, claims: ClaimLog) -> None:
        self._claims = claims
        #: The chunks in flight, by number.
        self.chunks: dict[int, ChunkInFlight] = {}

    def claim_of(self, request: ChunkRequest, *, resent: bool) -> PartClaim:
        return PartClaim(self._claims, self.chunks[request.positions.chunk], request)

    def settle(self, users: UserRange, status: UserStatus) -> None:
        self._claims.settle(self.chunks[users.chunk].entry, ((users.start, users.stop),), status)

    def deadline(self) -> float:
        return self._claims.latest()


class PlanSender:
    """Sends chunks as they come in, until the input ends or the sending stops. Made for one ``push_batches``."""

    def __init__(
        self,
        engine: Engine,
        policy: RetryPolicy,
        timeout: Timeout,
        *,
        log: ClaimLog,
        stop_policy: StopPolicy | None,
        varied: bool,
        box: OutcomeQueue,
    ) -> None:
        self._engine = engine
        self._loop = engine.enter()
        self._claims = log
        self._log = ChunkLog(log)
        self._sender = ChunkSender(engine, self._log, policy, timeout, stop_policy=stop_policy, varied=varied)
        self._box = box
        self._most = engine.settings.limits.in_flight
        self._ready: deque[PreparedChunk] = deque()
        # Requests of the chunks in flight that are still to be sent, or to be answered.
        self._requests = 0
        # Chunks so far, and the part of a rate that is held, if other clients have its other parts.
        self._chunks = 0
        self._share = engine.settings.rate if isinstance(engine.settings.rate, Share) else None
        # An earlier process has sent some of the plan: then chunks are looked up before they take a slot.
        self._is_resumed = False
        # True when nothing more comes in. Set by ``_feed``.
        self._fed = False
        self._changed, self._taken = asyncio.Event(), asyncio.Event()
        # An error that is raised at the end, where else the rest is reported as not sent. Set by ``_fail``.
        self._failure: Exception | None = None
        #: True while ``run`` waits for room for more outcomes: the thread that fetches one calls ``wake`` then.
        self.waits = False

    async def run(self, chunks: AsyncIterable[PreparedChunk]) -> None:
        """Send until all is complete, or the sending stops. Raises what the input or the claim store raised."""
        engine = self._engine
        engine.runs.add(self)
        feeder, ticker = self._loop.create_task(self._feed(chunks)), self._loop.create_task(self._sender.tick())
        try:
            async with asyncio.TaskGroup() as in_flight:
                while (chunk := await self._next()) is not None:
                    self._chunks += 1
                    if (opened := self._opened(chunk)) is not None:
                        in_flight.create_task(self._carry(opened))
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

    def stop(self, by: StopCause, reason: str) -> None:
        """Start nothing more; requests in flight complete."""
        self._sender.stop(by, reason)
        self.wake()

    def wake(self) -> None:
        """Have ``run`` look again for what it waits for."""
        self._changed.set()

    # -- chunks in, outcomes out ----------------------------------------------------------------------------------

    async def _feed(self, chunks: AsyncIterable[PreparedChunk]) -> None:
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

    async def _next(self) -> PreparedChunk | None:
        """Return the next chunk, once there is room for it; None if there is none, or nothing more is wanted."""
        while True:
            self._changed.clear()
            self.waits = True
            if self._failure is not None or self._is_closed():
                return None
            if self._ready:
                has_room = len(self._log.chunks) + self._box.qsize() < self._most + AHEAD
                if has_room and (self._requests < self._most or self._sender.stop_reason is not None):
                    self.waits = False
                    self._taken.set()
                    return self._ready.popleft()
            elif self._fed:
                return None
            await self._changed.wait()

    def _is_closed(self) -> bool:
        """Return True if the client is closed: nobody fetches outcomes any more."""
        ending = self._sender.stop_reason
        return ending is not None and ending.by == "closed"

    def _hand_out(self, opened: ChunkInFlight) -> None:
        ending = self._sender.stop_reason
        unsent = "" if ending is None else ending.reason
        self._box.put(functools.partial(batch_of, opened.chunk.column, opened.entry.states(), unsent))

    def _fail(self, error: Exception) -> None:
        """Start nothing more; the error is raised when all has ended."""
        if self._failure is None:
            self._failure = error
            self.stop("failure", f"stopped by {type(error).__name__}")

    # -- one chunk ------------------------------------------------------------------------------------------------

    def _opened(self, chunk: PreparedChunk) -> ChunkInFlight | None:
        """Return the chunk with its claims; None if it was claimed for another payload, which ends the sending."""
        try:
            entry = self._claims.open(chunk.key, chunk.fingerprint, len(chunk.users))
        except ValidationError:
            self._fail(_other_payload(chunk))
            return None
        opened = self._log.chunks[self._chunks] = ChunkInFlight(chunk, self._chunks, entry)
        self._expect(opened, len(chunk.payloads))
        return opened

    async def _carry(self, opened: ChunkInFlight) -> None:
        """Send one chunk until all of it is settled, or the sending stops."""
        entry = opened.entry
        try:
            await self._deliver_open(opened)
            await self._claims.written(entry, self._claims.latest())
            if opened.open() and entry.error is not None and not entry.is_written:
                # Users who stay claimed are not reported as not sent.
                raise claim_error(entry.error)
        except ValidationError:
            self._fail(_other_payload(opened.chunk))
        except Exception as error:  # noqa: BLE001 - ClaimStoreError, or a bug of ours: raised to the caller
            self._fail(error)
        else:
            self._hand_out(opened)
        finally:
            self._claims.close(entry)
            del self._log.chunks[opened.number]
            self._expect(opened, 0)

    async def _deliver_open(self, opened: ChunkInFlight) -> None:
        """Send to the users who are open; again if other processes gave some of them back meanwhile."""
        entry = opened.entry
        if self._share is not None or self._is_resumed or opened.number == 1:
            await self._claims.look(entry)
            self._is_resumed |= entry.is_known
        if self._share is not None and opened.open():
            # The first request waits for its turn among those that share the rate. What was sent before does not.
            share, self._share = self._share, None
            first = 1 if opened.chunk.is_personal else len(opened.chunk.users)
            self._engine.limiter.rate_limiter.begin(self._loop.time(), first, share.place / share.of)
        while self._sender.stop_reason is None and not opened.is_left_open and (ranges := opened.open()):
            await self._send_open(opened, ranges)
            self._is_resumed |= entry.is_known
            if opened.error is not None:
                raise opened.error
            if not opened.open():
                # Users whom another process had and gave back are found when this is written.
                await self._claims.written(entry, self._claims.latest())
        if opened.open():
            # Stopped, or left open: another process may know more of these users.
            await self._claims.look(entry)

    async def _send_open(self, opened: ChunkInFlight, ranges: Ranges) -> None:
        parts = opened.parts(ranges)
        self._expect(opened, len(parts))
        if len(parts) == 1:
            await self._deliver_part(opened, parts[0])
            return
        async with asyncio.TaskGroup() as sending:
            for part in parts:
                sending.create_task(self._deliver_part(opened, part))

    async def _deliver_part(self, opened: ChunkInFlight, part: ChunkRequest) -> None:
        if await self._sender.deliver(part) and not self._sender.message.accepted:
            # Users who were not sent to alone: they are rejected only by a run, at its end.
            opened.is_left_open = True
        self._expect(opened, opened.requests - 1)

    def _expect(self, opened: ChunkInFlight, requests: int) -> None:
        """So many requests of a chunk are still to come: they leave room for another chunk."""
        self._requests += requests - opened.requests
        opened.requests = requests
        self.wake()


def _other_payload(chunk: PreparedChunk) -> ValidationError:
    return ValidationError(
        f"chunk {chunk.name}: it was claimed in this run for another payload (users, message, fields or base_url "
        "differ), and was not sent: give each run a name of its own"
    )
