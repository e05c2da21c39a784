"""Sending one request: its first attempt, its retries (by ``retrying``), stale connections and rotated keys.

Knows pushes and campaigns as bytes. Returns a verdict; never raises for an outcome.
"""

import asyncio
import logging
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, TypeVar

import msgspec

from pushsdk._core.errors import PushError
from pushsdk._core.events import AttemptEnded, ClientPaused, Event, RetryScheduled, SendNotBegun
from pushsdk._core.judging import judge, plain_attempt
from pushsdk._core.operations import PUSH
from pushsdk._core.outcome import ACCEPTED, NO_HEADERS, REJECTED, Attempt, Evidence, Failure, Verdict
from pushsdk._core.rate_limit import THROTTLES, RetryBudget, parse_retry_after, retry_cost
from pushsdk._core.results import Counters
from pushsdk._core.words import count, trace_of
from pushsdk._io.backlog import Backlog
from pushsdk._io.credentials import NoKey, rekey
from pushsdk._io.limiter import ConcurrencyLimiter
from pushsdk._io.request import ApiRequest, Flight, Transport
from pushsdk._io.timers import DeadlineScope, Respond, TimerWheel
from pushsdk._io.tracing import Observer
from pushsdk._io.work import Work

T = TypeVar("T")

logger = logging.getLogger("pushsdk")

# An error in a JSON object, or users who failed, unless the value is empty.
_error_in = partial(
    re.search,
    rb'(?i)"(?:errors?|exception|fault|(?:fail(?:ed|ures?)|rejected)(?:_?count)?)"\s*+:\s*+(?!null|false|0|""|\[\]|\{\})'
    rb'|"(?:success|ok)"\s*+:\s*+false',
)


class _StderrHandler(logging.StreamHandler[Any]):
    """A handler that asks for stderr at each line: a progress display replaces it, to have lines written above it."""

    stream: Any = property(lambda _: sys.stderr, lambda *_: None)


def log_to_stderr(level: str | None) -> None:
    """Log to stderr from this level on, such as ``debug`` or ``info``, unless the application has its own handlers."""
    if level and level.upper() in ("DEBUG", "INFO", "WARNING", "ERROR"):
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=[_StderrHandler()])
        logger.setLevel(level.upper())
    elif level:
        warnings.warn(f"PUSHSDK_LOG must be debug, info, warning or error; got {level!r}", stacklevel=2)


log_to_stderr(os.environ.get("PUSHSDK_LOG"))
UNCONNECTED = frozenset({Failure.REFUSED, Failure.CONNECT_TIMEOUT})
# The service ended the attempt without a response, or a gateway says so.
BROKEN = frozenset({Failure.RESET, Failure.DISCONNECTED, Failure.UNREADABLE, Failure.OTHER, 502, 504})


