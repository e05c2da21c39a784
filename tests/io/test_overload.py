"""More work than the service can do: what can't be answered in time is not begun, and nobody is in doubt for it.

The judge is the service, whose workers push whatever they have begun, whether the client still waits or not.
"""

import asyncio
import math
import random
import sys
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from support.fake_service import (
    MESSAGE,
    OTHER,
    FakeService,
    answer,
    client_of,
    hang,
    idle,
    outcome_of,
    refused,
    reset_before,
    start,
    titled,
    unreachable,
)
from support.pool_service import PoolService, lognormal, send_at_random
from support.throttling import Bucket
from support.virtual_time import now, turns, virtual
from support.wire_faults import drip, first, pause, step, take, when
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    Batching,
    Limits,
    NotSentError,
    Outcome,
    PushError,
    Rate,
    SendNotBegun,
    Timeout,
)
from pushsdk.claims import MemoryClaims

# Four workers above what 8 need: then the tests are about deadlines, not about how the limit is found.
WORKERS = 8
IN_FLIGHT = Limits(in_flight=12)


def check(service, ended):
    """Return the number of sends by outcome. No send may be lost, doubled, or pushed though it counts as not sent."""
    assert max(service.pushed.values()) == 1
    for send in ended:
        if send.outcome != "UNKNOWN":
            assert service.pushed[send.user] == (send.outcome == "ACCEPTED")
    return Counter(send.outcome for send in ended)


@pytest.mark.parametrize(
    ("load", "timeout", "sigma", "workers"),
    [
        (1.3, 2.0, 0.0, 8),
        (5.0, 1.0, 0.0, 8),
        (10.0, 2.0, 0.5, 8),
        (2.0, 1.0, 1.0, 8),
        (1.3, 20.0, 1.0, 8),
        (1.6, 1.0, 0.0, 1),
    ],
)
@virtual
async def test_whatever_the_load_most_of_what_the_service_can_do_is_accepted(load, timeout, sigma, workers):
    capacity = workers / 0.1
    seconds = max(10.0, 1.5 * timeout)
    service = PoolService(workers, lognormal(0.1, sigma))
    async with client_of(service, timeout=timeout, limits=IN_FLIGHT if workers == WORKERS else Limits()) as client:
        ended = await send_at_random(client, load * capacity, seconds)
    outcomes = check(service, ended)
    # 0.9 with sigma, too, but for the draw of this short time.
    assert outcomes["ACCEPTED"] > (0.85 if sigma else 0.9) * capacity * seconds
    assert outcomes["UNKNOWN"] <= (0.02 if sigma == 1.0 else 0.01) * outcomes["ACCEPTED"]
    assert all(send.seconds <= timeout + 0.01 for send in ended)


@virtual
async def test_short_timeouts_get_their_share_beside_long_ones():
    service = PoolService(WORKERS, lognormal(0.1, 0.5))
    async with client_of(service, limits=IN_FLIGHT) as client:
        groups = [client.with_options(timeout=Timeout(total=total, attempt=0.5)) for total in (1.0, 2.0, 10.0)]
        sends = [send_at_random(group, 80, 20) for group in groups]
        shares = [Counter(send.outcome for send in ended)["ACCEPTED"] for ended in await asyncio.gather(*sends)]
    assert sum(shares) > 0.85 * 80 * 20
    assert min(shares) > 0.2 * sum(shares)


def since_the_first(latency):
    """``latency`` of the seconds since the first request, and of the time."""
    first = []

    def seconds(now):
        first[:] = first or [now]
        return latency(now - first[0], now)

    return seconds


