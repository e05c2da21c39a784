"""Limits: the limit that refuses a request, the counts of rate and quota, and the check of their values."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk.emulator.guard import Refused
from pushsdk.emulator.limits import Limiter, ServiceLimits


def judge(limiter, *, user_ids=("ann",), size=100, now=0.0):
    """Return the refusal of a request, or None."""
    try:
        limiter.check(user_ids=user_ids, size=size, now=now)
    except Refused as refused:
        return refused
    return None


@pytest.mark.parametrize(
    ("limits", "within", "beyond", "status", "text"),
    [
        ({"max_users": 1}, {}, {"user_ids": ("ann", "bob")}, 413, "2 users, at most 1 are allowed - at `$.us"),
        ({"max_body_bytes": 100}, {}, {"size": 101}, 413, "the body is 101 bytes, at most 100"),
        ({"rate": 1 / 86_400}, {}, {}, 429, "try again in 86400 s"),
        ({"quota": 1}, {}, {"user_ids": ("ann", "bob")}, 429, "quota is 1 users, 0 are used: 2 more"),
        (
            {"invalid_user_ids": ["bob"]},
            {"user_ids": ("ann", "Bob", "bobb")},
            {"user_ids": ("ann", "bob", "bob")},
            400,
            "2 of 3 user ids are invalid - at `$.userIds[1]`",
        ),
    ],
)
def test_each_limit_refuses_with_its_status_and_names_no_user(limits, within, beyond, status, text):
    limiter = Limiter(ServiceLimits(**limits))
    assert judge(limiter, **within) is None
    refusal = judge(limiter, **beyond)
    assert refusal.status == status
    assert text in refusal.error
    assert "bob" not in refusal.error


# Rate


@pytest.mark.parametrize(
    ("limits", "times", "delays"),
    [
        ({"rate": 2.5}, [0, 0, 0, 0], [None, None, None, "1"]),
        ({"rate": 1}, [10, 5, 10, 11], [None, "1", "1", None]),
        ({"rate": 1, "retry_after": 1.2}, [0, 0], [None, "2"]),
        ({"rate": 1, "retry_after": 0}, [0, 0], [None, "0"]),
        ({"rate": 5e-324}, [0, 0], [None, "86400"]),
    ],
)
def test_a_request_over_the_rate_is_told_to_wait_whole_seconds(limits, times, delays):
    limiter = Limiter(ServiceLimits(**limits))
    refusals = [judge(limiter, now=now) for now in times]
    assert [refusal and refusal.headers["Retry-After"] for refusal in refusals] == delays
    assert all(f"in {refusal.headers['Retry-After']} s" in refusal.error for refusal in refusals if refusal)


@given(start=st.floats(0, 2e9), rate=st.floats(0.01, 1000))
def test_a_client_that_waits_for_retry_after_is_accepted(start, rate):
    limiter = Limiter(ServiceLimits(rate=rate, burst=1))
    assert judge(limiter, now=start) is None
    wait = int(judge(limiter, now=start).headers["Retry-After"])
    assert judge(limiter, now=start + wait) is None


# Quota


def test_the_quota_counts_accepted_users_and_ends_campaigns_when_used_up():
    limiter = Limiter(ServiceLimits(quota=3))
    assert judge(limiter, user_ids=("ann", "bob", "cat")) is None
    limiter.used += 2  # other users were accepted
    assert judge(limiter, user_ids=("ann", "bob")).status == 429
    assert judge(limiter) is None
    assert judge(limiter, user_ids=()) is None
    limiter.used += 7
    assert judge(limiter).status == 429
    assert judge(limiter, user_ids=()).status == 429


# Values


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"rate": 0}, "rate must be a number greater than 0"),
        ({"burst": 3}, "burst needs a rate"),
        ({"invalid_user_ids": "ann"}, "invalid_user_ids"),
    ],
)
def test_an_invalid_limit_is_refused_in_python_and_in_json(values, text):
    with pytest.raises((ValueError, TypeError), match=text):
        ServiceLimits(**values)
    with pytest.raises(ValueError, match=next(iter(values))):
        msgspec.json.decode(json.dumps(values), type=ServiceLimits)


def test_limits_are_read_from_json_and_show_no_user_id():
    ids = ["ann"]
    limits = ServiceLimits(rate=0.5, invalid_user_ids=ids)
    assert msgspec.json.decode(msgspec.json.encode(limits), type=ServiceLimits) == limits
    ids.append("bob")
    assert limits.invalid_user_ids == ("ann",)
    shown = repr(ServiceLimits(max_users=3, invalid_user_ids=ids))
    assert shown == "ServiceLimits(max_users=3, invalid_user_ids=<2>)"
