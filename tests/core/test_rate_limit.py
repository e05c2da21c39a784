"""Delays before the next request: pauses, fixed rates, the adaptive rate, and parsing Retry-After."""

from __future__ import annotations

import math
from email.utils import formatdate
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.throttling import Bucket, Outage, Window, busy

from pushsdk._core.policy import Rate
from pushsdk._core.rate_limit import BEGIN_AT_LEAST, RateLimiter, parse_retry_after

NOW = 1_700_000_000.0


def parse(value: str | None) -> float | None:
    return parse_retry_after(value, wall_clock=NOW)


# -- Retry-After ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("1", 1.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("007", 7.0),
        ("999999999999999", 999999999999999.0),
        ("9" * 5000, math.inf),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("Tue, 14 Nov 2023 22:13:50 -0000", 30.0),
        ("Wed, 15 Nov 2023 00:13:50 +0200", 30.0),
    ],
)
def test_seconds_and_dates_are_read(value, seconds):
    assert parse(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        " ",
        "-1",
        "-0",
        "+5",
        "1.5",
        "1e3",
        "0x10",
        "1,2",
        "soon",
        "nan",
        "inf",
        "٣",
        "²",
        "2030-01-01T00:00:00Z",
        "Wed, 99 Foo 2030 00:00:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 +9999",
        "Wed, 21 Oct 2015 99:99:99 GMT",
        "\x00",
    ],
)
def test_what_is_negative_or_no_retry_after_counts_as_absent(value):
    assert parse(value) is None


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


@given(st.text() | st.integers().map(str) | dates, st.floats(0, 1e11))
@example("1" * 400, NOW)
@example("Mon, 01 Jan 0001 00:00:00 +2359", NOW)
@example("Fri, 31 Dec 9999 23:59:59 -2359", NOW)
def test_the_parser_never_raises_and_is_never_negative(value, wall_clock):
    seconds = parse_retry_after(value, wall_clock=wall_clock)
    assert seconds is None or seconds >= 0


@given(st.integers(0, 10**14))
def test_whole_seconds_come_back_as_they_are(seconds):
    assert parse(str(seconds)) == seconds


# -- the limiter ------------------------------------------------------------------------------------------------


def may_start(gate: RateLimiter, now: float) -> bool:
    return gate.delay(now) <= 0


def test_a_limiter_without_rates_never_delays():
    gate = RateLimiter(Rate())
    for _ in range(1000):
        gate.charge(5.0, 1000)
    assert may_start(gate, 5.0)
    assert may_start(gate, -1e9)


def test_a_pause_holds_until_its_end_and_not_longer():
    gate = RateLimiter(Rate())
    gate.pause(12.0)
    assert gate.delay(10.0) == 2.0
    assert not may_start(gate, 11.999)
    assert may_start(gate, 12.0)
    assert gate.paused_until == 12.0


def test_a_shorter_pause_never_shortens_a_longer_one():
    gate = RateLimiter(Rate())
    gate.pause(12.0)
    gate.pause(11.0)
    assert gate.paused_until == 12.0
    assert gate.delay(10.0) == 2.0
    gate.pause(15.0)
    assert gate.delay(10.0) == 5.0


def test_a_request_is_paid_for_by_the_wait_of_the_next():
    gate = RateLimiter(Rate(requests_per_second=4))
    assert may_start(gate, 10.0)
    gate.charge(10.0, 1)
    assert gate.delay(10.0) == 0.25
    gate.charge(10.25, 1)
    assert gate.delay(10.25) == 0.25


def test_users_are_charged_by_number_and_a_large_request_is_still_sent():
    gate = RateLimiter(Rate(users_per_second=100))
    gate.charge(10.0, 500)
    assert gate.delay(10.0) == pytest.approx(5.0)
    gate.charge(15.0, 1)
    assert gate.delay(15.0) == pytest.approx(0.01)


