"""Calls with idempotency keys on their way: which users of a request are claimed, left out, and settled."""

from __future__ import annotations

import asyncio
from itertools import groupby

import msgspec

from pushsdk._core import idempotency, wire
from pushsdk._core.batching import Call, Content
from pushsdk._core.errors import NotSentError, PushError
from pushsdk._core.outcome import Evidence, Failure, Verdict, verdict_of
from pushsdk._core.results import Receipt
from pushsdk._core.splitting import BatchPart, CallPart, call_of
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._io.batch_sender import PendingCalls
from pushsdk._io.engine import Engine
from pushsdk._runs.claim_entry import ClaimEntry, ClaimRequest, Ranges
from pushsdk._runs.claim_log import ClaimLog, claim_error

__all__ = ["KeyedSends"]


class KeyedSends:
    """Sends calls with idempotency keys, by one claim store. Shared with what ``with_options`` returns."""

    def __init__(self, log: ClaimLog, engine: Engine) -> None:
        self._log = log
        self._engine = engine

    async def send(self, call: Call, content: Content, *, key: object) -> Receipt:
        """Send to those users of the call whom no earlier call with this key has reached or holds.

        Raises as ``SendQueue.send``; ClaimStoreError, and ValidationError for another payload, if nothing was sent.
        """
        engine, log = self._engine, self._log
        digest, users = idempotency.digest_of(key), idempotency.by_position(call.users)
        ids = call.ids if users == call.users else wire.encode_user_ids(users)[1:-1]
        fingerprint = idempotency.fingerprint_of(
            str(key), engine.settings.base_url, [(ids, content.message, content.custom_fields)]
        )
        call.deadline = min(call.deadline, log.latest())
        keyed = call.claims = KeyedCall(log, log.open(digest, fingerprint, len(users)), users)
        engine.campaigns.add(keyed)
        try:
            return await self._send(call, content, keyed)
        finally:
            log.close(keyed.entry)
            engine.campaigns.discard(keyed)
            engine.ended(keyed)

    async def _send(self, call: Call, content: Content, keyed: KeyedCall) -> Receipt:
        is_unclaimed = False
        try:
            return await self._engine.queue.send(call, content)
        except NotSentError as error:
            if keyed.error is not None:
                is_unclaimed = True
                raise keyed.error from keyed.error.__cause__
            if not keyed.is_asked and asyncio.get_running_loop().time() < call.deadline:
                return await self._recorded(call, keyed, error)
            raise
        finally:
            # A caller whose claim failed does not wait for the same store again.
            if not is_unclaimed:
                await self._wait_until_written(call, keyed.entry)

    async def _wait_until_written(self, call: Call, entry: ClaimEntry) -> None:
        try:
            await self._log.written(entry, call.deadline)
        except asyncio.CancelledError:
            if not call.abandoned:
                call.abandoned = True
                self._engine.queue.pending.tell_abandoned(call)
            raise

    async def _recorded(self, call: Call, keyed: KeyedCall, error: NotSentError) -> Receipt:
        """Return what is on record of a call that never came so far as to ask: the service may be away."""
        await self._log.look(keyed.entry)
        states = keyed.entry.states()
        if states.count(UserState.PENDING) == states.users:
            raise error
        parts = [
            (keyed.users[start:stop], idempotency.recorded_verdict(status)) for start, stop, status in states.runs()
        ]
        told = idempotency.conclude(call.users, call.duplicates, parts)
        if isinstance(told, PushError):
            raise told
        return told


class KeyedCall:
    """A call with an idempotency key."""

    __slots__ = ("_places", "entry", "error", "is_asked", "log", "users")

    def __init__(self, log: ClaimLog, entry: ClaimEntry, users: tuple[str, ...]) -> None:
        self.log = log
        self.entry = entry
        #: By position.
        self.users = users
        # The positions, by user. Made when a part of the call is sent.
        self._places: dict[str, int] = {}
        #: Whether the store was ever asked, and why its last claim was not made. Set by ``KeyedClaim``.
        self.is_asked = False
        self.error: PushError | None = None

    def for_request(self, content: Content, piece: BatchPart, pending: PendingCalls) -> KeyedClaim:
        """Return the claim of a request that carries this call, and perhaps others of the same log."""
        return KeyedClaim(self.log, content, piece, pending)

    def ranges(self, users: tuple[str, ...]) -> Ranges:
        """Return the positions of some users, or of all."""
        if len(users) == len(self.users):
            return ((0, len(users)),)
        if not self._places:
            self._places = {user: place for place, user in enumerate(self.users)}
        places = sorted([self._places[user] for user in users])
        runs = [
            [place for _, place in run] for _, run in groupby(enumerate(places), key=lambda each: each[1] - each[0])
        ]
        return [(run[0], run[-1] + 1) for run in runs]


