"""Listing, counting and releasing claims."""

import time

import pytest
from support.claim_puts import ONE, WEEK, key_of, put

from pushsdk import ConfigurationError
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk.claims import Claim, MemoryClaims, Put, count_claimed
from pushsdk.claims._operators import claimed, settle

PENDING, CLAIMED, ACCEPTED, REJECTED, UNKNOWN = UserState


def record(*states, age=0.0):
    """Return a record of a send that was claimed ``age`` seconds ago."""
    users = UserStates(len(states))
    for place, state in enumerate(states):
        users.set(place, place + 1, UserStatus(state))
    return ClaimRecord(fingerprint="f" * 64, claimed_at=time.time() - age, users=users.stored())


async def stored(store, *records):
    """Store each record under its own key."""
    puts = [Put(key_of(number), Claim(f"{number:032x}", record.encode())) for number, record in enumerate(records)]
    for first in range(0, len(puts), 1000):
        await store.put(puts[first : first + 1000], WEEK)


async def test_old_claims_are_counted():
    store = MemoryClaims()
    await stored(store, record(CLAIMED, age=10.0), record(UNKNOWN, age=100.0), record(ACCEPTED, PENDING, age=100.0))
    assert [await count_claimed(store, older_than=age) for age in (1.0, 50.0, 500.0)] == [2, 1, 0]
    for wrong in (0, "60"):
        with pytest.raises(ConfigurationError, match="older_than"):
            await count_claimed(store, older_than=wrong)


@pytest.mark.parametrize("data", [b"hello", b"[" * 100_000, b'"\xff"', b"null"])
async def test_an_unreadable_record_is_not_claimed(data):
    store = MemoryClaims()
    await put(store, Claim(ONE.token, data))
    assert await claimed(store) == []


@pytest.mark.parametrize("state", [PENDING, ACCEPTED])
async def test_claimed_users_are_released_or_accepted_and_the_others_stay(store, state):
    await stored(store, record(ACCEPTED, CLAIMED, REJECTED, UNKNOWN), record(CLAIMED), record(REJECTED))
    first, second = sorted(await claimed(store), key=lambda send: send.key)
    assert [(send.key, send.users) for send in (first, second)] == [(key_of(0), 2), (key_of(1), 1)]
    assert await settle(store, [first], state) == [first]
    (claim,) = await store.get([key_of(0)])
    states = ClaimRecord.decode(claim.record).states()
    assert [states.at(place).state for place in range(4)] == [ACCEPTED, state, REJECTED, state]
    assert [send.key for send in await claimed(store)] == [key_of(1)]


async def test_more_than_a_page_of_sends_is_released():
    store = MemoryClaims()
    await stored(store, *[record(CLAIMED)] * 1001)
    await settle(store, await claimed(store))
    assert await claimed(store) == []


async def test_a_release_never_shortens_the_time_that_accepted_users_are_remembered():
    class Noting(MemoryClaims):
        async def put(self, puts, ttl):
            ttls.append(ttl)
            return await super().put(puts, ttl)

    store = Noting()
    ttls = []
    await stored(store, record(CLAIMED, ACCEPTED))
    await settle(store, await claimed(store))
    assert ttls == [WEEK, 366 * 86400.0], "the longest that there is"