class RequestSender(msgspec.Struct, kw_only=True, eq=False):
    """A sender that keeps to slots, deadlines and retry budget. One per client, in one event loop."""

    loop: asyncio.AbstractEventLoop
    transport: Transport
    timers: TimerWheel
    limiter: ConcurrencyLimiter
    backlog: Backlog
    counters: Counters
    work: Work
    retry: "Callable[[RequestSender, ApiRequest], Awaitable[None]]"
    replacements: int
    """A stale pooled connection is replaced at most this often: then every connection in the pool had been stale."""
    emit: Callable[[Event], None] | None
    observer: Observer | None
    max_pause: float
    """The longest pause that an answer causes, in seconds."""
    budget: RetryBudget = msgspec.field(default_factory=RetryBudget)

    async def run(self, request: ApiRequest, *, has_slot: bool = False) -> Verdict:
        """Send the request and its retries. ``has_slot``: the caller has taken a slot for the first attempt.

        If the request's failure is REKEYED then, its calls go on in a request for each key.
        """
        is_accepted = False
        if request.is_begun:
            is_accepted = await self._attempt(request)
        elif request.is_asked or not request.own:
            # Not split from others that try a rotated key at once.
            self.counters.requests += 1
            is_accepted = await self._has_turn(request, has_slot=has_slot) and await self._attempt(request)
            self.end_span(request)  # of an attempt that had no turn
        if not is_accepted and self._may_go_on(request):
            await self._retry(request)
        elif is_accepted and request.own == 1:
            self.budget.refund()
        return request.verdict()

    def reserve(self, request: ApiRequest) -> bool:
        """Reserve an idle connection, for ``begin``. Return False if the request needs ``run`` instead."""
        fast, options = self.transport.fast, request.options
        if fast is None or self.work.closed or not request.is_asked or type(request.key) is NoKey:
            return False
        # A plain 204 may not be what the policy accepts.
        if options.keyed or options.policy.statuses or not fast.takes(request.body):
            return False
        connection = fast.take_idle()
        if connection is None:
            return False
        self.open(request, connection)
        return True

    def begin(self, request: ApiRequest, respond: Respond, now: float) -> bool:
        """Write a request on its connection. Return False if ``run`` has to send it, as its time may be short.

        ``now`` is infinite for a request that may not begin.
        """
        flight, fast = request.flight, self.transport.fast
        if now + self.limiter.times.needed(True) >= flight.deadline:
            fast.release(flight.connection)
        elif fast.start(flight.connection, request, respond):
            self.counters.requests += 1
            flight.respond, flight.tick = respond, self.timers.add(flight, flight.deadline)
            return True
        flight.connection = None
        return False

    def accept(self, request: ApiRequest) -> Verdict | None:
        """End a flight that was answered by a plain 204. Return None if that came before everything was sent."""
        flight, evidence = request.flight, request.evidence
        self.transport.fast.release(flight.connection)
        if not evidence.written:
            return None
        now = self.limiter.clock()
        self._conclude(request, plain_attempt(flight.started, now - flight.started), now)
        self.budget.refund()
        return Verdict(outcome=ACCEPTED, attempts=request.attempts, status=204, is_first=not evidence.reused)

    def give_up(self, request: ApiRequest) -> Verdict:
        """End a flight whose caller was cancelled."""
        evidence = request.evidence
        request.flight.connection.abort()
        request.failure = Failure.CANCELLED
        if evidence.status is None:
            evidence.failure = Failure.CANCELLED
        now = self.limiter.clock()
        self._conclude(request, self.attempt_of(request, now), now)
        return request.verdict()

    def _conclude(self, request: ApiRequest, attempt: Attempt, now: float) -> None:
        flight = request.flight
        flight.tick.pop(flight, None)
        # Also the way back to the request, which would be a cycle. The wheel may be about to expire the flight.
        flight.connection, flight.respond = None, bool
        try:
            self.note(request, attempt)
        finally:
            self.release(request, now)

    async def wait(self, request: ApiRequest, seconds: float) -> None:
        """Wait between two attempts. Sets ``request.failure`` if the wait is cut short."""
        with self._queued(request):
            await asyncio.sleep(seconds)

    @contextmanager
    def _queued(self, request: ApiRequest) -> Iterator[None]:
        """Count the request as queued during the block. Sets ``request.failure`` if the block is cut short."""
        scope = DeadlineScope(self.timers, request.deadline, is_waiting=True)
        users, size = request.users, len(request.body)  # calls may leave
        self.backlog.enter(users, size)
        try:
            with scope:
                yield
        finally:
            self.backlog.leave(users, size)
        request.failure = scope.expired

    async def again(self, request: ApiRequest) -> bool:
        """Make the next attempt. Return True if it was accepted."""
        retried, is_accepted = request.attempts[-1], False
        if request.failure is None and await self._has_turn(request, has_slot=False):
            is_accepted = await self._attempt(request)
        if is_accepted or request.failure is Failure.REKEYED:  # then no attempt was made
            self.budget.refund(retry_cost(retried))
        return is_accepted

    def may_retry(self, request: ApiRequest, number: int, wait: float) -> bool:
        """Return True, and pay, if deadline, pause and budget allow attempt ``number + 1`` after ``wait`` seconds."""
        if request.failure is not None or not self._allows(request, wait):
            return False
        last, endpoint, users = request.attempts[-1], request.operation.name, request.users
        self.budget.spend(retry_cost(last))
        self.counters.retries += 1
        message = "retry of %s for %s after attempt %d (%s), in %.3f s"
        logger.info(message, endpoint, count(users), number, last.reason, wait)
        if self.emit is not None:
            self.emit(RetryScheduled(endpoint=endpoint, users=users, number=number, wait=wait, attempt=last))
        return True

    def _may_go_on(self, request: ApiRequest) -> bool:
        """Return True if a second attempt is possible, so that most failures don't pay for tenacity's loop."""
        policy = request.options.policy
        if request.failure is not None or (policy.max_attempts == 1 and policy.stop is None):
            return False
        if policy.retry is not None:
            return True
        is_retried = policy.should_retry(request.attempts[-1], collapsible=request.is_collapsible)
        return is_retried and self._allows(request, 0.0)

    def _allows(self, request: ApiRequest, wait: float) -> bool:
        """Return True if client, deadline and budget allow a retry after ``wait`` seconds. Else set the failure."""
        last = request.attempts[-1]
        at_least = last.retry_after or 0.0
        if self.work.closed:
            request.failure = Failure.CLOSED
        elif at_least > request.options.policy.max_retry_after:
            request.failure = Failure.TOO_LONG
        elif self.loop.time() + max(wait, at_least) >= request.deadline:
            request.failure = Failure.THROTTLED if at_least else Failure.TOO_LATE
        elif self.budget.tokens < retry_cost(last):
            request.failure = Failure.BUDGET
        return request.failure is None

    async def _retry(self, request: ApiRequest) -> None:
        try:
            await self.retry(self, request)
        except PushError:
            pass
        except Exception as error:  # noqa: BLE001 - a caller's strategy must not cost the outcome
            logger.error("a tenacity strategy of the RetryPolicy raised %s; not retried", type(error).__name__)

    async def _has_turn(self, request: ApiRequest, *, has_slot: bool) -> bool:
        """Return True if the request has a slot, and time for an attempt. Else it has no slot."""
        users = request.users
        if not has_slot:
            await self._take_slot(request)
        if request.failure is None and not request.narrow(self.limiter):
            self.limiter.give_back(users)
        return request.failure is None

    async def _take_slot(self, request: ApiRequest) -> None:
        """Wait for a slot. Set the failure if there is none in time."""
        limiter, users = self.limiter, request.users
        if self.work.closed:
            request.failure = Failure.CLOSED
        elif not limiter.try_acquire(users):
            if limiter.rate_limiter.paused_until > request.deadline:
                request.failure = Failure.THROTTLED
            else:
                with self._queued(request):
                    await limiter.acquire(users, deadline=request.deadline, is_urgent=request.options.is_urgent)
                request.failure = request.failure and limiter.reason_for(request.failure)
        if request.failure is Failure.THROTTLED:
            request.evidence = Evidence(retry_after=limiter.rate_limiter.pause_left(self.loop.time()))

    async def _attempt(self, request: ApiRequest) -> bool:
        """Make one attempt, repeated for a stale connection or a rotated key, and release the slot.

        Returns True if accepted. Makes no attempt if the deadline has expired. Its first post may have begun.
        """
        own, users = request.own, request.users  # a claim may leave users out
        try:
            if not request.is_asked and not await rekey(request, self.timers):
                return False
            request.is_asked = False
            while request.is_begun or self._may_begin(request):
                attempt = await self._post(request)
                failure = request.evidence.failure
                if failure is Failure.UNCLAIMED:
                    request.failure = request.failure or failure
                    return False
                if failure is Failure.STALE and self._may_replace(request):
                    continue
                self.note(request, attempt)
                if attempt.outcome is ACCEPTED:
                    return True
                is_wanted = request.narrow()  # whatever the status
                if not (is_wanted and attempt.status == 401 and await self._has_other_key(request, attempt)):
                    break
            return False
        finally:
            self.end_span(request)
            if request.own == own:
                # No attempt was noted: nothing was sent.
                self._withdraw(request)
                self.limiter.give_back(users)
            else:
                self.release(request, self.limiter.clock())

    def release(self, request: ApiRequest, now: float) -> None:
        """Return an attempt's slot, and measure the attempt."""
        evidence, flight = request.evidence, request.flight
        status, seconds = evidence.status, evidence.latency
        if evidence.reused and status not in THROTTLES:
            seconds = now - flight.started
        sent, flight.sent = flight.sent, None
        if self.limiter.times.ended(now, sent, 0 if (status or evidence.failure) in BROKEN else status):
            seconds = None
            self.limiter.set_apart(now)
        self.limiter.release(seconds, status is not None and status < 300, now)

    def _withdraw(self, request: ApiRequest) -> None:
        """Forget an attempt's first byte: it did not leave after all, or another follows in the same slot."""
        flight = request.flight
        if flight is not None and flight.sent is not None:
            self.limiter.times.withdrawn(flight.sent)
            flight.sent = None

    def open(self, request: ApiRequest, connection: Any = None) -> Flight:
        """Prepare a post that starts now, perhaps on a reserved connection."""
        started, last = self.limiter.clock(), request.flight
        request.evidence = Evidence(touched=connection is not None)
        end = started + (request.options.timeout.attempt or math.inf)
        deadline = end if end < request.deadline else request.deadline
        # A stale connection that is replaced belongs to the attempt that goes on.
        span = None if last is None else last.span
        request.flight = flight = Flight(self.timers, deadline, started=started, span=span, connection=connection)
        return flight

    def _may_begin(self, request: ApiRequest) -> bool:
        """Return True if a post is in time, or has no key, and so sends nothing. Else set the failure."""
        if isinstance(request.key, NoKey) or (self.loop.time() < request.deadline and not self.work.closed):
            return True
        request.failure = Failure.CLOSED if self.work.closed else Failure.DEADLINE
        return False

    async def _post(self, request: ApiRequest) -> Attempt:
        """Post the request once, until its deadline. Returns the attempt, and settles the claim."""
        flight: Any = request.flight if request.is_begun else self.open(request)
        evidence, key = request.evidence, request.key
        if self.observer is not None and flight.span is None:
            first = not request.attempts
            flight.span = self.observer.attempt(request.operation, request.users, request.own, first=first)
        try:
            if isinstance(key, NoKey):
                evidence.touched = True  # by no transport: nothing was sent
                evidence.failure, evidence.reason, evidence.error = key.failure, key.reason, key.error
            else:
                with flight:
                    await self.transport.post(request)
        except BaseException:  # cancelled, or a callable exits
            if evidence.status is None:
                evidence.failure, evidence.reason = Failure.CANCELLED, ""
            attempt = self.attempt_of(request, self.limiter.clock())
            request.settle(attempt)
            self.note(request, attempt)
            raise
        if flight.expired is not None and evidence.status is None:
            _record_expiry(request, flight)
        attempt = self.attempt_of(request, self.limiter.clock())
        request.settle(attempt)
        return attempt

    def attempt_of(self, request: ApiRequest, now: float) -> Attempt:
        """Return the attempt that the evidence proves."""
        evidence = request.evidence
        if evidence.headers is not NO_HEADERS:
            evidence.retry_after = parse_retry_after(evidence.headers, wall_clock=time.time())
        policy, flight = request.options.policy, request.flight
        return judge(
            evidence,
            statuses=policy.statuses,
            retry_on=policy.retry_on,
            started=flight.started,
            seconds=now - flight.started,
            key=request.key,
        )

    def note(self, request: ApiRequest, attempt: Attempt) -> None:
        """Add an attempt that has ended, and report it."""
        request.attempts += (attempt,)
        request.own += 1
        self.counters.attempts += 1
        if self.observer is not None:
            self.end_span(request, attempt)
        if attempt.outcome is not ACCEPTED:
            self._slow_down(request, attempt)
        elif attempt.body and request.operation is PUSH and _error_in(attempt.body):
            logger.warning(
                "%s counts as accepted, but its body has an error or failed users: is base_url right?", attempt.reason
            )
        if logger.isEnabledFor(logging.DEBUG):
            operation, outcome, seconds = request.operation.name, attempt.outcome.value, attempt.seconds
            message = "attempt %d of %s for %s: %s, %s, in %.3f s"
            logger.debug(message, request.own, operation, count(request.users), outcome, attempt.reason, seconds)
        if self.emit is not None:
            self.emit(
                AttemptEnded(endpoint=request.operation.name, users=request.users, number=request.own, attempt=attempt)
            )

    def _slow_down(self, request: ApiRequest, attempt: Attempt) -> None:
        """Send less if the service asks for that, or can't be reached."""
        if request.evidence.failure in UNCONNECTED:
            self.limiter.refused(answered=False)
        if attempt.outcome is not REJECTED or not attempt.retryable:
            return
        # By the client's policy, too: a call that waits longer does not stop the others for that long.
        pause = min(attempt.retry_after or 0.0, request.options.policy.max_retry_after, self.max_pause)
        if attempt.status in THROTTLES:
            self.limiter.refused(pause=pause)
        self._pause(pause)

    def end_span(self, request: ApiRequest, attempt: Attempt | None = None) -> None:
        """End the attempt's span, if it has one. ``attempt`` is None if there was none."""
        flight = request.flight
        if flight is not None and flight.span is not None:
            span, flight.span = flight.span, None
            span.end(attempt, request.evidence.failure)

    def note_not_begun(self, users: int, deadline: float, reason: Failure) -> None:
        """Count users whose call ended before its first byte as its time was short, and report them."""
        is_throttled, left = reason is Failure.THROTTLED, max(0.0, deadline - self.loop.time())
        self.counters.not_begun += users
        self.counters.throttled += users * is_throttled
        if self.emit is not None:
            needed = self.limiter.times.likely
            self.emit(SendNotBegun(users=users, seconds_left=left, seconds_needed=needed, throttled=is_throttled))

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            until = self.loop.time() + seconds
            logger.info("pausing for %.3f s, as the service asked", seconds)
            self.limiter.pause(until)
            self.timers.fail(Failure.THROTTLED, until=until)
            if self.emit is not None:
                self.emit(ClientPaused(seconds=seconds))

    def _may_replace(self, request: ApiRequest) -> bool:
        """Return True if a stale connection is replaced, under every policy: nothing was sent on it.

        A fresh one is replaced by one more: a service that speaks first, or closes at once, will do so again.
        """
        if request.replaced >= self.replacements:
            return False
        request.replaced = request.replaced + 1 if request.evidence.reused else self.replacements
        self.counters.stale_connections += 1
        self._withdraw(request)
        return True

    async def _has_other_key(self, request: ApiRequest, attempt: Attempt) -> bool:
        """Return True if the key was refused, and the callables return another one, for all calls. Once per request."""
        if attempt.outcome is not REJECTED or request.rekeyed:
            return False
        self._withdraw(request)
        request.rekeyed = True
        return await rekey(request, self.timers, is_refused=True)


