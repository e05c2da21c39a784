"""Each preset over a number of requests."""

from collections import Counter

import pytest

from pushsdk.emulator.faults import Rules, preset


def lived(name, requests=1000, user_ids=("ann",)):
    """Return the hits of each rule, and the decisions."""
    rules = Rules(preset(name).faults, seed=1)
    verdicts = [rules.decide("push", user_ids, 100) for _ in range(requests)]
    return rules.hits(), verdicts


def answers(verdicts):
    return Counter((verdict.fault.name, verdict.fault.accepts) if verdict.fault else None for verdict in verdicts)


@pytest.mark.parametrize("name", ["brownout", "flaky", "outage", "poison-user", "ratelimited", "wrong-key"])
def test_each_rule_has_a_name_and_one_line_and_no_preset_makes_a_test_wait_for_long(name):
    rules = preset(name)
    assert [fault.name for fault in rules.faults] == list(rules.explained)
    assert all(line and "\n" not in line for line in [rules.about, *rules.explained.values()])
    assert sum(fault.seconds or 0 for fault in rules.faults) <= 3


def test_a_flaky_service_loses_some_before_and_some_after_accepting_them():
    counts = answers(lived("flaky")[1])
    assert 30 < counts["busy", False] < 70
    assert 15 < counts["reset-before", False] < 45
    assert 15 < counts["reset-after", True] < 45


def test_a_rate_limited_service_sends_retry_after():
    _, verdicts = lived("ratelimited", requests=8)
    assert [verdict.fault and (verdict.fault.code, verdict.fault.headers) for verdict in verdicts] == [
        *[None, None, None, (429, {"Retry-After": "1"})] * 2
    ]


def test_a_brownout_is_slow_and_answers_504_after_it_accepted():
    hits, verdicts = lived("brownout")
    assert 400 < hits["slow"] < 600
    assert {verdict.delay for verdict in verdicts} == {0.0, 0.5, 2.0, 2.5}
    failed = [(verdict.fault.code, verdict.fault.accepts) for verdict in verdicts if verdict.fault]
    assert 50 < failed.count((504, True)) == len(failed) < 150


def test_an_outage_accepts_nothing_at_first_and_all_after():
    assert answers(lived("outage", requests=100)[1]) == {("down", False): 10, ("starting", False): 20, None: 70}


def test_the_poison_user_fails_exactly_its_requests():
    assert answers(lived("poison-user", 10, ("ann", "poison"))[1]) == {("poison", False): 10}
    assert answers(lived("poison-user", 10, ("ann", "poisonous"))[1]) == {None: 10}


def test_a_wrong_key_is_answered_with_401_and_never_accepted():
    _, verdicts = lived("wrong-key", requests=3)
    assert [(verdict.fault.code, verdict.fault.accepts) for verdict in verdicts] == [(401, False)] * 3


def test_an_unknown_preset_is_refused_with_all_names():
    text = "preset must be 'flaky', 'ratelimited', 'brownout', 'outage', 'wrong-key' or 'poison-user'; got 'x'"
    with pytest.raises(ValueError, match=f"^{text}$"):
        preset("x")
