"""Which concurrent sends travel together: calls, the open batches that they join, and the backlog's bounds.

Decides and counts; the shell awaits. No order is promised between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from pushsdk._core.outcome import Failure, Verdict
from pushsdk._core.policy import Batching, Limits, RetryPolicy, Timeout
from pushsdk._core.splitting import LearnedSizes

__all__ = ["Backlog", "Batch", "Batches", "Call", "Content"]

# What a push body has around its parts: {"userIds":[],"message":,"customFields":}.
FRAME = 48


class Content(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """What makes sends mergeable: bytes that are equal, and the same idea of what may be repeated.

    ``key`` compares equal where all of it does.
    """

    key: Hashable
    message: bytes
    custom_fields: bytes | None
    collapsible: bool
    policy: RetryPolicy
    timeout: Timeout

    @property
    def size(self) -> int:
        """Bytes of a request's body that are not ids, nor its frame."""
        return len(self.message) + len(self.custom_fields or b"")

    def __repr__(self) -> str:
        return f"Content(message bytes={len(self.message)})"


class Call(msgspec.Struct, eq=False):
    """One ``send()``: its users, and what became of them so far."""

    users: tuple[str, ...]
    ids: bytes
    """The ids as JSON, without the brackets: joined by commas they are a request's ``userIds``."""
    deadline: float
    """On the client's clock; infinite where there is none."""
    left: int
    """Users without a verdict yet. Counted down by ``settle``."""
    parts: list[tuple[tuple[str, ...], Verdict]] = []
    """The verdicts, with the users that each is about. Added by ``settle``."""
    gone: bool = False
    """Set by the shell when the caller stopped waiting."""
    waiter: Any = None
    """What the shell wakes when there is something to say."""

    def __repr__(self) -> str:
        return f"Call(users={len(self.users)}, left={self.left})"

    def expire(self, reason: Failure) -> None:
        """Its deadline has come, or the client ends it: the caller is told, and leaves."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(reason)

    def settle(self, users: tuple[str, ...], verdict: Verdict) -> bool:
        """These users have their verdict; True when they were the last."""
        self.parts.append((users, verdict))
        self.left -= len(users)
        return self.left == 0


class Batch(msgspec.Struct, eq=False, gc=False):
    """Calls of equal content on their way to one request."""

    content: Content
    size: int
    """Bytes of the request's body so far. Counted by ``add`` and ``remove``."""
    frame: int
    """The same without ids."""
    calls: list[Call] = []
    users: int = 0
    """Users so far. Counted by ``add`` and ``remove``."""
    queued: bool = False
    """Set by the shell: in line for a place on the wire."""
    started: bool = False
    """Set by the shell: it has the place, and nobody leaves any more."""
    has_slot: bool = False
    """Set by the shell: the place is taken, and no request has taken it over yet."""
    shared: bool = False
    """Set by the shell: it is sent by a task of its own, for several callers."""
    taken: set[str] | None = None
    """The ids in it, made when the second call comes: most batches stay single."""

    @classmethod
    def of(cls, content: Content) -> Batch:
        """An empty batch."""
        frame = FRAME + content.size
        return cls(content, frame, frame)

    def __repr__(self) -> str:
        return f"Batch(calls={len(self.calls)}, users={self.users}, size={self.size})"

    def add(self, call: Call) -> None:
        """Take the call in."""
        if self.calls or self.taken is not None:
            self._ids().update(call.users)
        self.calls.append(call)
        self.users += len(call.users)
        self.size += len(call.ids) + 1

    def remove(self, call: Call) -> None:
        """Take the call out: its caller left before the batch did."""
        self.calls.remove(call)
        self.users -= len(call.users)
        self.size -= len(call.ids) + 1
        if self.taken is not None:
            self.taken.difference_update(call.users)

    def holds(self, users: tuple[str, ...]) -> bool:
        """Whether one of these users is in it already: across calls each is a push of its own."""
        return not self._ids().isdisjoint(users)

    def _ids(self) -> set[str]:
        if self.taken is None:
            self.taken = {user for call in self.calls for user in call.users}
        return self.taken


class Batches:
    """The open batches, by content: at most one each."""

    __slots__ = ("_batching", "_learned", "_max_bytes", "_max_users", "_open", "_sizes")

    def __init__(self, batching: Batching, sizes: LearnedSizes) -> None:
        self._batching = batching
        self._sizes = sizes
        self._open: dict[Hashable, Batch] = {}
        # The bounds of now, and what was learned when they were set.
        self._max_users = batching.max_users
        self._max_bytes = batching.max_bytes
        self._learned: tuple[int | None, int | None] = (None, None)

    def join(self, content: Content, call: Call) -> tuple[Batch, bool]:
        """Put the call into the open batch of its content, or into a new one; the second is whether it is new.

        A batch that has no room for the call, or holds one of its users, is closed: it waits on without company.
        """
        sizes = self._sizes
        if (sizes.users, sizes.bytes) != self._learned:
            self._learn(sizes)
        batch = self._open.get(content.key)
        if batch is not None and self._has_room(batch, call):
            batch.add(call)
            return batch, False
        batch = self._open[content.key] = Batch.of(content)
        batch.add(call)
        return batch, True

    def alone(self, content: Content, call: Call) -> Batch:
        """A batch of its own for a call that can't wait for company."""
        batch = Batch.of(content)
        batch.add(call)
        return batch

    def is_full(self, batch: Batch) -> bool:
        """Whether nothing more can be merged into it."""
        return batch.users >= self._max_users or batch.size >= self._limit_of(batch)

    def close(self, batch: Batch) -> None:
        """Nobody joins it any more."""
        if self._open.get(batch.content.key) is batch:
            del self._open[batch.content.key]

    def _has_room(self, batch: Batch, call: Call) -> bool:
        return (
            batch.users + len(call.users) <= self._max_users
            and batch.size + len(call.ids) + 1 <= self._limit_of(batch)
            and not batch.holds(call.users)
        )

    def _limit_of(self, batch: Batch) -> int:
        if self._learned[1] is None or self._sizes.bytes_for(batch.frame) is not None:
            return self._max_bytes
        return self._batching.max_bytes

    def _learn(self, sizes: LearnedSizes) -> None:
        self._learned = (sizes.users, sizes.bytes)
        self._max_users = min(self._batching.max_users, sizes.users or self._batching.max_users)
        self._max_bytes = min(self._batching.max_bytes, sizes.bytes or self._batching.max_bytes)


class Backlog:
    """What waits for a place on the wire, counted against the limits."""

    __slots__ = ("_limits", "bytes", "users", "when_room")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        #: Set by the shell: called after something left.
        self.when_room: Callable[[], None] | None = None
        #: What waits now. Counted by ``enter`` and ``leave``.
        self.users = 0
        self.bytes = 0

    def fits(self, users: int, size: int) -> bool:
        """Whether so much more may wait. A call larger than the limits waits where nothing else does."""
        return not self.users or (
            self.users + users <= self._limits.queued_users and self.bytes + size <= self._limits.queued_bytes
        )

    def enter(self, users: int, size: int) -> None:
        """So much waits now."""
        self.users += users
        self.bytes += size

    def leave(self, users: int, size: int, *, quietly: bool = False) -> None:
        """So much has left: on the wire, or given up (or, ``quietly``, is about to be counted again)."""
        self.users -= users
        self.bytes -= size
        if self.when_room is not None and not quietly:
            self.when_room()
