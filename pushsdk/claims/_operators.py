"""Operator functions: find the sends with claimed users, and settle or release these users."""

import secrets
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.kinds import check_seconds
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk.claims.store import MAX_CLAIM_TTL, PAGE, Claim, ClaimStore, Put

# Later deliveries report both as UNKNOWN, and send nothing.
_UNSETTLED = (UserState.CLAIMED, UserState.UNKNOWN)


class ClaimedSend(NamedTuple):
    """A send with claimed users: it is in flight, its process died, or its outcome is unknown."""

    key: str
    since: float
    """The Unix time of the first claim."""
    users: int
    """The number of claimed users."""
    token: str
    record: ClaimRecord

    def settled(self, state: UserState) -> bytes:
        """Return the record once its claimed users have this state."""
        states = self.record.states()
        for start, stop, status in list(states.runs()):
            if status.state in _UNSETTLED:
                states.set(start, stop, UserStatus(state))
        return msgspec.structs.replace(self.record, users=states.stored()).encode()


def claimed_in(key: str, claim: Claim) -> ClaimedSend | None:
    """Return the claimed users in a claim, None without any or if the record is not a ClaimRecord."""
    try:
        record = ClaimRecord.decode(claim.record)
        states = record.states()
    except (ValueError, RecursionError):
        return None
    users = sum(map(states.count, _UNSETTLED))
    return ClaimedSend(key, record.claimed_at, users, claim.token, record) if users else None


async def claimed(store: ClaimStore, *, older_than: float = 0.0) -> list[ClaimedSend]:
    """Return the sends with users claimed more than ``older_than`` seconds ago, the newest last."""
    sends: dict[str, ClaimedSend] = {}  # Redis may list a key twice
    async for key, claim in store.scan():
        send = claimed_in(key, claim)
        # A clock that was ahead does not hide a claim.
        if send is not None and max(0.0, time.time() - send.since) >= older_than:
            sends[key] = send
    return sorted(sends.values(), key=lambda send: send.since)


async def count_claimed(store: ClaimStore, *, older_than: float) -> int:
    """Return the number of sends with an idempotency key that were claimed over ``older_than`` seconds ago.

    If ``older_than`` exceeds your longest timeout, these sends' processes died or their outcomes are unknown. Reads
    the whole store. Raises ConfigurationError if the store can't list its claims.
    """
    return len(await claimed(store, older_than=check_seconds("older_than", older_than)))


async def settle(
    store: ClaimStore, sends: Sequence[ClaimedSend], state: UserState = UserState.PENDING
) -> list[ClaimedSend]:
    """Give these sends' claimed users this state. Return the sends without those that changed meanwhile.

    When a send is delivered again, PENDING users are pushed to; some may receive the push a second time.
    """
    done = []
    for first in range(0, len(sends), PAGE):
        page = sends[first : first + PAGE]
        # Every write changes the token, so the put is refused if the send was settled meanwhile.
        puts = [Put(send.key, Claim(secrets.token_hex(16), send.settled(state)), (send.token,)) for send in page]
        # The store ttl is unknown here; a shorter ttl would forget accepted users too early.
        answers = await store.put(puts, MAX_CLAIM_TTL)
        done += [send for send, answer in zip(page, answers, strict=True) if answer is None]
    return done
