"""Merging concurrent sends: calls, and the batches they share.

Decides and counts; the shell awaits. No order is promised between calls.
"""

from typing import Any, Self

import msgspec

from pushsdk._core.body import EncodedIds, join_ids
from pushsdk._core.learned_limit import LearnedLimit
from pushsdk._core.outcome import Guarded, GuardedValue, Verdict, mutable
from pushsdk._core.policy import Batching, Options

# The bytes in a push body around its parts: {"userIds":[],"message":,"customFields":}.
FRAME = 48


# It keeps its hash: a lone call is looked up, put and removed.
class Content(GuardedValue, frozen=True, cache_hash=True):
    """Merge key: calls with equal bytes, options and Api-Key may share a request."""

    message: bytes
    custom_fields: bytes | None
    options: Options
    api_key: Any = None
    """A Secret, or why the callable gave none; None before it is asked."""


# Without the cycle collector: it would traverse tens of thousands of queued calls again and again. So a cycle through
# ``Call.batch`` has to be broken by hand: a batch that has ended drops its calls.
@mutable
class Call(Guarded, msgspec.Struct, eq=False, gc=False):
    """One ``send()`` or ``submit()``: its users, and their verdicts so far."""

    users: tuple[str, ...]
    ids: EncodedIds
    deadline: float
    """On the client's clock; infinite if there is none."""
    unsettled: int
    """Number of users without a verdict. Counted down by ``settle``."""
    duplicates: int = 0
    """Number of duplicate ids that the caller passed."""
    ask: Any = None
    """A call to the api_key callable; None for a fixed key. Unset by ``settle``: its context may refer to the call."""
    parts: tuple[tuple[tuple[str, ...], Verdict], ...] = ()
    """The verdicts so far, each with its users: mostly one for all. Added by ``settle``."""
    abandoned: bool = False
    """True once the caller has stopped waiting. Set by the shell."""
    batch: "Batch | None" = None
    """Set by ``Batches``."""
    future: Any = None
    """Future of ``Receipt | None`` that the caller waits for; None means: look at the call. Set by the shell."""
    caller: Any = None
    """The observer's record for the caller. Set by the shell if there is an observer."""
    claims: Any = None
    """The call's entry in a claim store, if it has an idempotency key. Set by the shell."""

    @property
    def call(self) -> Self:
        """The call, as each part of one has it."""
        return self

    def settle(self, users: tuple[str, ...], verdict: Verdict, receipt: object = None) -> bool:
        """Record the verdict on these users, and wake the caller if no user is left.

        Return True if that has stopped waiting. ``receipt`` is the result for a caller with one user.
        """
        count = len(users)
        self.unsettled -= count
        self.parts += ((users, verdict),)
        if self.unsettled:
            return False
        self.ask, future = None, self.future
        if future is not None and not future.done():
            if count > 1 or self.duplicates or len(self.parts) > 1:
                receipt = None
            future.set_result(receipt)
        return self.abandoned


@mutable
class Batch(Guarded, msgspec.Struct, eq=False, gc=False):
    """Calls with equal content that share a request."""

    content: Content
    units: list[Call]
    """The calls; none once all are settled, or have left."""
    users: int
    """Number of users. Counted by ``Batches.join`` and ``remove``."""
    size: int
    """Body bytes. Counted by ``Batches.join`` and ``remove``."""
    frame: int
    """Body bytes that are not ids."""
    context: Any
    """The context variables from the call that opened the batch."""
    is_waiting: bool = True
    """True until it is in flight, or has ended: until then calls join and leave. Unset by ``Batches.close``."""
    taken: set[str] | None = None
    """The ids in the batch. Created when a second call joins: most batches hold one call."""
    entry: Any = None
    """Entry in the timer wheel and in the queue for slots. Set by the shell while calls wait."""
    requests: Any = ()
    """A list: the requests in flight or about to be sent, also between their attempts. Set by the shell."""
    task: Any = None
    """The task that sends the batch, if it needs one. Set by the shell."""
    splitters: tuple[Any, ...] = ()
    """The splitters, in which the users of a rejected request wait for their next one. Set by the shell."""
    has_slot: bool = False
    """True while the batch holds a slot that no request has taken over. Set by the shell."""
    # With ``users``, ``units`` and the next two, a batch is the part that a request for all its calls carries.
    history: Any = ()

    @property
    def ids(self) -> EncodedIds:
        """The calls' encoded ids."""
        return join_ids([call.ids for call in self.units])

    def remove(self, call: Call) -> None:
        """Remove a call that leaves before the batch is sent."""
        self.units.remove(call)
        self.users -= len(call.users)
        self.size -= len(call.ids) + 1
        if self.taken is not None:
            self.taken.difference_update(call.users)


class Batches:
    """The batches that calls may join, by content: at most one each."""

    def __init__(self, batching: Batching, learned: LearnedLimit) -> None:
        self._max_users, self._max_bytes = batching.max_users, batching.max_bytes
        self._learned = learned
        self._joinable: dict[Content, Batch] = {}

    def join(self, content: Content, call: Call) -> Batch | None:
        """Add the call to the joinable batch with its content. Return None if there is none that takes the call.

        A batch without room for the call, or with one of the call's users, is closed for good. Across calls each
        occurrence of a user is a push.
        """
        joinable = self._joinable.get(content)
        if joinable is None:
            return None
        users = joinable.users + call.unsettled
        size = joinable.size + len(call.ids) + 1
        if users <= self._max_users and users <= self._learned.users and size <= self._max_bytes:
            taken = joinable.taken
            if taken is None:
                taken = joinable.taken = {user for other in joinable.units for user in other.users}
            for user in call.users:  # mostly one: cheaper than ``update``
                taken.add(user)
            # Fewer distinct users than users: a user in the call is in the batch already.
            if len(taken) >= users:
                joinable.units.append(call)
                joinable.users = users
                joinable.size = size
                call.batch = joinable
                return joinable
        # Close the batch now: ``taken`` may hold users from the refused call.
        del self._joinable[content]
        return None

    def is_full(self, batch: Batch) -> bool:
        """Return True if no further call fits into the batch."""
        return batch.users >= min(self._max_users, self._learned.users) or batch.size >= self._max_bytes

    def open(self, content: Content, call: Call, context: object = None, is_joinable: bool = True) -> Batch:
        """Return a new batch with this call and its context. Other calls may join if ``is_joinable``."""
        frame = FRAME + len(content.message) + len(content.custom_fields or b"")
        batch = call.batch = Batch(content, [call], len(call.users), frame + len(call.ids) + 1, frame, context)
        if is_joinable:
            self._joinable[content] = batch
        return batch

    def close(self, batch: Batch) -> None:
        """Let no further call join or leave."""
        batch.is_waiting = False
        if self._joinable.get(batch.content) is batch:
            del self._joinable[batch.content]
