"""The calls that have not ended: their verdicts, their receipts and errors, and the reports about both."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Container, Sequence

import msgspec

from pushsdk._core.batching import Batch, Call
from pushsdk._core.body import encode_user_ids
from pushsdk._core.error_mapping import conclude
from pushsdk._core.errors import PushError
from pushsdk._core.events import Event, SendAbandoned
from pushsdk._core.operations import Target
from pushsdk._core.outcome import ACCEPTED, REJECTED, Failure, Outcome, Verdict, attempts_of
from pushsdk._core.results import Counters, Receipt
from pushsdk._core.splitting import BatchPart
from pushsdk._core.words import count
from pushsdk._io.work import Work

logger = logging.getLogger("pushsdk")


class PendingCalls:
    """The calls that have not ended: settles them, counts outcomes, and makes receipts and errors."""

    def __init__(
        self,
        work: Work,
        counters: Counters,
        emit: Callable[[Event], None] | None,
        target: Target,
        only_users: Container[str] | None,
    ) -> None:
        self._work = work
        self._counters = counters
        #: Where pushes go, for error texts.
        self.target = target
        #: The users that may get pushes; None is all.
        self.only_users = only_users
        self._emit = emit
        #: The last sends that ended after their callers had stopped waiting.
        self.abandoned: deque[SendAbandoned] = deque(maxlen=1000)
        # True once an abandoned send that may have been pushed was logged as a warning: the others are not.
        self._has_warned = False

    def settle_part(self, part: Batch | BatchPart, verdict: Verdict) -> None:
        """Settle one request's users with its verdict."""
        self._counters.users[verdict.outcome] += part.users
        receipt, units = None, part.units
        if len(units) > 1:
            if verdict.outcome is REJECTED:
                verdict = msgspec.structs.replace(verdict, shared=True)
            elif verdict.outcome is ACCEPTED:
                # One receipt for all calls with one user: there may be thousands.
                receipt = Receipt(users=1, attempts=verdict.attempts)
        for unit in units:
            if unit.settle(unit.users, verdict, receipt):
                self.report_abandoned(unit.call)
        if receipt is not None:
            # Later: a waiter for idleness must find these calls pending until their callers have run.
            asyncio.get_running_loop().call_soon(self._work.end, units)

    def settle(self, call: Call, users: tuple[str, ...], verdict: Verdict) -> None:
        """Settle a call's users that no request carried, or whose request is unknown."""
        self._counters.users[verdict.outcome] += len(users)
        if call.settle(users, verdict):
            self.report_abandoned(call)

    def restrict(self, call: Call) -> bool:
        """Settle the call's users that are not in ``only_users``. Return True if there are others."""
        only_users = self.only_users or ()
        others = tuple(itertools.filterfalse(only_users.__contains__, call.users))
        if others:
            self.settle(call, others, Verdict(outcome=Outcome.NOT_SENT, failure=Failure.NOT_LISTED))
        if call.unsettled:
            call.users = unsettled(call)
            call.ids = encode_user_ids(call.users)
        return call.unsettled > 0

    def settle_rest(self, calls: Sequence[Call], verdict: Verdict) -> None:
        """Settle the users in these calls that have no verdict yet."""
        for call in calls:
            if call.unsettled:
                self.settle(call, unsettled(call), verdict)

    def fail(self, calls: Sequence[Call]) -> None:
        """End the calls after a bug in this package: nothing is proven, so the outcome is UNKNOWN."""
        logger.exception("a request failed inside the client")
        self.settle_rest(calls, Verdict(outcome=Outcome.UNKNOWN, failure=Failure.OTHER))

    def conclude(self, call: Call) -> Receipt:
        """Return the receipt for a call that its caller has stopped waiting for, or raise its PushError."""
        parts = call.parts
        if call.unsettled:
            # The deadline has expired during a shared request, whose end is reported to ``on_event``.
            call.abandoned = True
            parts = (*parts, (unsettled(call), Verdict(outcome=Outcome.UNKNOWN, failure=Failure.DEADLINE)))
        else:
            self._work.end([call])
        verdict = parts[0][1]
        if len(parts) == 1 and verdict.outcome is ACCEPTED and not verdict.recorded:
            # Nearly every call.
            return Receipt(users=len(call.users), duplicates=call.duplicates, attempts=verdict.attempts)
        options = None if call.batch is None else call.batch.content.options
        look = "" if call.claims is None else call.claims.look
        return conclude(call.users, call.duplicates, parts, self.target, options, look=look)

    def report_abandoned(self, call: Call) -> None:
        """Report a call's end after its caller had stopped waiting."""
        self._work.end([call])
        self._counters.abandoned += 1
        for outcome in Outcome:
            if parts := [(users, verdict) for users, verdict in call.parts if verdict.outcome is outcome]:
                users = tuple(user for part, _ in parts for user in part)
                self.report(SendAbandoned(outcome=outcome, user_ids=users, attempts=attempts_of(parts)))

    def report(self, event: SendAbandoned) -> None:
        """Log an abandoned send's end, keep it for the DrainReport, and pass it to ``on_event``."""
        is_news = event.outcome is Outcome.UNKNOWN and self._emit is None and not self._has_warned
        self._has_warned |= is_news
        level = logging.WARNING if is_news else logging.INFO
        self.abandoned.append(event)
        users = count(len(event.user_ids))
        logger.log(level, "a send to %s ended as %s without a waiting caller", users, event.outcome.value)
        if self._emit is not None:
            self._emit(event)

    def note(self, call: Call) -> str:
        """Return a cancelled call's outcomes so far, for whoever sees only the cancellation."""
        found = {verdict.outcome for _, verdict in call.parts} | ({Outcome.UNKNOWN} if call.unsettled else set())
        text = f"pushsdk: the outcome of the cancelled call to {count(len(call.users))} is {', '.join(sorted(found))}"
        if Outcome.UNKNOWN in found:
            text += (
                ": another send may push twice. To learn the outcome, use send(timeout=...) instead of asyncio.timeout"
            )
        return text

    def warn(self, error: PushError) -> None:
        """Log a submitted send's error as a warning, unless ``on_event`` gets it: perhaps nobody awaits it."""
        if self._emit is None:
            # Not the whole text: it may quote the service, whose words may have user ids.
            reason = f"{error.attempts[-1].reason} [{error.code}]" if error.attempts else str(error)
            users = count(len(error.user_ids))
            logger.warning("a submitted send to %s ended as %s: %s", users, error.outcome.value, reason)


def unsettled(call: Call) -> tuple[str, ...]:
    """Return the call's users without a verdict."""
    settled = {user for users, _ in call.parts for user in users}
    return tuple(user for user in call.users if user not in settled)
