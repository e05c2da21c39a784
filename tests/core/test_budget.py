"""The retry budget: step by step, its bounds as a state machine, and simulated failures."""

import heapq
import itertools
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.docs import page

from pushsdk._core.rate_limit import CAPACITY, COST, REFUND, THROTTLED_COST, RetryBudget


@given(st.lists(st.sampled_from(["transient", "throttled", "first", "retried"]), max_size=1500))
@example(["transient"] * 36 + ["throttled"] * 3 + ["first"] * 4 + ["throttled", "retried"] + ["first"] * 501)
def test_the_tokens_stay_in_bounds_and_retries_are_paid_for(steps):
    budget = RetryBudget()
    assert budget.tokens == CAPACITY == 500
    paid, refunds = [], 0
    for step in steps:
        before = budget.tokens
        if step == "first":
            budget.refund()
            refunds += 1
            assert budget.tokens == min(500, before + 1)
        elif step == "retried" and paid:
            cost = paid.pop()
            budget.refund(cost)
            assert budget.tokens == min(500, before + cost)
        elif step in ("transient", "throttled"):
            cost = {"transient": 14, "throttled": 5}[step]
            if budget.tokens >= cost:
                budget.spend(cost)
                paid.append(cost)
                assert budget.tokens == before - cost
        assert 0 <= budget.tokens <= 500
    assert sum(paid) <= 500 + refunds


class Load(NamedTuple):
    """A steady load, and the share of its attempts that fail, by the time in seconds."""

    fails: Callable[[float], float]
    cost: int = COST
    delay: float = 0.1
    rate: int = 100
    seconds: float = 200.0


def simulate(load, cost):
    """Return attempts per request, and the share of accepted requests, for clients of 4 attempts and 20 ms latency."""
    draw, budget, order = random.Random(4711).random, RetryBudget(), itertools.count()
    requests = int(load.rate * load.seconds)
    # The end of each attempt: time, order, number, and whether it fails.
    attempts = [(n / load.rate, next(order), 1, draw() < load.fails(n / load.rate)) for n in range(requests)]
    heapq.heapify(attempts)
    sent, accepted = requests, 0
    while attempts:
        now, _, number, has_failed = heapq.heappop(attempts)
        if not has_failed:
            accepted += 1
            budget.refund(REFUND if number == 1 else cost)
        elif number < 4 and budget.tokens >= cost:
            budget.spend(cost)
            sent += 1
            starts = now + draw() * min(5.0, load.delay * 2 ** (number - 1))
            heapq.heappush(attempts, (starts + 0.02, next(order), number + 1, draw() < load.fails(starts)))
    return sent / requests, accepted / requests


LOADS = {
    "all": Load(lambda _: 1.0),
    "all, at 1 request/s": Load(lambda _: 1.0, rate=1),
    "1 of 2": Load(lambda _: 1 / 2),
    "1 of 2, throttled": Load(lambda _: 1 / 2, cost=THROTTLED_COST, delay=1.0),
    "1 of 3": Load(lambda _: 1 / 3),
    "1 of 5": Load(lambda _: 1 / 5),
    "1 of 10": Load(lambda _: 1 / 10),
    "all, for 0.3 s every 20 s": Load(lambda time: float(time % 20.0 < 0.3)),
}


@pytest.mark.parametrize("failing", LOADS)
def test_the_guide_shows_what_the_budget_does_to_load_and_success(failing):
    rows = {row[0]: row[1:] for row in page("retries").table("failing attempts")}
    assert rows.keys() == LOADS.keys()
    load = LOADS[failing]
    results = [*simulate(load, load.cost), *simulate(load, 5)]
    assert rows[failing] == [f"{x:.1%}".replace("%", " %") if n % 2 else f"{x:.3f}x" for n, x in enumerate(results)]
