"""Limits: validation, the limit that refuses a request, the counts of rate and quota."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk.emulator.guard import Refused
from pushsdk.emulator.limits import Limiter, LimitStatuses, ServiceLimits


def judge(limiter, *, endpoint="push", user_ids=("ann",), size=100, now=0.0):
    """Return the refusal of a request, or None."""
    try:
        limiter.check(endpoint=endpoint, user_ids=user_ids, size=size, now=now)
    except Refused as refused:
        return refused
    return None


def statuses(limiter, times):
    """Return for each time the status of the refusal, or None."""
    refusals = [judge(limiter, now=now) for now in times]
    return [refusal and refusal.status for refusal in refusals]


@pytest.mark.parametrize(
    ("limits", "limit", "request_", "status"),
    [
        ({"max_users": 2}, "users", {"user_ids": ("ann", "bob", "cat")}, 413),
        ({"max_body_bytes": 99}, "body", {"size": 100}, 413),
        ({"rate": 1 / 86_400}, "rate", {}, 429),
        ({"quota": 0}, "quota", {}, 429),
        ({"invalid_user_ids": ["cat"]}, "invalid", {"user_ids": ("ann", "cat")}, 400),
    ],
)
def test_each_limit_refuses_with_its_status(limits, limit, request_, status):
    for options, expected in ((limits, status), (limits | {"statuses": LimitStatuses(**{limit: 422})}, 422)):
        limiter = Limiter(ServiceLimits(**options))
        if limit == "rate":
            assert judge(limiter) is None
        assert judge(limiter, **request_).status == expected


@pytest.mark.parametrize(
    ("limits", "request_"),
    [
        ({"max_users": 2}, {"user_ids": ("ann", "bob")}),
        ({"max_body_bytes": 100}, {"size": 100}),
        ({"quota": 1}, {}),
        ({"quota": 1}, {"endpoint": "campaigns", "user_ids": ()}),
        ({"invalid_user_ids": ["cat"]}, {"user_ids": ("ann", "Cat", "ca", "catt")}),
    ],
)
def test_a_request_within_the_limits_passes(limits, request_):
    assert judge(Limiter(ServiceLimits(**limits)), **request_) is None


def test_the_limits_are_tried_in_the_order_of_their_statuses():
    limiter = Limiter(ServiceLimits(rate=1, max_body_bytes=1, max_users=1, invalid_user_ids=["ann"], quota=0))
    verdicts = [
        judge(limiter, user_ids=("ann", "bob")),
        judge(limiter, now=0.5),
        judge(limiter, user_ids=("ann", "bob"), size=1, now=1),
        judge(limiter, size=1, now=2),
        judge(limiter, user_ids=("bob",), size=1, now=3),
    ]
    assert [refusal.error.split()[0] for refusal in verdicts] == ["the", "over", "the", "1", "the"]


@pytest.mark.parametrize(
    ("limits", "request_", "text"),
    [
        ({"max_users": 1}, {"user_ids": ("ann", "bob")}, "2 users, at most 1 are allowed - at `$.userIds`"),
        ({"max_body_bytes": 9}, {}, "100 bytes, at most 9"),
        ({"invalid_user_ids": ["bob"]}, {"user_ids": ("ann", "bob", "bob")}, "2 of 3 .* at `$.userIds[1]`"),
        ({"quota": 1}, {"user_ids": ("ann", "bob")}, "quota is 1 users, 0 are used: 2 more"),
    ],
)
def test_an_error_names_positions_and_numbers_and_no_user(limits, request_, text):
    error = judge(Limiter(ServiceLimits(**limits)), **request_).error
    assert all(part in error for part in text.split(" .* "))
    assert not any(user_id in error for user_id in ("ann", "bob"))


@pytest.mark.parametrize(
    ("limits", "times", "refused"),
    [
        ({"rate": 3}, [0] * 5, [3, 4]),
        ({"rate": 2.5}, [0] * 4, [3]),
        ({"rate": 10, "burst": 1}, [0, 0, 0.05, 0.1, 0.1], [1, 2, 4]),
        ({"rate": 1, "burst": 3}, [0] * 4, [3]),
        ({"rate": 2}, [0, 1000, 1000, 1000], [3]),
        ({"rate": 1}, [10, 5, 10, 11], [1, 2]),
    ],
    ids=["one second", "rounded up", "a burst of 1", "a burst of 3", "after a pause", "a clock that steps back"],
)
def test_a_burst_is_one_second_of_the_rate_or_as_configured(limits, times, refused):
    limiter = Limiter(ServiceLimits(**limits))
    statuses = [refusal and refusal.status for refusal in (judge(limiter, now=now) for now in times)]
    assert statuses == [429 if number in refused else None for number in range(len(times))]


@pytest.mark.parametrize(
    ("limits", "now", "delay"),
    [
        ({"rate": 1}, 0.0, "1"),
        ({"rate": 1}, 0.5, "1"),
        ({"rate": 0.1}, 0.0, "10"),
        ({"rate": 0.1}, 8.5, "2"),
        ({"rate": 1000, "burst": 1}, 0.0, "1"),
        ({"rate": 1, "retry_after": 30}, 0.0, "30"),
        ({"rate": 1, "retry_after": 1.2}, 0.0, "2"),
        ({"rate": 1, "retry_after": 0}, 0.0, "0"),
    ],
)
def test_retry_after_is_whole_seconds_until_a_token_or_as_configured(limits, now, delay):
    limiter = Limiter(ServiceLimits(**limits))
    judge(limiter)
    refusal = judge(limiter, now=now)
    assert refusal.headers == {"Retry-After": delay}
    assert f"in {delay} s" in refusal.error


def test_only_rate_refusals_have_retry_after():
    assert judge(Limiter(ServiceLimits(quota=0, retry_after=5))).headers == {}


@given(start=st.floats(0, 2e9), rate=st.floats(0.01, 1000))
def test_a_client_that_waits_for_retry_after_is_accepted(start, rate):
    limiter = Limiter(ServiceLimits(rate=rate, burst=1))
    assert judge(limiter, now=start) is None
    wait = int(judge(limiter, now=start).headers["Retry-After"])
    assert judge(limiter, now=start + wait) is None


@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 20),
    pauses=st.lists(st.floats(0, 1), max_size=200),
)
def test_no_interval_exceeds_burst_plus_rate(rate, burst, pauses):
    limiter, now, times = Limiter(ServiceLimits(rate=rate, burst=burst)), 1000.0, []
    for pause in pauses:
        now += pause
        if judge(limiter, now=now) is None:
            times.append(now)
    for first in range(0, len(times), 7):
        for last in range(first, len(times), 5):
            assert last - first + 1 <= burst + (times[last] - times[first]) * rate + 1e-3


def test_a_request_refused_for_another_reason_has_taken_its_token():
    limiter = Limiter(ServiceLimits(rate=1, max_body_bytes=1))
    assert [judge(limiter).status for _ in range(2)] == [413, 429]


def test_the_quota_counts_only_what_was_accepted():
    limiter = Limiter(ServiceLimits(quota=3))
    assert judge(limiter, user_ids=("ann", "bob", "cat")) is None
    assert judge(limiter, user_ids=("ann", "bob")) is None
    limiter.used += 2
    assert judge(limiter, user_ids=("ann", "bob")).status == 429
    assert judge(limiter) is None
    limiter.used += 1
    assert limiter.used == 3
    assert judge(limiter).status == 429


def test_a_campaign_is_refused_once_the_quota_is_used_up():
    limiter = Limiter(ServiceLimits(quota=5))
    limiter.used += 4
    assert judge(limiter, endpoint="campaigns", user_ids=()) is None
    limiter.used += 7
    assert judge(limiter, endpoint="campaigns", user_ids=()).status == 429


BAD = [
    ("max_users", [0, -1, 1.5, "1", True]),
    ("max_body_bytes", [0, -1, 1e3, "1", False]),
    ("rate", [0, -1, 1e-9, "1", True]),
    ("retry_after", [-0.1, 86_401, "1", True]),
    ("quota", [-1, 1.5, "1", True]),
    ("invalid_user_ids", ["ann", [1], None]),
    ("strict", [1, "yes", None]),
    ("statuses", [{"rate": 399}, {"body": 600}, {"users": 204}, {"invalid": "400"}, {"quota": True}, {"rat": 429}, 3]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD for value in values])
def test_an_invalid_limit_is_refused_in_python_and_in_json(name, value):
    with pytest.raises(ValueError, match=name.partition("_")[0]):
        msgspec.json.decode(json.dumps({name: value}), type=ServiceLimits)
    if not isinstance(value, dict):
        with pytest.raises(ValueError, match=name):
            ServiceLimits(**{name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_limit_that_is_not_a_number_is_refused(value):
    for name in ("rate", "retry_after"):
        with pytest.raises(ValueError, match=name):
            ServiceLimits(**{name: value})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ServiceLimits(max_users=0), "ServiceLimits.max_users must be a whole number, 1 or more; got 0"),
        (lambda: ServiceLimits(retry_after=-1), "retry_after must be a number of seconds from 0 to 86400; got -1"),
        (lambda: ServiceLimits(burst=0, rate=1), "burst must be a whole number, 1 or more; got 0"),
        (lambda: ServiceLimits(burst=3), "burst needs a rate"),
        (lambda: LimitStatuses(rate=200), "^LimitStatuses.rate must be a status from 400 to 599; got 200"),
        (lambda: msgspec.json.decode(b'{"max_user": 1}', type=ServiceLimits), "unknown field `max_user`"),
    ],
)
def test_an_error_says_what_to_do(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_limits_survive_json():
    limits = ServiceLimits(
        max_users=1,
        max_body_bytes=2,
        rate=0.5,
        burst=3,
        retry_after=1.5,
        quota=0,
        invalid_user_ids=["ann"],
        strict=True,
        statuses=LimitStatuses(quota=403),
    )
    assert msgspec.json.decode(msgspec.json.encode(limits), type=ServiceLimits) == limits
    assert msgspec.json.decode(b"{}", type=ServiceLimits) == ServiceLimits()


def test_limits_copy_the_callers_list():
    ids = ["ann"]
    limits = ServiceLimits(invalid_user_ids=ids)
    ids.append("bob")
    assert limits.invalid_user_ids == ("ann",)


def test_no_user_id_is_in_the_repr_of_limits():
    assert (
        repr(ServiceLimits(max_users=3, invalid_user_ids=["ann"])) == "ServiceLimits(max_users=3, invalid_user_ids=<1>)"
    )
    assert repr(ServiceLimits()) == "ServiceLimits()"
