"""Listing, counting and releasing claims."""

import asyncio
import time

import msgspec
import pytest
from support.claim_puts import KEY, ONE, WEEK, get, key_of, put
from support.virtual_time import virtual

from pushsdk import ConfigurationError, MobilePush, Receipt
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk.claims import Claim, ClaimStore, MemoryClaims, Put, count_claimed
from pushsdk.claims._operators import claimed, claimed_in, release
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

HELLO = MobilePush(title={"en": "Hello"})
CLAIMED, ACCEPTED, REJECTED, PENDING, UNKNOWN = (
    UserState.CLAIMED,
    UserState.ACCEPTED,
    UserState.REJECTED,
    UserState.PENDING,
    UserState.UNKNOWN,
)


def record(*states: UserState, age: float = 0.0) -> ClaimRecord:
    """Return a record of a send that was claimed ``age`` seconds ago."""
    users = UserStates(len(states))
    for place, state in enumerate(states):
        users.set(place, place + 1, UserStatus(state))
    return ClaimRecord(fingerprint="f" * 64, claimed_at=time.time() - age, users=msgspec.Raw(users.to_json()))


async def stored(store: ClaimStore, *records: ClaimRecord) -> None:
    """Store each record under its own key."""
    puts = [Put(key_of(number), Claim(f"{number:032x}", record.encode())) for number, record in enumerate(records)]
    await store.put(puts, WEEK)


async def test_the_claimed_users_of_each_send_are_counted(store: ClaimStore) -> None:
    await stored(store, record(CLAIMED), record(ACCEPTED, REJECTED, PENDING), record(ACCEPTED, CLAIMED, UNKNOWN))
    sends = {send.key: send.users for send in await claimed(store)}
    assert sends == {key_of(0): 1, key_of(2): 2}


async def test_old_claims_are_counted(store: ClaimStore) -> None:
    await stored(store, record(CLAIMED, age=10.0), record(CLAIMED, age=100.0), record(ACCEPTED, age=100.0))
    assert [await count_claimed(store, older_than=age) for age in (1.0, 50.0, 500.0)] == [2, 1, 0]


@pytest.mark.parametrize("wrong", [0, -1.0, "60", None])
async def test_an_invalid_older_than_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match="older_than"):
        await count_claimed(MemoryClaims(), older_than=wrong)


@pytest.mark.parametrize("data", [b"{}", b"hello", b"[" * 100_000, b'"\xff"', b"null"])
async def test_an_unreadable_record_is_not_claimed(data: bytes) -> None:
    store = MemoryClaims()
    await put(store, Claim(ONE.token, data))
    assert await claimed(store) == []


async def test_a_release_opens_the_claimed_users_and_leaves_the_others(store: ClaimStore) -> None:
    await stored(store, record(ACCEPTED, CLAIMED, REJECTED, CLAIMED), record(CLAIMED))
    sends = await claimed(store)
    assert await release(store, [send for send in sends if send.users == 2]) == []
    claim = await get(store, key_of(0))
    assert claim is not None
    assert claim.record.count(b"PENDING") == 2
    assert b"CLAIMED" not in claim.record
    assert b"ACCEPTED" in claim.record
    assert b"REJECTED" in claim.record
    assert [send.key for send in await claimed(store)] == [key_of(1)]


async def test_more_than_a_page_of_sends_is_released(store: ClaimStore) -> None:
    sends = [claimed_in(key_of(number), Claim(ONE.token, record(CLAIMED).encode())) for number in range(1001)]
    assert await release(store, [send for send in sends if send]) == []
    assert await claimed(store) == []
    assert len([key async for key, _ in store.scan()]) == 1001


async def test_a_release_extends_the_expiry() -> None:
    store = MemoryClaims()
    await put(store, Claim(ONE.token, record(CLAIMED, ACCEPTED).encode()), ttl=300 * 86400.0)
    before = store._claims[KEY][1]
    await release(store, await claimed(store))
    assert store._claims[KEY][1] > before


@virtual
async def test_a_send_settled_before_its_release_stays_settled() -> None:
    service, store = FakeService(Fault.delay(1.0, first=1)), MemoryClaims()
    async with service.client(claims=store) as client:
        sending = asyncio.create_task(client.send("user-1", HELLO, idempotency_key="job"))
        await asyncio.sleep(0.5)
        sends = await claimed(store)
        await sending
        assert await release(store, sends) == sends != []
        assert (await client.send("user-1", HELLO, idempotency_key="job")).already_accepted == 1
    assert service.users() == {"user-1": 1}


@virtual
async def test_a_released_send_is_sent_by_the_next_delivery() -> None:
    service, store = FakeService(Fault.hang(first=1)), MemoryClaims()
    async with service.client(claims=store) as client, service.client(claims=store) as other:
        sending = asyncio.create_task(client.send("user-1", HELLO, idempotency_key="job"))
        await asyncio.sleep(0.5)
        assert await release(store, await claimed(store)) == []
        assert isinstance(await other.send("user-1", HELLO, idempotency_key="job"), Receipt)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert (await other.send("user-1", HELLO, idempotency_key="job")).already_accepted == 1
    assert len(service.requests) == 2
