"""Claims as an operator sees them: which sends have claimed users, since when, and how those are opened again.

The one place besides the client that reads records.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec

from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.policy import check_seconds
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._public import set_public_module
from pushsdk.claims.store import LONGEST, PAGE, Claim, ClaimStore, Put

__all__ = ["ClaimedSend", "claimed", "claimed_in", "count_claimed", "release"]

# Other deliveries report both as UNKNOWN, and send nothing.
_HELD = (UserState.CLAIMED, UserState.UNKNOWN)


class ClaimedSend(NamedTuple):
    """A record with claimed users: they are in flight, or their process died, or nobody knows how the send ended."""

    key: str
    since: float
    """The Unix time of the first claim."""
    users: int
    """The number of claimed users."""
    token: str
    opened: bytes
    """The record with the claimed users open."""


def claimed_in(key: str, claim: Claim) -> ClaimedSend | None:
    """Return the claimed users of a record, None if there are none or it is no record of ours."""
    try:
        record = ClaimRecord.decode(claim.record)
        states = record.states()
    except (ValueError, RecursionError):
        return None
    users = 0
    for start, stop, status in list(states.runs()):
        if status.state in _HELD:
            users += stop - start
            states.set(start, stop, UserStatus(UserState.PENDING))
    if not users:
        return None
    opened = msgspec.structs.replace(record, users=msgspec.Raw(states.to_json()))
    return ClaimedSend(key, record.claimed_at, users, claim.token, opened.encode())


async def claimed(store: ClaimStore, *, older_than: float = 0.0) -> AsyncIterator[ClaimedSend]:
    """Iterate over the sends whose users were claimed more than so many seconds ago, in no particular order."""
    async for key, claim in store.scan():
        send = claimed_in(key, claim)
        if send is not None and send.since <= time.time() - older_than:
            yield send


async def count_claimed(store: ClaimStore, *, older_than: float) -> int:
    """Return the number of sends with an idempotency key that were claimed over ``older_than`` seconds ago.

    With more seconds than your longest timeout, these are sends whose process died or whose outcome is unknown. Reads
    the whole store. Raises ConfigurationError if the store has no way to list its claims.
    """
    seconds = check_seconds("older_than", older_than)
    # A store may list a key twice.
    return len({send.key async for send in claimed(store, older_than=seconds)})


async def release(store: ClaimStore, sends: Sequence[ClaimedSend]) -> list[ClaimedSend]:
    """Open the claimed users of these sends; return the sends whose records changed meanwhile, which stay as they are.

    The next delivery of an opened send pushes to these users, for some of them perhaps a second time.
    """
    changed = []
    for first in range(0, len(sends), PAGE):
        page = sends[first : first + PAGE]
        # Every change of a record gives it another token: a record that was settled after the look is refused.
        puts = [Put(send.key, Claim(secrets.token_hex(16), send.opened), (send.token,)) for send in page]
        # Kept for the longest time: what else the record knows must not be forgotten earlier than before.
        answers = await store.put(puts, LONGEST)
        changed += [send for send, answer in zip(page, answers, strict=True) if answer is not None]
    return changed


set_public_module(__name__, "pushsdk.claims")
