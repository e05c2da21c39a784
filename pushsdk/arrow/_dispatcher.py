"""Chunk sending on arrival: opens their claims, sends them while there is room, and returns outcomes."""

import asyncio
import functools
import time
from collections.abc import AsyncIterable, Callable
from queue import SimpleQueue

import msgspec
import pyarrow as pa

from pushsdk._core.body import EncodedIds, encode_user_ids
from pushsdk._core.decisions import OUTCOMES, TOO_LARGE, reason_of
from pushsdk._core.errors import ClientClosedError, ValidationError
from pushsdk._core.policy import Options, Share
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk._io.credentials import Credentials
from pushsdk._io.engine import Engine
from pushsdk._runs.claim_entry import ClaimEntry, ClaimRequest, Ranges
from pushsdk._runs.claim_log import ClaimLog, claim_error
from pushsdk._runs.plan import ChunkRequest, StopCause, UserRange
from pushsdk._runs.sender import ChunkSender, for_one_attempt
from pushsdk._runs.stopping import Stopping
from pushsdk.arrow._chunks import PreparedChunk, outcome_schema

# Chunks whose outcomes wait to be fetched by the caller, beside the chunks in flight.
AHEAD = 16

# Functions that make the outcome batch for a chunk, called in the caller's thread.
OutcomeQueue = SimpleQueue[Callable[[], object] | None]


class ChunkInFlight(msgspec.Struct, eq=False):
    """A chunk from its claim to its outcomes."""

    prepared: PreparedChunk
    #: Counts the chunks in the plan.
    number: int
    #: The claims on its users.
    entry: ClaimEntry
    #: Requests that are not complete. Set by ``PlanSender._set_requests``.
    requests: int = 0
    #: The rest is left to a later call: a request is too large, or the message may be the culprit.
    is_left_pending: bool = False
    #: The error of a failed claim, which ends the chunk. Set by ``PlanLog.claim``.
    error: Exception | None = None

    def pending(self) -> list[tuple[int, int]]:
        runs = self.entry.states().runs()
        return [(start, stop) for start, stop, status in runs if status.state is UserState.PENDING]

    def parts(self, ranges: Ranges) -> list[ChunkRequest]:
        payloads, number = self.prepared.payloads, self.number
        if self.prepared.is_personal:
            positions = [position for start, stop in ranges for position in range(start, stop)]
            return [ChunkRequest(UserRange(number, at, at + 1), *payloads[at]) for at in positions]
        ((_, message, custom_fields),) = payloads
        return [
            ChunkRequest(UserRange(number, start, stop), self.ids(((start, stop),)), message, custom_fields)
            for start, stop in ranges
        ]

    def ids(self, ranges: Ranges) -> EncodedIds:
        """Return the encoded ids of these users. Only for a chunk with one message."""
        users = self.prepared.users
        if list(ranges) == [(0, len(users))]:
            return self.prepared.payloads[0][0]
        return encode_user_ids([user for start, stop in ranges for user in users[start:stop]])


class PlanLog:
    """The ``RunLog`` for a plan in a claim store: each chunk in flight has an entry."""

    def __init__(self, claims: ClaimLog, attempt: float | None) -> None:
        """``attempt`` limits the seconds from a claim to its verdict."""
        self._claims = claims
        self._seconds = attempt or claims.longest
        #: See ``RunLog``.
        self.longest = claims.longest
        #: The chunks in flight, by number.
        self.in_work: dict[int, ChunkInFlight] = {}
        # The claims for their requests that are not settled.
        self._unsettled: dict[UserRange, ClaimRequest] = {}

    async def claim(self, request: ChunkRequest, *, resent: bool) -> tuple[int, EncodedIds]:
        """See ``RunLog``. Users claimed by other processes are left out."""
        users = request.positions
        chunk = self.in_work[users.chunk]
        if chunk.error is not None:
            return 0, EncodedIds(b"")
        claim = self._unsettled[users] = ClaimRequest(
            chunk.entry, ((users.start, users.stop),), sending_until=time.time() + self._seconds
        )
        await self._claims.claim([claim])
        chunk.error = chunk.error or claim.error
        claimed = sum([stop - start for start, stop in claim.claimed])
        return claimed, request.ids if claimed == users.users else chunk.ids(claim.claimed)

    def settle(self, users: UserRange, status: UserStatus) -> None:
        """See ``RunLog``. PENDING is written only to withdraw a claim."""
        chunk = self.in_work[users.chunk]
        chunk.is_left_pending |= status.status == TOO_LARGE
        claim = self._unsettled.pop(users, None)
        if claim is not None and not claim.done:
            chunk.entry.withdraw(claim)
        elif claim is not None:
            self._claims.settle(chunk.entry, claim.claimed, status)
        elif status.state is not UserState.PENDING:
            self._claims.settle(chunk.entry, ((users.start, users.stop),), status)


