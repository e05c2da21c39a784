"""The state of every user in a plan or a claim: a run-length list over positions.

Values only. Position 0 is the first user in the plan, or among a claim's sorted users; user ids are not stored.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec


class UserState(StrEnum):
    """One user's state in a plan or a claim."""

    PENDING = "PENDING"
    """Not sent, or provably without effect: may be sent to."""
    CLAIMED = "CLAIMED"
    """Being sent to. UNKNOWN for any other process until settled."""
    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    UNKNOWN = "UNKNOWN"

    # Enum's hash is a Python function, and UserStates looks up several states per request.
    __hash__ = str.__hash__


class UserStatus(NamedTuple):
    """A user's state, with its cause."""

    state: UserState
    status: int | None = None
    """The last response's HTTP status, if there was one."""
    reason: str = ""
    """Why the user was not accepted, as a fixed text without user ids."""
    resent: bool = False
    """Set if the user was sent to again after UNKNOWN, and so may have been pushed twice."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Neighbors of equal status, as JSON keeps them: ``[state, users, status, reason, resent]``."""

    state: UserState
    users: Annotated[int, msgspec.Meta(ge=1)]
    status: int | None = None
    reason: str = ""
    resent: bool = False


_PENDING = UserStatus(UserState.PENDING)


class UserStates:
    """The status of the users 0 to ``users`` - 1, kept as runs of equal neighbors. All are PENDING at first."""

    def __init__(self, users: int = 0) -> None:
        #: Number of users. Changed by ``extend``.
        self.users = 0
        #: Number of users that were sent to again after UNKNOWN.
        self.resent = 0
        # Each run's first position, ascending, and its status. Equal neighbors are one run.
        self._starts: list[int] = []
        self._statuses: list[UserStatus] = []
        self._counts = dict.fromkeys(UserState, 0)
        self.extend(users)

    def __str__(self) -> str:
        return ", ".join(f"{users} {state}" for state, users in self._counts.items() if users)

    def copy(self) -> "UserStates":
        """Return an independent copy."""
        return UserStates.read(self.stored())

    def count(self, state: UserState) -> int:
        """Return the number of users in this state."""
        return self._counts[state]

    def extend(self, users: int, status: UserStatus = _PENDING) -> None:
        """Add users at the end."""
        if users:
            if not self.users or self._statuses[-1] != status:
                self._starts.append(self.users)
                self._statuses.append(status)
            self.users += users
            self.resent += users * status.resent
            self._counts[status.state] += users

    def set(self, start: int, stop: int, status: UserStatus) -> None:
        """Set the status for the users ``start`` to ``stop`` - 1; a user once ``resent`` stays so."""
        if not 0 <= start < stop <= self.users:
            raise ValueError(f"there are no users {start} to {stop}, only {self.users}")
        while start < stop:
            start = self._set_in_run(bisect_right(self._starts, start) - 1, start, stop, status)

    def at(self, position: int) -> UserStatus:
        """Return one user's status."""
        return self._statuses[bisect_right(self._starts, position) - 1]

    def runs(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, UserStatus]]:
        """Yield start, stop and status for the runs between two positions, cut there, as they are at the first."""
        stop = self.users if stop is None else stop
        if start == stop:
            return
        first, last = bisect_right(self._starts, start) - 1, bisect_left(self._starts, stop)
        edges = (start, *self._starts[first + 1 : last], stop)
        for (low, high), status in zip(pairwise(edges), self._statuses[first:last], strict=True):
            yield low, high, status

    def stored(self) -> list[Run]:
        """Return the runs as a record keeps them."""
        return [Run(status.state, stop - start, *status[1:]) for start, stop, status in self.runs()]

    @classmethod
    def read(cls, runs: Iterable[Run]) -> "UserStates":
        """Return the states in a record."""
        states = cls()
        for run in runs:
            states.extend(run.users, UserStatus(run.state, run.status, run.reason, run.resent))
        return states

    def _set_in_run(self, number: int, start: int, stop: int, status: UserStatus) -> int:
        """Set users up to ``stop``, as far as they are in this run. Return the position after the last of them."""
        starts, statuses = self._starts, self._statuses
        low, high, old = starts[number], self._stop(number), statuses[number]
        if high < stop:
            stop = high
        if old.resent:
            status = status._replace(resent=True)
        if old == status:
            return stop
        users = stop - start
        self._counts[old.state] -= users
        self._counts[status.state] += users
        self.resent += users * (status.resent - old.resent)
        # The runs that replace this one, and a neighbor that has the new status.
        new_starts, new_statuses = [start], [status]
        first, last = number, number + 1
        if start > low:
            new_starts, new_statuses = [low, start], [old, status]
        elif number and statuses[number - 1] == status:
            first, new_starts = number - 1, [starts[number - 1]]
        if stop < high:
            new_starts.append(stop)
            new_statuses.append(old)
        elif last < len(starts) and statuses[last] == status:
            last += 1
        starts[first:last], statuses[first:last] = new_starts, new_statuses
        return stop

    def _stop(self, number: int) -> int:
        return self._starts[number + 1] if number + 1 < len(self._starts) else self.users
