"""One entry of a claim store: the users of one idempotency key, and what this process has still to write of them.

Decides only; ``_log`` writes. A write that failed may take effect all the same: at once, later, or never. So the entry
remembers every token that the store may hold, and its next write replaces any of them. Once a write succeeds, the store
holds the truth, and an older write that arrives late is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import msgspec

from pushsdk._core.errors import ValidationError
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk.claims.store import Claim, Put

__all__ = ["ClaimEntry", "ClaimRequest", "Ranges"]

# Another process may change the entry between two looks at it, but hardly so often.
MOST_REFUSALS = 10

Ranges = Sequence[tuple[int, int]]
"""Users by position: from the first up to, not including, the second."""

OTHER_PAYLOAD = (
    "this idempotency_key was used for another payload (users, message, custom fields or base_url differ): nothing was "
    "sent; use a key of its own for each job, and a new one to send a job on after a change of its payload or base_url"
)

# What others recorded stays, by what this process did: one accepted push is a push whatever became of the others, and a
# rejection says nothing of the requests of others.
_ACCEPTED = frozenset({UserState.ACCEPTED})
_KEPT = {
    UserState.PENDING: frozenset(UserState),
    UserState.REJECTED: frozenset({UserState.ACCEPTED, UserState.CLAIMED, UserState.UNKNOWN}),
}

_PENDING = UserStatus(UserState.PENDING)
_UNKNOWN = UserStatus(UserState.UNKNOWN)


class ClaimRequest(msgspec.Struct, eq=False, gc=False):
    """A request for the right to send to some users of an entry."""

    entry: ClaimEntry
    ranges: Ranges
    resends: bool = False
    """Users are claimed again if this process sent to them before with an UNKNOWN outcome."""
    claimed: list[tuple[int, int]] = []
    """The users that were granted. Set once the request is done."""
    done: bool = False
    error: Exception | None = None
    refusals: int = 0
    withdrawn: bool = False
    """The caller has gone: what is granted is given back."""


class ClaimEntry:
    """The users of one idempotency key."""

    __slots__ = (
        "_asked",
        "_base",
        "_claimed",
        "_claimed_at",
        "_doubt",
        "_ours",
        "_tokens",
        "error",
        "failures",
        "fingerprint",
        "is_changed",
        "key",
        "requests",
        "users",
        "uses",
    )

    def __init__(self, key: str, fingerprint: str, users: int, now: float) -> None:
        self.key = key
        self.fingerprint = fingerprint
        self.users = users
        self._claimed_at = now
        # The record says whose claim it is: a process that writes it anew keeps the claims of others.
        self._claimed = UserStatus(UserState.CLAIMED, reason=secrets.token_hex(8))
        # The states that other processes recorded, as last read; and what this process did, PENDING if nothing.
        self._base: UserStates | None = None
        self._ours = UserStates(users)
        # The tokens that the store may hold; the last write while its effect is unknown; the requests in that write.
        self._tokens: tuple[str, ...] = ()
        self._doubt: Claim | None = None
        self._asked: list[ClaimRequest] = []
        #: The requests that the next write takes.
        self.requests: list[ClaimRequest] = []
        #: True while the store is to be written to.
        self.is_changed = False
        #: The number of failed writes since the last success, and the error of the last one.
        self.failures = 0
        self.error: Exception | None = None
        #: Calls that use the entry. Counted by ``_log``.
        self.uses = 0

    @property
    def is_known(self) -> bool:
        """True if another process has recorded anything."""
        return self._base is not None

    @property
    def is_written(self) -> bool:
        """True if the store holds the truth, or writing it was given up."""
        return not self.is_changed and self._doubt is None

    def check(self, fingerprint: str, users: int) -> None:
        """Raises ValidationError for another payload, ValueError for another number of users."""
        if fingerprint != self.fingerprint:
            raise ValidationError(OTHER_PAYLOAD)
        if users != self.users:
            raise ValueError("the record is about another number of users")

    def states(self) -> UserStates:
        """Return the state of every user, as far as this process knows."""
        if self._base is None:
            return self._ours.copy()
        states = self._base.copy()
        for start, stop, status in self._ours.runs():
            for low, high, theirs in self._base.runs(start, stop):
                if theirs.state not in _KEPT.get(status.state, _ACCEPTED):
                    states.set(low, high, status)
        return states

    def settle(self, ranges: Ranges, status: UserStatus) -> None:
        """Set the status of users that this process claimed, or that nobody has claimed."""
        for start, stop in ranges:
            for low, high, ours in list(self._ours.runs(start, stop)):
                is_ours = ours.state is not UserState.PENDING
                for first, last in [(low, high)] if is_ours else list(self._in_base(low, high, UserState.PENDING)):
                    self._ours.set(first, last, status)
        self.is_changed = True

    def withdraw(self, request: ClaimRequest) -> None:
        """Withdraw a request, whether its claim was made or not."""
        request.withdrawn = True
        if request in self.requests:
            self.requests.remove(request)

    # -- a write ------------------------------------------------------------------------------------------------

    def prepare(self) -> Put | None:
        """Return the next write, with the requests that wait for it; None if there is nothing to write."""
        self._asked, self.requests = self.requests, []
        for request in self._asked:
            request.claimed = self._take(request)
        if not (self._tokens or self._doubt) and self._ours.count(UserState.PENDING) == self.users:
            self.is_changed = False
            return None
        self.is_changed = False
        record = ClaimRecord(
            fingerprint=self.fingerprint,
            claimed_at=self._claimed_at,
            users=msgspec.Raw((self._ours if self._base is None else self.states()).to_json()),
        ).encode()
        # The same write again while its effect is unknown: a store that has it accepts it.
        if self._doubt is None or self._doubt.record != record:
            self._doubt = Claim(secrets.token_hex(16), record)
        return Put(self.key, self._doubt, self._tokens)

    def stored(self) -> None:
        """The store has taken the write."""
        assert self._doubt is not None  # noqa: S101 - ``prepare`` came before
        self._tokens, self._doubt, self.failures = (self._doubt.token,), None, 0
        self._finish(None)

    def refused(self, found: Claim) -> bool:
        """The store holds another claim. Return False if that makes outcomes of this process impossible to record."""
        asked, self._asked = self._asked, []
        self._give_back(asked)
        # Nothing that this process wrote is there. And what it can't read or may not touch, it never replaces.
        self._tokens, self._doubt, self.failures = (), None, 0
        has_news = self._ours.count(UserState.PENDING) < self.users
        try:
            is_late = self._learn(found)
        except Exception as error:  # noqa: BLE001 - a record of anybody's, by a store of anybody's
            self._ours = UserStates(self.users)
            for request in [*asked, *self.requests]:
                request.error, request.done = error, True
            self.requests = []
            return not has_news
        self.is_changed = has_news or is_late
        for request in asked:
            request.refusals += 1
            if request.withdrawn:
                continue
            if next(self._open(request), None) is None:
                request.claimed, request.done = [], True
            elif request.refusals >= MOST_REFUSALS:
                request.error, request.done = TimeoutError(), True
            else:
                self.requests.append(request)
        return True

    def failed(self, error: Exception) -> None:
        """The write failed, so its effect is unknown."""
        self.failures += 1
        self.error = error
        self.is_changed = True
        if self._doubt is not None and self._doubt.token not in self._tokens:
            self._tokens = (*self._tokens, self._doubt.token)
        self._give_back(self._asked)
        self._finish(error)

    def fail_waiting(self, error: Exception) -> None:
        """End the requests that wait for the next write."""
        self._asked, self.requests = [*self._asked, *self.requests], []
        self._give_back(self._asked)
        self._finish(error)

    def give_up(self) -> None:
        """Write nothing more of what failed."""
        self.is_changed, self._doubt = False, None

    def look(self, found: Claim | None) -> None:
        """Take in what the store holds, unless this process wrote it.

        Raises ValidationError for another payload, ValueError for anything that is not a record.
        """
        if found is not None and not self._doubt and found.token not in self._tokens:
            self._learn(found)

    # -- parts --------------------------------------------------------------------------------------------------

    def _learn(self, found: Claim) -> bool:
        """Take over what others recorded. Return True if claims of this process are among it, which it knows better."""
        record = ClaimRecord.decode(found.record)
        states = record.states()
        if states.count(UserState.PENDING) == states.users:
            self._base, self._tokens = None, (found.token,)
            return False
        self.check(record.fingerprint, states.users)
        self._base, self._claimed_at, self._tokens = states, record.claimed_at, (found.token,)
        is_ours = False
        for start, stop, status in list(states.runs()):
            if status.state is UserState.CLAIMED and status.reason == self._claimed.reason:
                states.set(start, stop, _PENDING)
                is_ours = True
        return is_ours

    def _take(self, request: ClaimRequest) -> list[tuple[int, int]]:
        taken = list(self._open(request))
        for start, stop in taken:
            resent = request.resends and self._ours.at(start).state is UserState.UNKNOWN
            self._ours.set(start, stop, self._claimed._replace(resent=resent))
        return taken

    def _open(self, request: ClaimRequest) -> Iterator[tuple[int, int]]:
        """Yield the users that the request may have: PENDING as far as is known, or UNKNOWN by our own attempt."""
        for start, stop in request.ranges:
            for low, high, ours in self._ours.runs(start, stop):
                if ours.state is UserState.UNKNOWN and request.resends:
                    yield from self._in_base(low, high, UserState.PENDING, UserState.UNKNOWN)
                elif ours.state is UserState.PENDING:
                    yield from self._in_base(low, high, UserState.PENDING)

    def _in_base(self, start: int, stop: int, *states: UserState) -> Iterator[tuple[int, int]]:
        """Yield the users whom others recorded in one of these states."""
        if self._base is None:
            yield start, stop
            return
        for low, high, theirs in self._base.runs(start, stop):
            if theirs.state in states:
                yield low, high

    def _finish(self, error: Exception | None) -> None:
        asked, self._asked = self._asked, []
        for request in asked:
            request.error, request.done = error, True
            if request.withdrawn and error is None:
                self._give_back([request])
                self.is_changed = True

    def _give_back(self, requests: list[ClaimRequest]) -> None:
        for request in requests:
            for start, stop in request.claimed:
                for low, high, ours in list(self._ours.runs(start, stop)):
                    if ours.state is UserState.CLAIMED:
                        self._ours.set(low, high, _UNKNOWN if ours.resent else _PENDING)
            request.claimed = []