def test_of_two_rates_the_slower_holds():
    gate = RateLimiter(Rate(requests_per_second=10, users_per_second=100))
    gate.charge(0.0, 1)
    assert gate.delay(0.0) == pytest.approx(0.1)
    gate = RateLimiter(Rate(requests_per_second=10, users_per_second=100))
    gate.charge(0.0, 50)
    assert gate.delay(0.0) == pytest.approx(0.5)


def test_time_that_passed_unused_is_not_saved_up():
    gate = RateLimiter(Rate(requests_per_second=1))
    gate.charge(0.0, 1)
    gate.charge(100.0, 1)
    assert gate.delay(100.0) == 1.0


def test_a_pause_and_a_rate_hold_together():
    gate = RateLimiter(Rate(requests_per_second=1))
    gate.pause(5.0)
    assert not may_start(gate, 4.9)
    gate.charge(5.0, 1)
    assert gate.delay(5.0) == 1.0
    assert gate.paused_until == 5.0


@given(
    st.floats(0.5, 1000),
    st.floats(0.5, 10_000),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 1000)), min_size=1, max_size=60),
)
def test_over_any_stretch_no_more_starts_than_the_rates_allow(per_request, per_user, arrivals):
    gate = RateLimiter(Rate(requests_per_second=per_request, users_per_second=per_user))
    now = 0.0
    started: list[tuple[float, int]] = []
    for gap, users in arrivals:
        now += gap
        now += max(0.0, gate.delay(now))
        gate.charge(now, users)
        started.append((now, users))
    for i, (begin, _) in enumerate(started):
        # The last request of a stretch is paid for after it.
        paid = started[i:-1]
        stretch = started[-1][0] - begin
        assert len(paid) <= stretch * per_request * (1 + 1e-9) + 1e-6
        assert sum(users for _, users in paid) <= stretch * per_user * (1 + 1e-9) + 1e-3


# -- the adaptive rate, step by step ----------------------------------------------------------------------------


def busy_second(count: int, *, until: float = 10.0) -> RateLimiter:
    """Return a limiter after so many requests in the last second."""
    gate = RateLimiter(Rate())
    for number in range(count):
        gate.charge(until - 1 + number / count, 1)
    return gate


def test_before_the_first_throttle_nothing_is_delayed():
    gate = busy_second(10_000)
    assert gate.rate(10.0) is None
    assert may_start(gate, 10.0)


def test_a_pause_alone_engages_nothing():
    gate = busy_second(1000)
    gate.pause(12.0)
    assert gate.rate(12.0) is None


def test_the_first_throttle_leaves_four_fifths_of_the_rate_measured_and_spaces_the_starts():
    gate = busy_second(1000)
    gate.throttled(9.99, 10.0)
    assert gate.rate(10.0) == pytest.approx(800.0)
    for _ in range(8):
        # The first starts make up for up to a hundredth of a second.
        assert may_start(gate, 10.0)
        gate.charge(10.0, 1)
    gate.charge(10.0, 1)
    assert gate.delay(10.0) == pytest.approx(1 / 800)
    gate.charge(10.00125, 1)
    assert gate.delay(10.00125) == pytest.approx(1 / 800, rel=0.01)


@pytest.mark.parametrize(
    ("starts", "rate"),
    [
        ([], 0.8 * BEGIN_AT_LEAST),
        ([9.9] * 1000, 800.0),
        ([8.5] * 1000, 800.0),
        ([8.0] * 1000 + [9.0] * 700, 800.0),
        ([8.0] * 700 + [9.0] * 1000, 800.0),
        ([8.0] * 700 + [9.0] * 1000 + [10.0] * 5, 800.0),
        ([6.0] * 1000 + [9.0] * 700, 560.0),
        ([7.0] * 1000 + [9.0] * 700, 560.0),
        ([9.0], 0.8 * BEGIN_AT_LEAST),
    ],
    ids=[
        "none",
        "a burst",
        "a burst a while ago",
        "the second before",
        "this second",
        "a new second has begun",
        "long ago does not count",
        "nor does the last but one",
        "one",
    ],
)
def test_measured_is_the_busier_of_the_last_two_seconds_with_starts(starts, rate):
    gate = RateLimiter(Rate())
    for start in starts:
        gate.charge(start, 1)
    gate.throttled(9.0, 10.0)
    assert gate.rate(10.0) == pytest.approx(rate)