class PlanSender:
    """Sends the chunks for one ``push_batches`` call until the plan ends or the sending stops."""

    def __init__(
        self,
        engine: Engine,
        options: Options,
        credentials: Credentials,
        *,
        log: ClaimLog,
        stop_policy: StopPolicy | None,
        varied: bool,
        outcomes: OutcomeQueue,
    ) -> None:
        self._engine = engine
        self._claims = log
        plan_log = PlanLog(log, for_one_attempt(options).timeout.attempt)
        self._in_work = plan_log.in_work
        self._stopping = Stopping(engine.timers, engine.limiter.rate_limiter, stop_policy)
        self._sender = ChunkSender(engine, plan_log, options, credentials, self._stopping, varied=varied)
        self._outcomes = outcomes
        # The task that begins chunks. Set by ``run``.
        self._feeder: asyncio.Task[None]
        # The rate share for this client, None once its first request has been scheduled.
        self._share = engine.settings.rate if isinstance(engine.settings.rate, Share) else None
        # True if an earlier process sent part of the plan: then chunks are looked up before they take a slot.
        self._is_resumed = False
        self._changed = asyncio.Event()
        # The first error, raised after the requests in flight have completed. Set by ``stop`` and ``_fail``.
        self._failure: Exception | None = None

    async def run(self, chunks: AsyncIterable[PreparedChunk]) -> None:
        """Send until all is complete, or the sending stops. Raises input and claim store errors."""
        engine = self._engine
        engine.work.runs.add(self)
        ticker = engine.loop.create_task(self._stopping.tick(lambda: self._in_work))
        with engine.work.including(self):
            try:
                async with asyncio.TaskGroup() as in_flight:
                    self._feeder = in_flight.create_task(self._feed(chunks, in_flight))
            finally:
                ticker.cancel()
                await asyncio.wait([ticker])
                engine.work.runs.discard(self)
        if self._failure is not None:
            raise self._failure

    def stop(self, by: StopCause, reason: str) -> None:
        """Send nothing more. Go on with what is recorded, unless outcomes are no longer fetched."""
        self._stopping.stop(by, reason)
        if by == "closed":
            self._fail(
                ClientClosedError("it was closed before the end of the plan: call again with the same plan and run")
            )
        self.wake()

    def wake(self) -> None:
        """Have ``_feed`` look for room again. Called after each fetched outcome, too."""
        self._changed.set()

    async def _feed(self, chunks: AsyncIterable[PreparedChunk], in_flight: asyncio.TaskGroup) -> None:
        """Begin each chunk when there is room for it."""
        number = 0
        try:
            async for prepared in chunks:
                await self._room()
                number += 1
                try:
                    entry = self._claims.open(prepared.key, prepared.fingerprint, len(prepared.users))
                except ValidationError as error:
                    self._fail(error, prepared)
                    return
                chunk = self._in_work[number] = ChunkInFlight(prepared, number, entry)
                self._set_requests(chunk, len(prepared.payloads))
                in_flight.create_task(self._send_chunk(chunk))
        except Exception as error:  # noqa: BLE001 - from the caller's iterable, raised to the caller
            self._fail(error)

    async def _room(self) -> None:
        limiter = self._engine.limiter
        while True:
            self._changed.clear()
            has_room = len(self._in_work) + self._outcomes.qsize() < limiter.limit + AHEAD
            if has_room and (
                limiter.run_requests - self._sender.waiting < limiter.limit or self._stopping.reason is not None
            ):
                return
            await self._changed.wait()

    def _fail(self, error: Exception, chunk: PreparedChunk | None = None) -> None:
        """Start nothing more; raise the error when the requests in flight have completed."""
        if chunk is not None and isinstance(error, ValidationError):
            error = ValidationError(
                f"chunk {chunk.name}: it was claimed in this run for another payload (users, message, fields or "
                "base_url differ), and was not sent: give each run its own name"
            )
        self._failure = self._failure or error
        self._feeder.cancel()
        self._stopping.stop("failure", f"stopped by {type(error).__name__}")

    async def _send_chunk(self, chunk: ChunkInFlight) -> None:
        """Send a chunk until all its users are settled or the sending stops, and put its outcomes into the queue."""
        entry = chunk.entry
        try:
            await self._send_pending(chunk)
            await self._claims.written(entry, self._claims.deadline())
            if chunk.pending() and entry.error is not None and not entry.is_written:
                # In the store these users are still claimed: reporting them as NOT_SENT would be wrong.
                raise claim_error(entry.error) from entry.error
        except Exception as error:  # noqa: BLE001 - another payload, ClaimStoreError or a bug, raised to the caller
            self._fail(error, chunk.prepared)
        else:
            reason = self._stopping.reason
            unsent = "" if reason is None else reason.reason
            self._outcomes.put(functools.partial(batch_of, chunk.prepared.users, entry.states(), unsent))
        finally:
            self._claims.close(entry)
            del self._in_work[chunk.number]
            self._set_requests(chunk, 0)

    async def _send_pending(self, chunk: ChunkInFlight) -> None:
        """Send to pending users, also to those whose claim another process withdraws meanwhile."""
        entry = chunk.entry
        await self._begin(chunk)
        while self._stopping.reason is None and not chunk.is_left_pending and (ranges := chunk.pending()):
            await self._send_ranges(chunk, ranges)
            self._is_resumed |= entry.others is not None
            if chunk.error is not None:
                raise claim_error(chunk.error) from chunk.error
            if not chunk.pending():
                # The write shows the users whose claim another process withdrew.
                await self._claims.written(entry, self._claims.deadline())
        if chunk.pending():
            # The sending stopped, or left these users: another process may have settled some.
            await self._claims.refresh(entry)

    async def _begin(self, chunk: ChunkInFlight) -> None:
        """Read which users of the chunk other processes have sent to, and schedule the first request of this one."""
        if self._share is not None or self._is_resumed or chunk.number == 1:
            await self._claims.refresh(chunk.entry)
            self._is_resumed |= chunk.entry.others is not None
        if self._share is not None and chunk.pending():
            # The clients that share a rate send their first requests in turn. Chunks sent earlier take no turn.
            share, self._share = self._share, None
            users = 1 if chunk.prepared.is_personal else len(chunk.prepared.users)
            self._engine.limiter.rate_limiter.begin(self._engine.loop.time(), users, share.index / share.count)

    async def _send_ranges(self, chunk: ChunkInFlight, ranges: Ranges) -> None:
        parts = chunk.parts(ranges)
        self._set_requests(chunk, len(parts))
        async with asyncio.TaskGroup() as sending:
            for part in parts:
                sending.create_task(self._send_part(chunk, part))

    async def _send_part(self, chunk: ChunkInFlight, part: ChunkRequest) -> None:
        if await self._sender.deliver(self._sender.attempt(part)) and not self._sender.message.accepted:
            # Only a run rejects, at its end, users who were never tried alone.
            chunk.is_left_pending = True
        self._set_requests(chunk, chunk.requests - 1)

    def _set_requests(self, chunk: ChunkInFlight, requests: int) -> None:
        """Set the number of incomplete requests in a chunk; fewer leave room for another chunk."""
        self._engine.limiter.run_requests += requests - chunk.requests
        chunk.requests = requests
        self.wake()


_CLAIMED = "in flight in another process, or in one that ended: the push may have been enqueued"


def batch_of(ids: list[str], states: UserStates, unsent: str) -> pa.RecordBatch:
    """Return one row for each user."""
    runs = [(stop - start, status) for start, stop, status in states.runs()]
    columns = [
        pa.array(ids, pa.string()),
        pa.concat_arrays([pa.repeat(OUTCOMES[status.state].value, users) for users, status in runs]),
        pa.concat_arrays([pa.repeat(pa.scalar(status.status, pa.int32()), users) for users, status in runs]),
        pa.concat_arrays([pa.repeat(reason_of(status, unsent, claimed=_CLAIMED), users) for users, status in runs]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=outcome_schema())