class KeyedClaim:
    """The claims of one request. See ``_io.sender.Claimant``."""

    def __init__(self, log: ClaimLog, content: Content, piece: BatchPart, pending: PendingCalls) -> None:
        self._log = log
        self._content = content
        self._pending = pending
        #: The piece to send: without the users whose claim was refused.
        self.piece = piece
        # Of the attempt under way, one for each segment of the piece.
        self._requests: list[ClaimRequest] = []
        # An attempt was UNKNOWN, and another one was asked for.
        self._resends = False
        # The verdict on the attempts so far: it holds if no further one can be claimed.
        self._verdict = verdict_of(piece.history, Evidence())

    async def claim(self) -> bytes | None:
        requests = self._requests = [self._request(segment) for segment in self.piece.units]
        await self._log.claim(requests)
        kept = [
            (part, request)
            for segment, request in zip(self.piece.units, requests, strict=True)
            if (part := self._granted(segment, request)) is not None
        ]
        self._requests = [request for _, request in kept]
        if [part for part, _ in kept] != list(self.piece.units):
            self.piece = BatchPart.of([part for part, _ in kept], self.piece.history)
        if not kept:
            return None
        content = self._content
        return wire.push_body(b"[" + self.piece.ids + b"]", content.message, content.custom_fields)

    def settle(self, verdict: Verdict) -> None:
        if len(self.piece.units) > 1:
            verdict = msgspec.structs.replace(verdict, shared=True)
        status = idempotency.status_after(verdict)
        requests, self._requests = self._requests, []
        for request, segment in zip(requests, self.piece.units, strict=False):
            if request.done:
                self._log.settle(request.entry, request.claimed, status)
            else:
                self._log.withdraw(request)
                call_of(segment).claims.error = claim_error(None)
        self._resends = status.state is UserState.UNKNOWN
        self._verdict = verdict

    def _request(self, segment: Call | CallPart) -> ClaimRequest:
        keyed: KeyedCall = call_of(segment).claims
        keyed.is_asked, keyed.error = True, None
        return ClaimRequest(keyed.entry, keyed.ranges(segment.users), self._resends)

    def _granted(self, segment: Call | CallPart, request: ClaimRequest) -> Call | CallPart | None:
        """Return what of the segment is sent, and settle the rest of its users; None if that is all of them."""
        call = call_of(segment)
        keyed: KeyedCall = call.claims
        if request.error is not None:
            keyed.error = claim_error(request.error)
            self._pending.settle(call, segment.users, msgspec.structs.replace(self._verdict, failure=Failure.UNCLAIMED))
            return None
        granted = [user for start, stop in request.claimed for user in keyed.users[start:stop]]
        if len(granted) == len(segment.users):
            return segment
        states = keyed.entry.states()
        left_out: dict[UserStatus, list[str]] = {}
        for start, stop in keyed.ranges(tuple(set(segment.users).difference(granted))):
            for low, high, status in states.runs(start, stop):
                left_out.setdefault(status, []).extend(keyed.users[low:high])
        for status, users in left_out.items():
            self._pending.settle(call, tuple(users), idempotency.recorded_verdict(status))
        if not granted:
            return None
        return CallPart(call, tuple(granted), wire.encode_user_ids(granted)[1:-1])


def keyed_sends(claims: object, engine: Engine) -> KeyedSends | None:
    """Return what sends calls with idempotency keys, None without a store. Raises ConfigurationError."""
    return None if claims is None else KeyedSends(ClaimLog(claims, engine), engine)
