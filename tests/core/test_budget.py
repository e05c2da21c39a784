"""The retry budget: step by step, its bounds as a state machine, and simulated outages."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk._core.rate_limit import CAPACITY, COST, RetryBudget


@given(st.lists(st.sampled_from(["spend", "refund"]), max_size=1500))
@example(["spend"] * 101 + ["refund"] * 4 + ["spend", "refund", "spend"] + ["refund"] * 501)
def test_the_tokens_stay_in_bounds_and_retries_are_paid_for(steps):
    budget = RetryBudget()
    assert budget.tokens == CAPACITY == 500
    retries = refunds = 0
    for step in steps:
        before = budget.tokens
        if step == "refund":
            budget.refund()
            refunds += 1
            assert budget.tokens == min(500, before + 1)
        elif budget.spend():
            retries += 1
            assert budget.tokens == before - COST == before - 5
        else:
            assert budget.tokens == before < 5
        assert 0 <= budget.tokens <= 500
    assert retries * 5 <= 500 + refunds


def simulate(failing: float, *, requests: int, attempts: int = 4) -> tuple[float, float]:
    """Return the load (attempts per request) and the share of accepted requests."""
    draw = random.Random(4711).random
    budget = RetryBudget()
    sent = accepted = 0
    for _ in range(requests):
        for number in range(1, attempts + 1):
            sent += 1
            if draw() >= failing:
                accepted += 1
                if number == 1:
                    budget.refund()
                break
            if number == attempts or not budget.spend():
                break
    return sent / requests, accepted / requests


@pytest.mark.parametrize(
    ("failing", "load", "accepted"),
    [
        (1.0, pytest.approx(1.005, abs=0.0005), 0.0),
        (0.1, pytest.approx(1.11, abs=0.01), pytest.approx(1.0, abs=0.001)),
        (0.5, pytest.approx(1.105, abs=0.01), pytest.approx(0.555, abs=0.01)),
    ],
    ids=["in an outage", "one failure in ten", "one failure in two"],
)
def test_retries_are_paid_for_by_first_successes(failing, load, accepted):
    assert simulate(failing, requests=20_000) == (load, accepted)
