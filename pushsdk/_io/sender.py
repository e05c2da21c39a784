"""Sending of one request: its first attempt, its retries (by ``retrying``), stale connections and rotated keys.

Knows pushes and campaigns as bytes. Returns a verdict; never raises for an outcome.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

import msgspec

from pushsdk._core.address import HeaderSecret
from pushsdk._core.error_mapping import error_for
from pushsdk._core.errors import PushError
from pushsdk._core.events import AttemptEnded, ClientPaused, Event, RetryScheduled
from pushsdk._core.operations import Operation
from pushsdk._core.outcome import Attempt, Evidence, Failure, Outcome, Verdict, judge, verdict_of
from pushsdk._core.policy import RetryPolicy, Timeout
from pushsdk._core.rate_limit import RetryBudget, parse_retry_after
from pushsdk._core.results import Counters
from pushsdk._io.credentials import Credentials, NoKeyError
from pushsdk._io.limiter import Backlog, ConcurrencyLimiter
from pushsdk._io.timers import DeadlineScope, TimerWheel
from pushsdk._io.tracing import Observer
from pushsdk._io.transport import Transport

T = TypeVar("T")

logger = logging.getLogger("pushsdk")
# Nothing goes to stderr if the application has no handler.
logger.addHandler(logging.NullHandler())
# The service wants fewer requests. A 503 is retryable only with a Retry-After.
THROTTLES = frozenset({429, 503})


class Claimant(Protocol):
    """The claim of one request: tells other processes which users may have been sent to."""

    async def claim(self) -> bytes | None:
        """Claim the users, after the connection is acquired and before the first byte. Raises only CancelledError.

        Returns the body to send, without the users whose claim was refused; None if nothing is to be sent.
        """
        ...

    def settle(self, verdict: Verdict) -> None:
        """Record the verdict on the request so far. Called after each post, even if nothing was claimed.

        A claim that is not complete by then is void.
        """
        ...


class ApiRequest(msgspec.Struct, eq=False, gc=False):
    """One request: its fixed body, and its attempts so far."""

    operation: Operation
    body: bytes
    users: int
    policy: RetryPolicy
    timeout: Timeout
    deadline: float
    """On the loop's clock; infinite if there is none."""
    collapsible: bool = False
    attempts: tuple[Attempt, ...] = ()
    """The attempts so far, beginning with those of the request that this one was split from."""
    own: int = 0
    """Number of this request's own attempts."""
    evidence: Evidence = msgspec.field(default_factory=Evidence)
    """Evidence of the last attempt."""
    failure: Failure | None = None
    """Reason of the client's own that ended the request, if any."""
    replaced: int = 0
    """Number of stale connections that were replaced."""
    rekeyed: bool = False
    """True once a rotated key was used."""
    span: Any = None
    """The attempt in flight, if there is an observer."""
    claim: Claimant | None = None
    """Claims the users of each attempt and records its verdict. None if nothing has to survive the process."""

    def __repr__(self) -> str:
        name, attempts = self.operation.name, len(self.attempts)
        return f"ApiRequest({name}, users={self.users}, bytes={len(self.body)}, attempts={attempts})"

    def verdict(self) -> Verdict:
        """Return the verdict on the attempts so far."""
        return verdict_of(self.attempts, self.evidence, self.failure)