@pytest.mark.parametrize("starts", [0, 1, 48, 500])
def test_one_throttle_does_not_pace_a_client_with_few_starts_below_what_it_begins_with(starts):
    gate = busy_second(starts)
    gate.throttled(9.9, 10.0)
    assert min(gate.rate(10.0 + seconds) for seconds in range(30)) == pytest.approx(0.8 * BEGIN_AT_LEAST)


def test_the_rate_grows_by_a_fixed_amount_is_back_after_10_s_and_off_after_30_s():
    gate = busy_second(1000)
    gate.throttled(9.99, 10.0)
    rates = [gate.rate(10.0 + seconds) for seconds in (0, 5, 10, 20, 29.999)]
    assert rates == pytest.approx([800, 900, 1000, 1200, 1400], rel=0.01)
    assert gate.rate(40.0) is None
    gate.charge(40.0, 1)
    gate.charge(40.0, 1)
    assert gate.delay(40.0) <= 0


def test_the_rate_grows_from_the_end_of_the_pause_in_either_order():
    early, late = busy_second(1000), busy_second(1000)
    early.pause(25.0)
    early.throttled(9.99, 10.0)
    late.throttled(9.99, 10.0)
    late.pause(25.0)
    for gate in (early, late):
        assert [gate.rate(now) for now in (9.0, 10.0, 25.0, 35.0)] == pytest.approx([800, 800, 800, 1000])
        assert gate.rate(54.9) is not None
        assert gate.rate(55.0) is None


def test_what_was_under_way_at_a_decrease_does_not_decrease_again():
    gate = busy_second(1000)
    gate.throttled(9.9, 10.0)
    for number in range(25):
        gate.throttled(9.999, 10.0 + number)
        assert gate.rate(10.0) == pytest.approx(800)


def test_within_a_second_there_is_one_decrease():
    gate = busy_second(1000)
    gate.throttled(9.9, 10.0)
    gate.throttled(10.5, 10.99)
    assert gate.rate(10.0) == pytest.approx(800)
    gate.throttled(10.5, 11.0)
    assert gate.rate(11.0) == pytest.approx(0.8 * 820)


def test_what_was_answered_after_a_pause_but_left_before_it_does_not_decrease_again():
    gate = busy_second(1000)
    gate.throttled(9.9, 10.0)
    gate.pause(15.0)
    gate.throttled(10.0, 15.5)
    assert gate.rate(15.0) == pytest.approx(800)
    gate.throttled(15.0, 15.6)
    assert gate.rate(15.6) < 700


def test_a_throttle_after_it_was_disengaged_measures_anew():
    gate = busy_second(1000)
    gate.throttled(9.9, 10.0)
    for number in range(600):
        gate.charge(60.0 + number / 1200, 1)
    gate.throttled(60.4, 60.5)
    assert gate.rate(60.5) == pytest.approx(480.0)


def test_the_fixed_rates_hold_during_and_after_the_adaptive_rate():
    gate = RateLimiter(Rate(requests_per_second=2))
    gate.throttled(9.9, 10.0)
    assert gate.rate(10.0) == 0.8 * BEGIN_AT_LEAST
    gate.charge(10.0, 1)
    assert gate.delay(10.0) == 0.5
    for now in (38.0, 50.0, 51.0):
        gate.charge(now, 1)
        assert gate.delay(now) == 0.5


def test_a_fixed_rate_below_the_floor_holds():
    gate = RateLimiter(Rate(requests_per_second=0.1))
    gate.throttled(9.9, 10.0)
    gate.charge(10.0, 1)
    assert gate.delay(10.0) == 10.0


