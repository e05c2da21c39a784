"""Settings: rejected values, presets of the retry policy, and delays."""

import math
import pickle
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import RETRYABLE, Attempt, Evidence, Outcome, judge
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout

ACCEPTED, REJECTED, NOT_SENT, UNKNOWN = Outcome.ACCEPTED, Outcome.REJECTED, Outcome.NOT_SENT, Outcome.UNKNOWN
NO_NUMBERS = [0, -1, -0.5, math.nan, math.inf, -math.inf, True, False, "1", b"1", [1], None, 1j]
THROTTLED = Attempt(outcome=REJECTED, status=429, retryable=True)
BROKEN = Attempt(outcome=NOT_SENT, retryable=True)


# -- rejected values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("name", ["initial_delay", "max_delay", "throttle_delay", "max_retry_after"])
def test_a_wait_of_the_policy_is_a_number_above_0(name, value):
    with pytest.raises(ConfigurationError, match=rf"RetryPolicy\.{name} must be a number of seconds greater than 0"):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1.0, 2.5])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (RetryPolicy, "max_attempts"),
        (Batching, "max_users"),
        (Batching, "max_bytes"),
        (Limits, "queued_users"),
        (Limits, "queued_bytes"),
    ],
)
def test_a_count_is_a_whole_number_from_1(kind, name, value):
    with pytest.raises(ConfigurationError, match=rf"{kind.__name__}\.{name} must be a whole number, 1 or more"):
        kind(**{name: value})


@pytest.mark.parametrize("value", [0, *(value for value in NO_NUMBERS if value is not None), 1.0, 2.5])
def test_the_cap_on_requests_in_flight_is_a_whole_number_from_1_or_none(value):
    assert (Limits(in_flight=1).in_flight, Limits(in_flight=None).in_flight) == (1, None)
    with pytest.raises(ConfigurationError, match=r"Limits\.in_flight must be a whole number, 1 or more"):
        Limits(in_flight=value)


@pytest.mark.parametrize("value", [value for value in NO_NUMBERS if value is not None])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Timeout, "total"),
        (Timeout, "attempt"),
        (Timeout, "connect"),
        (Rate, "requests_per_second"),
        (Rate, "users_per_second"),
    ],
)
def test_a_limit_that_may_be_off_is_none_or_a_number_above_0(kind, name, value):
    assert getattr(kind(**{name: None}), name) is None
    assert getattr(kind(**{name: 1}), name) == 1
    with pytest.raises(ConfigurationError, match=rf"{kind.__name__}\.{name} must be a number.* greater than 0"):
        kind(**{name: value})


@pytest.mark.parametrize("value", [-1, -0.001, math.inf, math.nan, True, "0", None])
def test_the_linger_is_a_number_from_0(value):
    assert Batching(linger=0).linger == 0
    assert Batching(linger=0.005).linger == 0.005
    with pytest.raises(ConfigurationError, match=r"Batching\.linger must be a number of seconds, 0 or more"):
        Batching(linger=value)


@pytest.mark.parametrize("value", [[413], 413, "413", None, {"413"}, {True}, {413.0}])
def test_retry_on_and_split_on_are_sets_of_whole_numbers(value):
    with pytest.raises(ConfigurationError, match=r"Batching\.split_on must be (a set|an HTTP status)"):
        Batching(split_on=value)
    with pytest.raises(ConfigurationError, match=r"RetryPolicy\.retry_on must be (a set|an HTTP status)"):
        RetryPolicy(retry_on=value)


@pytest.mark.parametrize("value", ["repeat", "RETRY", "", None, True, 1])
def test_unknown_is_one_of_three_values(value):
    with pytest.raises(ConfigurationError, match=r"RetryPolicy\.unknown must be"):
        RetryPolicy(unknown=value)


@pytest.mark.parametrize("value", ["block", "", None, True])
def test_when_full_is_one_of_two_values(value):
    assert Limits(when_full="raise").when_full == "raise"
    with pytest.raises(ConfigurationError, match=r"Limits\.when_full must be 'wait' or 'raise'"):
        Limits(when_full=value)


@pytest.mark.parametrize(
    "value",
    [
        {"500": REJECTED},
        {True: REJECTED},
        {500.0: REJECTED},
        {500: NOT_SENT},
        {500: "rejected"},
        {500: None},
        {500: []},
        {500: REJECTED, 502: 1},
        *(None, [500], {500}, "500", 500),
    ],
)
def test_a_reading_of_statuses_maps_numbers_to_what_an_answer_can_mean(value):
    with pytest.raises(ConfigurationError, match=r"RetryPolicy\.statuses must be "):
        RetryPolicy(statuses=value)


