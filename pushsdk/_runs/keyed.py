"""Calls with idempotency keys: claims the users in each request, leaves out users that others claim, settles."""

import asyncio
import math
import time
from bisect import bisect_left
from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec

from pushsdk._core import idempotency
from pushsdk._core.batching import Call, Content
from pushsdk._core.body import encode_user_ids, push_body
from pushsdk._core.damage import lacks_value
from pushsdk._core.error_mapping import conclude
from pushsdk._core.errors import (
    NotSentError,
    OutcomeUnknownError,
    ValidationError,
    warn_caller,
)
from pushsdk._core.kinds import check
from pushsdk._core.outcome import Evidence, Failure, Guarded, Outcome, Verdict, verdict_of
from pushsdk._core.results import Receipt
from pushsdk._core.secret import Secret
from pushsdk._core.splitting import BatchPart, CallPart
from pushsdk._core.user_states import UserState
from pushsdk._io.engine import Engine
from pushsdk._io.pending import PendingCalls
from pushsdk._runs.claim_entry import ClaimEntry, ClaimRequest, Ranges
from pushsdk._runs.claim_log import ClaimLog, claim_error
from pushsdk.claims import store_at
from pushsdk.claims.memory import MemoryClaims
from pushsdk.claims.store import ClaimStore, Store, close_store

T = TypeVar("T")
IN_FLIGHT = (
    "outcome unknown: another call with this idempotency_key claimed the users {:.0f} s ago and may be in flight for "
    "{} s more; this call sent nothing: call again with the same key after that; {}"
)


class KeyedSends:
    """Sends calls with idempotency keys through one claim store. Shared with clients from ``with_options``."""

    def __init__(self, claims: object) -> None:
        """Raises ConfigurationError if ``claims`` is neither a ClaimStore nor a store's location."""
        self._claims: Any = claims
        self.renew()
        check("claims", self._store, Store | None)

    def renew(self) -> None:
        """Be as before the first call: at first, and in a forked child."""
        # As in ``Lifetime.renew``.
        self._former = {**vars(self)}
        claims = self._claims
        self._store: ClaimStore = store_at(claims) if isinstance(claims, Secret) else claims
        # Made by the first call.
        self._log: ClaimLog | None = None

    async def close(self) -> None:
        """Close the store if the client has opened it."""
        if self._store is not self._claims:
            await close_store(self._store)

    async def send(self, engine: Engine, call: Call, content: Content, *, key: object) -> Receipt:
        """Send to the users in the call that no earlier call with this key has settled or claimed.

        Raises ClaimStoreError, or ValidationError for another payload, if nothing was sent; else as
        ``AsyncPushClient.send`` does.
        """
        log = self._log = self._log or ClaimLog(self._store, engine.work)
        users = tuple(sorted(call.users))
        try:
            digest = idempotency.digest_of(key)
            if lacks_value(str(key)):
                warn_caller(
                    "idempotency_key lacks its value, so jobs share it: set the variable, or write the f of an f-string"
                )
            payloads = [(encode_user_ids(users), content.message, content.custom_fields)]
            fingerprint = idempotency.fingerprint_of(str.__str__(key), engine.settings.base_url, payloads)
            entry = log.open(digest, fingerprint, len(users))
        except ValidationError:
            engine.work.end([call])
            raise
        call.deadline = min(call.deadline, log.deadline())
        look = f"see: pushsdk claims show {entry.job}, with PUSHSDK_CLAIMS set to the store"
        if type(self._store) is MemoryClaims:
            look = "the claim is in this process's memory, and ends with it"
        keyed = call.claims = KeyedCall(engine, log, entry, users, look)
        with engine.work.including(keyed):
            try:
                return await keyed.send(call, content)
            finally:
                log.close(entry)


