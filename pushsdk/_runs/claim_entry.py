"""One claim store entry: the users' states for one idempotency key, and the writes that are due.

Decides only; ``ClaimLog`` awaits. A failed write may take effect all the same: at once, later, or never. So the entry
keeps every token that the store may hold, and its next write replaces all such tokens. After a successful write the
store is up to date, and refuses an older write that arrives late.
"""

import secrets
from collections.abc import Iterator, Sequence

import msgspec

from pushsdk._core.errors import ValidationError
from pushsdk._core.idempotency import NAME_DIGITS, ClaimRecord, difference
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk.claims.store import Claim, Put

# Other processes may change the entry between two writes, but hardly this often.
MOST_REFUSALS = 10

Ranges = Sequence[tuple[int, int]]
"""Users by position, each range without its second number."""

# States in other processes that outrank a state in this process: an accepted push outranks everything, and a rejection
# says nothing about requests from other processes.
_ACCEPTED = frozenset({UserState.ACCEPTED})
_OUTRANKS = {
    UserState.PENDING: frozenset(UserState),
    UserState.REJECTED: frozenset({UserState.ACCEPTED, UserState.CLAIMED, UserState.UNKNOWN}),
}

_PENDING = UserStatus(UserState.PENDING)
_UNKNOWN = UserStatus(UserState.UNKNOWN)


class ClaimRequest(msgspec.Struct, eq=False, gc=False):
    """A request to claim some users in an entry."""

    entry: "ClaimEntry"
    ranges: Ranges
    resends: bool = False
    """True to claim users again whom this process sent to with an UNKNOWN outcome."""
    sending_until: float = 0.0
    """Unix time at which the call ends."""
    claimed: list[tuple[int, int]] = []
    """The claimed users. Set once the request is done."""
    done: bool = False
    error: Exception | None = None
    refusals: int = 0
    withdrawn: bool = False
    """True if the call has left: claimed users are released."""


