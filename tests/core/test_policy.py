"""Settings: rejected values, presets of the retry policy, and delays."""

import pytest

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.stop_policy import StopPolicy

REJECTED = Outcome.REJECTED
NOT_SENT = Outcome.NOT_SENT
UNKNOWN = Outcome.UNKNOWN
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


def test_a_policy_does_not_change_under_its_requests():
    statuses = {500: REJECTED}
    retry_on = {429}
    split_on = {400}
    policy = RetryPolicy(statuses=statuses, retry_on=retry_on)
    batching = Batching(split_on=split_on)
    statuses[502] = REJECTED
    retry_on.add(404)
    split_on.add(404)
    assert policy.statuses == {500: REJECTED}
    assert policy.retry_on == {429}
    assert batching.split_on == {400}
    with pytest.raises(AttributeError):
        policy.max_attempts = 9


# -- retries ----------------------------------------------------------------------------------------------------


def test_a_status_in_retry_on_must_mean_rejected_and_the_default_fits_all_statuses():
    with pytest.raises(ConfigurationError, match=r"500 does not mean REJECTED.*statuses=\{500: Outcome.REJECTED\}"):
        RetryPolicy.safe(retry_on={500})
    with pytest.raises(ConfigurationError, match="429 does not mean REJECTED"):
        RetryPolicy.safe(retry_on={429}, statuses={429: UNKNOWN})
    assert RetryPolicy.safe(retry_on={401, 500}, statuses={500: REJECTED}).retry_on == {401, 500}
    assert RetryPolicy.safe(statuses={429: UNKNOWN, 500: REJECTED}).retry_on == {408, 425, 429}


# -- delays -----------------------------------------------------------------------------------------------------


def test_the_longest_wait_doubles_up_to_the_cap_with_full_jitter_on_top_of_a_retry_after():
    for number, attempt, shortest, longest in [
        (1, BROKEN, 0.0, 0.1),
        (7, BROKEN, 0.0, 5.0),
        (2000, BROKEN, 0.0, 5.0),
        (3, THROTTLED, 0.0, 4.0),
        (1, Attempt(outcome=REJECTED, status=408, retryable=True), 0.0, 0.1),
        (1, Attempt(outcome=REJECTED, status=503, retryable=True, retry_after=7.0), 7.0, 7.1),
    ]:
        waits = [RetryPolicy().backoff(number, attempt, draw) for draw in (0.0, 0.5, 1.0)]
        assert waits == pytest.approx([shortest, (shortest + longest) / 2, longest])