class KeyedCall(Guarded, msgspec.Struct, eq=False):
    """A call with an idempotency key, and its entry in the claim store."""

    _engine: Engine
    log: ClaimLog
    entry: ClaimEntry
    #: The users by position, sorted.
    users: tuple[str, ...]
    #: How to look at the claim, for error texts.
    look: str
    #: The last claim that was tried. Set by ``KeyedClaim``.
    asked: ClaimRequest | None = None

    async def send(self, call: Call, content: Content) -> Receipt:
        """Send the call, and wait until its outcome is in the store."""
        try:
            return await self._send(call, content)
        except OutcomeUnknownError as error:
            entry = self.entry
            # A clock behind that of the claim.
            now = max(time.time(), entry.claimed_at)
            seconds = math.ceil(entry.sending_until - now)
            if seconds > 0 and not error.attempts and not entry.states().count(UserState.UNKNOWN):
                if not call.abandoned:  # else its request goes on
                    error.args = (IN_FLIGHT.format(now - entry.claimed_at, seconds, self.look),)
                error.retryable, error.retry_after = True, float(seconds)
            raise

    async def _send(self, call: Call, content: Content) -> Receipt:
        is_unclaimed = False
        try:
            return await self._engine.queue.send(call, content)
        except NotSentError as error:
            asked = self.asked
            if asked is None and self._engine.loop.time() < call.deadline:
                return await self._reported(call, self._recorded(call, error))
            if asked is not None and (asked.withdrawn or asked.error is not None):
                is_unclaimed = True
                raise claim_error(asked.error) from asked.error
            raise
        finally:
            # If the claim failed, the caller does not wait for the same store again.
            if not is_unclaimed:
                await self._reported(call, self.log.written(self.entry, call.deadline))

    async def _reported(self, call: Call, work: Awaitable[T]) -> T:
        """Await the work that follows a call's requests. If it is cancelled, report the call as abandoned."""
        try:
            return await work
        except asyncio.CancelledError:
            if not call.abandoned:
                call.abandoned = True
                self._engine.pending.report_abandoned(call)
            raise

    async def _recorded(self, call: Call, error: NotSentError) -> Receipt:
        """Return the recorded result for a call that ended before its claim: the service may be down."""
        await self.log.refresh(self.entry)
        states = self.entry.states()
        if states.count(UserState.PENDING) == states.users:
            raise error
        parts = [(self.users[low:high], idempotency.recorded_verdict(status)) for low, high, status in states.runs()]
        return conclude(call.users, call.duplicates, parts, self._engine.pending.target, look=self.look)

    def for_request(self, content: Content, part: BatchPart) -> "KeyedClaim":
        """Return the claim for a request with this call and perhaps others in the same log."""
        return KeyedClaim(self.log, content, part, self._engine.pending)

    def ranges(self, users: tuple[str, ...]) -> Ranges:
        if len(users) == len(self.users):
            return ((0, len(users)),)
        return [(at, at + 1) for at in sorted([bisect_left(self.users, user) for user in users])]


class KeyedClaim:
    """The claims for one request, one per call: they tell other processes which users may have been sent to."""

    def __init__(self, log: ClaimLog, content: Content, part: BatchPart, pending: PendingCalls) -> None:
        self._log = log
        self._content = content
        self._pending = pending
        # The request's: merged calls are in flight until the last of their deadlines.
        self._deadline = max(unit.deadline for unit in part.units)
        # The units in the current attempt, each with its request. Set by ``claim``.
        self._claims: list[tuple[Call | CallPart, ClaimRequest]] = []
        # The verdict on the attempts so far, final if the next attempt can't be claimed.
        self._verdict = verdict_of(part.history, Evidence())

    async def claim(self, part: BatchPart) -> tuple[BatchPart, bytes | None]:
        """Claim the users, after the connection is acquired and before the first byte. Raises only CancelledError.

        Returns the part and the body to send, without the users whose claim was refused. The body is None if nothing is
        to be sent.
        """
        self._claims = [(unit, self._request(unit)) for unit in part.units]
        await self._log.claim([request for _, request in self._claims])
        self._claims = [
            (claimed, request)
            for unit, request in self._claims
            if (claimed := self._claimed_part(unit, request)) is not None
        ]
        part = BatchPart.of([unit for unit, _ in self._claims], part.history)
        return part, push_body(part.ids, self._content.message, self._content.custom_fields) if part.units else None

    def settle(self, verdict: Verdict) -> None:
        """Record the verdict on the request so far. Called after each post, even if nothing was claimed.

        A claim that is not complete by then is void.
        """
        claims, self._claims = self._claims, []
        if len(claims) > 1:
            verdict = msgspec.structs.replace(verdict, shared=True)
        status = idempotency.status_after(verdict)
        for _, request in claims:
            if request.done:
                self._log.settle(request.entry, request.claimed, status)
            else:
                request.entry.withdraw(request)
        self._verdict = verdict

    def leave(self, part: BatchPart) -> None:
        """Release the users in calls that have left the request before its first byte. This is its part now."""
        claims, units = self._claims, {*part.units}
        self._claims = [claim for claim in claims if claim[0] not in units]
        self.settle(self._verdict)
        self._claims = [claim for claim in claims if claim[0] in units]

    def _request(self, unit: Call | CallPart) -> ClaimRequest:
        keyed: KeyedCall = unit.call.claims
        sending_until = time.time() + self._deadline - asyncio.get_running_loop().time()
        resends = self._verdict.outcome is Outcome.UNKNOWN
        keyed.asked = ClaimRequest(keyed.entry, keyed.ranges(unit.users), resends, sending_until)
        return keyed.asked

    def _claimed_part(self, unit: Call | CallPart, request: ClaimRequest) -> Call | CallPart | None:
        """Return a unit's claimed part, None if empty. Settle its other users as recorded."""
        call = unit.call
        keyed: KeyedCall = call.claims
        if request.error is not None:
            self._pending.settle(call, unit.users, msgspec.structs.replace(self._verdict, failure=Failure.UNCLAIMED))
            return None
        claimed = [user for start, stop in request.claimed for user in keyed.users[start:stop]]
        if len(claimed) == len(unit.users):
            return unit
        states = keyed.entry.states()
        for start, stop in keyed.ranges(tuple(set(unit.users).difference(claimed))):
            for low, high, status in states.runs(start, stop):
                self._pending.settle(call, keyed.users[low:high], idempotency.recorded_verdict(status))
        if not claimed:
            return None
        return CallPart(call, tuple(claimed), encode_user_ids(claimed))