@pytest.mark.parametrize(
    ("rate", "mean", "timeout", "message"),
    [(1, 0.2, 2.0, titled), (50, 0.01, 1.0, lambda _: MESSAGE)],
)
@virtual
async def test_a_hang_leaves_in_doubt_what_was_in_flight_and_one_send_per_timeout(rate, mean, timeout, message):
    begin = 5.0
    end = 5.0 + 4 * timeout
    usual = lognormal(mean, 0.5)
    hanging = since_the_first(lambda elapsed, now: math.inf if begin <= elapsed < end else usual(now))
    service = PoolService(WORKERS, hanging)
    in_flight = []
    async with client_of(service, timeout=timeout) as client:
        ended = await send_at_random(
            client,
            rate,
            end + 4 * timeout,
            on_time=lambda now: now < begin and in_flight.append(service.unanswered),
            titled=message,
        )
    outcomes = check(service, ended)
    # Nobody can know of the hang before the time of an attempt has passed.
    one_attempt = max(1.0, rate * (mean + 0.02))
    # The silence up to the first timeout has a few probes.
    assert outcomes["UNKNOWN"] <= in_flight[-1] + one_attempt + math.log(timeout / mean, 4) + 5
    late = [send.outcome for send in ended if send.start > end + 2 * timeout]
    assert late.count("ACCEPTED") >= 0.98 * len(late) > 0


def with_a_server_of_five_that_hangs():
    usual = lognormal(0.05, 0.5)
    return PoolService(
        1000, since_the_first(lambda elapsed, now: math.inf if elapsed > 2 and random.random() < 0.2 else usual(now))
    )


@pytest.mark.parametrize(("rate", "seconds", "timeout"), [(100, 20, 30.0), (400, 10, 3.0)])
@virtual
async def test_one_of_five_servers_that_hangs_holds_nothing_back_from_the_others(rate, seconds, timeout):
    service = with_a_server_of_five_that_hangs()
    async with client_of(service, timeout=timeout) as client:
        ended = await send_at_random(client, rate, seconds)
        assert idle(client)
    assert check(service, ended).keys() == {"ACCEPTED", "UNKNOWN"}
    assert max(send.seconds for send in ended if send.outcome == "ACCEPTED") < 1.0


@virtual
async def test_requests_that_hang_count_for_the_cap():
    service = with_a_server_of_five_that_hangs()
    async with client_of(service, limits=Limits(in_flight=20)) as client:
        await send_at_random(client, 100, 10)
    assert service.most_in_flight == 20


@pytest.mark.parametrize("broken", [answer(502, after=0.01), reset_before(after=0.01)])
@virtual
async def test_requests_that_break_hold_nobody_back_unless_all_do(broken):
    # Virtual time begins at 1000.
    service = FakeService(
        then=lambda one: (
            answer(after=0.05) if ("0" in one.user_ids[0] and now() < 1010) or "good" in one.user_ids else broken
        )
    )
    async with client_of(service) as client:
        sending = start(send_at_random(client, 50, 20))
        await asyncio.sleep(15.0)
        # Another tenant's send is not behind those that break.
        await client.with_options(api_key="other").send("good", MESSAGE, timeout=1.0)
        ended = await sending
    assert max(send.seconds for send in ended if send.start < 9) < 0.1
    assert sum(send.outcome == "NOT_SENT" for send in ended) > 300


@asynccontextmanager
async def warmed(seconds, **options):
    """A client that has learned that an attempt takes this long, and its service, which has forgotten that."""
    service = FakeService(then=answer(after=seconds))
    async with client_of(service, **options) as client:
        for number in range(20):
            await client.send("warm", titled(number))
        service.requests.clear()
        yield service, client


@virtual
async def test_a_call_whose_attempt_may_not_take_as_long_as_usual_is_not_begun():
    async with warmed(0.5) as (service, client):
        client.submit("first", MESSAGE)
        await turns()
        with pytest.raises(NotSentError, match="not-sent-no-time"):
            await client.send("short", OTHER, timeout=Timeout(attempt=0.4))
    assert [request.users for request in service.requests] == [("first",)]


