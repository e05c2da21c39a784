"""What every sending of a plan does: places, waits, cuts, the brake, the end. Who claims and notes, and where, is not.

What follows a verdict is decided in ``_core.decisions``, what a rejected chunk is cut into in ``_core.splitting``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from abc import ABC, abstractmethod

import msgspec

from pushsdk._core.brake import Brake, Watch
from pushsdk._core.decisions import OUTCOMES, REFUSED, TOO_LARGE, Step, decide, why_stopped
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.policy import RetryPolicy, Timeout
from pushsdk._core.splitting import MessageRecord, Rejected, Splitter
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._io.clock import Scope
from pushsdk._io.engine import Engine
from pushsdk._io.sender import Job
from pushsdk._io.slots import Ticket
from pushsdk._runs.plan import ChunkRequest, Ending, StoppedBy, UserRange
from pushsdk._runs.progress import TICK

__all__ = ["ChunkSender", "rejected"]

logger = logging.getLogger("pushsdk")


class ChunkSender(ABC):
    """Delivers chunks, whole or cut, until they are through or the sending stops. Made inside the event loop."""

    def __init__(
        self, engine: Engine, policy: RetryPolicy, timeout: Timeout, *, brake: Brake | None, varied: bool
    ) -> None:
        """``varied`` is whether every chunk has a message of its own."""
        self._engine = engine
        self._loop = engine.enter()
        self._slots = engine.slots
        self._split_on = engine.settings.batching.split_on
        # One attempt per claim: what is repeated, and when, is our business, outside the retry budget.
        self._policy = msgspec.structs.replace(policy, attempts=1, unknown="raise", stop=None, wait=None, retry=None)
        limits = [limit for limit in (timeout.attempt, timeout.total) if limit is not None]
        self._patience = msgspec.structs.replace(timeout, total=None, attempt=min(limits, default=None))
        self._watch = Watch(brake or Brake())
        # When ``_now`` was asked last, and how many seconds it has left out so far.
        self._asked = self._loop.time()
        self._left_out = 0.0
        self._varied = varied
        # Workers that wait, for a place or for better times: the end wakes them.
        self._waiting: set[Scope] = set()
        self._pausing = 0
        # The answers to the message of all chunks, and the chunk that finds out whether that message is to blame.
        self._message = MessageRecord()
        self._asking = asyncio.Lock()
        # One of the workers is in line for a place, and the others behind it here: else no send() would get a turn.
        self._line = asyncio.Lock()
        # What failed last, while nothing has been accepted since.
        self._trouble = ""
        #: Why the sending ended before its end. Set by ``end``.
        self.ending: Ending | None = None

    def end(self, by: StoppedBy, reason: str) -> None:
        """Start nothing more; what is on its way ends by itself."""
        if self.ending is None:
            self.ending = Ending(by, reason)
            logger.info("the broadcast stops: %s", reason)
        for scope in tuple(self._waiting):
            scope.expire(Failure.CLOSED)

    # -- what each sending does in its own way --------------------------------------------------------------------

    @abstractmethod
    async def _send(self, part: ChunkRequest, *, in_doubt: bool) -> Verdict | None:
        """Send a part and write how it ended: its verdict once it is decided, or None where it is not.

        A part that may be cut (REJECTED, with a status to split on) is written as pending, and left to the caller.
        """

    @abstractmethod
    def _write(self, piece: UserRange, status: UserStatus) -> None:
        """Have the status of these users written."""

    def _give_up(self, rest: list[Rejected[ChunkRequest]]) -> None:
        """Take the parts of a chunk that are not sent again, because the message seems to be to blame."""
        for part, verdict in rest:
            self._reject(part, verdict)

    # -- a chunk, whole or cut ------------------------------------------------------------------------------------

    async def _deliver(self, whole: ChunkRequest, *, in_doubt: bool) -> None:
        """Send a part of a chunk, whole or cut, until all of it is through or undecided."""
        parts = [whole] if in_doubt or self._engine.sizes.users is None else list(whole.within(self._engine.sizes))
        if len(parts) > 1:
            await self._split(self._splitter(whole, parts))
            return
        verdict = await self._send(whole, in_doubt=in_doubt)
        if verdict is not None and verdict.outcome is Outcome.REJECTED:
            splitter = self._splitter(whole, [])
            if not self._report(splitter, whole, verdict):
                await self._split(splitter)
        elif verdict is not None and verdict.outcome is Outcome.ACCEPTED:
            self._engine.sizes.accepted()

    def _splitter(self, whole: ChunkRequest, parts: list[ChunkRequest]) -> Splitter[ChunkRequest]:
        return Splitter(
            parts,
            split_on=self._split_on,
            sizes=self._engine.sizes,
            frame=whole.frame,
            message=MessageRecord() if self._varied else self._message,
        )

    async def _split(self, splitter: Splitter[ChunkRequest]) -> None:
        if self._is_open_question():
            # One chunk finds out whether the message is to blame. The others wait for that chunk.
            async with self._asking:
                while self._is_open_question() and await self._send_wave(splitter):
                    pass
        while await self._send_wave(splitter):
            pass
        # Parts that are too large, as smaller ones are, stay pending.
        rest = [each for each in splitter.rest() if each[1].status != TOO_LARGE]
        if self.ending is None and rest:
            self._give_up(rest)

    def _is_open_question(self) -> bool:
        return not (self._varied or self._message.accepted or self._message.is_hopeless)

    async def _send_wave(self, splitter: Splitter[ChunkRequest]) -> bool:
        """Send the next parts; False if nothing is left to send."""
        if self.ending is not None or not (wave := splitter.next_wave()):
            return False
        async with asyncio.TaskGroup() as sending:
            parts = [sending.create_task(self._send_part(splitter, part)) for part in wave]
        if not all(part.result() for part in parts):
            # Some parts have no verdict yet, so the culprit is unknown. All parts stay open.
            splitter.rest()
        return True

    async def _send_part(self, splitter: Splitter[ChunkRequest], part: ChunkRequest) -> bool:
        """Whether it is decided."""
        verdict = await self._send(part, in_doubt=False)
        if verdict is not None:
            self._report(splitter, part, verdict)
        return verdict is not None

    def _report(self, splitter: Splitter[ChunkRequest], part: ChunkRequest, verdict: Verdict) -> bool:
        """Note how a part ended. False if it is to be cut."""
        is_settled = splitter.report(part, verdict)
        if verdict.outcome is Outcome.REJECTED and verdict.status in self._split_on:
            step, status = decide(verdict, split_on=frozenset() if is_settled else self._split_on)
            if step is Step.SETTLE:
                self._write(part.piece, status)
            self._count(part.users, status)
            if step is Step.LEAVE:
                self._leave(part, verdict)
        self._engine.counters.splits += not is_settled
        return is_settled

    def _reject(self, part: ChunkRequest, verdict: Verdict) -> None:
        """Settle a part that was not sent by itself, since the message was rejected for every user it was tried on."""
        status = rejected(verdict)
        self._write(part.piece, status)
        self._count(part.users, status)

    def _job(self, part: ChunkRequest, deadline: float = math.inf) -> Job:
        return Job(
            "push",
            part.body(),
            users=part.users,
            policy=self._policy,
            timeout=self._patience,
            deadline=deadline,
        )

    def _count(self, users: int, status: UserStatus, *, final: bool = True) -> None:
        """Count how a request to so many users ended; not ``final`` if it is about to be sent again."""
        now = self._now()
        if final and status.state is not UserState.PENDING:
            outcome = OUTCOMES[status.state]
            self._engine.counters.users[outcome] += users
            self._watch.settled(outcome, users, status.status, now)
        else:
            self._watch.released(status.status, now)
        self._trouble = status.reason
        if status.state is UserState.ACCEPTED:
            self._message.accepted = True
        else:
            self._look(now)

    # -- waiting --------------------------------------------------------------------------------------------------

    def _backoff(self, tries: int, verdict: Verdict) -> float:
        if self.ending is not None:
            return 0.0
        attempt, longest = verdict.attempts[-1], self._policy.max_retry_after
        if attempt.retry_after is not None:
            # As long as the client pauses for it: what asks for a day may have lost its mind.
            attempt = msgspec.structs.replace(attempt, retry_after=min(attempt.retry_after, longest))
        return self._policy.backoff(tries, attempt, random.random())  # noqa: S311 - jitter

    async def _take_place(self, users: int, *, until: float = math.inf) -> bool:
        """Wait for a place on the wire; False where the sending stopped first, or that time came."""
        if self.ending is not None:
            return False
        if self._slots.try_take(users):
            return True
        scope = Scope(self._engine.deadlines, until)
        self._waiting.add(scope)
        try:
            with scope:
                async with self._line:
                    if self._slots.try_take(users):
                        return True
                    return await Ticket(self._loop, users, until).take(self._slots) is None
        finally:
            self._waiting.discard(scope)
        return False

    async def _wait(self, seconds: float) -> bool:
        """The wait after a failure; False where the sending stopped first."""
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

    # -- the brake ------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        """The seconds of sending: the loop's clock without the time in which the loop was blocked or stopped.

        ``_tick`` asks twice a second while the loop runs.
        """
        now = self._loop.time()
        self._left_out += max(0.0, now - self._asked - 2 * TICK)
        self._asked = now
        return now - self._left_out

    async def _tick(self) -> None:
        """Look at the brake now and then, also while nothing ends."""
        while True:
            await asyncio.sleep(TICK)
            self._tell()
            self._look(self._now())

    def _tell(self) -> None:  # noqa: B027 - not everybody does
        """Whoever wants to know how far it is."""

    def _look(self, now: float) -> None:
        """Stop where the brake says so."""
        reason = self._watch.verdict(now, paused_until=self._slots.paused_until - self._left_out)
        if reason is not None:
            self.end("brake", reason)

    def _leave(self, part: ChunkRequest, verdict: Verdict) -> None:
        """Leave users pending whose request is too large, and stop if every other request would be."""
        if not (self._varied or self._message.accepted):
            self._stop_for(verdict)

    def _stop_for(self, verdict: Verdict) -> None:
        """Stop, because no other request would fare better."""
        self.end("refused" if verdict.status in REFUSED else "failure", why_stopped(verdict))


def rejected(verdict: Verdict) -> UserStatus:
    """Return the status of users whose share of a rejected request is not sent by itself."""
    return UserStatus(UserState.REJECTED, verdict.status, verdict.attempts[-1].reason)