class ClaimEntry(msgspec.Struct, eq=False):
    """The users for one idempotency key."""

    key: str
    fingerprint: str
    users: int
    claimed_at: float
    #: Unix time at which the last call that claimed users ends.
    sending_until: float = 0.0
    #: The requests for the next write.
    requests: list[ClaimRequest] = []
    #: True if the store is to be written to.
    is_changed: bool = False
    #: Number of failed writes since the last success, and the last error.
    failures: int = 0
    error: Exception | None = None
    # States in other processes as last read, and states in this process: PENDING before its claim.
    others: UserStates | None = None
    _own: UserStates = msgspec.field(default_factory=UserStates)
    # CLAIMED by this process: another process that rewrites the record keeps the reason.
    _claimed: UserStatus = msgspec.field(
        default_factory=lambda: UserStatus(UserState.CLAIMED, reason=secrets.token_hex(8))
    )
    # The tokens that the store may hold; the last write while its effect is unknown; the requests in that write.
    _tokens: tuple[str, ...] = ()
    _unconfirmed: Claim | None = None
    _in_write: list[ClaimRequest] = []

    def __post_init__(self) -> None:
        self._own.extend(self.users)

    @property
    def job(self) -> str:
        """The name of the entry's job in texts and log lines."""
        return self.key[:NAME_DIGITS]

    @property
    def is_written(self) -> bool:
        """Return True if the store is up to date, or writing was given up."""
        return not self.is_changed and self._unconfirmed is None

    @property
    def has_outcomes(self) -> bool:
        """Return True if this process has claimed or settled users."""
        return self._own.count(UserState.PENDING) < self.users

    def check(self, fingerprint: str, users: int) -> None:
        """Raise ValidationError for another payload, ValueError for another number of users."""
        if fingerprint != self.fingerprint:
            raise ValidationError(
                f"this idempotency_key was used with {difference(self.fingerprint, fingerprint)}: nothing was sent; "
                "use one key per job, and a new key after a change of the payload or base_url"
            )
        if users != self.users:
            raise ValueError("the record is about another number of users")

    def states(self) -> UserStates:
        """Return the state of every user, as far as this process knows."""
        if self.others is None:
            return self._own.copy()
        states = self.others.copy()
        for start, stop, status in self._own.runs():
            for low, high, other in self.others.runs(start, stop):
                if other.state not in _OUTRANKS.get(status.state, _ACCEPTED):
                    states.set(low, high, status)
        return states

    def settle(self, ranges: Ranges, status: UserStatus) -> None:
        """Set the status for users who were claimed by this process, or by no process."""
        for start, stop in ranges:
            for low, high, own in list(self._own.runs(start, stop)):
                is_own = own.state is not UserState.PENDING
                for first, last in [(low, high)] if is_own else list(self._of_others(low, high, UserState.PENDING)):
                    self._own.set(first, last, status)
        self.is_changed = True

    def withdraw(self, request: ClaimRequest) -> None:
        """Withdraw a request. A claim that is already being written is released afterwards."""
        request.withdrawn = True
        if request in self.requests:
            self.requests.remove(request)

    def prepare(self) -> Put | None:
        """Return the next write, with the waiting requests; None if there is nothing to write."""
        self._in_write, self.requests = self.requests, []
        for request in self._in_write:
            self._claim(request)
        self.is_changed = False
        if not (self._tokens or self._unconfirmed or self.has_outcomes):
            return None
        record = ClaimRecord(
            fingerprint=self.fingerprint,
            claimed_at=self.claimed_at,
            sending_until=self.sending_until,
            users=self.states().stored(),
        ).encode()
        # The same token while the effect of an equal write is unknown: a store that holds the write accepts it.
        if self._unconfirmed is None or self._unconfirmed.record != record:
            self._unconfirmed = Claim(secrets.token_hex(16), record)
        return Put(self.key, self._unconfirmed, self._tokens)

    def _claim(self, request: ClaimRequest) -> None:
        request.claimed = list(self._claimable(request))
        for start, stop in request.claimed:
            resent = request.resends and self._own.at(start).state is UserState.UNKNOWN
            self._own.set(start, stop, self._claimed._replace(resent=resent))
            self.sending_until = max(self.sending_until, request.sending_until)

    def answered(self, stored: Claim | None) -> bool:
        """Note that the write was made, or which other claim the store holds.

        Return False if outcomes from this process can't be recorded: for example a rejection, after an operator has
        settled the users as accepted.
        """
        if stored is None:
            assert self._unconfirmed is not None  # noqa: S101 - set by ``prepare``
            self._tokens, self._unconfirmed, self.failures = (self._unconfirmed.token,), None, 0
            self._finish(None)
            return True
        self._release(self._in_write)
        # The store holds nothing from this process. An unreadable or foreign claim is never replaced.
        self._tokens, self._unconfirmed, self.failures = (), None, 0
        has_news = self.has_outcomes
        try:
            is_late = self._merge(stored)
        except Exception as error:  # noqa: BLE001 - any record in any store
            self.fail_requests(error)
            self._own = UserStates(self.users)
            return not has_news
        requests, self._in_write = self._in_write, []
        self.is_changed = has_news or is_late
        for request in requests:
            if request.withdrawn:
                continue
            request.refusals += 1
            if next(self._claimable(request), None) is None:
                request.done = True
            elif request.refusals >= MOST_REFUSALS:
                request.error, request.done = TimeoutError(), True
            else:
                self.requests.append(request)
        return self.states().count(UserState.REJECTED) >= self._own.count(UserState.REJECTED)

    def failed(self, error: Exception) -> None:
        """Note that the write failed, so its effect is unknown."""
        self.failures += 1
        self.error = error
        if self._unconfirmed is not None and self._unconfirmed.token not in self._tokens:
            self._tokens = (*self._tokens, self._unconfirmed.token)
        self._release(self._in_write)
        self._finish(error)

    def fail_requests(self, error: Exception) -> None:
        self._in_write, self.requests = [*self._in_write, *self.requests], []
        self._release(self._in_write)
        self._finish(error)

    def give_up(self) -> None:
        """Stop writing the states that could not be written."""
        self.is_changed, self._unconfirmed = False, None

    def refresh(self, stored: Claim | None) -> None:
        """Merge the stored claim unless this process wrote it.

        Raises ValidationError for another payload, ValueError for anything that is not a record.
        """
        if stored is not None and not self._unconfirmed and stored.token not in self._tokens:
            self._merge(stored)

    def _merge(self, stored: Claim) -> bool:
        """Take over the states from other processes. Return True if the store has outdated claims from this process."""
        record = ClaimRecord.decode(stored.record)
        states = record.states()
        if states.count(UserState.PENDING) == states.users:
            self.others, self._tokens = None, (stored.token,)
            return False
        self.check(record.fingerprint, states.users)
        self.others, self.claimed_at, self._tokens = states, record.claimed_at, (stored.token,)
        self.sending_until = record.sending_until
        is_own = False
        for start, stop, status in list(states.runs()):
            if status.state is UserState.CLAIMED and status.reason == self._claimed.reason:
                states.set(start, stop, _PENDING)
                is_own = True
        return is_own

    def _claimable(self, request: ClaimRequest) -> Iterator[tuple[int, int]]:
        """Yield the users the request may claim: PENDING, or to resend and UNKNOWN by an attempt in this process."""
        for start, stop in request.ranges:
            for low, high, own in self._own.runs(start, stop):
                if own.state is UserState.UNKNOWN and request.resends:
                    yield from self._of_others(low, high, UserState.PENDING, UserState.UNKNOWN)
                elif own.state is UserState.PENDING:
                    yield from self._of_others(low, high, UserState.PENDING)

    def _of_others(self, start: int, stop: int, *states: UserState) -> Iterator[tuple[int, int]]:
        """Yield the users who have one of these states in other processes."""
        if self.others is None:
            yield start, stop
            return
        for low, high, other in self.others.runs(start, stop):
            if other.state in states:
                yield low, high

    def _finish(self, error: Exception | None) -> None:
        requests, self._in_write = self._in_write, []
        for request in requests:
            request.error, request.done = error, True
            if request.withdrawn and error is None:
                self._release([request])
                self.is_changed = True

    def _release(self, requests: list[ClaimRequest]) -> None:
        for request in requests:
            for start, stop in request.claimed:
                for low, high, own in list(self._own.runs(start, stop)):
                    if own.state is UserState.CLAIMED:
                        self._own.set(low, high, _UNKNOWN if own.resent else _PENDING)
            request.claimed = []
