"""The fault rules without a socket: validation, choice of the rule, counts, draws."""

import msgspec
import pytest

from pushsdk.emulator import Emulator, Fault, load_faults
from pushsdk.emulator.faults import Rules

SMALL = ("push", ("ann",), 100)


def acted(fault, requests):
    """Return for each request if this single rule acts."""
    rules = Rules([fault])
    return [rules.decide(*request).fault is fault for request in requests]


# Choice


@pytest.mark.parametrize(
    ("when", "hits"),
    [
        ({}, "yyyyyy"),
        ({"first": 2}, "yynnnn"),
        ({"every": 3}, "nnynny"),
        ({"first": 4, "every": 2}, "nynynn"),
        ({"probability": 1}, "yyyyyy"),
    ],
)
def test_a_condition_chooses_among_the_requests_in_their_order(when, hits):
    assert acted(Fault.reset_after(**when), [SMALL] * 6) == [hit == "y" for hit in hits]


def test_delays_add_up_before_the_first_rule_that_acts_which_hides_the_request_from_the_rest():
    reset = Fault.reset_before(first=1)
    status = Fault.status(503, first=1)
    rules = Rules([Fault.delay(0.25), Fault.delay(0.5), reset, Fault.delay(1, name="last"), status])
    decisions = [rules.decide(*SMALL) for _ in range(3)]
    assert [(decision.delay, decision.fault) for decision in decisions] == [(0.75, reset), (1.75, status), (1.75, None)]
    assert [decision.rule for decision in decisions] == ["3: reset_before", "5: status", "last"]
    assert rules.hits() == {"1: delay": 3, "2: delay": 3, "3: reset_before": 1, "last": 2, "5: status": 1}


def test_a_rule_draws_as_it_would_alone():
    chance = Fault.hang(probability=0.5, name="chance")
    rules = Rules([chance, Fault.reset_before(name="behind")])
    assert [rules.decide(*SMALL).fault is chance for _ in range(32)] == acted(chance, [SMALL] * 32)


# Values


def test_a_delay_that_is_probably_in_milliseconds_is_warned_of():
    with pytest.warns(UserWarning, match=r"^Fault.delay\(300\) is in seconds, and longer than most timeouts$"):
        assert Fault.delay(300).seconds == 300


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Fault(fault="status"), "status needs code"),
        (lambda: Fault(fault="hang", seconds=1.0), "seconds is not an argument of hang: leave it out"),
        (lambda: Fault.status(1000), "^Fault.code must be a status from 200 to 999; got 1000$"),
        (lambda: Fault.status(503, retry_after=0.5), "^Fault.retry_after must be a whole number, 0 or more; got 0.5$"),
        (lambda: Fault.status(429, headers={"Retry-After": 1}), "^a value of Fault.headers must be a str; got int$"),
        (lambda: Fault.status(429, headers={"content-length": "1"}), "which the emulator sets"),
        (lambda: Fault.status(429, headers={"A": "1\r\nB: 2"}), "no control character"),
        (lambda: Fault.status(429, first=1, every=2), "^first=1 and every=2 choose no request: leave out one of them$"),
        (lambda: Fault.delay(float("nan")), "^Fault.seconds must be a number of seconds, 0 or more; got nan$"),
        (lambda: Rules([Fault.hang(name="x"), Fault.delay(1, name="x")]), "must be unique"),
        (lambda: Emulator(faults=iter([{"fault": "hang"}])), r"^faults\[0\] must be a Fault, for .*; got dict$"),
    ],
)
def test_an_invalid_rule_is_refused_at_once(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_rules_are_read_from_json():
    rules = [
        Fault.status(429, retry_after=1, body="{}", first=3, name="throttle"),
        Fault.delay(0.5, user="ann"),
        Fault.hang(accepted=True, every=5),
        Fault.truncated(at="body", more_than_users=1, more_than_bytes=2),
    ]
    text = """[
        {"fault": "status", "code": 429, "retry_after": 1, "body": "{}", "first": 3, "name": "throttle"},
        {"fault": "delay", "seconds": 0.5, "user": "ann"},
        {"fault": "hang", "accepted": true, "every": 5},
        {"fault": "truncated", "at": "body", "more_than_users": 1, "more_than_bytes": 2}
    ]"""
    assert load_faults(text) == load_faults(msgspec.json.encode(rules)) == rules
    assert repr(rules[1]) == "Fault.delay(seconds=0.5, user='ann')"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[{"fault": "hang"}, {"fault": "delay", "seconds": "1"}]', r"\$\[1\].seconds"),
        ('[{"fault": "hang", "frist": 1}]', r"Object contains unknown field `frist` - at `\$\[0\]`$"),
        ({"fault": "hang"}, "^data must be bytes, or a str; got dict$"),
        ('{"fault": "hang"}', "^faults must be JSON, a list of objects: Expected `array`, got `object`$"),
        ('[{"fault": "status", "code": 503, "headers": {"connection": "x"}}]', "which the emulator sets"),
    ],
)
def test_invalid_json_rules_are_refused_with_their_path(text, place):
    with pytest.raises(ValueError, match=place):
        load_faults(text)
