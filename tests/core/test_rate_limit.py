"""Delays before the next request: pauses, fixed rates, and parsing Retry-After."""

from email.utils import formatdate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushsdk._core.policy import Rate
from pushsdk._core.rate_limit import DAY, RateLimiter, parse_retry_after

NOW = 1_700_000_000.0


def test_a_retry_after_in_seconds_or_as_a_date_is_read_and_anything_else_counts_as_absent():
    for value, seconds in [
        ("0", 0.0),
        (" 007 ", 7.0),
        ("9" * 5000, DAY),
        ("7.5", 8.0),
        (f"1.{'0' * 5000}1", 1.0),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("Wed, 15 Nov 2023 00:13:50 +0200", 30.0),
        ("", None),
        ("soon", None),
        ("٣", None),
        ("Wed, 99 Foo 2030 00:00:00 GMT", None),
        ("Wed, 21 Oct 2015 07:28:00 +9999", None),
    ]:
        assert parse_retry_after({"Retry-After": value}, wall_clock=NOW) == seconds


def test_a_date_counts_from_the_clock_of_the_service_if_the_answer_has_it():
    for clock in [NOW - 10**6, NOW + 500]:
        headers = {"Retry-After": formatdate(clock + 90, usegmt=True), "Date": formatdate(clock, usegmt=True)}
        assert parse_retry_after(headers, wall_clock=NOW) == 90.0
        assert parse_retry_after({"Retry-After": formatdate(NOW + 1, usegmt=True)}, wall_clock=NOW + 0.5) == 1.0


dates = st.builds(
    "{}, {} {} {} {}:{}:{} {}".format,
    st.sampled_from(["Mon", "Xyz", ""]),
    st.integers(-1, 40),
    st.sampled_from(["Jan", "Feb", "dec", "Foo", ""]),
    st.integers(-1, 10**9),
    st.integers(-1, 99),
    st.integers(-1, 99),
    st.integers(-1, 10**6),
    st.sampled_from(["GMT", "UTC", "-0000", "+2359", "+9999", "-99999999999999999999", "EST", ""]),
)


@given(st.text() | st.integers().map(str) | st.floats().map(str) | dates, st.text() | dates, st.floats(0, 1e11))
@example("1" * 400, "", NOW)
@example("Mon, 01 Jan 0001 00:00:00 +2359", "", NOW)
@example("Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 0001 00:00:00 +2359", NOW)
def test_the_wait_is_whole_seconds_of_at_most_a_day(value, date, wall_clock):
    seconds = parse_retry_after({"Retry-After": value, "Date": date}, wall_clock=wall_clock)
    assert seconds is None or seconds in range(int(DAY) + 1)


# -- the limiter ------------------------------------------------------------------------------------------------


def delay(gate, now):
    return gate.not_before - now


def test_a_pause_holds_until_its_end_and_a_shorter_one_never_shortens_it():
    gate = RateLimiter(Rate())
    for end, expected in ((12.0, 2.0), (11.0, 2.0), (15.0, 5.0)):
        gate.pause(end)
        assert delay(gate, 10.0) == expected
        assert gate.paused_until == 10.0 + expected


@given(
    st.floats(0.5, 1000),
    st.floats(0.5, 10_000),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 1000)), min_size=1, max_size=60),
)
def test_over_any_stretch_no_more_starts_than_the_rates_allow(per_request, per_user, arrivals):
    gate = RateLimiter(Rate(requests_per_second=per_request, users_per_second=per_user))
    now = 0.0
    started = []
    for gap, users in arrivals:
        now += gap
        now += max(0.0, delay(gate, now))
        gate.charge(now, users)
        started.append((now, users))
    for i, (begin, _) in enumerate(started):
        # The last request of a stretch is paid for after it.
        paid = started[i:-1]
        stretch = started[-1][0] - begin
        assert len(paid) <= stretch * per_request * (1 + 1e-9) + 1e-6
        assert sum(users for _, users in paid) <= stretch * per_user * (1 + 1e-9) + 1e-3


@given(st.lists(st.tuples(st.integers(1, 100), st.booleans()), min_size=1, max_size=10))
def test_a_start_that_came_to_nothing_is_as_if_it_had_not_been_charged(starts):
    refunded, never = (RateLimiter(Rate(users_per_second=10)) for _ in range(2))
    for users, is_real in starts:
        refunded.charge(0.0, users)
        if is_real:
            never.charge(0.0, users)
    for users, is_real in starts:
        if not is_real:
            refunded.refund(users)
    assert max(0.0, delay(refunded, 0.0)) == pytest.approx(max(0.0, delay(never, 0.0)))


def test_a_pause_is_not_refunded():
    gate = RateLimiter(Rate(users_per_second=10))
    gate.pause(5.0)
    gate.charge(5.0, 10)
    gate.refund(10)
    assert delay(gate, 0.0) == 5.0