def test_a_late_timer_is_made_up_for_but_an_idle_time_is_not():
    gate = busy_second(1000)
    gate.throttled(9.99, 10.0)
    starts, now = 0, 10.5
    gate.charge(now, 1)
    for _ in range(100):
        now += 0.005
        while gate.delay(now) <= 0:
            gate.charge(now, 1)
            starts += 1
    assert starts == pytest.approx(0.5 * gate.rate(10.75), rel=0.03)
    now += 5.0
    burst = 0
    while gate.delay(now) <= 0:
        gate.charge(now, 1)
        burst += 1
    assert burst <= 12


# -- the adaptive rate, against services that throttle ----------------------------------------------------------


@pytest.mark.parametrize("latency", [0.02, 0.2])
@pytest.mark.parametrize(
    ("limit", "make"),
    [
        (100, lambda: Bucket(100, 100, retry_after=1)),
        (100, lambda: Bucket(100, 10, retry_after=1)),
        (100, lambda: Bucket(100, 100)),
        (100, lambda: Bucket(100, 5)),
        (250, lambda: Bucket(250, 50)),
        (5, lambda: Bucket(5, 5, retry_after=1)),
        (5, lambda: Bucket(5, 5)),
        (100, lambda: Window(100, 1, tells=True)),
        (100, lambda: Window(100, 1, tells=False)),
        (100, lambda: Window(100, 10, tells=True)),
    ],
    ids=[
        "bucket, Retry-After",
        "small bucket, Retry-After",
        "bucket",
        "small bucket",
        "fast",
        "slow, Retry-After",
        "slow",
        "window, Retry-After",
        "window",
        "long window, Retry-After",
    ],
)
def test_a_limit_is_used_to_83_percent_and_less_than_5_percent_are_throttled(limit, make, latency):
    day = busy(RateLimiter(Rate()), make(), until=240, latency=latency)
    # A Retry-After in whole seconds costs 5 percent of its own.
    assert 0.83 * limit < day.rate(40, 240) < 1.05 * limit
    assert day.throttled(40, 240) < 0.05


@pytest.mark.parametrize("retry_after", [None, 1.0])
@pytest.mark.parametrize("latency", [0.02, 0.2])
def test_a_quota_that_drops_to_a_tenth_is_found_within_30_s(retry_after, latency):
    service = Bucket(lambda now: 200 if now < 120 else 20, 40, retry_after)
    day = busy(RateLimiter(Rate()), service, until=300, latency=latency)
    assert day.rate(30, 120) > 0.85 * 200
    assert day.throttled(150, 300) < 0.05
    assert 0.85 * 20 < day.rate(150, 300) < 1.05 * 20


@pytest.mark.parametrize("latency", [0.02, 0.2])
@pytest.mark.parametrize("limit", [20, 50])
def test_a_limit_far_below_what_it_begins_with_is_found_in_15_s(limit, latency):
    limiter = RateLimiter(Rate())
    day = busy(limiter, Bucket(limit, limit), until=45, latency=latency)
    assert day.load(0, 5) <= 0.7 * BEGIN_AT_LEAST
    assert day.rate(15, 45) > 0.9 * limit
    assert day.throttled(15, 45) < 0.05


@pytest.mark.parametrize("latency", [0.02, 0.2])
def test_a_used_up_quota_that_names_no_end_is_used_to_85_percent_all_the_same(latency):
    day = busy(RateLimiter(Rate()), Window(100, 10, tells=False), until=240, latency=latency)
    assert day.rate(40, 240) > 0.85 * 100
    assert day.throttled(40, 240) < 0.1


@pytest.mark.parametrize("latency", [0.02, 0.2])
def test_a_short_outage_costs_less_than_a_third_of_the_minute_after_it(latency):
    day = busy(RateLimiter(Rate()), Outage(Bucket(200, 40), 60, 63), until=120, latency=latency)
    assert day.rate(63, 120) > 0.7 * 200


@pytest.mark.parametrize("retry_after", [None, 1.0])
@pytest.mark.parametrize("latency", [0.02, 0.2])
def test_a_limit_that_is_raised_tenfold_is_used_after_30_s(retry_after, latency):
    service = Bucket(lambda now: 20 if now < 60 else 200, 40, retry_after)
    day = busy(RateLimiter(Rate()), service, until=240, latency=latency)
    assert day.rate(100, 240) > 0.85 * 200
    assert day.throttled(60, 240) < 0.05