@virtual
async def test_a_send_that_waited_until_its_time_was_short_is_not_begun_and_says_so():
    events = []
    async with warmed(0.5, limits=Limits(in_flight=1), on_event=events.append) as (service, client):
        first = client.submit("first", MESSAGE)
        await turns()
        short = client.submit("short", titled(1), timeout=0.8)
        long = client.submit("long", titled(2))
        error = await outcome_of(short)
        assert type(error) is NotSentError
        assert error.retryable
        assert error.attempts == ()
        assert "total timeout 0.8 s" in str(error)
        await asyncio.gather(first, long)
        stats = client.stats()
    assert service.sent == [("first",), ("long",)]
    assert stats.not_begun == stats.not_sent == 1
    assert stats.seconds_needed == pytest.approx(0.52, abs=0.02)
    (event,) = [event for event in events if isinstance(event, SendNotBegun)]
    assert event.users == 1
    assert (event.seconds_left, event.seconds_needed) == pytest.approx((0.3, 0.52), abs=0.02)


@virtual
async def test_sends_that_expire_in_the_queue_or_find_no_room_in_time_count_as_not_begun_too():
    service = FakeService(then=answer(after=2.0))
    events = []
    limits = Limits(in_flight=1, queued_users=1)
    async with client_of(service, limits=limits, on_event=events.append) as client:
        first = client.submit("first", MESSAGE)
        await turns()
        before = now()
        queued = start(client.send("queued", titled(1), timeout=1.0))
        outside = start(client.send("outside", titled(2), timeout=0.5))
        campaign = start(client.with_options(timeout=1.0).create_campaign({"externalId": "x"}))
        for send, seconds in ((outside, 0.5), (queued, 1.0), (campaign, 1.0)):
            assert (await outcome_of(send)).code == "not-sent-no-slot"
            assert now() == pytest.approx(before + seconds, abs=0.01)
        assert client.stats().not_begun == 2
        await first
    times = [(event.seconds_left, event.seconds_needed) for event in events if isinstance(event, SendNotBegun)]
    assert times == [(0.0, 0.0)] * 2


@pytest.mark.parametrize(
    ("options", "rate", "seconds", "code"),
    [
        ({}, 5, 0.3, "throttled"),
        ({"rate": Rate(users_per_second=20)}, 400, 0.1, "rate"),
        ({"limits": Limits(in_flight=4)}, 400, 0.2, "no-slot"),
        ({}, 400, 1.0, "no-time"),
    ],
)
@virtual
async def test_a_call_that_waits_too_long_says_for_what(options, rate, seconds, code):
    events = []
    bucket = Bucket(rate, rate)
    accepted, refused = answer(after=seconds), answer(429, after=seconds)
    service = FakeService(then=lambda request: accepted if bucket.take(request.started)[0] else refused)
    async with client_of(service, timeout=random.uniform(1.5, 3.5), on_event=events.append, **options) as client:
        ended = await asyncio.gather(*[outcome_of(client.submit("user", titled(number))) for number in range(400)])
        untried = [error.code for error in ended if isinstance(error, PushError) and not error.attempts]
        assert {*untried} == {f"not-sent-{code}"}
        throttled = [event.throttled for event in events if isinstance(event, SendNotBegun)].count(True)
        assert client.stats().throttled == throttled == untried.count("not-sent-throttled")


@pytest.mark.parametrize("then", [refused(after=0.1), hang()])
@virtual
async def test_a_service_that_is_down_does_not_throttle_although_it_has_before(then):
    service = FakeService(*[answer(), answer(429)] * 40, then=then)
    async with client_of(service, timeout=2.0) as client:
        for number in range(1000):
            client.submit("user", titled(number))
            await asyncio.sleep(0.01)
        stats = client.stats()
    assert stats.throttled == 0 < stats.not_begun


@virtual
async def test_only_the_calls_that_are_short_of_time_leave_a_batch_while_it_connects():
    async with warmed(0.3, batching=Batching(linger=0.5)) as (service, client):
        service.script = [answer(after=0.3, connecting=1.4)]
        early = client.submit("early", MESSAGE, timeout=2.0)
        await asyncio.sleep(0.4)
        late = client.submit("late", MESSAGE, timeout=2.0)
        await asyncio.sleep(0.8)
        beside = client.submit("beside", titled(1))
        ended = [await outcome_of(send) for send in (early, late, beside)]
        assert client.stats().not_begun == 1
    assert [isinstance(end, NotSentError) for end in ended] == [True, False, False]
    assert service.sent == [("late",), ("beside",)]


