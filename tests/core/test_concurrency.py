"""The limit on requests in flight, against simulated services. Virtual time, fixed seed."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.limited_client import BusyClient, Pool, Simulation, Throttled, about
from support.throttling import Bucket, Outage, Window

from pushsdk._core.concurrency import AdaptiveLimit

PLENTY = 10**6


def lognormal(mean, sigma):
    return lambda draw, users: draw.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


def with_outliers(seconds):
    """One in a hundred takes tenfold."""
    return lambda draw, users: seconds * (10 if draw.random() < 0.01 else 1)


def run(service, *changes, until, **options):
    """Return a client of this service at the end, which is changed at these times."""
    simulation = Simulation()
    client = BusyClient(simulation, service, **options)
    for when, name, value in changes:
        simulation.at(when, setattr, service, name, value)
    simulation.run(until)
    return client


# -- throughput and queue -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("latency", "tick"), [(0.0003, 0.001), (0.001, 0.0), (0.02, 0.0), (0.2, 0.0)])
def test_a_client_whose_own_speed_is_the_bound_reaches_it_with_little_more_in_flight_than_the_wire_needs(latency, tick):
    client = run(Pool(PLENTY, about(latency)), until=12, cpu=1 / 4000, tick=tick)
    assert client.rate(6, 12) > 0.9 * 4000
    assert client.in_flight(6, 12) <= 1.5 * 4000 * latency + 16


@pytest.mark.parametrize(
    ("workers", "seconds", "share", "most"),
    [
        (4, about(0.05), 0.92, 2),
        (4, lognormal(0.05, 1.0), 0.93, 3),
        (16, lognormal(0.05, 1.0), 0.85, 3),
        (64, with_outliers(0.046), 0.85, 2.5),
    ],
)
def test_the_workers_of_a_service_are_busy_and_few_requests_queue(workers, seconds, share, most):
    client = run(Pool(workers, seconds), until=30)
    assert client.rate(5, 30) > share * workers / 0.05
    assert client.in_flight(5, 30) < most * workers


def tried(is_refused):
    """Return a limit after 1,000 requests, whose connections are refused or which are accepted."""
    limit = AdaptiveLimit(0.0, cap=100)
    for number in range(1000):
        now = number / 100
        limit.started(now)
        if is_refused(number):
            limit.refused(now, answered=False)
        limit.ended(now, 0.01, ok=not is_refused(number), starved=True)
    return limit


def test_while_nothing_listens_requests_are_not_held_back_and_the_limit_stays():
    limit = tried(lambda number: True)
    assert limit.limit == 16
    assert limit.gap == 0.0


def test_refused_connections_beside_accepted_requests_lower_the_limit():
    assert tried(lambda number: number % 2).limit < 16


def test_a_service_that_loses_its_workers_and_has_them_again_is_followed():
    client = run(Pool(100, about(0.05)), (15.0, "workers", 10), (40.0, "workers", 100), until=60)
    assert client.rate(5, 15) > 0.9 * 2000
    assert client.rate(15, 40) > 0.85 * 200
    assert client.in_flight(20, 40) < 2.5 * 10
    assert client.rate(50, 60) > 0.9 * 2000


def test_a_service_without_a_queue_that_becomes_three_times_slower_gets_as_many_requests_within_3_s():
    client = run(Pool(PLENTY, about(0.05)), (10.0, "seconds", about(0.15)), until=20, cpu=1 / 2000)
    assert client.rate(13, 20) > 0.9 * 2000


def test_an_application_that_blocks_the_loop_does_not_look_like_a_slow_service():
    simulation = Simulation()
    client = BusyClient(simulation, Pool(PLENTY, about(0.02)), cpu=1 / 5000)
    simulation.at(0.2, client.block, 0.2, 0.05)
    simulation.run(12)
    assert client.rate(5, 12) > 0.8 * 5000 * 0.75


def test_five_clients_share_a_service():
    simulation = Simulation()
    pool = Pool(50, about(0.05))
    clients = [BusyClient(simulation, pool, begin=number / 2) for number in range(5)]
    simulation.run(60)
    shares = [client.rate(30, 60) for client in clients]
    assert sum(shares) > 0.9 * 1000
    assert min(shares) > max(shares) / 2
    assert sum(client.in_flight(30, 60) for client in clients) < 2.5 * 50


@pytest.mark.parametrize("swap", [False, True])
def test_requests_of_1_and_of_1000_users_do_not_confuse_it(swap):
    def users(simulation):
        return 1000 if (int(simulation.now) % 6 >= 3 if swap else simulation.random.random() < 0.5) else 1

    client = run(Pool(16, about(0.01, per_user=0.0001)), until=36, users=users)
    small = 0.0101
    large = 0.11
    best = (16 / small + 16 / large) / 2 if swap else 16 / ((small + large) / 2)
    assert client.rate(12, 36) > 0.85 * best
    assert client.in_flight(12, 36) < 2.5 * 16


def test_sparse_requests_leave_the_limit_as_it_is():
    limit = AdaptiveLimit(0.0, cap=100)
    for number in range(2040):  # demand begins at last: the limit climbs from where it was
        limit.started(number)
        limit.ended(number + 0.05, 0.05, starved=number > 2030)
    assert limit.limit == 16


@pytest.mark.parametrize(("queued", "expected"), [(0.0, 100), (0.01, 20)])
def test_a_limit_that_is_not_reached_falls_only_if_requests_queue(queued, expected):
    limit = AdaptiveLimit(0.0, cap=100)
    for number in range(4000):
        starved = number < 2000
        limit.started(number / 100)
        while limit.in_flight >= min(limit.limit, 100 if starved else 30):
            seconds = 0.1 if starved else max(0.1, queued * limit.in_flight)
            limit.ended(number / 100, seconds, starved=starved)
    assert limit.limit == pytest.approx(expected, abs=4)


# Drawn once; nothing was tuned for them.
@pytest.mark.parametrize("seed", range(4))
def test_a_service_drawn_at_random_is_used_by_a_client_that_nobody_tuned(seed):
    draw = random.Random(seed)
    workers = round(10 ** draw.uniform(0, 2))
    latency = 10 ** draw.uniform(-2.5, -0.7)
    seconds = lognormal(latency, draw.uniform(0, 1))
    stray = draw.choice([0.0, draw.uniform(0, 0.04)])
    client = run(Pool(workers, seconds, stray=stray), until=20, cpu=1 / 2000)
    assert client.rate(0, 20) > 0.7 * min(2000, workers / latency)
    assert client.in_flight(10, 20) < 3 * min(2000 * latency, workers) + 16


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "stray", "share"), [(32, 0.005, 0.95), (32, 0.04, 0.92), (PLENTY, 0.04, 0.92)])
def test_stray_refusals_from_the_first_request_on_cost_little(workers, stray, share):
    def accepted(stray):
        client = run(Pool(workers, about(0.05), stray=stray), until=20, cpu=1 / 2000)
        return client.rate(0, 20)

    assert accepted(stray) > share * accepted(0.0)


@pytest.mark.parametrize(
    ("limit", "make", "latency"),
    [
        (100, lambda: Bucket(100, 10, retry_after=1), 0.2),
        (5, lambda: Bucket(5, 5, retry_after=1), 0.02),
        (20, lambda: Bucket(20, 1, 1), 0.005),
        (5, lambda: Bucket(5, 5), 0.2),
        (100, lambda: Window(100, 1, tells=False), 0.2),
        (100, lambda: Window(1000, 10, tells=True), 0.02),
    ],
)
def test_a_rate_far_below_one_slot_is_found_by_pacing(limit, make, latency):
    client = run(Throttled(make(), latency), until=160)
    # A Retry-After in whole seconds costs up to a second per refusal, in which a small bucket overflows.
    assert 0.65 * limit < client.rate(40, 160) < 1.05 * limit
    # Twelve refusals prove a limit, however low it is.
    assert client.refused(40, 160) < (0.15 if limit == 5 else 0.08)


def test_fast_first_answers_do_not_hold_a_rate_back():
    assert run(Throttled(Bucket(175, 17), lognormal(0.29, 0.9)), until=8).rate(0, 8) > 150


def test_after_the_pause_that_a_service_asks_for_requests_do_not_start_as_fast_as_before():
    # The idle time before does not count.
    client = run(Throttled(Bucket(3000, 300, 1.0), 0.005), until=30, begin=10, cpu=0.00025)
    assert client.rate(10, 30) > 0.6 * 3000


QUICK_OR_SLOW = pytest.mark.parametrize(("retry_after", "latency"), [(None, 0.2), (1.0, 0.02)])


@QUICK_OR_SLOW
def test_a_quota_that_drops_to_a_tenth_is_found_within_30_s(retry_after, latency):
    client = run(Throttled(Bucket(lambda now: 200 if now < 120 else 20, 40, retry_after), latency), until=300)
    assert client.rate(30, 120) > 0.85 * 200
    assert client.refused(150, 300) < 0.1
    assert 0.85 * 20 < client.rate(150, 300) < 1.05 * 20


@QUICK_OR_SLOW
def test_a_rate_that_is_raised_tenfold_is_used_after_a_minute(retry_after, latency):
    client = run(Throttled(Bucket(lambda now: 20 if now < 60 else 200, 40, retry_after), latency), until=200)
    assert client.rate(130, 200) > 0.6 * 200
    assert client.refused(60, 200) < 0.06


@QUICK_OR_SLOW
def test_in_an_outage_about_one_request_a_second_is_tried_and_30_s_after_it_all_is_as_before(retry_after, latency):
    service = Outage(Bucket(200, 200, retry_after), 60, 360, retry_after)
    client = run(Throttled(service, latency), until=430)
    tried = [when for when, _ in client.answers if 120 <= when < 360]
    assert client.rate(30, 60) > 0.85 * 200
    assert 0.4 <= len(tried) / 240 <= 1.5
    longest = max(after - before for (before, _), (after, _) in pairwise(client.answers))
    assert longest <= 1.0 + (retry_after or 0.0) + latency + 0.01
    assert client.rate(390, 430) > 0.85 * 200


# Seconds; of 16 bits, for the latency 5e-324 divides by zero.
seconds = st.floats(0, 60, width=16)
events = st.tuples(st.sampled_from(["start", "accepted", "failed", "refused"]), seconds, seconds)


@example(script=[("start", 0.0, 0.0), ("failed", 0.0, 0.1)], cap=1, starved=True)
@example(script=[("start", 0.0, 0.0), ("accepted", 0.0, 0.0), ("refused", 1.0, 51.0)], cap=1, starved=False)
@given(st.lists(events, max_size=200), st.integers(1, 1000), st.booleans())
def test_whatever_happens_the_limit_stays_between_1_and_the_cap(script, cap, starved):
    limit = AdaptiveLimit(0.0, cap=cap)
    now = 0.0
    for action, gap, seconds in script * 3:
        now += gap / 10
        if action == "start" or not limit.in_flight:
            limit.started(now)
            continue
        if action == "refused":
            limit.refused(now, pause=seconds if seconds > 50 else 0.0)
        limit.ended(now, None if action == "refused" else seconds, ok=action == "accepted", starved=starved)
        assert 1 <= limit.limit <= cap
        assert 0.0 <= limit.gap <= 1.0
