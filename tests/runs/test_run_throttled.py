"""Broadcasts through throttling and outages, on virtual time: all users are reached in reasonable time."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.fake_service import FakeService, Request, answer, client_of, refused, unreachable
from support.kill_child import MESSAGE, ids
from support.kill_judge import Plan, judge
from support.kill_service import name_of
from support.throttling import Bucket, ThrottledService, Window
from support.virtual_time import virtual

from pushsdk import Batching, BroadcastReport, Limits, Progress, StopPolicy, read_report

USERS = 20_000
CHUNK = Batching(max_users=20)
REQUESTS = USERS // 20
IN_FLIGHT = 16
PATIENT = StopPolicy(max_outage=3600.0)


class Ride(NamedTuple):
    """The course of one broadcast."""

    report: BroadcastReport
    service: FakeService
    #: Arrival times of the requests and the total time, in seconds since the start.
    times: list[float]
    seconds: float

    def between(self, begin: float, end: float) -> int:
        """Return the number of requests in an interval."""
        return sum(begin <= time < end for time in self.times)


async def ride(path: Path, then: Callable[[Request, float], Any], **options: Any) -> Ride:
    """Broadcast to all users and check the result."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    service = FakeService(then=lambda request: then(request, loop.time() - started))
    async with client_of(service, batching=CHUNK, limits=Limits(in_flight=IN_FLIGHT)) as client:
        report = await client.broadcast(ids(USERS), MESSAGE, run=path, **{"stop_policy": PATIENT, **options})
    pushes = [service.accepted(name_of(user)) for user in range(USERS)]
    judge(path, Plan(path), report, pushes, hold=True, every=True)
    assert service.most_in_flight <= IN_FLIGHT
    return Ride(report, service, [request.started - started for request in service.requests], loop.time() - started)


def throttling(service: ThrottledService) -> Callable[[Request, float], Any]:
    """Return the behavior of a throttling service."""

    def then(request: Request, now: float) -> Any:
        delay, retry_after = service.take(now)
        if delay:
            return answer()
        return answer(429, {} if retry_after is None else {"Retry-After": f"{retry_after:.0f}"})

    return then


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(lambda: Bucket(20.0, 40.0), id="a bucket of 20 a second, without Retry-After"),
        pytest.param(lambda: Bucket(20.0, 40.0, 1.0), id="a bucket of 20 a second, with Retry-After"),
        pytest.param(lambda: Bucket(200.0, 10.0), id="a bucket of 200 a second"),
        pytest.param(lambda: Window(20.0, 10.0, tells=False), id="a quota per 10 seconds"),
        pytest.param(lambda: Window(20.0, 10.0, tells=True), id="a quota per 10 seconds, which it tells"),
    ],
)
@virtual
async def test_a_throttled_run_reaches_all_users_in_reasonable_time(service: Callable[[], Any], tmp_path: Path) -> None:
    limits = service()
    rate = limits.rate(0.0) if isinstance(limits, Bucket) else limits.quota / limits.seconds
    result = await ride(tmp_path / "run", throttling(limits))
    assert result.report.accepted == USERS
    assert result.seconds <= 1.1 * REQUESTS / rate + 10.0, "not much longer than the service needs for it"
    assert len(result.times) <= 1.4 * REQUESTS, "not many in vain"


@pytest.mark.parametrize(("users", "requests"), [(3_000, 3), (20_000, 8), (300_000, 20)])
@virtual
async def test_a_small_run_is_as_fast_as_a_large_one(tmp_path: Path, users: int, requests: int) -> None:
    service = FakeService(then=answer(after=0.05))
    async with client_of(service) as client:
        await client.broadcast(ids(users), MESSAGE, run=tmp_path / "run")
    assert service.most_in_flight >= requests, "of 1,000 users each"


OUTAGES = {
    "refused": refused,
    "no name": lambda: unreachable(),
    "429": lambda: answer(429),
    "429 with Retry-After": lambda: answer(429, {"Retry-After": "30"}),
    "503 with Retry-After": lambda: answer(503, {"Retry-After": "5"}),
}