@virtual
async def test_a_retry_that_can_not_be_answered_in_time_is_not_begun():
    async with warmed(0.5) as (service, client):
        service.script = [answer(429, {"Retry-After": "0"}, after=0.6), answer(after=0.5), unreachable()]
        send = client.submit("user", titled(1), timeout=1.0)
        await asyncio.sleep(0.4)
        beside = client.submit("beside", titled(2))
        error = await outcome_of(send)
        await beside
        assert client.stats().in_flight == client.stats().not_begun == 0
    # It did not even connect.
    assert error.outcome == Outcome.REJECTED
    assert len(error.attempts) == 1
    assert "too little time was left for an answer" in str(error)
    assert service.accepted("user") == 0


@virtual
async def test_a_keyed_send_that_is_short_of_time_claims_nothing():
    async with warmed(0.5, limits=Limits(in_flight=1), claims=MemoryClaims()) as (service, client):
        first = client.submit("first", titled(1))
        await turns()
        keyed = start(client.send("user", titled(2), timeout=0.8, idempotency_key="job-1"))
        await turns()
        last = client.submit("last", titled(3))
        assert "too little time was left" in str(await outcome_of(keyed))
        await asyncio.gather(first, last)
        await client.send("user", titled(2), idempotency_key="job-1")
    assert service.accepted("user") == 1


@virtual
async def test_in_each_silence_the_first_probe_has_the_most_time_and_the_second_is_of_another_tenant():
    async with warmed(0.1) as (service, client):
        for _ in range(2):
            service.script = [hang()] * 4
            await outcome_of(client.submit("lost", MESSAGE, timeout=2.0))
            waiting = [
                client.with_options(api_key=key, timeout=Timeout(total=seconds, attempt=0.5)).submit("user", MESSAGE)
                for key, seconds in (("a", 20.0), ("a", 19.0), ("a", 18.0), ("b", 9.0), ("c", 8.0))
            ]
            await asyncio.wait(waiting)
    assert "".join(request.api_key[0] for request in service.requests) == "saabac" * 2


@virtual
async def test_a_call_that_is_submitted_as_another_leaves_is_the_only_probe():
    def on_event(event):
        if isinstance(event, SendNotBegun) and not sends[2:]:
            sends.append(client.with_options(urgent=True).submit("new", MESSAGE))

    async with warmed(2.0, on_event=on_event) as (service, client):
        service.then = hang()
        await outcome_of(client.submit("lost", MESSAGE, timeout=4.0))
        client.submit("probe", MESSAGE, timeout=Timeout(attempt=20.0))
        await turns()
        sends = [
            client.submit("hasty", OTHER, timeout=Timeout(attempt=1.0)),
            client.submit("other", OTHER, timeout=20.0),
        ]
        await asyncio.wait([*sends])
        service.then = answer()
    assert service.sent == [("lost",), ("probe",), ("new",)]


@virtual
async def test_calls_that_are_short_of_time_as_a_probe_is_due_leave_in_one_pass():
    looks = []
    async with warmed(2.0, timeout=60.0) as (service, client):
        service.then = hang()
        await outcome_of(client.submit("lost", titled(1), timeout=4.0))
        probe = client.submit("probe", titled(2), timeout=Timeout(total=20.0, attempt=20.0))
        await asyncio.sleep(11.0)
        late = [client.submit(str(number), titled(number), timeout=1.9) for number in range(300)]
        sys.setprofile(lambda *_: looks.append(1))
        await asyncio.wait(late)
        sys.setprofile(None)
        await outcome_of(probe)
    assert len(looks) < 450_000