def test_a_reading_given_as_text_is_refused_or_means_the_outcome():
    try:
        policy = RetryPolicy(statuses={429: "UNKNOWN"})
    except ConfigurationError:
        return
    evidence = Evidence()
    evidence.status = 429
    attempt = judge(evidence, statuses=policy.statuses, retry_on=policy.retry_on, started=0.0, seconds=0.0)
    assert attempt.outcome is UNKNOWN
    assert not policy.should_retry(attempt, collapsible=False)


# -- values -----------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_aws_and_grpc():
    policy = RetryPolicy()
    assert (
        policy.max_attempts,
        policy.initial_delay,
        policy.max_delay,
        policy.throttle_delay,
        policy.max_retry_after,
    ) == (
        4,
        0.1,
        5.0,
        1.0,
        60.0,
    )
    assert (policy.retry_on, policy.statuses, policy.unknown) == (RETRYABLE, {}, "raise")
    assert Timeout() == Timeout(total=30.0, attempt=10.0, connect=5.0)
    assert Batching() == Batching(linger=0.0, max_users=1000, max_bytes=2**20, split_on={413, 400, 422})
    assert Limits() == Limits(in_flight=None, queued_users=100_000, queued_bytes=64 * 2**20, when_full="wait")
    assert Rate() == Rate(requests_per_second=None, users_per_second=None)


def test_a_policy_does_not_change_under_its_requests():
    statuses, retry_on, split_on = {500: REJECTED}, {429}, {400}
    policy, batching = RetryPolicy(statuses=statuses, retry_on=retry_on), Batching(split_on=split_on)
    statuses[502] = REJECTED
    retry_on.add(404)
    split_on.add(404)
    assert (policy.statuses, policy.retry_on, batching.split_on) == ({500: REJECTED}, {429}, {400})
    with pytest.raises(AttributeError):
        policy.max_attempts = 9


def test_policies_that_say_the_same_are_equal_and_hash_alike():
    def one():
        return RetryPolicy.safe(statuses={500: REJECTED}, retry_on={429, 408})

    assert one() == one()
    assert hash(one()) == hash(one())
    assert len({one(), one(), RetryPolicy.none(), RetryPolicy.at_least_once()}) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"max_attempts": 5},
        {"initial_delay": 0.2},
        {"max_delay": 4.0},
        {"throttle_delay": 2.0},
        {"max_retry_after": 5.0},
        {"statuses": {500: REJECTED}},
        {"retry_on": {429}},
        {"unknown": "retry"},
        {"stop": lambda _: True},
        {"wait": lambda _: 1.0},
        {"retry": lambda _: True},
    ],
)
def test_policies_that_differ_anywhere_compare_unequal(change):
    assert RetryPolicy(**change) != RetryPolicy()


@pytest.mark.parametrize(
    "value",
    [RetryPolicy.collapsible(statuses={500: REJECTED}), Timeout(total=None), Batching(linger=1), Limits(), Rate()],
)
def test_settings_pickle_and_are_checked_when_a_field_is_replaced(value):
    assert pickle.loads(pickle.dumps(value)) == value
    name = value.__struct_fields__[0]
    with pytest.raises(ConfigurationError):
        msgspec.structs.replace(value, **{name: -1})


# -- retries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "collapsible", "repeats_unknown"),
    [
        (RetryPolicy.safe(), False, False),
        (RetryPolicy.safe(), True, False),
        (RetryPolicy.none(), True, False),
        (RetryPolicy.from_tenacity(stop=lambda state: True), True, False),
        (RetryPolicy.collapsible(), False, False),
        (RetryPolicy.collapsible(), True, True),
        (RetryPolicy.at_least_once(), False, True),
        (RetryPolicy.at_least_once(), True, True),
    ],
)
def test_an_unknown_is_retried_only_by_the_presets_that_say_so(policy, collapsible, repeats_unknown):
    for marked in (False, True):
        unknown = Attempt(outcome=UNKNOWN, retryable=marked)
        assert policy.should_retry(unknown, collapsible=collapsible) is repeats_unknown


