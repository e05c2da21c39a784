"""The fault rules without a socket: validation, choice of the rule, counts, draws."""

import pytest

from pushsdk.emulator import Emulator, Fault, load_faults
from pushsdk.emulator.faults import Rules

SMALL = ("push", ("ann",), 100)


def acted(fault, requests, *, seed=0):
    """Return for each request if this single rule acts."""
    rules = Rules([fault], seed=seed)
    return [rules.decide(*request).fault is fault for request in requests]


@pytest.mark.parametrize(
    ("when", "hits"),
    [
        ({}, [1, 1, 1, 1, 1, 1]),
        ({"first": 2}, [1, 1, 0, 0, 0, 0]),
        ({"every": 3}, [0, 0, 1, 0, 0, 1]),
        ({"first": 4, "every": 2}, [0, 1, 0, 1, 0, 0]),
        ({"probability": 1}, [1, 1, 1, 1, 1, 1]),
        ({"probability": 0}, [0, 0, 0, 0, 0, 0]),
    ],
)
def test_a_condition_chooses_among_the_requests_in_their_order(when, hits):
    assert acted(Fault.reset_after(**when), [SMALL] * 6) == [bool(hit) for hit in hits]


@pytest.mark.parametrize(
    "when",
    [{"endpoint": "push"}, {"user": "bob"}, {"more_than_users": 1}, {"more_than_bytes": 100}],
)
def test_a_static_condition_tells_two_requests_apart(when):
    meant, other = ("push", ("ann", "bob"), 101), ("campaigns", (), 100)
    assert acted(Fault.reset_after(**when), [other, meant]) == [False, True]


def test_only_requests_that_meet_the_static_conditions_are_counted():
    other = ("push", ("bob",), 100)
    assert acted(Fault.reset_after(user="ann", first=1), [other, SMALL, other, SMALL]) == [False, True, False, False]
    assert acted(Fault.reset_after(user="ann", every=2), [other, SMALL, other, SMALL]) == [False, False, False, True]


def test_first_bounds_the_requests_that_chance_chooses_from():
    chosen = acted(Fault.reset_after(first=50, probability=0.5), [SMALL] * 100)
    assert 10 < sum(chosen[:50]) < 40
    assert not any(chosen[50:])


def test_chance_is_the_same_for_the_same_seed():
    fault = Fault.reset_after(probability=0.5)
    once, third, other = (acted(fault, [SMALL] * 64, seed=seed) for seed in (1, 1, 2))
    assert once == third != other


def test_an_appended_rule_does_not_change_earlier_draws():
    fault = Fault.delay(1, probability=0.5, name="slow")
    alone, with_more = Rules([fault], seed=3), Rules([fault, Fault.hang(probability=0.5)], seed=3)
    for _ in range(32):
        alone.decide(*SMALL)
        with_more.decide(*SMALL)
    assert alone.hits()["slow"] == with_more.hits()["slow"]


def test_the_first_rule_that_matches_acts_and_hides_the_request_from_the_rest():
    one, two = Fault.status(503, first=1), Fault.reset_after(first=1)
    rules = Rules([one, two])
    assert [rules.decide(*SMALL).fault for _ in range(3)] == [one, two, None]
    assert rules.hits() == {"1: status": 1, "2: reset_after": 1}


def test_delays_add_up_before_the_rule_that_acts():
    reset = Fault.reset_before(first=1)
    rules = Rules([Fault.delay(0.25), Fault.delay(0.5), reset, Fault.delay(1)])
    verdicts = [rules.decide(*SMALL) for _ in range(2)]
    assert [(verdict.delay, verdict.fault) for verdict in verdicts] == [(0.75, reset), (1.75, None)]


