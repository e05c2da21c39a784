"""The sending of a run: who takes which chunk when, and what is claimed in its file before and noted after.

Slots, waits, splits and the brake are the sender's.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Iterator, Set

import msgspec

from pushsdk._broadcast.chunks import Chunk
from pushsdk._core.decisions import Step, decide
from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Outcome, Verdict
from pushsdk._core.splitting import Rejected
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._core.words import count
from pushsdk._io.engine import Engine
from pushsdk._runs.log import RunFileLog
from pushsdk._runs.options import Wishes
from pushsdk._runs.plan import ChunkRequest, UserRange
from pushsdk._runs.progress import ProgressReporter
from pushsdk._runs.run_file.journal import IN_DOUBT, PENDING, Journal
from pushsdk._runs.sender import ChunkSender, rejected

__all__ = ["Runner"]

# Chunks read ahead, by their number or by their bytes, whichever is less.
READ_AHEAD = 64
READ_AHEAD_BYTES = 4 * 1024 * 1024


class Runner(ChunkSender):
    """Sends what is planned, once. Made for one run in one event loop."""

    def __init__(self, journal: Journal, wishes: Wishes, engine: Engine) -> None:
        super().__init__(
            engine, wishes.policy, wishes.timeout, brake=wishes.brake, varied=journal.header.message is None
        )
        self._journal = journal
        self._wishes = wishes
        self._log = RunFileLog(journal, loop=self._loop, offload=engine.offload, durable=wishes.syncs)
        self._work = self._agenda()
        self._read: deque[tuple[UserRange, Chunk, bool]] = deque()
        self._message.accepted = journal.tally().accepted > 0
        # Parts that were given up, still pending: a user never tried alone is not rejected if others may be accepted.
        self._untried: list[Rejected[ChunkRequest]] = []
        self._left = math.inf if wishes.limit is None else wishes.limit
        self._meter = ProgressReporter(journal, wishes.tell, now=self._loop.time())
        # Whether the limit left something for later. Set by ``_next``.
        self._limited = False
        # Why the plan can't be read any more. Set by ``_next``.
        self._broken: RunFileError | None = None

    async def run(self) -> None:
        """Send until all is through, or the run is stopped. Raises RunFileError where its file can't be written."""
        self._watch.started(self._now())
        self._log.give_up_claims()
        self._tell()
        ticker = self._loop.create_task(self._tick())
        stop = self._wishes.stop
        waker = None if stop is None else self._loop.create_task(self._await_stop(stop))
        try:
            while True:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(self._engine.settings.limits.in_flight, self._journal.chunks)):
                        workers.create_task(self._worker())
                if not self._try_again():
                    break
        except* Exception as group:  # noqa: BLE001 - raised again, without its group
            raise _first(group) from None
        finally:
            for task in (ticker, waker):
                if task is not None:
                    task.cancel()
            await self._log.flush()
        self._log.check()
        if self._broken is not None:
            raise self._broken
        if self.ending is None and self._limited:
            self.end("limit", f"the limit of {count(self._wishes.limit or 0)} is reached")
        if self.ending != self._journal.ending:
            await self._log.end(self.ending)
        self._tell()

    # -- what there is to do ------------------------------------------------------------------------------------

    def _agenda(self) -> Iterator[tuple[UserRange, bool]]:
        """The pieces to send, and whether each is in doubt. Those in doubt come last: there may be none to send."""
        resends = list(self._journal.pieces(IN_DOUBT)) if self._wishes.resend else []
        pending = ((piece, False) for piece in self._journal.pieces(PENDING))
        return itertools.chain(pending, ((piece, True) for piece in resends))

    def _next(self) -> tuple[UserRange, Chunk, bool] | None:
        if self.ending is None and not self._read:
            try:
                self._read_ahead()
            except RunFileError as error:
                # What is on its way can still end, and be noted.
                self._broken = error
                self.end("failure", "its plan can't be read")
        if self.ending is not None or not self._read:
            return None
        if self._left <= 0:
            self._limited = True
            return None
        piece, chunk, doubtful = self._read.popleft()
        if piece.users > self._left:
            piece = UserRange(piece.chunk, piece.start, piece.start + int(self._left))
            self._limited = True
        self._left -= piece.users
        return piece, chunk, doubtful

    def _read_ahead(self) -> None:
        count = max(1, min(READ_AHEAD, READ_AHEAD_BYTES // self._journal.header.max_bytes))
        ahead = list(itertools.islice(self._work, count))
        chunks = self._journal.load([piece.chunk for piece, _ in ahead])
        self._read.extend((piece, chunk, doubtful) for (piece, doubtful), chunk in zip(ahead, chunks, strict=True))

    async def _worker(self) -> None:
        while (task := self._next()) is not None:
            piece, chunk, in_doubt = task
            first = self._journal.first_user(piece.chunk)
            await self._deliver(ChunkRequest.of(piece, chunk, self._journal.header, first), in_doubt=in_doubt)

    # -- one part -----------------------------------------------------------------------------------------------

    async def _send(self, part: ChunkRequest, *, in_doubt: bool) -> Verdict | None:
        """Send a request until it is decided or the run stops."""
        resends = tries = 0
        while True:
            if not await self._take_place(part.users):
                return None
            verdict = await self._attempt(part, in_doubt=in_doubt)
            self._log.check()
            step, status = decide(
                verdict,
                in_doubt=in_doubt,
                resends=resends if self._wishes.resend else None,
                split_on=self._split_on,
            )
            if step is Step.SPLIT:
                return verdict
            self._count(part.users, status, final=step is Step.SETTLE)
            if step is Step.SETTLE:
                # Rejected while in doubt: the caller must not cut it.
                is_unknown = status.state is UserState.UNKNOWN
                return msgspec.structs.replace(verdict, outcome=Outcome.UNKNOWN) if is_unknown else verdict
            if step is Step.LEAVE:
                self._leave(part, verdict)
                return verdict
            if step is Step.STOP:
                self._stop_for(verdict)
            elif step is Step.RESEND:
                resends, in_doubt = resends + 1, True
            tries += 1
            if not await self._wait(self._backoff(tries, verdict)):
                if status.state is UserState.UNKNOWN:
                    self._engine.counters.users[Outcome.UNKNOWN] += part.users
                return None

    async def _attempt(self, part: ChunkRequest, *, in_doubt: bool) -> Verdict:
        """Send the part once, claimed at the last moment. Its place is taken already."""
        job = self._job(part)
        job.claim = _RequestClaim(self._log, part.piece, job.body, in_doubt=in_doubt, split_on=self._split_on)
        try:
            return await self._engine.sender.run(job, has_slot=True)
        except asyncio.CancelledError:
            self._count(part.users, decide(job.verdict(), in_doubt=in_doubt, split_on=self._split_on).status)
            raise

    def _write(self, piece: UserRange, status: UserStatus) -> None:
        self._log.settle(piece, status)

    def _give_up(self, rest: list[Rejected[ChunkRequest]]) -> None:
        now = self._now()
        self._watch.settled(Outcome.REJECTED, sum([part.users for part, _ in rest]), rest[0][1].status, now)
        self._look(now)
        self._untried += rest

    def _try_again(self) -> bool:
        """At the end: send what was given up, if the message was accepted for any user of the run; else reject it."""
        untried, self._untried = self._untried, []
        if self.ending is not None:
            return False
        if self._message.accepted and not self._varied:
            self._left += sum([part.users for part, _ in untried])
            self._work = iter([(part.piece, False) for part, _ in untried])
            # Read ahead, and beyond the limit.
            self._read.clear()
            return bool(untried)
        for part, verdict in untried:
            self._engine.counters.users[Outcome.REJECTED] += part.users
            self._write(part.piece, rejected(verdict))
        return False

    # -- telling ------------------------------------------------------------------------------------------------

    async def _await_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.end("asked", "it was asked to stop")

    def _tell(self) -> None:
        now = self._loop.time()
        paused = max(0.0, self._slots.paused_until - now)
        waiting = bool(self._pausing) and not self._slots.in_flight
        self._meter.tell(now, paused=paused, waiting=waiting, trouble=self._trouble)


class _RequestClaim:
    """Claims the users of one request when its connection is had, and settles them after each post."""

    def __init__(self, log: RunFileLog, piece: UserRange, body: bytes, *, in_doubt: bool, split_on: Set[int]) -> None:
        self._log = log
        self._piece = piece
        self._body = body
        self._in_doubt = in_doubt
        self._split_on = split_on

    async def claim(self) -> bytes | None:
        """Return the body when the claim is committed. See ``sender.Claimant``."""
        return self._body if await self._log.claim(self._piece, resent=self._in_doubt) else None

    def settle(self, verdict: Verdict) -> None:
        """Write the status of the users. A claim that is still to be committed is committed before it."""
        self._log.settle(self._piece, decide(verdict, in_doubt=self._in_doubt, split_on=self._split_on).status)


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
