"""The sending of a run: who takes which chunk when, what is claimed before and noted after, and when it all stops.

What follows a verdict is decided in ``course``, what a rejected chunk is cut into in ``_core.splitting``.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
from collections import deque
from collections.abc import Iterator

import msgspec

from pushsdk._broadcast.course import Step, course_of
from pushsdk._broadcast.journal import Journal
from pushsdk._broadcast.meter import TICK, Meter
from pushsdk._broadcast.parts import Part
from pushsdk._broadcast.plan import Chunk, Ending, Event, Kind, Piece, StoppedBy
from pushsdk._broadcast.recorder import Recorder
from pushsdk._broadcast.wishes import Wishes
from pushsdk._core.brake import Brake, Watch
from pushsdk._core.errors import RunFileError
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.splitting import Splitter
from pushsdk._io.clock import Scope
from pushsdk._io.engine import Engine
from pushsdk._io.sender import Job
from pushsdk._io.slots import Ticket

__all__ = ["Runner"]

logger = logging.getLogger("pushsdk")

# Chunks read ahead, by their number or by their bytes, whichever is less.
READ_AHEAD = 64
READ_AHEAD_BYTES = 4 * 1024 * 1024


class Runner:
    """Sends what is planned, once. Made for one run in one event loop."""

    def __init__(self, journal: Journal, wishes: Wishes, engine: Engine) -> None:
        self._journal = journal
        self._wishes = wishes
        self._engine = engine
        self._loop = loop = engine.enter()
        self._slots = engine.slots
        self._split_on = engine.settings.batching.split_on
        self._recorder = Recorder(journal, loop=loop, offload=engine.offload, durable=wishes.syncs)
        # One attempt per claim: what is repeated, and when, is the run's business, outside the retry budget.
        self._policy = msgspec.structs.replace(
            wishes.policy, attempts=1, unknown="raise", stop=None, wait=None, retry=None
        )
        patience = wishes.timeout
        limits = [limit for limit in (patience.attempt, patience.total) if limit is not None]
        self._patience = msgspec.structs.replace(patience, total=None, attempt=min(limits, default=None))
        self._watch = Watch(wishes.brake or Brake())
        self._work = self._agenda()
        self._read: deque[tuple[Piece, Chunk, bool]] = deque()
        self._left = math.inf if wishes.limit is None else wishes.limit
        # Workers that wait, for a place or for better times: the end of the run wakes them.
        self._waiting: set[Scope] = set()
        self._pausing = 0
        # Whether the message was rejected for everybody so far: then a chunk is not worth cutting.
        self._hopeless = False
        self._meter = Meter(journal, wishes.tell, now=loop.time())
        # One of the workers is in line for a place, and the others behind it here: else no send() would get a turn.
        self._line = asyncio.Lock()
        # What failed last, while nothing has been accepted since.
        self._trouble = ""
        # Whether the limit left something for later. Set by ``_next``.
        self._limited = False
        # Why the plan can't be read any more. Set by ``_next``.
        self._broken: RunFileError | None = None
        #: Why the run ended before its end. Set by ``end``.
        self.ending: Ending | None = None

    async def run(self) -> None:
        """Send until all is through, or the run is stopped. Raises RunFileError where its file can't be written."""
        self._watch.started(self._loop.time())
        self._tell()
        ticker = self._loop.create_task(self._tick())
        stop = self._wishes.stop
        waker = None if stop is None else self._loop.create_task(self._await_stop(stop))
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self._engine.settings.limits.in_flight, self._journal.chunks)):
                    workers.create_task(self._worker())
        except* Exception as group:  # noqa: BLE001 - raised again, without its group
            raise _first(group) from None
        finally:
            for task in (ticker, waker):
                if task is not None:
                    task.cancel()
            await self._recorder.flush()
        self._recorder.check()
        if self._broken is not None:
            raise self._broken
        if self.ending is None and self._limited:
            self.end("limit", f"the limit of {self._wishes.limit} users is reached")
        if self.ending != self._journal.ending:
            await self._recorder.end(self.ending)
        self._tell()

    def end(self, by: StoppedBy, reason: str) -> None:
        """Start nothing more; what is on its way ends by itself."""
        if self.ending is None:
            self.ending = Ending(by, reason)
            logger.info("the broadcast stops: %s", reason)
        for scope in tuple(self._waiting):
            scope.expire(Failure.CLOSED)

    # -- what there is to do ------------------------------------------------------------------------------------

    def _agenda(self) -> Iterator[tuple[Piece, bool]]:
        """The pieces, and whether they are doubtful already. Those held come last: there may be none to send."""
        held = list(self._journal.held()) if self._wishes.resend else []
        return itertools.chain(((piece, False) for piece in self._journal.planned()), ((piece, True) for piece in held))

    def _next(self) -> tuple[Piece, Chunk, bool] | None:
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
            piece = Piece(piece.chunk, piece.start, piece.start + int(self._left))
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
            piece, chunk, doubtful = task
            await self._deliver(Part.of(piece, chunk, self._journal.header), doubtful=doubtful)

    # -- one chunk ----------------------------------------------------------------------------------------------

    async def _deliver(self, whole: Part, *, doubtful: bool) -> None:
        """Send a part of a chunk, whole or cut, until all of it is through or the run stops."""
        parts = [whole] if doubtful or self._engine.sizes.users is None else list(whole.within(self._engine.sizes))
        if len(parts) > 1:
            await self._split(self._splitter(whole, parts))
            return
        verdict = await self._send(whole, doubtful=doubtful)
        if verdict is None:
            return
        if verdict.outcome is Outcome.REJECTED:
            splitter = self._splitter(whole, [])
            if self._report(splitter, whole, verdict):
                await self._split(splitter)
        elif verdict.outcome is Outcome.ACCEPTED:
            self._engine.sizes.accepted(whole.users, whole.frame + len(whole.ids))

    def _splitter(self, whole: Part, parts: list[Part]) -> Splitter[Part]:
        return Splitter(
            parts,
            split_on=self._split_on,
            sizes=self._engine.sizes,
            frame=whole.frame,
            # In a run of kind "each" every message is another one.
            worth=not self._hopeless or self._journal.header.message is None,
        )

    async def _split(self, splitter: Splitter[Part]) -> None:
        while self.ending is None and (wave := splitter.next_wave()):
            async with asyncio.TaskGroup() as sending:
                for part in wave:
                    sending.create_task(self._send_part(splitter, part))
        if self.ending is None:
            for part, verdict in splitter.rest():
                # It was noted as released when it was to be cut: here it is on its way no more.
                self._recorder.on_their_way += part.users
                self._note(part, Kind.REJECTED, verdict)
            # A message that was accepted for anybody is not to blame.
            self._hopeless = self._hopeless or (splitter.gave_up and not self._journal.tally().accepted)

    async def _send_part(self, splitter: Splitter[Part], part: Part) -> None:
        verdict = await self._send(part, doubtful=False)
        if verdict is not None:
            self._report(splitter, part, verdict)

    def _report(self, splitter: Splitter[Part], part: Part, verdict: Verdict) -> bool:
        """Note how a part ended; True where it is to be cut."""
        settled = splitter.report(part, verdict)
        if verdict.outcome is Outcome.REJECTED and verdict.status in self._split_on:
            self._note(part, Kind.RELEASED if settled is None else Kind.REJECTED, verdict)
        if settled is None:
            self._engine.counters.splits += 1
        return settled is None

    async def _send(self, part: Part, *, doubtful: bool) -> Verdict | None:
        """Send a part until it is decided: its verdict, or None where the run stopped first.

        What may be cut (REJECTED, with a status to split on) is left for the caller to note, all else is noted here.
        """
        resends = tries = 0
        while True:
            if not await self._take_place(part.users):
                return None
            verdict = await self._attempt(part, Kind.RESENT if doubtful else Kind.CLAIMED)
            step, note = course_of(
                verdict,
                doubtful=doubtful,
                resends=resends if self._wishes.resend else None,
                split_on=self._split_on,
            )
            if step is Step.SPLIT:
                return verdict
            self._note(part, note, verdict, final=step is Step.SETTLED)
            if step is Step.SETTLED:
                # Refused after a doubt: for whoever may cut it, it is in doubt.
                return msgspec.structs.replace(verdict, outcome=Outcome.UNKNOWN) if note is Kind.UNKNOWN else verdict
            if step is Step.STOP:
                self.end("failure", f"{_reason(verdict)}: no request would get through. Mend that, then resume")
            elif step is Step.RESEND:
                resends, doubtful = resends + 1, True
            tries += 1
            if not await self._wait(self._backoff(tries, verdict)):
                if note is Kind.UNKNOWN:
                    self._engine.counters.users[Outcome.UNKNOWN] += part.users
                return None

    def _backoff(self, tries: int, verdict: Verdict) -> float:
        if self.ending is not None:
            return 0.0
        attempt, longest = verdict.attempts[-1], self._policy.max_retry_after
        if attempt.retry_after is not None:
            # As long as the client pauses for it: what asks for a day may have lost its mind.
            attempt = msgspec.structs.replace(attempt, retry_after=min(attempt.retry_after, longest))
        return self._policy.backoff(tries, attempt, random.random())  # noqa: S311 - jitter

    async def _attempt(self, part: Part, kind: Kind) -> Verdict:
        """Claim the part, then send it once. Its place is taken already."""
        piece = part.piece
        job = Job(
            "push",
            part.body(),
            users=piece.users,
            policy=self._policy,
            timeout=self._patience,
            deadline=math.inf,
        )
        try:
            await self._recorder.claim(Event(kind, piece.chunk, piece.start, piece.stop))
        except BaseException:
            # The claim may be written all the same: then it is taken back.
            back = Kind.UNKNOWN if kind is Kind.RESENT else Kind.RELEASED
            self._recorder.note(Event(back, piece.chunk, piece.start, piece.stop, 0, str(Failure.CANCELLED)))
            self._slots.release()
            raise
        try:
            return await self._engine.sender.run(job, has_slot=True)
        except asyncio.CancelledError:
            verdict = job.verdict()
            course = course_of(verdict, doubtful=kind is Kind.RESENT, resends=None, split_on=self._split_on)
            self._note(part, course.note, verdict)
            raise

    def _note(self, part: Part, kind: Kind, verdict: Verdict, *, final: bool = True) -> None:
        """Have it written how a request ended; not ``final`` where the part is about to be sent again."""
        piece = part.piece
        reason = "" if kind is Kind.ACCEPTED else _reason(verdict)
        self._recorder.note(Event(kind, piece.chunk, piece.start, piece.stop, verdict.status or 0, reason))
        now = self._loop.time()
        outcome = _OUTCOMES.get(kind) if final else None
        if outcome is None:
            self._watch.released(verdict.status, now)
        else:
            self._engine.counters.users[outcome] += piece.users
            self._watch.settled(outcome, piece.users, verdict.status, now)
        self._trouble = reason
        if outcome is Outcome.ACCEPTED:
            self._hopeless = False
        else:
            self._look(now)

    # -- waiting ------------------------------------------------------------------------------------------------

    async def _take_place(self, users: int) -> bool:
        """Wait for a place on the wire; False where the run stopped first."""
        if self.ending is not None:
            return False
        if self._slots.try_take(users):
            return True
        scope = Scope(self._engine.deadlines, math.inf)
        self._waiting.add(scope)
        try:
            with scope:
                async with self._line:
                    if self._slots.try_take(users):
                        return True
                    return await Ticket(self._loop, users, math.inf).take(self._slots) is None
        finally:
            self._waiting.discard(scope)
        return False

    async def _wait(self, seconds: float) -> bool:
        """The wait after a failure; False where the run stopped first."""
        if self.ending is not None:
            return False
        scope = Scope(self._engine.deadlines, math.inf)
        self._waiting.add(scope)
        self._pausing += 1
        try:
            with scope:
                await asyncio.sleep(seconds)
        finally:
            self._pausing -= 1
            self._waiting.discard(scope)
        return scope.expired is None

    async def _await_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.end("asked", "it was asked to stop")

    # -- telling ------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._tell()
            self._look(self._loop.time())

    def _look(self, now: float) -> None:
        """Stop where the brake says so."""
        reason = self._watch.verdict(now, paused_until=self._slots.paused_until)
        if reason is not None:
            self.end("refused" if self._watch.refused else "brake", reason)

    def _tell(self) -> None:
        now = self._loop.time()
        paused = max(0.0, self._slots.paused_until - now)
        waiting = bool(self._pausing) and not self._slots.in_flight
        self._meter.tell(
            now, in_flight=max(0, self._recorder.on_their_way), paused=paused, waiting=waiting, trouble=self._trouble
        )


_OUTCOMES = {Kind.ACCEPTED: Outcome.ACCEPTED, Kind.REJECTED: Outcome.REJECTED, Kind.UNKNOWN: Outcome.UNKNOWN}


def _reason(verdict: Verdict) -> str:
    """In words, from fixed texts, statuses and class names only: a service's answer may quote ids."""
    return verdict.attempts[-1].reason if verdict.attempts else str(verdict.failure or "")


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
