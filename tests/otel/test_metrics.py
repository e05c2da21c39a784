"""The metrics, as a reader collects them."""

import asyncio
import gc
import re

import pytest
from opentelemetry import metrics
from support.docs import page
from support.fake_service import MESSAGE, FakeService, answer, hang, outcome_of, refused, start, titled
from support.telemetry import sent, watched
from support.virtual_time import turns, virtual

from pushsdk import Batching, Limits, Rate, RetryPolicy
from pushsdk.otel import _metrics as ours

SERVER = {"server.address": "push.example", "server.port": 443}
# By the HTTP conventions.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def users(telemetry):
    """The users by outcome, without zeros."""
    points = telemetry.points("pushsdk.users")
    assert all(
        {**SERVER, "pushsdk.outcome": point.attributes["pushsdk.outcome"]} == point.attributes for point in points
    )
    return {point.attributes["pushsdk.outcome"]: point.value for point in points if point.value}


def value(telemetry, name):
    """Return the value of a metric's one point for this server; None without a point."""
    points = telemetry.points(name)
    if not points:
        return None
    (point,) = points
    assert point.attributes == SERVER
    return point.value


@virtual
async def test_users_are_counted_by_outcome(telemetry):
    service = FakeService(answer(), answer(404), answer(500), refused())
    await sent(telemetry, service, ["a", "b"], "c", ["d", "e", "f"], "g", retry=RetryPolicy.none())
    assert users(telemetry) == {"ACCEPTED": 2, "REJECTED": 1, "UNKNOWN": 3, "NOT_SENT": 1}


@virtual
async def test_the_users_of_a_client_that_is_gone_stay_counted(telemetry):
    for _ in range(3):
        await sent(telemetry, FakeService(), ["a", "b"])
        gc.collect()
    for _ in range(2):
        assert users(telemetry) == {"ACCEPTED": 6}


@virtual
async def test_the_duration_of_an_attempt_has_the_conventions_attributes_and_buckets(telemetry):
    service = FakeService(answer(429, after=0.2), refused(after=3.0), answer(after=0.03))
    await sent(telemetry, service, retry=RetryPolicy.safe(initial_delay=0.001))
    (metric,) = [metric for metric in telemetry.metrics() if metric.name == "http.client.request.duration"]
    assert metric.unit == "s"
    common = {"http.request.method": "POST", **SERVER}
    assert [(point.attributes, point.count, round(point.sum, 3)) for point in metric.data.data_points] == [
        ({**common, "http.response.status_code": 429, "network.protocol.version": "1.1", "error.type": "429"}, 1, 0.2),
        ({**common, "error.type": "refused"}, 1, 3.0),
        ({**common, "http.response.status_code": 204, "network.protocol.version": "1.1"}, 1, 0.03),
    ]
    assert metric.data.data_points[0].explicit_bounds == BOUNDS


@virtual
async def test_the_size_of_each_request_of_more_than_one_user_is_recorded_once(telemetry):
    service = FakeService(answer(429))
    async with watched(telemetry, service, batching=Batching(max_users=4)) as client:
        await client.send(["a", "b", "c"], MESSAGE)
        await client.send("a", MESSAGE)
        await asyncio.gather(*(client.send(user, MESSAGE) for user in "de"))
        await client.broadcast(list("fghij"), MESSAGE)
    (point,) = telemetry.points("pushsdk.batch.size")
    assert point.count == 3
    assert point.sum == 3 + 2 + 4
    assert point.attributes == SERVER


@virtual
async def test_the_wait_for_a_place_is_that_of_the_oldest_call_of_the_request(telemetry):
    service = FakeService(answer(after=3.0))
    async with watched(telemetry, service, limits=Limits(in_flight=1)) as client:
        first = start(client.send("a", MESSAGE))
        await asyncio.sleep(1.0)
        second = start(client.send("b", MESSAGE))
        await asyncio.sleep(0.5)
        await client.send("c", MESSAGE)
        assert [task.done() for task in (first, second)] == [True, True]
    (point,) = telemetry.points("pushsdk.queue.duration")
    assert point.count == 1
    assert round(point.sum, 3) == 2.0
    assert point.attributes == SERVER


