"""What every claim store does: one test for all of them, against real servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from pushsdk.claims import Claim, ClaimStore

KEY = "0f" * 32
WEEK = 7 * 86400.0
# Seconds. Short enough to wait for, by the clocks of servers that no test can turn.
SOON = 0.05

Another = Callable[[], ClaimStore]


def claim(number: int, record: bytes = b'{"v":1}') -> Claim:
    """A claim by owner number so and so."""
    return Claim(f"{number:032x}", record)


ONE, TWO, THREE = claim(1), claim(2, b'{"v":2}'), claim(3, b'{"v":3}')


async def expire() -> None:
    """What was stored until SOON has expired."""
    await asyncio.sleep(2 * SOON)


async def test_the_first_claim_is_stored_and_the_second_is_told_of_it(store: ClaimStore) -> None:
    assert await store.add(KEY, ONE, WEEK) is None
    assert await store.add(KEY, TWO, WEEK) == ONE
    assert await store.add(KEY, THREE, WEEK) == ONE


async def test_a_claim_is_read_without_being_changed(store: ClaimStore) -> None:
    assert await store.get(KEY) is None
    await store.add(KEY, ONE, WEEK)
    assert (await store.get(KEY), await store.get("1f" * 32)) == (ONE, None)
    await store.swap(KEY, ONE.token, TWO, SOON)
    assert await store.get(KEY) in (TWO, None)
    await expire()
    assert await store.get(KEY) is None


async def test_keys_are_apart(store: ClaimStore) -> None:
    assert await store.add(KEY, ONE, WEEK) is None
    assert await store.add("1f" * 32, TWO, WEEK) is None
    assert await store.add(KEY, THREE, WEEK) == ONE


async def test_what_one_store_wrote_another_of_the_same_place_reads(another: Another) -> None:
    one, two = another(), another()
    assert await one.add(KEY, ONE, WEEK) is None
    assert await two.add(KEY, TWO, WEEK) == ONE
    assert await two.swap(KEY, ONE.token, TWO, WEEK)
    assert await one.add(KEY, THREE, WEEK) == TWO


async def test_a_claim_outlives_the_store_that_made_it(another: Another) -> None:
    async with another() as first:
        await first.add(KEY, ONE, WEEK)
    assert await another().add(KEY, TWO, WEEK) == ONE


async def test_of_many_at_once_one_is_stored(another: Another) -> None:
    stores = [another() for _ in range(4)]
    told = await asyncio.gather(*(stores[i % 4].add(KEY, claim(i), WEEK) for i in range(40)))
    (winner,) = (claim(i) for i, found in enumerate(told) if found is None)
    assert [found for found in told if found is not None] == [winner] * 39


async def test_a_thousand_at_once_are_all_stored(store: ClaimStore) -> None:
    keys = [f"{number:064x}" for number in range(1000)]
    assert await asyncio.gather(*(store.add(key, ONE, WEEK) for key in keys)) == [None] * 1000
    assert await asyncio.gather(*(store.swap(key, ONE.token, TWO, WEEK) for key in keys)) == [True] * 1000


async def test_a_claim_is_swapped_by_its_token_only(store: ClaimStore) -> None:
    await store.add(KEY, ONE, WEEK)
    assert not await store.swap(KEY, TWO.token, THREE, WEEK)
    assert await store.add(KEY, THREE, WEEK) == ONE
    assert await store.swap(KEY, ONE.token, TWO, WEEK)
    assert await store.add(KEY, THREE, WEEK) == TWO
    assert not await store.swap(KEY, ONE.token, THREE, WEEK), "its token has gone with it"


async def test_a_swap_that_is_repeated_under_the_same_token_does_no_harm(store: ClaimStore) -> None:
    await store.add(KEY, ONE, WEEK)
    settled = claim(1, b'{"v":"settled"}')
    assert await store.swap(KEY, ONE.token, settled, WEEK)
    assert await store.swap(KEY, ONE.token, settled, WEEK)
    assert await store.add(KEY, TWO, WEEK) == settled


async def test_nothing_is_swapped_where_nothing_is(store: ClaimStore) -> None:
    assert not await store.swap(KEY, ONE.token, TWO, WEEK)
    assert await store.add(KEY, THREE, WEEK) is None


async def test_of_many_swaps_at_once_one_is_made(another: Another) -> None:
    stores = [another() for _ in range(4)]
    await stores[0].add(KEY, ONE, WEEK)
    done = await asyncio.gather(*(stores[i % 4].swap(KEY, ONE.token, claim(i + 2), WEEK) for i in range(20)))
    assert done.count(True) == 1
    assert await stores[0].add(KEY, ONE, WEEK) == claim(done.index(True) + 2)


async def test_an_expired_claim_is_as_good_as_none(store: ClaimStore) -> None:
    await store.add(KEY, ONE, SOON)
    await expire()
    assert not await store.swap(KEY, ONE.token, TWO, WEEK)
    assert await store.add(KEY, THREE, WEEK) is None
    assert await store.add(KEY, TWO, WEEK) == THREE


async def test_a_late_owner_touches_nothing_of_who_came_after(store: ClaimStore) -> None:
    await store.add(KEY, ONE, SOON)
    await expire()
    await store.add(KEY, TWO, WEEK)
    assert not await store.swap(KEY, ONE.token, THREE, WEEK)
    assert await store.add(KEY, THREE, WEEK) == TWO


async def test_of_many_that_take_over_an_expired_claim_one_does(another: Another) -> None:
    stores = [another() for _ in range(4)]
    await stores[0].add(KEY, ONE, SOON)
    await expire()
    told = await asyncio.gather(*(stores[i % 4].add(KEY, claim(i + 2), WEEK) for i in range(40)))
    assert told.count(None) == 1
    assert set(map(str, told)) == {"None", str(ONE)}
    assert [each for each in told if each is not None] == [claim(told.index(None) + 2)] * 39


async def test_a_swap_begins_the_time_anew(store: ClaimStore) -> None:
    # On a busy machine a claim may have expired before it can be swapped.
    for ttl in (SOON, 4 * SOON, 40 * SOON):
        await store.add(KEY, ONE, ttl)
        if await store.swap(KEY, ONE.token, TWO, WEEK):
            break
    await asyncio.sleep(2 * ttl)
    assert await store.add(KEY, THREE, WEEK) == TWO


async def test_a_swap_may_shorten_the_time(store: ClaimStore) -> None:
    await store.add(KEY, ONE, WEEK)
    assert await store.swap(KEY, ONE.token, TWO, SOON)
    await expire()
    assert await store.add(KEY, THREE, WEEK) is None


@pytest.mark.parametrize("record", [b"{}", b'{"v":1,"x":"\xc3\xa9\\u0000\\n"}', b'["' + b"x" * 100_000 + b'"]'])
async def test_a_record_comes_back_as_it_was(store: ClaimStore, record: bytes) -> None:
    await store.add(KEY, claim(1, record), WEEK)
    assert await store.add(KEY, TWO, WEEK) == claim(1, record)
    assert await store.swap(KEY, ONE.token, claim(2, record), WEEK)
    assert await store.add(KEY, ONE, WEEK) == claim(2, record)


async def test_any_sequence_does_as_a_dictionary_would(another: Another) -> None:
    stores, truth, dice = [another(), another()], dict[str, Claim](), random.Random(7)
    for number in range(300):
        store, key, mine = dice.choice(stores), f"{dice.randrange(4):064x}", claim(number)
        there = truth.get(key)
        token = there.token if there and dice.random() < 0.7 else mine.token
        right = there is not None and there.token == token
        if dice.random() < 0.5:
            assert await store.add(key, mine, WEEK) == there
            truth.setdefault(key, mine)
        else:
            assert await store.swap(key, token, mine, WEEK) is right
            truth.update({key: mine} if right else {})


async def test_a_call_that_is_cancelled_leaves_the_store_in_order(store: ClaimStore) -> None:
    await store.add(KEY, ONE, WEEK)
    for turns in range(4):
        task = asyncio.create_task(store.swap(KEY, ONE.token, ONE, WEEK))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await store.add(KEY, TWO, WEEK) == ONE


async def test_a_store_is_closed_more_than_once_and_without_having_been_used(another: Another) -> None:
    unused, used = another(), another()
    await used.add(KEY, ONE, WEEK)
    for _ in range(2):
        await used.aclose()
        await unused.aclose()


async def test_nothing_of_what_is_stored_is_shown(store: ClaimStore) -> None:
    await store.add(KEY, ONE, WEEK)
    shown = f"{store!r} {store} {ONE!r}"
    assert not any(secret in shown for secret in (KEY, ONE.token, "unix:", "postgres@", '"v"'))