class RequestSender:
    """Sends requests within slots, deadlines and retry budget. One per client, in one event loop."""

    def __init__(
        self,
        transport: Transport,
        credentials: Credentials,
        *,
        timers: TimerWheel,
        limiter: ConcurrencyLimiter,
        backlog: Backlog,
        counters: Counters,
        retry: Callable[[PushError, Steps, RetryPolicy], Awaitable[None]],
        pool_size: int,
        emit: Callable[[Event], None] | None,
        on_pause: Callable[[float], None],
        observer: Observer | None = None,
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._loop = timers.loop
        self.timers = timers
        self.limiter = limiter
        self.backlog = backlog
        self.counters = counters
        # A stale pooled connection is replaced at most this often: then every one of the pool had been stale.
        self._replacements = pool_size + 1
        self.emit = emit
        self.observer = observer
        self._retry_with_policy = retry
        self.budget = RetryBudget()
        self._on_pause = on_pause
        #: True once no request may start any more. Set by the engine.
        self.closed = False
        # The waits between attempts.
        self._waits: set[DeadlineScope] = set()

    async def run(self, request: ApiRequest, *, has_slot: bool = False) -> Verdict:
        """Send the request and its retries. ``has_slot``: the caller has taken a slot for the first attempt."""
        self.counters.requests += 1
        if not has_slot and not await self._take_slot(request):
            return request.verdict()
        if await self._attempt(request):
            if request.own == 1:
                self.budget.refund()
        elif request.own and (request.policy.max_attempts > 1 or request.policy.stop is not None):
            await self._retry(request)
        return request.verdict()

    async def wait(self, request: ApiRequest, seconds: float) -> None:
        """Wait between two attempts. Sets ``request.failure`` if the wait is cut short."""
        size = len(request.body)
        self.backlog.enter(request.users, size)
        scope = DeadlineScope(self.timers, request.deadline)
        self._waits.add(scope)
        try:
            with scope:
                await asyncio.sleep(seconds)
        finally:
            self._waits.remove(scope)
            self.backlog.leave(request.users, size)
        request.failure = scope.expired

    async def _retry(self, request: ApiRequest) -> None:
        try:
            await self._retry_with_policy(error_for(request.verdict()), Steps(self, request), request.policy)
        except PushError:
            pass
        except Exception as error:  # noqa: BLE001 - a caller's strategy must not cost the outcome
            logger.error("a tenacity strategy of the RetryPolicy raised %s; not retried", type(error).__name__)

    async def _take_slot(self, request: ApiRequest) -> bool:
        if not self.closed and self.limiter.try_acquire(request.users):
            return True
        size = len(request.body)
        self.backlog.enter(request.users, size)
        try:
            request.failure = await self._wait_for_slot(request)
        finally:
            self.backlog.leave(request.users, size)
        if request.failure is Failure.PAUSED and request.evidence.retry_after is None:
            request.evidence = Evidence(retry_after=max(0.0, self.limiter.paused_until - self._loop.time()))
        return request.failure is None

    async def _wait_for_slot(self, request: ApiRequest) -> Failure | None:
        if self.closed:
            return Failure.CLOSED
        if self.limiter.paused_until > request.deadline:
            return Failure.PAUSED
        failure: Failure | None = None
        with DeadlineScope(self.timers, request.deadline) as scope:
            failure = await self.limiter.acquire(request.users, request.deadline)
        return scope.expired or failure

    async def _attempt(self, request: ApiRequest) -> bool:
        """Make one attempt, repeated for a stale connection or a rotated key, and release the slot.

        Returns True if accepted. Makes no attempt if the deadline has expired.
        """
        own = request.own
        try:
            while (started := self._loop.time()) < request.deadline and not self.closed:
                evidence = request.evidence = Evidence()
                limit = request.deadline
                if request.timeout.attempt is not None:
                    limit = min(limit, started + request.timeout.attempt)
                key = self._credentials.fixed
                # A stale connection that is replaced belongs to the attempt that goes on.
                if self.observer is not None and request.span is None:
                    first = not request.attempts
                    request.span = self.observer.attempt(request.operation, request.users, request.own, first=first)
                try:
                    with DeadlineScope(self.timers, limit) as scope:
                        if key is None:
                            key = await self._ask_for_key(request, evidence)
                        await self._transport.post(
                            request.operation,
                            request.body,
                            key,
                            evidence,
                            connect=request.timeout.connect,
                            span=request.span,
                            claim=None if request.claim is None else request.claim.claim,
                        )
                except NoKeyError as error:
                    evidence.failure, evidence.reason = Failure.CREDENTIALS, str(error)
                except asyncio.CancelledError:
                    if evidence.status is None:
                        evidence.failure = Failure.CANCELLED
                    self._note(request, self._judge(request, evidence, started))
                    if request.claim is not None:
                        request.claim.settle(request.verdict())
                    raise
                if scope.expired is not None and evidence.status is None:
                    late = scope.expired is Failure.DEADLINE and limit < request.deadline
                    evidence.failure = Failure.ATTEMPT_TIMEOUT if late else scope.expired
                attempt = self._judge(request, evidence, started)
                if request.claim is not None:
                    request.claim.settle(verdict_of((*request.attempts, attempt), evidence))
                    if evidence.failure is Failure.UNCLAIMED:
                        request.failure = Failure.UNCLAIMED
                        return False
                if evidence.failure is Failure.STALE and self._may_replace(request):
                    continue
                self._note(request, attempt)
                if (
                    attempt.status == 401
                    and attempt.outcome is Outcome.REJECTED
                    and await self._is_rotated(request, key)
                ):
                    continue
                return attempt.outcome is Outcome.ACCEPTED
            request.failure = Failure.CLOSED if self.closed else Failure.DEADLINE
            return False
        finally:
            if request.span is not None:
                request.span.end(None, request.evidence.failure)
                request.span = None
            if request.failure is Failure.UNCLAIMED and request.own == own:
                self.limiter.return_unused(request.users)
            else:
                self.limiter.release()

    async def _ask_for_key(self, request: ApiRequest, evidence: Evidence) -> HeaderSecret:
        # Nothing is sent before there is a key, however the wait for the key ends.
        evidence.touched = True
        with nullcontext() if request.span is None else request.span.application_context():
            key = await self._credentials.ask()
        evidence.touched = False
        return key

    def _judge(self, request: ApiRequest, evidence: Evidence, started: float) -> Attempt:
        if evidence.headers:
            evidence.retry_after = parse_retry_after(evidence.headers.get("Retry-After"), wall_clock=time.time())
        return judge(
            evidence,
            statuses=request.policy.statuses,
            retry_on=request.policy.retry_on,
            started=started,
            seconds=self._loop.time() - started,
        )

    def _note(self, request: ApiRequest, attempt: Attempt) -> None:
        request.attempts = (*request.attempts, attempt)
        request.own += 1
        self.counters.attempts += 1
        if request.span is not None:
            request.span.end(attempt, request.evidence.failure)
            request.span = None
        if attempt.retryable and attempt.outcome is Outcome.REJECTED:
            if attempt.status in THROTTLES:
                self.limiter.throttled(attempt.started)
            if attempt.retry_after is not None:
                self._pause(min(attempt.retry_after, request.policy.max_retry_after))
        if self.emit is not None:
            self.emit(
                AttemptEnded(endpoint=request.operation.name, users=request.users, number=request.own, attempt=attempt)
            )

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            until = self._loop.time() + seconds
            logger.info("the service asked for a pause of %.3f s", seconds)
            self._on_pause(until)
            for scope in self._waits:
                if scope.deadline < until:
                    scope.expire(Failure.PAUSED)
            if self.emit is not None:
                self.emit(ClientPaused(seconds=seconds))

    def _may_replace(self, request: ApiRequest) -> bool:
        """Return True if a stale connection is replaced, under every policy: nothing was sent on it.

        A fresh one is replaced by one more: a service that speaks first, or closes at once, will do so again.
        """
        if request.replaced >= self._replacements:
            return False
        request.replaced = request.replaced + 1 if request.evidence.reused else self._replacements
        self.counters.stale_connections += 1
        return True

    async def _is_rotated(self, request: ApiRequest, key: str | None) -> bool:
        """Return True if the callable has a new key. Asks once per request."""
        if request.rekeyed or self._credentials.fixed is not None:
            return False
        request.rekeyed = True
        fresh = key
        try:
            with DeadlineScope(self.timers, request.deadline):
                fresh = await self._credentials.ask()
        except NoKeyError:
            return False
        return fresh != key


class Steps:
    """The retries of one request, step by step. ``retrying`` asks, by the policy and by tenacity's strategies."""

    __slots__ = ("_request", "_sender")

    def __init__(self, sender: RequestSender, request: ApiRequest) -> None:
        self._sender = sender
        self._request = request

    def retryable(self) -> bool:
        """Return True if the policy allows another attempt after the last one."""
        request = self._request
        return request.failure is None and request.policy.should_retry(
            request.attempts[-1], collapsible=request.collapsible
        )

    def backoff(self, number: int) -> float:
        """Return the seconds to wait after attempt ``number``."""
        return self._request.policy.backoff(number, self._request.attempts[-1], random.random())  # noqa: S311 - jitter

    def at_least(self) -> float:
        """Return the shortest wait that the service allows, in seconds."""
        return self._request.attempts[-1].retry_after or 0.0

    def may_go_on(self, number: int, wait: float) -> bool:
        """Return True, and pay, if deadline, pause and budget allow attempt ``number + 1`` after ``wait`` seconds."""
        sender, request = self._sender, self._request
        if request.failure is not None:
            return False
        if sender.closed:
            request.failure = Failure.CLOSED
        elif self.at_least() > request.policy.max_retry_after:
            request.failure = Failure.PAUSED
        elif sender._loop.time() + wait >= request.deadline:
            request.failure = Failure.PAUSED if self.at_least() else Failure.DEADLINE
        elif not sender.budget.spend():
            request.failure = Failure.BUDGET
        else:
            sender.counters.retries += 1
            logger.debug(
                "%s of %d users: %s; again in %.3f s",
                request.operation.name,
                request.users,
                request.attempts[-1].reason,
                wait,
            )
            if sender.emit is not None:
                sender.emit(
                    RetryScheduled(
                        endpoint=request.operation.name,
                        users=request.users,
                        number=number,
                        wait=wait,
                        attempt=request.attempts[-1],
                    )
                )
            return True
        return False

    async def again(self) -> None:
        """Make the next attempt. Raises PushError if it failed."""
        sender, request = self._sender, self._request
        if request.failure is not None or not await sender._take_slot(request):
            raise error_for(request.verdict())
        if not await sender._attempt(request):
            raise error_for(request.verdict())

    async def sleep(self, seconds: float) -> None:
        """Wait between attempts."""
        await self._sender.wait(self._request, seconds)


def guarded(name: str, callback: Callable[[T], Any]) -> Callable[[T], None]:
    """Return ``callback`` with its exceptions logged: an observer must not change what it observes.

    ``name`` is the option that the log line names.
    """

    def call(value: T) -> None:
        try:
            callback(value)
        except Exception as error:  # noqa: BLE001 - see above
            logger.error("%s raised %s for %s", name, type(error).__name__, type(value).__name__)

    return call
