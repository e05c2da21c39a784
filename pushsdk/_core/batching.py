"""The merging of concurrent sends: calls, and the open batches that they join.

Decides and counts; the shell awaits. No order is promised between calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pushsdk._core.outcome import Failure, Verdict
from pushsdk._core.policy import Batching, RetryPolicy, Timeout
from pushsdk._core.splitting import LearnedSizes

__all__ = ["FRAME", "SETTLED", "Batch", "Batches", "Call", "Content", "Key", "Options"]

# What a push body has around its parts: {"userIds":[],"message":,"customFields":}.
FRAME = 48
# What a waiting caller is told when all of its users have their verdict.
SETTLED = "settled"


class Options(msgspec.Struct, frozen=True, eq=False, gc=False):
    """How a request is treated. Equal options are one object (see ``Engine.options_of``): so they compare quickly."""

    policy: RetryPolicy
    timeout: Timeout
    keyed: bool = False
    """For calls with an idempotency key, which travel by themselves: their request waits for a claim store."""


class Content(NamedTuple):
    """What makes sends mergeable: bytes that are equal, and the same idea of what may be repeated.

    A plain tuple of the same equals it, and is much quicker to make: of a crowd of calls only the first needs names.
    """

    message: bytes
    custom_fields: bytes | None
    options: Options

    @property
    def frame(self) -> int:
        """Bytes of a request's body that are not ids."""
        return FRAME + len(self.message) + len(self.custom_fields or b"")

    def __repr__(self) -> str:
        return f"Content(message bytes={len(self.message)})"


Key = tuple[bytes, bytes | None, Options]
"""A ``Content``, or as much of one."""


