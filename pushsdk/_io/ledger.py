"""Who is told what: the calls that have not ended, their verdicts, and the sends whose callers had left."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from pushsdk._core import idempotency
from pushsdk._core.batching import SETTLED, Call
from pushsdk._core.events import Event, SendAbandoned
from pushsdk._core.explain import error_for, may_repeat, partial_error
from pushsdk._core.outcome import Outcome, Verdict
from pushsdk._core.results import Counters, Receipt
from pushsdk._core.splitting import Piece, Segment, attempts_of, call_of

__all__ = ["Ledger", "conclude", "unsettled"]

logger = logging.getLogger("pushsdk")
ABANDONED_KEPT = 1000


class Ledger:
    """Settles calls, and counts what became of their users."""

    def __init__(self, counters: Counters, emit: Callable[[Event], None] | None) -> None:
        self._counters = counters
        self._emit = emit
        #: The calls that have not ended. Added by the coalescer.
        self.active: set[Call] = set()
        #: The last sends whose callers had stopped waiting.
        self.abandoned: deque[SendAbandoned] = deque(maxlen=ABANDONED_KEPT)
        #: Set by the engine while it waits for something: told of every call that ends.
        self.when_ended: Callable[[Call], None] | None = None

    def settle_piece(self, piece: Piece, verdict: Verdict) -> None:
        """The verdict on a request is that on the users it carried."""
        self._counters.users[verdict.outcome] += piece.users
        one: object = SETTLED
        if len(piece.segments) > 1:
            if verdict.outcome is Outcome.REJECTED:
                verdict = msgspec.structs.replace(verdict, shared=True)
            elif verdict.outcome is Outcome.ACCEPTED:
                # The calls for one user each, of which there may be a crowd, have one receipt between them.
                one = Receipt(users=1, attempts=verdict.attempts)
        for segment in piece.segments:
            # ``call_of``, without a call.
            call = segment.call if isinstance(segment, Segment) else segment
            users = segment.users
            if call.settle(users, verdict, SETTLED if call.repeated or len(users) > 1 else one) and call.gone:
                self.tell_abandoned(call)
        if one is not SETTLED:
            # After its callers have been told: until then nobody is to find that nothing is on its way.
            asyncio.get_running_loop().call_soon(self._end_all, piece)

    def settle(self, call: Call, users: tuple[str, ...], verdict: Verdict) -> None:
        """The verdict on users of a call that no request carried, or whose request is not known."""
        self._counters.users[verdict.outcome] += len(users)
        if call.settle(users, verdict) and call.gone:
            self.tell_abandoned(call)

    def tell_abandoned(self, call: Call) -> None:
        """A call ended after its caller had left: ``on_event`` is told."""
        self.end(call)
        self._counters.abandoned += 1
        for outcome in Outcome:
            ended = [(users, verdict) for users, verdict in call.parts if verdict.outcome is outcome]
            if ended:
                users = tuple(user for part, _ in ended for user in part)
                self.report(SendAbandoned(outcome=outcome, user_ids=users, attempts=attempts_of(ended)))

    def report(self, event: SendAbandoned) -> None:
        """Log the end of an abandoned send, keep it for the DrainReport, and pass it to ``on_event``."""
        self.abandoned.append(event)
        logger.info("a send of %d users ended %s after its caller had left", len(event.user_ids), event.outcome.value)
        if self._emit is not None:
            self._emit(event)

    def end(self, call: Call) -> None:
        """The call is complete, unless it never began."""
        if call in self.active:
            self.active.remove(call)
            if self.when_ended is not None:
                self.when_ended(call)

    def _end_all(self, piece: Piece) -> None:
        """A crowd is through: its whole calls, at once. It costs less than if each of them said so."""
        if self.when_ended is None:
            self.active.difference_update(piece.segments)
            return
        for segment in [segment for segment in piece.segments if segment in self.active]:
            self.end(call_of(segment))


def unsettled(call: Call) -> tuple[str, ...]:
    """Its users without a verdict."""
    settled = {user for users, _ in call.parts for user in users}
    return tuple(user for user in call.users if user not in settled)


def conclude(call: Call, rest: Verdict | None = None) -> Receipt:
    """The receipt of a call, or its error. ``rest`` is the verdict on those who have none yet."""
    if call.claims is not None and any(each.recorded for _, each in call.parts):
        told = idempotency.conclude(call.users, call.repeated, _all_parts(call, rest))
        if isinstance(told, Receipt):
            return told
        raise told
    verdict = call.verdict
    if verdict is not None:
        if verdict.outcome is Outcome.ACCEPTED:
            return Receipt(users=len(call.users), repeated=call.repeated, attempts=verdict.attempts)
        raise error_for(verdict, user_ids=call.users)
    parts = _all_parts(call, rest)
    outcomes = {each.outcome for _, each in parts}
    if outcomes == {Outcome.ACCEPTED}:
        return Receipt(users=len(call.users), repeated=call.repeated, requests=len(parts), attempts=attempts_of(parts))
    if len(outcomes) == 1:
        error = error_for(msgspec.structs.replace(parts[-1][1], attempts=attempts_of(parts)), user_ids=call.users)
        error.may_repeat = any(may_repeat(each) for _, each in parts)
        raise error
    raise partial_error(call.users, parts)


def _all_parts(call: Call, rest: Verdict | None) -> idempotency.Shares:
    return call.parts if rest is None else (*call.parts, (unsettled(call), rest))