@pytest.mark.parametrize("policy", [RetryPolicy.safe(), RetryPolicy.collapsible(), RetryPolicy.at_least_once()])
@pytest.mark.parametrize("outcome", [REJECTED, NOT_SENT])
def test_other_outcomes_are_retried_if_the_table_says_so(policy, outcome):
    assert policy.should_retry(Attempt(outcome=outcome, retryable=True), collapsible=False)
    assert not policy.should_retry(Attempt(outcome=outcome, retryable=False), collapsible=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retry_on": {500}}, r"500 does not mean REJECTED.*statuses=\{500: Outcome.REJECTED\}"),
        ({"retry_on": {429, 503}}, "503 does not mean REJECTED"),
        ({"retry_on": {204, 429}}, "204 does not mean REJECTED"),
        ({"retry_on": {429}, "statuses": {429: UNKNOWN}}, "429 does not mean REJECTED"),
    ],
)
def test_a_status_in_retry_on_must_mean_rejected(settings, words):
    with pytest.raises(ConfigurationError, match=words):
        RetryPolicy.safe(**settings)


def test_a_status_that_means_rejected_may_be_in_retry_on_and_the_default_fits_all_statuses():
    assert RetryPolicy.safe(retry_on={401, 500}, statuses={500: REJECTED}).retry_on == {401, 500}
    assert RetryPolicy.safe(statuses={429: UNKNOWN, 500: REJECTED}).retry_on == {408, 425, 429}


def test_tenacitys_strategies_are_carried_and_not_looked_into():
    stop, wait, retry = (lambda _, name=name: name for name in ("stop", "wait", "retry"))
    policy = RetryPolicy.from_tenacity(stop=stop, wait=wait, retry=retry, max_attempts=7)
    assert (policy.stop, policy.wait, policy.retry, policy.max_attempts) == (stop, wait, retry, 7)
    assert policy.unknown == "raise"


# -- delays -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "attempt", "longest"),
    [
        (1, BROKEN, 0.1),
        (2, BROKEN, 0.2),
        (6, BROKEN, 3.2),
        (7, BROKEN, 5.0),
        (2000, BROKEN, 5.0),
        (1, THROTTLED, 1.0),
        (3, THROTTLED, 4.0),
        (4, THROTTLED, 5.0),
        (1, Attempt(outcome=REJECTED, status=408, retryable=True), 0.1),
    ],
)
def test_the_longest_wait_doubles_up_to_the_cap_and_starts_at_a_second_after_a_throttle(number, attempt, longest):
    assert RetryPolicy().backoff(number, attempt, 0.0) == 0.0
    assert RetryPolicy().backoff(number, attempt, 1.0) == pytest.approx(longest)


@pytest.mark.parametrize("status", [429, 503])
def test_a_retry_after_is_a_minimum_with_jitter_on_top(status):
    attempt = Attempt(outcome=REJECTED, status=status, retryable=True, retry_after=7.0)
    assert RetryPolicy().backoff(1, attempt, 0.0) == 7.0
    assert RetryPolicy().backoff(1, attempt, 1.0) == pytest.approx(7.1)


@pytest.mark.filterwarnings("ignore::pushsdk.MessageWarning")
@given(
    st.integers(1, 10_000),
    st.floats(0, 1),
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e6),
    st.none() | st.floats(0, 1e6),
    st.sampled_from([None, 408, 429, 503]),
)
def test_a_wait_is_within_its_bounds(number, draw, base, cap, retry_after, status):
    policy = RetryPolicy(initial_delay=base, max_delay=cap, throttle_delay=2 * base)
    attempt = Attempt(outcome=REJECTED, status=status, retryable=True, retry_after=retry_after)
    least = retry_after or 0.0
    first = 2 * base if status == 429 and retry_after is None else base
    wait = policy.backoff(number, attempt, draw)
    assert least <= wait <= least + min(cap, first * 2.0 ** min(number - 1, 100)) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(("number", "longest"), [(1, 0.1), (4, 0.8), (9, 5.0)])
def test_the_jitter_is_full_and_uniform_over_10000_draws(number, longest):
    draw = random.Random(number).random
    waits = [RetryPolicy().backoff(number, BROKEN, draw()) for _ in range(10_000)]
    tenths = [0] * 10
    for wait in waits:
        tenths[min(9, int(wait / longest * 10))] += 1
    assert all(0 <= wait <= longest for wait in waits)
    assert all(900 <= count <= 1100 for count in tenths)
    assert sum(waits) / len(waits) == pytest.approx(longest / 2, rel=0.03)
