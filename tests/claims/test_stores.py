"""What every claim store does: one test for all of them, against real servers."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Callable
from typing import Any

import pytest
from support.claim_jobs import SHARED, arguments_of, store_of
from support.claim_puts import KEY, ONE, THREE, TWO, WEEK, get, key_of, put

from pushsdk.claims import Claim, ClaimStore, Put

# Seconds. Short enough to wait for, by the clocks of servers that no test can turn.
SOON = 0.05

Another = Callable[[], ClaimStore]


def claim(number: int, record: bytes = b'{"v":1}') -> Claim:
    """A claim by owner number so and so."""
    return Claim(f"{number:032x}", record)


KEYS = [key_of(number) for number in range(1000)]


async def scan(store: ClaimStore) -> dict[str, Claim]:
    """All claims of a store, by key."""
    return {key: claim async for key, claim in store.scan()}


async def expire() -> None:
    """What was stored until SOON has expired."""
    await asyncio.sleep(2 * SOON)


# -- one claim --------------------------------------------------------------------------------------------------------


async def test_the_first_claim_is_stored_and_the_second_is_told_of_it(store: ClaimStore) -> None:
    assert await put(store, ONE) is None
    assert await put(store, TWO) == ONE
    assert await put(store, THREE) == ONE


async def test_a_claim_is_read_without_being_changed(store: ClaimStore) -> None:
    assert await get(store) is None
    await put(store, ONE)
    assert await store.get([KEY, "1f" * 32, KEY]) == [ONE, None, ONE]
    await put(store, TWO, ONE, ttl=SOON)
    assert await get(store) in (TWO, None)
    await expire()
    assert await get(store) is None


async def test_keys_are_apart(store: ClaimStore) -> None:
    assert await put(store, ONE) is None
    assert await put(store, TWO, key="1f" * 32) is None
    assert await put(store, THREE) == ONE


async def test_what_one_store_wrote_another_of_the_same_place_reads(another: Another) -> None:
    one, two = another(), another()
    assert await put(one, ONE) is None
    assert await put(two, TWO) == ONE
    assert await put(two, TWO, ONE) is None
    assert await put(one, THREE) == TWO


async def test_a_claim_outlives_the_store_that_made_it(another: Another) -> None:
    async with another() as first:
        await put(first, ONE)
    assert await put(another(), TWO) == ONE


async def test_a_claim_is_replaced_by_an_expected_token_only(store: ClaimStore) -> None:
    await put(store, ONE)
    assert await put(store, THREE, TWO) == ONE
    assert await put(store, TWO, THREE, ONE) is None
    assert await put(store, THREE) == TWO
    assert await put(store, THREE, ONE) == TWO, "the token has gone with its claim"


async def test_the_same_token_again_is_stored_as_often_as_it_comes(store: ClaimStore) -> None:
    settled = Claim(ONE.token, b'{"v":"settled"}')
    for each in (ONE, ONE, settled, settled):
        assert await put(store, each) is None
        assert await put(store, TWO) == each


async def test_an_expected_token_whose_claim_is_gone_stores_the_claim(store: ClaimStore) -> None:
    assert await put(store, TWO, ONE) is None
    assert await put(store, THREE) == TWO


async def test_an_expired_claim_is_as_good_as_none(store: ClaimStore) -> None:
    await put(store, ONE, ttl=SOON)
    await expire()
    assert await scan(store) == {}
    assert await put(store, THREE) is None
    assert await put(store, TWO) == THREE


async def test_a_late_owner_touches_nothing_of_who_came_after(store: ClaimStore) -> None:
    await put(store, ONE, ttl=SOON)
    await expire()
    await put(store, TWO)
    assert await put(store, THREE, ONE) == TWO
    assert await get(store) == TWO


async def test_a_replacement_begins_the_time_anew(store: ClaimStore) -> None:
    await put(store, ONE, ttl=SOON)
    await put(store, TWO, ONE)
    await expire()
    assert await put(store, THREE) == TWO


async def test_a_replacement_may_shorten_the_time(store: ClaimStore) -> None:
    await put(store, ONE)
    assert await put(store, TWO, ONE, ttl=SOON) is None
    await expire()
    assert await put(store, THREE) is None


@pytest.mark.parametrize("record", [b"{}", b'{"v":1,"x":"\xc3\xa9\\u0000\\n"}', b'["' + b"x" * 100_000 + b'"]'])
async def test_a_record_comes_back_as_it_was(store: ClaimStore, record: bytes) -> None:
    await put(store, claim(1, record))
    assert await put(store, TWO) == claim(1, record)
    assert await put(store, claim(2, record), claim(1)) is None
    assert await get(store) == claim(2, record)
    assert await scan(store) == {KEY: claim(2, record)}


# -- many in a call ---------------------------------------------------------------------------------------------------


async def test_a_thousand_of_a_call_are_all_stored_and_read(store: ClaimStore) -> None:
    puts = [Put(key, claim(number)) for number, key in enumerate(KEYS)]
    assert await store.put(puts, WEEK) == [None] * 1000
    assert await store.get(KEYS) == [put.claim for put in puts]
    settled = [Put(put.key, claim(number + 1000), (put.claim.token,)) for number, put in enumerate(puts)]
    assert await store.put(settled, WEEK) == [None] * 1000
    assert await store.get(KEYS[::-1]) == [put.claim for put in settled[::-1]]


async def test_of_a_call_those_are_refused_that_another_holds(store: ClaimStore) -> None:
    await store.put([Put(key, ONE) for key in KEYS[:3]], WEEK)
    keys = [KEYS[4], KEYS[1], KEYS[3], KEYS[0], KEYS[2]]
    puts = [Put(key, TWO, (ONE.token,) if key == KEYS[1] else ()) for key in keys]
    assert await store.put(puts, WEEK) == [None, None, None, ONE, ONE]
    assert await store.get(KEYS[:6]) == [ONE, TWO, ONE, TWO, TWO, None]


async def test_nothing_is_put_and_nothing_is_read(store: ClaimStore) -> None:
    assert (await store.put([], WEEK), await store.get([])) == ([], [])


async def test_of_many_calls_at_once_one_stores_each_key(another: Another) -> None:
    stores = [another() for _ in range(4)]
    orders = [random.Random(i).sample(KEYS[:20], 20) for i in range(40)]
    calls = [[Put(key, claim(i)) for key in order] for i, order in enumerate(orders)]
    told = await asyncio.gather(*(stores[i % 4].put(puts, WEEK) for i, puts in enumerate(calls)))
    answers = [dict(zip(order, answer, strict=True)) for order, answer in zip(orders, told, strict=True)]
    for key in KEYS[:20]:
        (winner,) = (claim(i) for i in range(40) if answers[i][key] is None)
        assert [each[key] for each in answers if each[key] is not None] == [winner] * 39


async def test_of_many_that_expect_the_same_token_one_replaces_it(another: Another) -> None:
    stores = [another() for _ in range(4)]
    await put(stores[0], ONE)
    told = await asyncio.gather(*(put(stores[i % 4], claim(i + 2), ONE) for i in range(20)))
    assert told.count(None) == 1
    assert await get(stores[0]) == claim(told.index(None) + 2)


async def test_of_many_that_take_over_an_expired_claim_one_does(another: Another) -> None:
    stores = [another() for _ in range(4)]
    await put(stores[0], ONE, ttl=SOON)
    await expire()
    told = await asyncio.gather(*(put(stores[i % 4], claim(i + 2)) for i in range(40)))
    assert told.count(None) == 1
    assert [each for each in told if each is not None] == [claim(told.index(None) + 2)] * 39


async def test_any_sequence_does_as_a_dictionary_would(another: Another) -> None:
    stores, truth, dice = [another(), another()], dict[str, Claim](), random.Random(7)
    for number in range(150):
        puts = [
            Put(key, claim(number), dice.choice([(), *((each.token,) for each in truth.values())]))
            for key in dice.sample(KEYS[:4], dice.randint(1, 4))
        ]
        answers = []
        for each in puts:
            there = truth.get(each.key)
            is_refused = there is not None and not each.may_replace(there)
            answers.append(there if is_refused else None)
            truth.update({} if is_refused else {each.key: each.claim})
        assert await dice.choice(stores).put(puts, WEEK) == answers
    assert await scan(stores[0]) == truth


def _race(kind: str, arguments: dict[str, Any], number: int) -> list[int]:
    async def race() -> list[int]:
        order = random.Random(number).sample(range(200), 200)
        async with store_of(kind, arguments) as store:
            taken = []
            for first in range(0, 200, 50):
                some = order[first : first + 50]
                answers = await store.put([Put(KEYS[each], claim(number)) for each in some], WEEK)
                taken += [each for each, answer in zip(some, answers, strict=True) if answer is None]
        return taken

    return asyncio.run(race())


@pytest.mark.parametrize("kind", SHARED)
def test_processes_that_begin_at_the_same_time_share_the_keys(kind: str, request: pytest.FixtureRequest) -> None:
    arguments = arguments_of(kind, request)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        taken = pool.starmap(_race, [(kind, arguments, number) for number in range(2)])
    assert sorted(each for some in taken for each in some) == list(range(200))


# -- listing -----------------------------------------------------------------------------------------------------------


async def test_what_is_held_comes_in_pages_and_nothing_twice(store: ClaimStore) -> None:
    keys = [*KEYS, *map(key_of, range(1 << 250, (1 << 250) + 1500))]
    for first in range(0, len(keys), 500):
        await store.put([Put(key, claim(2, key.encode())) for key in keys[first : first + 500]], WEEK)
    await put(store, ONE, claim(2), key=KEYS[5])
    pairs = [pair async for pair in store.scan()]
    assert dict(pairs) == {**{key: claim(2, key.encode()) for key in keys}, KEYS[5]: ONE}
    assert len(pairs) == len(keys)


async def test_where_nothing_is_held_nothing_comes(store: ClaimStore) -> None:
    assert await scan(store) == {}


async def test_what_changes_while_the_held_are_read_is_read_as_it_was_or_is(store: ClaimStore) -> None:
    await store.put([Put(key, ONE) for key in KEYS[:100]], WEEK)
    found = {}
    async for key, each in store.scan():
        if not found:
            await store.put([Put(other, TWO, (ONE.token,)) for other in KEYS[:100]], WEEK)
        found[key] = each
    assert found.keys() == set(KEYS[:100])
    assert set(map(str, found.values())) <= {str(ONE), str(TWO)}


# -- the rest ---------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_cancelled_leaves_the_store_in_order(store: ClaimStore) -> None:
    await put(store, ONE)
    for turns in range(4):
        task = asyncio.create_task(put(store, ONE, ONE))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await put(store, TWO) == ONE


async def test_a_store_is_closed_more_than_once_and_without_having_been_used(another: Another) -> None:
    unused, used = another(), another()
    await put(used, ONE)
    for _ in range(2):
        await used.aclose()
        await unused.aclose()


async def test_nothing_of_what_is_stored_is_shown(store: ClaimStore) -> None:
    await put(store, ONE)
    shown = f"{store!r} {store} {ONE!r} {Put(KEY, ONE, (ONE.token,))!r}"
    assert not any(secret in shown for secret in (KEY, ONE.token, "unix:", "postgres@", '"v"'))
