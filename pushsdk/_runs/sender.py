"""Chunk sending: slot, claim, attempt, decision; then settle, split or wait.

``_core.decisions`` decides the next step after a verdict, ``_core.splitting`` how a rejected chunk is split. The log is
a run file (``log``) or a claim store (``pushsdk.arrow``).
"""

import asyncio
import logging
import math
import random
from collections import Counter
from typing import Any, Protocol

from msgspec.structs import replace

from pushsdk._core.body import EncodedIds
from pushsdk._core.decisions import (
    LEAVE,
    OUTCOMES,
    REFUSED,
    RESEND,
    SETTLE,
    SPLIT,
    STOP,
    TOO_LARGE,
    Step,
    decide,
    stop_reason,
)
from pushsdk._core.operations import PUSH
from pushsdk._core.outcome import ACCEPTED, REJECTED, Attempt, Failure, Outcome, Verdict, mutable, verdict_of
from pushsdk._core.policy import Options
from pushsdk._core.splitting import MessageRecord, Rejected, Splitter, within
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._core.words import count
from pushsdk._io.credentials import Credentials
from pushsdk._io.engine import Engine
from pushsdk._io.request import ClaimedRequest, WholePart
from pushsdk._runs.plan import ANOTHER_TEXT, MOST_ANSWERS, ChunkRequest, UserRange
from pushsdk._runs.stopping import Stopping

logger = logging.getLogger("pushsdk")


# Limit for one process and one request whose outcome is UNKNOWN, if resending was asked for.
MAX_RESENDS = 3


class RunLog(Protocol):
    """The durable record of a run: a claim before the first byte of each request, a status afterwards."""

    #: Seconds after its claim in which a request must be complete.
    longest: float

    async def claim(self, request: ChunkRequest, *, resent: bool) -> tuple[int, EncodedIds]:
        """Claim the users in one attempt. Return number and encoded ids of the claimed users, 0 if none may be sent to.

        ``resent`` is True if an earlier attempt was UNKNOWN.
        """

    def settle(self, users: UserRange, status: UserStatus) -> None:
        """Write the status of users, claimed or not. Withdraw a claim on these users that is still being made."""


@mutable
class ChunkAttempt(ClaimedRequest, eq=False, gc=False):
    """One attempt of a ``ChunkSender``, whose users are claimed before its first byte."""

    sender: Any = None
    """The ``ChunkSender``."""
    chunk: Any = None
    """The ``ChunkRequest``."""
    in_doubt: bool = False
    """True if an earlier attempt was UNKNOWN."""
    has_slot: bool = False
    """True once the attempt holds a slot."""

    async def claim_users(self) -> bytes | None:
        sender, chunk = self.sender, self.chunk
        if not sender.stopping.may_begin():  # checked before the claim too, as a claim counts as resent
            return None
        users, ids = await sender.log.claim(chunk, resent=self.in_doubt)
        if not users or not sender.stopping.may_begin():
            return None
        self.part = WholePart(self.part.units, users)
        return self.body if ids is chunk.ids else replace(chunk, ids=ids).body()

    def settle(self, attempt: Attempt) -> None:
        self.record(verdict_of((*self.attempts, attempt), self.evidence))

    def record(self, verdict: Verdict) -> None:
        """Write the users' status after this verdict."""
        self.sender.log.settle(self.chunk.positions, self.status_after(verdict))

    def status_after(self, verdict: Verdict) -> UserStatus:
        """Return the users' status after this verdict."""
        if verdict.failure is Failure.UNCLAIMED:
            return _UNKNOWN if self.in_doubt else _PENDING
        return decide(verdict, in_doubt=self.in_doubt, split_on=self.sender.split_on).status


_PENDING, _UNKNOWN = UserStatus(UserState.PENDING), UserStatus(UserState.UNKNOWN)
# After these steps the request, as a whole, is not sent again.
_FINAL = frozenset({SETTLE, SPLIT, LEAVE})