def test_a_disabled_rule_does_not_act_and_hides_nothing():
    reset = Fault.reset_before()
    rules = Rules([Fault.delay(1, name="slow"), Fault.hang(name="hung"), reset])
    rules.enable("slow", False)
    rules.enable("hung", False)
    enabled = {name: rule.enabled for name, rule in rules.rules.items()}
    assert enabled == {
        "slow": False,
        "hung": False,
        "3: reset_before": True,
    }
    verdict = rules.decide(*SMALL)
    assert (verdict.delay, verdict.fault) == (0.0, reset)


def test_an_enabled_rule_continues_at_its_count():
    rules = Rules([Fault.reset_after(first=2, name="reset")])
    acted = []
    for enabled in (True, False, False, True, True):
        rules.enable("reset", enabled)
        acted.append(rules.decide(*SMALL).fault is not None)
    assert acted == [True, False, False, True, False]
    assert rules.hits() == {"reset": 2}


def test_a_disabled_rule_draws_nothing():
    fault = Fault.reset_after(probability=0.5, name="reset")
    always, paused = Rules([fault]), Rules([fault])
    expected = [always.decide(*SMALL) for _ in range(32)]
    decisions = [paused.decide(*SMALL) for _ in range(16)]
    paused.enable("reset", False)
    assert all(paused.decide(*SMALL).fault is None for _ in range(7))
    paused.enable("reset", True)
    assert decisions + [paused.decide(*SMALL) for _ in range(16)] == expected


@pytest.mark.parametrize(
    ("faults", "text"),
    [([], "the names are: none"), ([Fault.hang(), Fault.delay(1, name="slow")], "the names are: 1: hang, slow")],
)
def test_an_unknown_rule_is_refused_with_all_names(faults, text):
    with pytest.raises(ValueError, match=text):
        Rules(faults).enable("fast", True)


@pytest.mark.parametrize(
    ("fault", "accepts"),
    [
        (Fault.status(200), True),
        (Fault.status(200, accepted=False), False),
        (Fault.status(504), False),
        (Fault.status(504, accepted=True), True),
        (Fault.delay(1), False),
        (Fault.reset_before(), False),
        (Fault.reset_after(), True),
        (Fault.hang(), False),
        (Fault.hang(accepted=True), True),
        (Fault.truncated(), True),
    ],
)
def test_each_fault_says_whether_the_request_is_accepted(fault, accepts):
    assert fault.accepts is accepts


