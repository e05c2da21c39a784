"""The retry budget: step by step, its bounds as a state machine, and simulated outages."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.rate_limit import CAPACITY, COST, RetryBudget


def spent(times: int) -> RetryBudget:
    budget = RetryBudget()
    assert all(budget.spend() for _ in range(times))
    return budget


def test_a_new_budget_is_full():
    assert RetryBudget().tokens == CAPACITY == 500


def test_a_retry_costs_five_and_a_first_try_success_gives_one_back():
    budget = RetryBudget()
    results = [(budget.spend(), budget.tokens), (budget.spend(), budget.tokens)]
    budget.refund()
    assert results == [(True, 495), (True, 490)]
    assert budget.tokens == 491


def test_a_full_budget_takes_no_refund():
    budget = RetryBudget()
    budget.refund()
    assert budget.tokens == 500


def test_an_empty_budget_refuses_and_takes_nothing():
    budget = spent(100)
    assert budget.tokens == 0
    assert not budget.spend()
    assert budget.tokens == 0


def test_less_than_a_retry_costs_buys_none_and_exactly_that_buys_one():
    budget = spent(100)
    for _ in range(COST - 1):
        budget.refund()
    assert not budget.spend()
    assert budget.tokens == 4
    budget.refund()
    assert budget.spend()
    assert budget.tokens == 0


@given(st.lists(st.sampled_from(["spend", "refund"]), max_size=1500))
def test_the_tokens_stay_in_bounds_and_retries_are_paid_for(steps):
    budget = RetryBudget()
    retries = refunds = 0
    for step in steps:
        before = budget.tokens
        if step == "refund":
            budget.refund()
            refunds += 1
            assert budget.tokens == min(500, before + 1)
        elif budget.spend():
            retries += 1
            assert budget.tokens == before - 5
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


def test_in_an_outage_the_load_stays_at_one():
    load, accepted = simulate(1.0, requests=20_000)
    assert load == pytest.approx(1.005, abs=0.0005)
    assert accepted == 0


def test_at_one_failure_in_ten_nothing_is_lost_to_the_budget():
    load, accepted = simulate(0.1, requests=20_000)
    assert load == pytest.approx(1.11, abs=0.01)
    assert accepted > 0.999


def test_at_one_failure_in_two_there_is_one_retry_for_five_first_successes():
    load, accepted = simulate(0.5, requests=20_000)
    assert load == pytest.approx(1.105, abs=0.01)
    assert accepted == pytest.approx(0.555, abs=0.01)


@given(st.floats(0, 1))
def test_the_load_never_exceeds_what_successes_have_paid_for(failing):
    requests = 500
    load, _ = simulate(failing, requests=requests)
    assert load * requests <= requests + (500 + requests) / 5


def test_after_an_outage_the_budget_fills_again_by_successes_alone():
    budget = spent(100)
    for _ in range(500):
        budget.refund()
    assert budget.tokens == 500
