"""Broadcasts through throttling and outages, on virtual time: all users are reached in reasonable time."""

import asyncio
import itertools
from typing import NamedTuple

import pytest
from support.fake_service import FakeService, answer, client_of, refused
from support.kill_child import MESSAGE, ids
from support.kill_judge import Plan, judge
from support.kill_service import name_of
from support.virtual_time import now, virtual

from pushsdk import Batching, BroadcastReport, Limits, StopPolicy, read_report

USERS = 8_000
CHUNK = Batching(max_users=20)
IN_FLIGHT = 8


class Ride(NamedTuple):
    """The course of one broadcast."""

    report: BroadcastReport
    service: FakeService
    #: Arrival times of the requests and the total time, in seconds since the start.
    times: list[float]
    seconds: float

    def between(self, begin, end):
        """Return the number of requests in an interval."""
        return sum(begin <= time < end for time in self.times)


async def ride(path, then, stop_policy=None):
    """Broadcast to all users and check the result."""
    started = now()
    service = FakeService(then=lambda request: then(request, now() - started))
    async with client_of(service, batching=CHUNK, limits=Limits(in_flight=IN_FLIGHT)) as client:
        report = await client.broadcast(ids(USERS), MESSAGE, run=path, stop_policy=stop_policy)
    judge_pushes(path, report, service)
    assert service.most_in_flight <= IN_FLIGHT
    return Ride(report, service, [request.started - started for request in service.requests], now() - started)


def judge_pushes(path, report, service):
    pushes = [service.accepted(name_of(user)) for user in range(USERS)]
    judge(path, Plan(path), report, pushes, hold=True, every=True)


OUTAGES = {
    "refused": refused,
    "429": lambda: answer(429),
    "503 with Retry-After": lambda: answer(503, {"Retry-After": "5"}),
}


@pytest.mark.parametrize("mode", OUTAGES)
@virtual
async def test_a_run_survives_an_outage_of_nine_minutes(mode, tmp_path):
    path, claimed, count = tmp_path / "run", [], itertools.count()

    def then(request, now):
        if next(count) % 50 == 0:
            claimed.append(read_report(path).unknown)
        return OUTAGES[mode]() if 0.5 <= now < 540.5 else answer()

    result = await ride(path, then)
    assert (result.report.accepted, result.report.stopped) == (USERS, None)
    assert result.seconds <= 540.5 + 40.0, "the pacing is off half a minute after the last throttle"
    # Each slot tries once in 2.5 s, the mean of a jitter from 0 to 5 s. The normal rate is 50 per second.
    assert 0 < result.between(0.5, 540.5) <= 1.1 * IN_FLIGHT * 540.0 / 2.5
    assert max(result.between(second, second + 1) for second in range(10, 540)) <= 2 * IN_FLIGHT, "no storm"
    assert 20 <= max(claimed) <= IN_FLIGHT * 20, "no more requests are claimed than slots"


@virtual
async def test_an_hour_of_a_stopped_process_is_no_outage(tmp_path):
    loop, count = asyncio.get_running_loop(), itertools.count()

    def then(request, now):
        if next(count) in (100, 200):
            # While all requests are in flight: the stop policy is checked before their responses arrive.
            loop.call_later(0.25, loop.jump, 3600.0)
        return answer(after=1.0)

    result = await ride(tmp_path / "run", then, stop_policy=StopPolicy(unknown=None))
    assert result.report.stopped is None
    assert result.report.unknown <= 2 * IN_FLIGHT * 20, "what was in flight"
    assert result.report.accepted == USERS - result.report.unknown