def test_a_delay_that_is_probably_in_milliseconds_is_warned_of():
    with pytest.warns(UserWarning, match=r"^Fault.delay\(500\) is in seconds, and longer than most timeouts$"):
        assert Fault.delay(500).seconds == 500


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Fault(fault="status"), "status needs code"),
        (lambda: Fault(fault="stauts"), "^Fault.fault must be 'status', 'delay', .* or 'unreachable'; got 'stauts'$"),
        (lambda: Fault(fault="hang", seconds=1.0), "seconds is not an argument of hang: leave it out"),
        (lambda: Fault.status(99), "^Fault.code must be a status from 200 to 999; got 99$"),
        (lambda: Fault.status("429"), "^Fault.code must be a status from 200 to 999; got '429'$"),
        (lambda: Fault.status(429, first="1"), "^Fault.first must be a whole number, 1 or more; got '1'$"),
        (lambda: Fault.status(429, headers={"Retry-After": 1}), "^a value of Fault.headers must be a str; got int$"),
        (lambda: Fault.status(429, headers={"content-length": "1"}), "which the emulator sets"),
        (lambda: Fault.status(429, headers={"A": "1\r\nB: 2"}), "no control character"),
        (lambda: Fault.status(429, headers={"A": "\x01"}), "no control character"),
        (lambda: Fault.status(429, headers={"A\x7f": "1"}), "no control character"),
        (lambda: Fault.status(429, headers={"": "1"}), "must have a name"),
        (lambda: Fault.status(429, first=1, every=2), "^first=1 and every=2 choose no request: leave out one of them$"),
        (lambda: Fault.delay(-1), "^Fault.seconds must be a number of seconds, 0 or more; got -1$"),
        (lambda: Fault.delay(float("nan")), "^Fault.seconds must be a number of seconds, 0 or more; got nan$"),
        (lambda: Fault.truncated(at="middle"), "^Fault.at must be 'status', 'headers' or 'body'; got 'middle'$"),
        (lambda: Fault.hang(probability=2), "^Fault.probability must be a number from 0 to 1, for example 0.5; got 2"),
        (lambda: Fault.hang(probability=-0.1), "^Fault.probability must"),
        (lambda: Fault.hang(first=0), "^Fault.first must be a whole number, 1 or more; got 0$"),
        (lambda: Fault.hang(every=0), "^Fault.every must be a whole number, 1 or more"),
        (lambda: Fault.hang(more_than_users=-1), "^Fault.more_than_users must be"),
        (lambda: Fault.hang(more_than_bytes=-1), "^Fault.more_than_bytes must be"),
        (lambda: Fault.hang(endpoint="psh"), "^Fault.endpoint must be 'push' or 'campaigns'; got 'psh'$"),
        (lambda: Fault.hang(name=""), "^Fault.name must be a str that is not empty; got ''$"),
        (lambda: Rules([Fault.hang(name="x"), Fault.delay(1, name="x")]), "must be unique"),
    ],
)
def test_an_invalid_rule_is_refused_at_once(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_a_status_may_ask_for_a_wait_in_whole_seconds():
    with pytest.raises(ValueError, match=r"^retry_after must be a whole number, 0 or more; got 0.5$"):
        Fault.status(503, retry_after=0.5)


def test_a_value_that_is_not_a_fault_is_refused():
    with pytest.raises(ValueError, match=r"^faults\[0\] must be a Fault, for example .*; got dict$"):
        Emulator(faults=iter([{"fault": "hang"}]))


def test_rules_are_read_from_json():
    rules = [
        Fault.status(429, headers={"Retry-After": "1"}, body="{}", first=3, name="throttle"),
        Fault.status(202),
        Fault.delay(0.5, user="ann"),
        Fault.reset_before(endpoint="push"),
        Fault.reset_after(probability=0.02),
        Fault.hang(accepted=True, every=5),
        Fault.truncated(at="body", more_than_users=1, more_than_bytes=2),
    ]
    text = """[
        {"fault": "status", "code": 429, "headers": {"Retry-After": "1"}, "body": "{}", "first": 3, "name": "throttle"},
        {"fault": "status", "code": 202},
        {"fault": "delay", "seconds": 0.5, "user": "ann"},
        {"fault": "reset_before", "endpoint": "push"},
        {"fault": "reset_after", "probability": 0.02},
        {"fault": "hang", "accepted": true, "every": 5},
        {"fault": "truncated", "at": "body", "more_than_users": 1, "more_than_bytes": 2}
    ]"""
    assert load_faults(text) == rules
    assert [fault.accepts for fault in load_faults(text)] == [fault.accepts for fault in rules]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[{"fault": "hang"}, {"fault": "delay", "seconds": "1"}]', r"\$\[1\].seconds"),
        ('[{"fault": "explode"}]', r"Invalid enum value 'explode' - at `\$\[0\]\.fault`$"),
        ('[{"fault": "hang", "frist": 1}]', r"Object contains unknown field `frist` - at `\$\[0\]`$"),
        ('[{"fault": "hang", "endpoint": "psh"}]', r"Invalid enum value 'psh' - at `\$\[0\].endpoint`$"),
        ('{"fault": "hang"}', "^faults must be JSON, a list of objects: Expected `array`, got `object`$"),
        ("[", "must be JSON, a list of objects: Input data was truncated"),
        ({"fault": "hang"}, "^data must be bytes, or a str; got dict$"),
        ('[{"fault": "status", "code": 503, "headers": {"connection": "x"}}]', "which the emulator sets"),
    ],
)
def test_invalid_json_rules_are_refused_with_their_path(text, place):
    with pytest.raises(ValueError, match=place):
        load_faults(text)