# Without the cycle collector: tens of thousands of calls may wait, and it would walk through them again and again.
class Call(msgspec.Struct, eq=False, gc=False):
    """One ``send()``: its users, and what became of them so far."""

    users: tuple[str, ...]
    ids: bytes
    """The ids as JSON, without the brackets: joined by commas they are a request's ``userIds``."""
    deadline: float
    """On the client's clock; infinite where there is none."""
    unsettled: int
    """Users without a verdict yet. Counted down by ``settle``."""
    duplicates: int = 0
    """How many of the ids that the caller gave were repetitions."""
    verdict: Verdict | None = None
    """The verdict on all of its users, where it is one. Set by ``settle``."""
    shares: tuple[tuple[tuple[str, ...], Verdict], ...] = ()
    """Else the verdicts so far, with the users that each is about. Added by ``settle``."""
    abandoned: bool = False
    """Set by the shell when the caller stopped waiting."""
    waiter: Any = None
    """What the shell wakes when there is something to say."""
    caller: Any = None
    """What an observer remembers of the caller. Set by the shell, where there is an observer."""
    claims: Any = None
    """The call's entry in a claim store, if it has an idempotency key. Set by the shell."""

    def __repr__(self) -> str:
        return f"Call(users={len(self.users)}, unsettled={self.unsettled})"

    def expire(self, reason: Failure) -> None:
        """Its deadline has come, or the client ends it: the caller is told, and leaves."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(reason)

    def settle(self, users: tuple[str, ...], verdict: Verdict, told: object = SETTLED) -> bool:
        """These users have their verdict; True when they were the last, and then the caller is told.

        ``told`` is what, where all of the users have this verdict.
        """
        unsettled = self.unsettled = self.unsettled - len(users)
        if unsettled:
            self.shares = (*self.shares, (users, verdict))
            return False
        if self.shares:
            self.shares = (*self.shares, (users, verdict))
            told = SETTLED
        else:
            self.verdict = verdict
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(told)
        return True

    @property
    def parts(self) -> Sequence[tuple[tuple[str, ...], Verdict]]:
        """The verdicts so far, with the users that each is about."""
        return self.shares if self.verdict is None else ((self.users, self.verdict),)


class Batch(msgspec.Struct, eq=False, gc=False):
    """Calls of equal content on their way to one request."""

    content: Content
    calls: list[Call]
    users: int
    """Users so far. Counted by ``Batches.join`` and ``remove``."""
    size: int
    """Bytes of the request's body so far. Counted by ``Batches.join`` and ``remove``."""
    frame: int
    """The same without ids."""
    max_users: int
    max_bytes: int
    """The bounds of what is merged into it. Set by ``Batches``."""
    taken: set[str] | None = None
    """The ids in it, made when the second call comes: most batches stay single."""
    entry: Any = None
    """Set by the shell when a call waits in it: its entry in the timer wheel and in the line for slots."""
    queued: bool = False
    """Set by the shell: in line for a slot."""
    started: bool = False
    """Set by the shell: it has the place, and nobody leaves any more."""
    has_slot: bool = False
    """Set by the shell: the place is taken, and no request has taken it over yet."""
    shared: bool = False
    """Set by the shell: it is sent by a task of its own, for several callers."""

    def __repr__(self) -> str:
        return f"Batch(calls={len(self.calls)}, users={self.users}, size={self.size})"

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be merged into it."""
        return self.users >= self.max_users or self.size >= self.max_bytes

    @property
    def latest(self) -> float:
        """Return the deadline of the whole: the latest of its calls."""
        return max([call.deadline for call in self.calls], default=math.inf)

    def remove(self, call: Call) -> None:
        """Take the call out: its caller left before the batch did."""
        self.calls.remove(call)
        self.users -= len(call.users)
        self.size -= len(call.ids) + 1
        if self.taken is not None:
            self.taken.difference_update(call.users)


class Batches:
    """The open batches, by content: at most one each."""

    __slots__ = ("_batching", "_learned_bytes", "_learned_users", "_open", "_sizes")

    def __init__(self, batching: Batching, sizes: LearnedSizes) -> None:
        self._batching = batching
        self._sizes = sizes
        self._open: dict[Key, Batch] = {}
        # What was learned when the bounds of the open batches were set.
        self._learned_users = sizes.users
        self._learned_bytes = sizes.bytes

    def join(self, content: Key, call: Call) -> Batch | None:
        """Put the call into the open batch of its content. None where there is none that takes it.

        A batch that has no room for the call, or holds one of its users, is closed: it waits on without company.
        Across calls each user is a push of its own.
        """
        sizes = self._sizes
        if sizes.users != self._learned_users or sizes.bytes != self._learned_bytes:
            self._learned_users, self._learned_bytes = sizes.users, sizes.bytes
            for each in self._open.values():
                each.max_users, each.max_bytes = self._bounds(each.frame)
        batch = self._open.get(content)
        if batch is None:
            return None
        users = batch.users + call.unsettled
        size = batch.size + len(call.ids) + 1
        if users <= batch.max_users and size <= batch.max_bytes:
            taken = batch.taken
            if taken is None:
                taken = batch.taken = {user for other in batch.calls for user in other.users}
            taken.update(call.users)
            # Where fewer have come than the call has, one of them was here.
            if len(taken) >= users:
                batch.calls.append(call)
                batch.users = users
                batch.size = size
                return batch
        # At once: users of the refused call may be among ``taken``.
        del self._open[content]
        return None

    def create(self, content: Content, call: Call) -> Batch:
        """A batch that is open to nobody else: as for a call that can't wait for company."""
        frame = content.frame
        max_users, max_bytes = self._bounds(frame)
        return Batch(content, [call], len(call.users), frame + len(call.ids) + 1, frame, max_users, max_bytes)

    def open(self, batch: Batch) -> None:
        """Others of its content may join it from now on."""
        self._open[batch.content] = batch

    def close(self, batch: Batch) -> None:
        """Nobody joins it any more."""
        if self._open.get(batch.content) is batch:
            del self._open[batch.content]

    def _bounds(self, frame: int) -> tuple[int, int]:
        batching, sizes = self._batching, self._sizes
        if sizes.users is None:
            return batching.max_users, batching.max_bytes
        max_bytes = sizes.bytes_for(frame) or batching.max_bytes
        return min(batching.max_users, sizes.users), min(batching.max_bytes, max_bytes)