@virtual
async def test_urgent_sends_go_before_all_that_wait_and_share_no_request_with_them():
    service = FakeService(then=answer(after=0.1))
    titles = iter(map(titled, range(100)))
    async with client_of(service, limits=Limits(in_flight=1), claims=MemoryClaims()) as client:
        urgent = client.with_options(urgent=True)
        sends = []
        sends += [client.submit("usual", next(titles)) for _ in range(20)]
        sends.append(client.submit("merged", MESSAGE))
        await turns()
        sends += [
            start(urgent.broadcast(["of a run"], OTHER)),
            urgent.with_options(urgent=False).submit("later", next(titles)),
            urgent.submit("code-1", MESSAGE),
            urgent.submit("code-2", MESSAGE),
            urgent.with_options(timeout=9.0).submit("code", next(titles)),
            urgent.submit("code", next(titles), timeout=8.0),
            start(urgent.send("code", next(titles), idempotency_key="code")),
        ]
        await asyncio.gather(*sends)
    assert sorted(service.sent[1:5]) == [("code",), ("code",), ("code",), ("code-1", "code-2")]
    assert {*service.sent[5:-3]} == {("usual",)}
    assert {*service.sent[-3:]} == {("merged",), ("later",), ("of a run",)}


@virtual
async def test_a_pause_and_a_full_queue_hold_for_urgent_sends_too():
    service = FakeService(answer(429, {"Retry-After": "5"}))
    async with client_of(service, limits=Limits(in_flight=1, queued_users=2)) as client:
        urgent = client.with_options(urgent=True)
        first = client.submit("first", titled(0))
        await asyncio.sleep(0.1)
        code = urgent.submit("code", MESSAGE)
        await asyncio.sleep(4.5)
        assert not code.done()
        with pytest.raises(NotSentError, match="queue is full"):
            urgent.submit("other", titled(1))
        await asyncio.gather(first, code)


@virtual
async def test_on_event_may_cancel_other_sends_of_a_batch_that_is_short_of_time():
    service = FakeService(then=answer(after=1.0))
    sends = []

    def on_event(event):
        if isinstance(event, SendNotBegun):
            for send in sends:
                send.cancel()

    async with client_of(service, limits=Limits(in_flight=1), on_event=on_event) as client:
        await client.send("warm", MESSAGE)
        first = client.submit("first", titled(0))
        await asyncio.sleep(0.5)
        sends += [client.submit(f"user-{number}", titled(1), timeout=0.9) for number in range(3)]
        await turns()
        other = client.submit("other", titled(1), timeout=20.0)
        await asyncio.gather(first, other)
        assert client.stats().not_sent == 3
        assert idle(client)
    assert service.users() == {"warm": 1, "first": 1, "other": 1}


class SlowClaims(MemoryClaims):
    """A claim store that takes three seconds for each put."""

    async def put(self, puts, ttl):
        await asyncio.sleep(3.0)
        return await super().put(puts, ttl)


async def test_an_idle_connection_is_no_reason_to_begin_a_late_call():
    # The first two requests are measured, and leave two connections; the third is in flight.
    async with (
        WireServer(when(first(3), step(take, pause(0.2), drip(b"HTTP/1.1 204 No Content\r\n\r\n", gap=0.0)))) as server,
        AsyncPushClient(server.base_url, "key") as client,
    ):
        await asyncio.gather(*(client.send("user", titled(number)) for number in range(2)))
        in_flight = asyncio.ensure_future(client.send("user", titled(2)))
        await turns(20)
        with pytest.raises(NotSentError, match="too little time"):
            await client.send("user", titled(3), timeout=0.1)
        await in_flight
    assert server.begun == 3


@virtual
async def test_neither_connecting_nor_a_claim_counts_as_the_time_of_an_attempt():
    service = FakeService(then=answer(after=0.1, connecting=3.0))
    async with client_of(service, claims=SlowClaims()) as client:
        for number in range(5):
            await client.send("user", titled(number), idempotency_key=f"job-{number}")
        assert client.stats().seconds_needed < 0.5
