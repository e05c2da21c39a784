"""Each preset over a number of requests."""

from collections import Counter
from functools import partial

import pytest

from pushsdk.emulator.faults import PRESETS, Rules, preset


@pytest.mark.parametrize("name", PRESETS)
def test_each_rule_has_a_name_and_one_line_and_no_preset_makes_a_test_wait_for_long(name):
    rules = preset(name)
    assert [fault.name for fault in rules.faults] == list(rules.explained)
    assert all(line and "\n" not in line for line in [rules.about, *rules.explained.values()])
    assert sum(fault.seconds or 0 for fault in rules.faults) <= 3


about = partial(pytest.approx, rel=0.5)


@pytest.mark.parametrize(
    ("name", "user", "failures"),
    [
        (
            "flaky",
            "ann",
            {
                ("busy", 503, False): about(50),
                ("reset-before", None, False): about(30),
                ("reset-after", None, True): about(30),
            },
        ),
        ("brownout", "ann", {("gateway", 504, True): about(100)}),
        ("ratelimited", "ann", {("too-many", 429, False): 250}),
        ("outage", "ann", {("down", None, False): 10, ("starting", 503, False): 20}),
        ("poison-user", "poison", {("poison", 400, False): 1000}),
        ("poison-user", "poisonous", {}),
        ("wrong-key", "ann", {("wrong-key", 401, False): 1000}),
    ],
)
def test_a_preset_fails_about_so_many_of_a_thousand_requests(name, user, failures):
    rules = Rules(preset(name).faults, seed=1)
    faults = [rules.decide("push", ("bob", user), 100).fault for _ in range(1000)]
    assert Counter((fault.name, fault.code, fault.accepts) for fault in faults if fault) == failures
