"""Behavior of all claim stores, against real servers."""

import asyncio
import multiprocessing
import random
from collections.abc import Callable
from typing import Any

import pytest
from support.claim_puts import KEY, ONE, THREE, TWO, WEEK, get, key_of, put
from support.claim_stores import SHARED, place_of, store_at_place

from pushsdk.claims import Claim, ClaimStore, Put

# Seconds, short enough to wait for in real time, since servers have their own clocks.
SOON = 0.05

Another = Callable[[], ClaimStore]


def claim(number: int, record: bytes = b'{"v":1}') -> Claim:
    """Return a claim with this number as its token."""
    return Claim(f"{number:032x}", record)


KEYS = [key_of(number) for number in range(1000)]


async def scan(store: ClaimStore) -> dict[str, Claim]:
    """All claims of a store, by key."""
    return {key: claim async for key, claim in store.scan()}


async def expire() -> None:
    """Wait until claims stored with SOON have expired."""
    await asyncio.sleep(2 * SOON)


# -- one claim --------------------------------------------------------------------------------------------------------


async def test_get_returns_claims_unchanged(store: ClaimStore) -> None:
    assert await get(store) is None
    await put(store, ONE)
    assert await store.get([KEY, "1f" * 32, KEY]) == [ONE, None, ONE]
    await put(store, TWO, ONE, ttl=SOON)
    assert await get(store) in (TWO, None)
    await expire()
    assert await get(store) is None


async def test_stores_of_the_same_place_share_claims(another: Another) -> None:
    one, two = another(), another()
    assert await put(one, ONE) is None
    assert await put(two, TWO) == ONE
    assert await put(two, TWO, ONE) is None
    assert await put(one, THREE) == TWO


async def test_a_claim_outlives_the_store_object(another: Another) -> None:
    async with another() as first:
        await put(first, ONE)
    assert await put(another(), TWO) == ONE


async def test_a_claim_is_replaced_only_if_its_token_is_expected(store: ClaimStore) -> None:
    await put(store, ONE)
    assert await put(store, THREE, TWO) == ONE
    assert await put(store, TWO, THREE, ONE) is None
    assert await put(store, THREE) == TWO
    assert await put(store, THREE, ONE) == TWO, "the token was replaced with its claim"


async def test_a_put_with_the_stored_token_always_succeeds(store: ClaimStore) -> None:
    settled = Claim(ONE.token, b'{"v":"settled"}')
    for record in (ONE, ONE, settled, settled):
        assert await put(store, record) is None
        assert await put(store, TWO) == record


async def test_an_expired_claim_counts_as_absent(store: ClaimStore) -> None:
    await put(store, ONE, ttl=SOON)
    await expire()
    assert await scan(store) == {}
    assert await put(store, THREE) is None
    assert await put(store, TWO) == THREE


async def test_a_late_put_of_an_expired_owner_is_refused(store: ClaimStore) -> None:
    await put(store, ONE, ttl=SOON)
    await expire()
    await put(store, TWO)
    assert await put(store, THREE, ONE) == TWO
    assert await get(store) == TWO


async def test_a_replacement_restarts_the_expiry(store: ClaimStore) -> None:
    await put(store, ONE, ttl=SOON)
    await put(store, TWO, ONE)
    await expire()
    assert await put(store, THREE) == TWO


async def test_a_replacement_may_shorten_the_expiry(store: ClaimStore) -> None:
    await put(store, ONE)
    assert await put(store, TWO, ONE, ttl=SOON) is None
    await expire()
    assert await put(store, THREE) is None


@pytest.mark.parametrize("record", [b"{}", b'{"v":1,"x":"\xc3\xa9\\u0000\\n"}', b'["' + b"x" * 100_000 + b'"]'])
async def test_a_record_is_returned_unchanged(store: ClaimStore, record: bytes) -> None:
    await put(store, claim(1, record))
    assert await put(store, TWO) == claim(1, record)
    assert await put(store, claim(2, record), claim(1)) is None
    assert await get(store) == claim(2, record)
    assert await scan(store) == {KEY: claim(2, record)}


# -- many in a call ---------------------------------------------------------------------------------------------------


async def test_a_call_may_have_a_thousand_puts(store: ClaimStore) -> None:
    puts = [Put(key, claim(number)) for number, key in enumerate(KEYS)]
    assert await store.put(puts, WEEK) == [None] * 1000
    assert await store.get(KEYS) == [put.claim for put in puts]
    settled = [Put(put.key, claim(number + 1000), (put.claim.token,)) for number, put in enumerate(puts)]
    assert await store.put(settled, WEEK) == [None] * 1000
    assert await store.get(KEYS[::-1]) == [put.claim for put in settled[::-1]]


async def test_puts_of_one_call_are_refused_individually(store: ClaimStore) -> None:
    await store.put([Put(key, ONE) for key in KEYS[:3]], WEEK)
    keys = [KEYS[4], KEYS[1], KEYS[3], KEYS[0], KEYS[2]]
    puts = [Put(key, TWO, (ONE.token,) if key == KEYS[1] else ()) for key in keys]
    assert await store.put(puts, WEEK) == [None, None, None, ONE, ONE]
    assert await store.get(KEYS[:6]) == [ONE, TWO, ONE, TWO, TWO, None]


async def test_empty_calls_return_empty_lists(store: ClaimStore) -> None:
    assert (await store.put([], WEEK), await store.get([])) == ([], [])


