"""Behavior of all claim stores, against real servers."""

import asyncio
import random

from support.claim_puts import KEY, ONE, THREE, TWO, WEEK, get, key_of, put

from pushsdk.claims import Claim, Put

# Seconds, short enough to wait for in real time, since servers have their own clocks.
SOON = 0.05

KEYS = [key_of(number) for number in range(2500)]


def claim(number, record=b'{"v":1}'):
    """Return a claim with this number as its token."""
    return Claim(f"{number:032x}", record)


async def scan(store):
    """All claims of a store, by key."""
    return {key: claim async for key, claim in store.scan()}


async def test_any_sequence_of_puts_matches_a_dictionary(another):
    stores = [another(), another()]
    truth = {}
    dice = random.Random(7)
    assert await stores[0].put([], WEEK) == []
    assert await stores[0].get([]) == []
    assert await scan(stores[0]) == {}
    for number in range(150):
        keys = dice.sample(KEYS[:5], dice.randint(1, 4))
        # Any of the tokens, in any number; a put that is repeated, perhaps with another record.
        tokens = [record.token for record in truth.values()]
        expected = tuple(dice.sample(tokens, dice.randint(0, min(2, len(tokens)))))
        same = truth.get(keys[0])
        new = same.token if same is not None and dice.random() < 0.2 else f"{number:032x}"
        puts = [Put(key, Claim(new, b'{"v":%d}' % number), expected) for key in keys]
        answers = []
        for item in puts:
            stored = truth.get(item.key)
            is_refused = stored is not None and stored.token not in (new, *expected)
            answers.append(stored if is_refused else None)
            truth |= {} if is_refused else {item.key: item.claim}
        assert await dice.choice(stores).put(puts, WEEK) == answers
        assert await dice.choice(stores).get(KEYS[:6]) == [truth.get(key) for key in KEYS[:6]]
    # The claims outlive the objects, which can be closed twice.
    for store in (*stores, *stores):
        await store.aclose()
    assert await scan(another()) == truth


async def test_claims_expire_after_their_last_put(store):
    expires, expired_owner, restarted, shortened, late = KEYS[:5]
    for key in (expires, expired_owner, restarted, late):
        await put(store, ONE, key=key, ttl=SOON)
    await put(store, TWO, ONE, key=restarted)
    await put(store, ONE, key=shortened)
    assert await put(store, TWO, ONE, key=shortened, ttl=SOON) in (None, ONE)
    await asyncio.sleep(2 * SOON)
    assert await scan(store) == {restarted: TWO}
    await put(store, TWO, key=late)
    assert await store.get(KEYS[:5]) == [None, None, TWO, None, TWO]
    assert await scan(store) == {restarted: TWO, late: TWO}
    assert [await put(store, THREE, key=key) for key in KEYS[:4]] == [None, None, TWO, None]
    assert await put(store, THREE, ONE, key=late) == TWO, "the owner of the expired claim comes too late"


async def test_a_call_may_have_a_thousand_puts_and_a_scan_lists_every_claim_once(store):
    claims = {key: claim(number) for number, key in enumerate(KEYS)}
    for first in range(0, len(KEYS), 1000):
        page = KEYS[first : first + 1000]
        assert await store.put([Put(key, claims[key]) for key in page], WEEK) == [None] * len(page)
    settled = [Put(key, claim(number + 5000), (claims[key].token,)) for number, key in enumerate(KEYS[:1000])]
    assert await store.put(settled, WEEK) == [None] * 1000
    claims |= {put.key: put.claim for put in settled}
    assert await store.get(KEYS[999::-1]) == [put.claim for put in settled[::-1]]
    pairs = [pair async for pair in store.scan()]
    assert dict(pairs) == claims
    assert len(pairs) == len(KEYS)


async def test_exactly_one_of_many_concurrent_calls_makes_each_put(another):
    stores = [another() for _ in range(4)]
    # Keys without a claim, with one that is expected, and with an expired one.
    await stores[0].put([Put(key, ONE) for key in KEYS[10:20]], WEEK)
    await stores[0].put([Put(key, TWO) for key in KEYS[20:30]], SOON)
    await asyncio.sleep(2 * SOON)
    orders = [random.Random(i).sample(KEYS[:30], 30) for i in range(40)]
    calls = [[Put(key, claim(i), (ONE.token,)) for key in order] for i, order in enumerate(orders)]
    results = await asyncio.gather(*(stores[i % 4].put(puts, WEEK) for i, puts in enumerate(calls)))
    answers = [dict(zip(order, answer, strict=True)) for order, answer in zip(orders, results, strict=True)]
    for key in KEYS[:30]:
        (winner,) = (claim(i) for i in range(40) if answers[i][key] is None)
        assert [answer[key] for answer in answers if answer[key] is not None] == [winner] * 39


async def test_a_cancelled_call_leaves_the_store_consistent(store):
    await put(store, ONE)
    for turns in range(4):
        task = asyncio.create_task(put(store, ONE, ONE))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await put(store, TWO) == await get(store) == ONE
    # Nothing that is stored is shown.
    text = f"{store!r} {store} {ONE!r} {Put(KEY, ONE, (ONE.token,))!r}"
    assert not any(secret in text for secret in (KEY, ONE.token, "unix:", "postgres@", '"v"'))
