"""The retry budget: its bounds and costs, step by step. The table of loads in the guide follows from these numbers."""

from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk._core.rate_limit import CAPACITY, RetryBudget


@given(st.lists(st.sampled_from(["transient", "throttled", "first", "retried"]), max_size=1500))
@example(["transient"] * 36 + ["throttled"] * 3 + ["first"] * 4 + ["throttled", "retried"] + ["first"] * 501)
def test_the_tokens_stay_in_bounds_and_retries_are_paid_for(steps):
    budget = RetryBudget()
    assert budget.tokens == CAPACITY == 500
    paid = []
    refunds = 0
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