async def test_exactly_one_of_many_concurrent_calls_stores_each_key(another: Another) -> None:
    stores = [another() for _ in range(4)]
    orders = [random.Random(i).sample(KEYS[:20], 20) for i in range(40)]
    calls = [[Put(key, claim(i)) for key in order] for i, order in enumerate(orders)]
    results = await asyncio.gather(*(stores[i % 4].put(puts, WEEK) for i, puts in enumerate(calls)))
    answers = [dict(zip(order, answer, strict=True)) for order, answer in zip(orders, results, strict=True)]
    for key in KEYS[:20]:
        (winner,) = (claim(i) for i in range(40) if answers[i][key] is None)
        assert [answer[key] for answer in answers if answer[key] is not None] == [winner] * 39


async def test_exactly_one_of_many_concurrent_puts_replaces_a_token(another: Another) -> None:
    stores = [another() for _ in range(4)]
    await put(stores[0], ONE)
    results = await asyncio.gather(*(put(stores[i % 4], claim(i + 2), ONE) for i in range(20)))
    assert results.count(None) == 1
    assert await get(stores[0]) == claim(results.index(None) + 2)


async def test_exactly_one_of_many_concurrent_puts_replaces_an_expired_claim(another: Another) -> None:
    stores = [another() for _ in range(4)]
    await put(stores[0], ONE, ttl=SOON)
    await expire()
    results = await asyncio.gather(*(put(stores[i % 4], claim(i + 2)) for i in range(40)))
    assert results.count(None) == 1
    assert [result for result in results if result is not None] == [claim(results.index(None) + 2)] * 39


async def test_any_sequence_of_puts_matches_a_dictionary(another: Another) -> None:
    stores, truth, dice = [another(), another()], dict[str, Claim](), random.Random(7)
    for number in range(150):
        puts = [
            Put(key, claim(number), dice.choice([(), *((record.token,) for record in truth.values())]))
            for key in dice.sample(KEYS[:4], dice.randint(1, 4))
        ]
        answers = []
        for item in puts:
            record = truth.get(item.key)
            is_refused = record is not None and not item.may_replace(record)
            answers.append(record if is_refused else None)
            truth.update({} if is_refused else {item.key: item.claim})
        assert await dice.choice(stores).put(puts, WEEK) == answers
    assert await scan(stores[0]) == truth


def _race(kind: str, arguments: dict[str, Any], number: int) -> list[int]:
    async def race() -> list[int]:
        order = random.Random(number).sample(range(200), 200)
        async with store_at_place(kind, arguments) as store:
            keys = []
            for first in range(0, 200, 50):
                share = order[first : first + 50]
                answers = await store.put([Put(KEYS[key], claim(number)) for key in share], WEEK)
                keys += [key for key, answer in zip(share, answers, strict=True) if answer is None]
        return keys

    return asyncio.run(race())


@pytest.mark.parametrize("kind", SHARED)
def test_concurrent_processes_divide_the_keys(kind: str, request: pytest.FixtureRequest) -> None:
    arguments = place_of(kind, request)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        keys = pool.starmap(_race, [(kind, arguments, number) for number in range(2)])
    assert sorted(key for keys in keys for key in keys) == list(range(200))


# -- listing -----------------------------------------------------------------------------------------------------------


async def test_scan_lists_every_claim_once(store: ClaimStore) -> None:
    keys = [*KEYS, *map(key_of, range(1 << 250, (1 << 250) + 1500))]
    for first in range(0, len(keys), 500):
        await store.put([Put(key, claim(2, key.encode())) for key in keys[first : first + 500]], WEEK)
    await put(store, ONE, claim(2), key=KEYS[5])
    pairs = [pair async for pair in store.scan()]
    assert dict(pairs) == {**{key: claim(2, key.encode()) for key in keys}, KEYS[5]: ONE}
    assert len(pairs) == len(keys)


async def test_scan_of_an_empty_store_is_empty(store: ClaimStore) -> None:
    assert await scan(store) == {}


async def test_scan_returns_the_old_or_the_new_version_of_a_changed_claim(store: ClaimStore) -> None:
    await store.put([Put(key, ONE) for key in KEYS[:100]], WEEK)
    versions = {}
    async for key, claim in store.scan():
        if not versions:
            await store.put([Put(other, TWO, (ONE.token,)) for other in KEYS[:100]], WEEK)
        versions[key] = claim
    assert versions.keys() == set(KEYS[:100])
    assert set(map(str, versions.values())) <= {str(ONE), str(TWO)}


# -- other ------------------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_leaves_the_store_consistent(store: ClaimStore) -> None:
    await put(store, ONE)
    for turns in range(4):
        task = asyncio.create_task(put(store, ONE, ONE))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await put(store, TWO) == ONE


async def test_a_store_can_be_closed_twice_and_unused(another: Another) -> None:
    unused, used = another(), another()
    await put(used, ONE)
    for _ in range(2):
        await used.aclose()
        await unused.aclose()


async def test_reprs_show_nothing_stored(store: ClaimStore) -> None:
    await put(store, ONE)
    text = f"{store!r} {store} {ONE!r} {Put(KEY, ONE, (ONE.token,))!r}"
    assert not any(secret in text for secret in (KEY, ONE.token, "unix:", "postgres@", '"v"'))