@pytest.mark.parametrize("retry_after", [None, 1.0])
@pytest.mark.parametrize("latency", [0.02, 0.2])
def test_in_an_outage_one_request_per_second_is_tried_and_30_s_after_it_all_is_as_before(retry_after, latency):
    service = Outage(Bucket(200, 200, retry_after), 60, 660, retry_after)
    day = busy(RateLimiter(Rate()), service, until=760, latency=latency)
    assert day.rate(30, 60) > 0.85 * 200
    assert 0.8 <= day.load(120, 660) <= 1.1
    longest = max(after - before for (before, _), (after, _) in pairwise(day.answers))
    assert longest <= 1.0 + (retry_after or 0.0) + latency + 0.01
    assert day.rate(690, 720) > 0.85 * 200
    assert day.throttled(660, 760) < 0.05


def test_without_throttles_the_load_grows_step_by_step_until_the_rate_is_off():
    gate = RateLimiter(Rate())
    day = busy(gate, Outage(Bucket(math.inf, math.inf), 0, 60), until=95)
    loads = [day.load(60 + second, 61 + second) for second in range(31)]
    assert all(after <= max(before * 3, 3) for before, after in pairwise(loads[:28]))
    assert loads[-1] > 1000
    assert gate.rate(95) is None


gaps = st.floats(0, 40)
told = st.tuples(st.sampled_from(["start", "throttled", "paused"]), gaps, st.floats(0, 100))


@given(
    st.lists(told, max_size=80),
    st.none() | st.floats(0.01, 1e4),
    st.floats(-1e6, 1e6),
)
def test_the_rate_is_never_below_its_floor_and_off_30_s_after_the_last_throttle(script, fixed, now):
    gate = RateLimiter(Rate(requests_per_second=fixed))
    cost = 1 / fixed if fixed else 0.0
    last = -math.inf
    for what, gap, seconds in script:
        now += gap
        if what == "start":
            now += max(0.0, gate.delay(now))
            gate.charge(now, 1)
            assert gate.delay(now) <= max(1.0, cost) + 1e-6
        elif what == "throttled":
            gate.throttled(now - seconds, now)
            last = max(last, now, gate.paused_until)
        else:
            gate.pause(now + seconds)
            last = max(last, now + seconds)
        assert not math.isnan(gate.delay(now))
        assert gate.delay(now) <= max(1.0, cost, gate.paused_until - now) + 1e-6
        rate = gate.rate(now)
        assert rate is None or 1.0 <= rate < math.inf
    now = max(now, last + 30.001, gate.not_before)
    assert gate.rate(now) is None
    gate.charge(now, 1)
    assert gate.delay(now) <= cost + 1e-6


@given(st.floats(0, 29.9), st.floats(0, 29.9))
def test_between_two_throttles_the_rate_only_rises(early, late):
    gate = busy_second(50)
    gate.throttled(9.9, 10.0)
    early, late = sorted((early, late))
    assert gate.rate(10.0 + early) <= gate.rate(10.0 + late)


# -- refunds ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 100), min_size=1, max_size=10), st.data())
def test_a_start_that_came_to_nothing_is_as_if_it_had_not_been_charged(users, data):
    gates = RateLimiter(Rate(users_per_second=10)), RateLimiter(Rate(users_per_second=10))
    back = data.draw(st.lists(st.sampled_from(range(len(users))), unique=True))
    for number, each in enumerate(users):
        gates[0].charge(0.0, each)
        if number not in back:
            gates[1].charge(0.0, each)
    for number in back:
        gates[0].refund(users[number])
    assert max(0.0, gates[0].delay(0.0)) == pytest.approx(max(0.0, gates[1].delay(0.0)))


def test_a_pause_is_not_refunded():
    gate = RateLimiter(Rate(users_per_second=10))
    gate.pause(5.0)
    gate.charge(5.0, 10)
    gate.refund(10)
    assert gate.delay(0.0) == 5.0