class ChunkSender:
    """Sends chunks, whole or split, until their users are settled or the sending stops. Made inside the event loop."""

    def __init__(
        self,
        engine: Engine,
        log: RunLog,
        options: Options,
        credentials: Credentials,
        stopping: Stopping,
        *,
        varied: bool,
        resends: bool = False,
    ) -> None:
        """``varied``: every chunk has its own message. ``resends``: requests with an UNKNOWN outcome are resent."""
        #: The client's parts.
        self.engine = engine
        #: The record of the run.
        self.log = log
        self._options = for_one_attempt(options)
        self._credentials = credentials
        #: The statuses after which a request is split.
        self.split_on = engine.settings.batching.split_on
        self._varied = varied
        self._resends = resends
        #: Ends the sending early.
        self.stopping = stopping
        #: The record of responses to the message that all chunks share.
        self.message = MessageRecord()
        # Held by the chunk that tests whether the message is to blame.
        self._blame_lock = asyncio.Lock()
        # One request waits in the limiter's queue, the others here: otherwise no send() would get a slot.
        self._slot_lock = asyncio.Lock()
        #: The last failure in words; empty once a request has been accepted since. Set by ``count``.
        self.trouble = ""
        #: True if the last request is to be made again. Set by ``count``.
        self.is_held = False
        #: Counts the requests that wait after a failure.
        self.waiting = 0
        #: Counts the answers to requests that were not accepted.
        self.answers = Counter[str]()

    async def deliver(self, first: ChunkAttempt) -> list[Rejected[ChunkRequest]]:
        """Send a request, whole or split, until all its users are settled or the sending stops.

        If an earlier attempt was UNKNOWN, the request is never split. Returns the parts that were given up because the
        message seems to be to blame. Their users are PENDING: ``reject`` or deliver the parts later.
        """
        whole = first.chunk
        parts = [whole] if first.has_slot or first.in_doubt else list(within(whole, self.engine.learned.users))
        if len(parts) > 1:
            return await self._split(self._splitter(whole, parts))
        verdict = await self._send(first)
        if verdict is not None and verdict.outcome is REJECTED:
            splitter = self._splitter(whole, [])
            if not self._report(splitter, whole, verdict):
                return await self._split(splitter)
        return []

    def reject(self, part: ChunkRequest, verdict: Verdict) -> None:
        """Settle as REJECTED a part that was given up: the message was rejected for every user tried alone."""
        self.engine.sender.counters.users[Outcome.REJECTED] += part.users
        self.log.settle(part.positions, UserStatus(UserState.REJECTED, verdict.status, verdict.attempts[-1].reason))

    def _splitter(self, whole: ChunkRequest, parts: list[ChunkRequest]) -> Splitter[ChunkRequest]:
        return Splitter(
            parts,
            split_on=self.split_on,
            learned=self.engine.learned,
            frame=whole.frame,
            message=MessageRecord() if self._varied else self.message,
        )

    async def _split(self, splitter: Splitter[ChunkRequest]) -> list[Rejected[ChunkRequest]]:
        """Send the parts. Return the parts that were given up."""
        await self._send_waves(splitter)
        # Parts that are too large stay pending: even a single user was too large.
        rest = [(part, verdict) for part, verdict in splitter.rest() if verdict.status != TOO_LARGE]
        if self.stopping.reason is not None or not rest:
            return []
        status = UserStatus(UserState.REJECTED, rest[0][1].status)
        self.stopping.settled(REJECTED, sum([part.users for part, _ in rest]), status)
        return rest

    async def _send_waves(self, splitter: Splitter[ChunkRequest]) -> None:
        if self._is_open_question():
            # One chunk tests whether the message is to blame. The others wait for the result.
            async with self._blame_lock:
                while self._is_open_question() and await self._send_wave(splitter):
                    pass
        while await self._send_wave(splitter):
            pass

    def _is_open_question(self) -> bool:
        return not (self._varied or self.message.accepted or self.message.is_rejected)

    async def _send_wave(self, splitter: Splitter[ChunkRequest]) -> bool:
        """Send the next parts. Return False if nothing is left to send."""
        if self.stopping.reason is not None or not (wave := splitter.next_wave()):
            return False
        async with asyncio.TaskGroup() as sending:
            parts = [sending.create_task(self._send_part(splitter, part)) for part in wave]
        if not all(part.result() for part in parts):
            # Some parts have no verdict yet, so the culprit is unknown. Leave all parts pending.
            splitter.rest()
        return True

    async def _send_part(self, splitter: Splitter[ChunkRequest], part: ChunkRequest) -> bool:
        """Return True if the part has a verdict."""
        verdict = await self._send(self.attempt(part))
        if verdict is not None:
            self._report(splitter, part, verdict)
        return verdict is not None

    def _report(self, splitter: Splitter[ChunkRequest], part: ChunkRequest, verdict: Verdict) -> bool:
        """Report the verdict on a part to the splitter. Return False if the part is to be split."""
        is_settled = splitter.report(part, verdict)
        if verdict.outcome is REJECTED and verdict.status in self.split_on:
            step, status = decide(verdict, split_on=frozenset() if is_settled else self.split_on)
            if step is SETTLE:
                self.log.settle(part.positions, status)
            self.count(part.users, status)
            if step is LEAVE:
                self._leave(verdict)
        if not is_settled:
            self.engine.sender.counters.splits += 1
            logger.info("a request for %s is split after HTTP %s", count(part.users), verdict.status)
        return is_settled

    async def _send(self, attempt: ChunkAttempt) -> Verdict | None:
        """Send a request until its verdict is final. Return None if the sending stops, or all claims are refused.

        A request to split (REJECTED, with a status in ``split_on``) is settled as PENDING; the caller splits it.
        """
        resends = tries = 0
        status, chunk = _PENDING, attempt.chunk
        while await self._take_slot(attempt):
            verdict, in_doubt = await self._make(attempt), attempt.in_doubt
            if verdict.failure is Failure.UNCLAIMED:
                break
            may_resend = self._resends and resends < MAX_RESENDS
            step, status = decide(verdict, in_doubt=in_doubt, may_resend=may_resend, split_on=self.split_on)
            if step is not SPLIT:
                self.count(attempt.users, status, final=step is SETTLE)
            if step in _FINAL:
                return self._concluded(step, status, verdict)
            tries += 1
            if not await self._wait(step, tries, verdict):
                break
            is_resend = step is RESEND
            resends += is_resend
            attempt = self.attempt(chunk, in_doubt=in_doubt or is_resend)
        if status.state is _UNKNOWN.state:
            self.engine.sender.counters.users[Outcome.UNKNOWN] += chunk.users
        return None

    def _concluded(self, step: Step, status: UserStatus, verdict: Verdict) -> Verdict:
        """Return the final verdict on a request."""
        if step is LEAVE:
            self._leave(verdict)
        elif step is SETTLE and status.state is _UNKNOWN.state:
            # Perhaps rejected, but an earlier attempt was UNKNOWN: the caller must not split the request.
            return replace(verdict, outcome=Outcome.UNKNOWN)
        return verdict

    def attempt(self, chunk: ChunkRequest, *, in_doubt: bool = False) -> ChunkAttempt:
        """Return the next attempt to send a request."""
        credentials = self._credentials
        return ChunkAttempt(
            PUSH,
            chunk.body(),
            WholePart((credentials,), chunk.users),
            self._options,
            deadline=math.inf,
            key=credentials.key,
            is_asked=credentials.ask is None,
            sender=self,
            chunk=chunk,
            in_doubt=in_doubt,
        )

    def reserve(self, attempt: ChunkAttempt) -> bool:
        """Take a slot and an idle connection. Return False if there is none, or if the request may have to be split."""
        engine = self.engine
        is_small = attempt.users <= engine.learned.users
        attempt.has_slot = is_small and engine.limiter.try_acquire(attempt.users)
        return attempt.has_slot and engine.sender.observer is None and engine.sender.reserve(attempt)

    async def _make(self, attempt: ChunkAttempt) -> Verdict:
        """Make an attempt, which has its slot."""
        attempt.deadline = self.engine.loop.time() + self.log.longest
        try:
            verdict = await self.engine.sender.run(attempt, has_slot=True)
        except asyncio.CancelledError:
            self.count(attempt.users, attempt.status_after(attempt.verdict()))
            raise
        if verdict.outcome is not ACCEPTED:
            self._count_answer(verdict)
        return verdict

    def count(self, users: int, status: UserStatus, *, final: bool = True) -> None:
        """Count a request's users under this status. ``final`` is True if the status settles the users."""
        outcome = OUTCOMES[status.state]
        self.trouble = status.reason
        if Failure.REFUSED in status.reason:
            self.trouble += ". Is the service up?"
        self.message.accepted |= outcome is ACCEPTED
        self.is_held = not final or status.state is _PENDING.state
        if not self.is_held:
            self.engine.sender.counters.users[outcome] += users
            self.stopping.settled(outcome, users, status)
        else:
            self.stopping.released(status)

    def _count_answer(self, verdict: Verdict) -> None:
        """Count the answer to a request, if there was one."""
        for attempt in verdict.attempts:
            if attempt.status is not None:
                answer = f"{attempt.status}: {attempt.answer}".removesuffix(": ")
                if len(self.answers) >= MOST_ANSWERS and answer not in self.answers:
                    answer = f"{attempt.status}: {ANOTHER_TEXT}"
                self.answers[answer] += 1

    async def _take_slot(self, attempt: ChunkAttempt) -> bool:
        """Wait for a slot, unless the attempt has one. Return False if the sending stops first."""
        if attempt.has_slot:
            return True
        limiter, users = self.engine.limiter, attempt.users
        if not self.stopping.may_begin():
            return False
        if limiter.try_acquire(users):
            return True
        with self.stopping.until_stopped():
            async with self._slot_lock:
                if not limiter.try_acquire(users):
                    await limiter.acquire(users)
                return True
        return False

    async def _wait(self, step: Step, tries: int, verdict: Verdict) -> bool:
        """Wait after a failure. Return False if the sending stops first, or if the step is STOP."""
        if step is STOP:
            self._stop_for(verdict)
        if not self.stopping.may_begin():
            return False
        seconds = self._options.policy.backoff(tries, verdict.attempts[-1], random.random())  # noqa: S311 - jitter
        self.waiting += 1
        with self.stopping.until_stopped() as scope:
            await asyncio.sleep(seconds)
        self.waiting -= 1
        return scope.expired is None

    def _leave(self, verdict: Verdict) -> None:
        """Leave the users in a request that is too large PENDING, and stop if all requests have its message."""
        if not (self._varied or self.message.accepted):
            self._stop_for(verdict)

    def _stop_for(self, verdict: Verdict) -> None:
        """Stop because every other request would fail, too."""
        self.stopping.stop("refused" if verdict.status in REFUSED else "failure", stop_reason(verdict))


def for_one_attempt(options: Options) -> Options:
    """Return the options for one attempt: each has a claim, and ``ChunkSender`` retries outside the retry budget."""
    policy = replace(options.policy, max_attempts=1, unknown="raise", stop=None, wait=None, retry=None)
    timeout = options.timeout
    limits = [limit for limit in (timeout.attempt, timeout.total) if limit is not None]
    return Options(policy, replace(timeout, total=None, attempt=min(limits, default=None)))