@pytest.mark.parametrize("mode", OUTAGES)
@virtual
async def test_a_run_survives_an_outage_of_ten_minutes(mode: str, tmp_path: Path) -> None:
    result = await ride(tmp_path / "run", lambda request, now: OUTAGES[mode]() if 0.5 <= now < 600.5 else answer())
    assert result.report.accepted == USERS
    assert result.seconds <= 600.5 + 40.0, "the pacing is off half a minute after the last throttle"
    # Each slot tries once in 2.5 s, the mean of a jitter from 0 to 5 s. The normal rate is 50 per second.
    assert result.between(0.5, 600.5) <= 1.1 * IN_FLIGHT * 600.0 / 2.5
    assert max(result.between(second, second + 1) for second in range(10, 600)) <= 2 * IN_FLIGHT, "no storm"


@virtual
async def test_the_default_stop_policy_allows_an_outage_of_nine_minutes(tmp_path: Path) -> None:
    result = await ride(
        tmp_path / "run", lambda request, now: refused() if 0.5 <= now < 540.5 else answer(), stop_policy=StopPolicy()
    )
    assert (result.report.accepted, result.report.stopped) == (USERS, None)


@virtual
async def test_an_hour_of_a_stopped_process_is_no_outage(tmp_path: Path) -> None:
    loop, count = asyncio.get_running_loop(), itertools.count()

    def then(request: Request, now: float) -> Any:
        if next(count) in (100, 200):
            # While all requests are in flight: the stop policy is checked before their responses arrive.
            loop.call_later(0.25, loop.jump, 3600.0)  # type: ignore[attr-defined]
        return answer(after=1.0)

    result = await ride(tmp_path / "run", then, stop_policy=StopPolicy(unknown=None))
    assert result.report.stopped is None
    assert result.report.unknown <= 2 * IN_FLIGHT * 20, "what was in flight"
    assert result.report.accepted == USERS - result.report.unknown


@virtual
async def test_a_long_outage_stops_the_run_and_a_resume_completes_it(tmp_path: Path) -> None:
    result = await ride(
        tmp_path / "run", lambda request, now: refused() if now >= 0.5 else answer(), stop_policy=StopPolicy()
    )
    assert result.report.stopped_by == "stop_policy"
    assert "nothing was accepted for 600 s" in (result.report.stopped or "")
    assert result.report.accepted + result.report.not_sent == USERS
    service = FakeService()
    async with client_of(service, batching=CHUNK) as client:
        report = await client.resume(tmp_path / "run")
    assert (report.accepted, report.stopped) == (USERS, None)
    assert {*(Counter(result.service.users()) + Counter(service.users())).values()} == {1}


@pytest.mark.parametrize("trouble", [refused, lambda: answer(429), lambda: answer(503, {"Retry-After": "2"})])
@virtual
async def test_a_throttled_run_claims_no_more_requests_than_slots(trouble: Callable[[], Any], tmp_path: Path) -> None:
    path, claimed, count = tmp_path / "run", list[int](), itertools.count()

    def then(request: Request, now: float) -> Any:
        if next(count) % 50 == 0:
            claimed.append(read_report(path).unknown)
        return trouble() if 0.5 <= now < 60.0 else answer()

    await ride(path, then)
    assert 20 <= max(claimed) <= IN_FLIGHT * 20


@virtual
async def test_progress_reports_a_pause(tmp_path: Path) -> None:
    readings: list[Progress] = []
    await ride(
        tmp_path / "run",
        lambda request, now: answer(429, {"Retry-After": "30"}) if 0.5 <= now < 60.0 else answer(),
        on_progress=readings.append,
    )
    paused = [reading for reading in readings if reading.paused > 0]
    assert {reading.stage for reading in paused} == {"waiting"}
    assert len(paused) >= 100, "twice a second"
    assert all(0 < reading.paused <= 31.0 for reading in paused)
