"""Settings: rejected values, presets of the retry policy, and delays."""

import pickle

import msgspec
import pytest

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import RETRYABLE, Attempt, Outcome
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.stop_policy import StopPolicy

ACCEPTED, REJECTED, NOT_SENT, UNKNOWN = Outcome.ACCEPTED, Outcome.REJECTED, Outcome.NOT_SENT, Outcome.UNKNOWN
THROTTLED = Attempt(outcome=REJECTED, status=429, retryable=True)
BROKEN = Attempt(outcome=NOT_SENT, retryable=True)


# What each kind of value takes, and the texts, are tested in test_kinds.
REFUSED = {
    RetryPolicy: {
        "initial_delay": [0],
        "max_delay": [0],
        "throttle_delay": [0],
        "max_retry_after": [0],
        "max_attempts": [0],
        "retry_on": [[413], {True}],
        "unknown": ["repeat"],
        "statuses": [[500], {True: REJECTED}, {500: REJECTED, 502: NOT_SENT}, {500: "rejected"}],
    },
    Batching: {"linger": [-0.001], "max_users": [0], "max_bytes": [0], "split_on": [{"413"}]},
    Limits: {"in_flight": [0], "queued_users": [None], "queued_bytes": [0], "when_full": ["block"]},
    Timeout: {"total": [0], "attempt": [0], "connect": [0]},
    Rate: {"requests_per_second": [0], "users_per_second": [0]},
    StopPolicy: {"rejected": [0], "unknown": [1.01], "after": [0], "max_outage": [0]},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_each_field_of_a_setting_is_checked_by_its_kind(kind):
    for name, values in REFUSED[kind].items():
        for value in values:
            with pytest.raises(ConfigurationError, match=rf"{kind.__name__}\.{name} must be "):
                kind(**{name: value})


def test_the_defaults_are_those_of_aws_and_grpc():
    assert RetryPolicy() == RetryPolicy(
        max_attempts=4,
        initial_delay=0.1,
        max_delay=5.0,
        throttle_delay=1.0,
        max_retry_after=60.0,
        retry_on=RETRYABLE,
        statuses={},
        unknown="raise",
    )
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


@pytest.mark.parametrize("value", [RetryPolicy.collapsible(statuses={500: REJECTED}), Timeout(total=None), Rate()])
def test_settings_pickle_and_are_checked_when_a_field_is_replaced(value):
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(ConfigurationError):
        msgspec.structs.replace(value, **{value.__struct_fields__[0]: -1})


# -- retries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "collapsible", "repeats_unknown"),
    [
        (RetryPolicy.safe(), True, False),
        (RetryPolicy.none(), True, False),
        (RetryPolicy.from_tenacity(stop=lambda state: True), True, False),
        (RetryPolicy.collapsible(), False, False),
        (RetryPolicy.collapsible(), True, True),
        (RetryPolicy.at_least_once(), False, True),
    ],
)
def test_only_retryable_attempts_are_retried_and_an_unknown_by_the_presets_that_say_so(
    policy, collapsible, repeats_unknown
):
    for retryable in (False, True):
        unknown = Attempt(outcome=UNKNOWN, retryable=retryable)
        assert policy.should_retry(unknown, collapsible=collapsible) is repeats_unknown
        for outcome in (REJECTED, NOT_SENT):
            attempt = Attempt(outcome=outcome, retryable=retryable)
            assert policy.should_retry(attempt, collapsible=collapsible) is retryable


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retry_on": {500}}, r"500 does not mean REJECTED.*statuses=\{500: Outcome.REJECTED\}"),
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


# -- delays -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "attempt", "shortest", "longest"),
    [
        (1, BROKEN, 0.0, 0.1),
        (6, BROKEN, 0.0, 3.2),
        (7, BROKEN, 0.0, 5.0),
        (2000, BROKEN, 0.0, 5.0),
        (1, THROTTLED, 0.0, 1.0),
        (3, THROTTLED, 0.0, 4.0),
        (1, Attempt(outcome=REJECTED, status=408, retryable=True), 0.0, 0.1),
        (1, Attempt(outcome=REJECTED, status=503, retryable=True, retry_after=7.0), 7.0, 7.1),
    ],
)
def test_the_longest_wait_doubles_up_to_the_cap_with_full_jitter_on_top_of_a_retry_after(
    number, attempt, shortest, longest
):
    waits = [RetryPolicy().backoff(number, attempt, draw) for draw in (0.0, 0.5, 1.0)]
    assert waits == pytest.approx([shortest, (shortest + longest) / 2, longest])