def _record_expiry(request: ApiRequest, flight: Flight) -> None:
    """Record that the post ran out of time, or was ended from outside."""
    evidence, timeout = request.evidence, request.options.timeout
    if flight.expired is not Failure.DEADLINE:
        evidence.failure, evidence.reason, evidence.error = flight.expired, "", None
        return
    is_total = flight.deadline >= request.deadline
    named = timeout.named("total" if is_total else "attempt")
    if evidence.failure is Failure.CONNECT_TIMEOUT:
        evidence.reason += named
    elif is_total:
        evidence.failure, evidence.reason = Failure.DEADLINE, named
    else:  # the failure names the timeout
        evidence.failure, evidence.reason = Failure.ATTEMPT_TIMEOUT, f"{timeout.attempt:g} s"
    evidence.error = TimeoutError(named)


def guarded(
    name: str, callback: Callable[[T], Any], loop: asyncio.AbstractEventLoop | None = None
) -> Callable[[T], None]:
    """Return ``callback`` with its exceptions logged: an observer must not change the work it observes.

    ``name`` is the option that the log line names. With a ``loop``, exceptions that exit the process leave the loop
    after the work that they would cut off.
    """

    def call(value: T) -> None:
        try:
            callback(value)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see above
            own = f": {error}" if isinstance(error, PushError) else ""  # whose text quotes no id
            logger.error("%s raised %s for %s%s", name, trace_of(error), type(value).__name__, own)
        except BaseException as error:
            if loop is None:
                raise
            loop.call_soon(_raise, error)

    return call


def _raise(error: BaseException) -> NoReturn:
    raise error
