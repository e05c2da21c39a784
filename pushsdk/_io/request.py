"""One request as the sender sees it: its content, its attempts so far, the attempt in flight, and who posts it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from pushsdk._core.attempt_times import Sent
from pushsdk._core.operations import Operation
from pushsdk._core.outcome import Attempt, Evidence, Failure, Guarded, Verdict, mutable, verdict_of
from pushsdk._core.policy import Options
from pushsdk._io.timers import DeadlineScope

Claim = Callable[[], Awaitable[bytes | None]]
"""Hook that is awaited after the connection is acquired and before the first byte is written.

Returns the body to send, as long as the one it replaces or shorter; None if nothing is to be sent.
"""


class WholePart(msgspec.Struct, frozen=True, eq=False):
    """A part of a request that carries no calls, as ``BatchPart`` is of one that does."""

    units: Sequence[Any]
    """The calls, or what else has a function ``ask`` for an attempt's key; ``ask`` is None for a fixed key."""
    users: int
    """Number; 0 for a campaign."""


@mutable
class Flight(DeadlineScope, eq=False, gc=False):
    """One post for a request: the time that it has, and its times."""

    started: float = 0.0
    """Time when the post began, on the loop's clock."""
    sent: Sent | None = None
    """The first byte, until the attempt's end. None if that is not measured."""
    span: Any = None
    """The attempt in flight, if there is an observer."""
    connection: Any = None
    """The connection that was reserved for the post, until the post ends, is not begun, or ``run`` goes on with it."""


class ApiRequest(Guarded, msgspec.Struct, eq=False, gc=False):
    """One request, and its attempts so far."""

    operation: Operation
    body: bytes
    part: Any
    """The users: a ``WholePart``; for a batch the ``Batch``, or a ``BatchPart``."""
    options: Options
    deadline: float
    """On the loop's clock; infinite if there is none."""
    key: Any = None
    """The next attempt's Api-Key, or the reason why there is none."""
    is_asked: bool = False
    """True if the key was asked for, and no attempt has used it yet."""
    rekeyed: bool = False
    """True once a rotated key was used."""
    attempts: tuple[Attempt, ...] = ()
    """The attempts so far, beginning with those that the request had from which this one was split."""
    own: int = 0
    """Number of this request's attempts, and of the attempts before its calls were split by key."""
    number: int = 1
    """Number of the attempt as the policy counts: not repeated with a rotated key."""
    replaced: int = 0
    """Stale connections that were replaced."""
    evidence: Any = None
    """``Evidence`` from the last attempt; None before the first."""
    flight: Any = None
    """The last ``Flight``; None before the first."""
    failure: Failure | None = None
    """The client's reason to end the request, if any."""

    @property
    def users(self) -> int:
        users: int = self.part.users
        return users

    @property
    def is_collapsible(self) -> bool:
        """True if a second push replaces the first on the phone, and the policy says that this makes a retry safe."""
        return False

    @property
    def is_begun(self) -> bool:
        """True while an attempt has a connection that was reserved for it, and ``run`` has not taken that over."""
        return self.flight is not None and self.flight.connection is not None

    async def prepare(self) -> bytes | None:
        """Return the body to send, as a ``Claim`` does."""
        return self.body

    def narrow(self, limiter: Any = None) -> bool:
        """End the calls that nobody waits for; with a limiter, also those whose time is short for an attempt.

        Return True if any call is left for another attempt. Else set the failure.
        """
        return True

    def settle(self, attempt: Attempt) -> None:
        """Record an attempt that has ended, before it is in ``attempts``."""

    def verdict(self) -> Verdict:
        """Return the verdict on the attempts so far."""
        return verdict_of(self.attempts, self.evidence or Evidence(), self.failure)


class ClaimedRequest(ApiRequest, eq=False, gc=False):
    """A request whose users are claimed before each attempt."""

    async def prepare(self) -> bytes | None:
        """Claim the users. Returns the body to send, if any."""
        loop, flight = asyncio.get_running_loop(), self.flight
        # Also the wall clock: the loop's stands still while the machine sleeps.
        until = time.time() + flight.deadline - loop.time()
        body = await self.claim_users()
        if body is not None and (loop.time() >= flight.deadline or time.time() >= until):
            # The process was suspended. Its claim may have been released, and its users pushed to.
            flight.expire(Failure.DEADLINE)
            await loop.create_future()
        return body

    async def claim_users(self) -> bytes | None:
        """Claim the users, and leave out those whose claim was refused. Returns the body to send, if any."""


def resolve(waiter: asyncio.Future[bool], is_plain: bool) -> None:
    """Tell a task that its response is there, unless it was told before."""
    if not waiter.done():
        waiter.set_result(is_plain)


class Transport(Protocol):
    """The one effect on the network: send once, and collect evidence."""

    fast: Any
    """The ``FastPost``, which writes a request at once if there is an idle connection. None if each needs an await."""

    async def post(self, request: ApiRequest) -> None:
        """Send the request once, or go on with one that was begun, and fill its evidence.

        Raises only CancelledError; the evidence so far is valid then. The request span's headers are sent, too.
        See ``Claim`` for its ``prepare``.
        """

    async def close(self) -> None:
        """Close what the transport opened itself."""