@virtual
async def test_what_is_under_way_is_read_when_it_is_asked_for(telemetry):
    assert telemetry.metrics() == []
    async with watched(telemetry, FakeService(hang(), hang()), limits=Limits(in_flight=1)) as client:
        tasks = [start(client.send(user, MESSAGE, timeout=5.0)) for user in ("a", ["b", "c"])]
        await turns()
        tasks.append(start(client.send(["d", "e"], {"title": {"en": "Bye"}}, timeout=5.0)))
        await turns()
        assert value(telemetry, "pushsdk.requests.in_flight") == 1
        assert value(telemetry, "pushsdk.queue.users") == 2
        for task in tasks:
            await outcome_of(task)
        assert value(telemetry, "pushsdk.requests.in_flight") == 0
        assert value(telemetry, "pushsdk.queue.users") == 0
    assert value(telemetry, "pushsdk.requests.in_flight") is None


@virtual
async def test_clients_of_one_service_are_summed_and_the_lowest_budget_is_shown(telemetry):
    service = FakeService(refused(), hang())
    idle = FakeService(hang())
    policy = RetryPolicy.safe(initial_delay=0.001)
    unused = watched(telemetry, FakeService())
    async with watched(telemetry, service, retry=policy) as one, watched(telemetry, idle) as another:
        tasks = [start(client.send("a", MESSAGE, timeout=5.0)) for client in (one, another)]
        await asyncio.sleep(1.0)
        assert value(telemetry, "pushsdk.requests.in_flight") == 2
        assert value(telemetry, "pushsdk.retry_budget") == 486
        for task in tasks:
            await outcome_of(task)
    assert unused.stats().requests == 0


@pytest.mark.parametrize(("fixed", "first"), [(None, None), (100.0, 100.0)])
@virtual
async def test_the_rate_is_shown_while_one_applies(telemetry, fixed, first):
    service = FakeService(*[answer(429)] * 50)
    async with watched(telemetry, service, rate=Rate(requests_per_second=fixed)) as client:
        assert value(telemetry, "pushsdk.rate") == first
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(40)), return_exceptions=True)
        throttled = value(telemetry, "pushsdk.rate")
        assert throttled == fixed or throttled > 0
        assert value(telemetry, "pushsdk.requests.limit") == client.stats().limit


def test_a_provider_made_global_later_has_one_set_of_instruments(telemetry, monkeypatch):
    monkeypatch.setattr(ours, "_global", None)
    instruments = ours.instruments_of(telemetry.meters)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: telemetry.meters)
    assert ours.instruments_of(None) is instruments


@virtual
async def test_each_metric_has_a_unit_a_description_and_a_place_in_the_readme(telemetry):
    async with watched(telemetry, FakeService(), rate=Rate(requests_per_second=100)) as client:
        await asyncio.gather(*(client.send(user, MESSAGE) for user in "ab"))
        units = {metric.name: metric.unit for metric in telemetry.metrics() if metric.description}
    assert units == {
        "http.client.request.duration": "s",
        "pushsdk.batch.size": "{user}",
        "pushsdk.queue.duration": "s",
        "pushsdk.users": "{user}",
        "pushsdk.requests.in_flight": "{request}",
        "pushsdk.requests.limit": "{request}",
        "pushsdk.queue.users": "{user}",
        "pushsdk.retry_budget": "{token}",
        "pushsdk.rate": "{request}/s",
    }
    text = page("logging-and-tracing").section("OpenTelemetry")
    assert set(re.findall(r"`((?:http|pushsdk)\.[a-z_.]+)`", text)) == units.keys()
