"""The limit on requests in flight as senders see it: one for sends and runs, raised by demand, shown and logged."""

import asyncio
import logging
import random
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, titled
from support.kill_child import ids
from support.virtual_time import virtual

from pushsdk import Batching, Limits, Progress, Rate
from pushsdk._core.rate_limit import RateLimiter
from pushsdk._io import limiter as limiter_module
from pushsdk._io.limiter import ConcurrencyLimiter
from pushsdk._io.transport import DESCRIPTORS, most_in_flight


@virtual
async def test_the_limit_rises_while_sends_wait_and_is_shown_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pushsdk")
    service = FakeService(then=answer(after=0.05))
    async with client_of(service) as client:
        await client.send("a", MESSAGE)
        assert client.stats().limit == 16
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(3000)))
        assert client.stats().limit > 64
        assert service.most_in_flight > 64
        assert idle(client)
    lines = [record.getMessage() for record in caplog.records if "the limit on requests" in record.getMessage()]
    assert 2 <= len(lines) <= 16
    assert lines[0].startswith("the limit on requests in flight is 24; ")


@virtual
async def test_the_cap_is_never_exceeded() -> None:
    service = FakeService(then=answer(after=0.05))
    async with client_of(service, limits=Limits(in_flight=20)) as client:
        await asyncio.gather(*(client.send("a", titled(number)) for number in range(1000)))
        assert client.stats().limit == 20
    assert service.most_in_flight == 20


@virtual
async def test_a_run_raises_the_limit_too_and_reports_it(tmp_path: Path) -> None:
    service, readings = FakeService(then=answer(after=0.05)), list[Progress]()
    async with client_of(service, batching=Batching(max_users=1)) as client:
        report = await client.broadcast(ids(3000), MESSAGE, run=tmp_path / "run", on_progress=readings.append)
    assert report.accepted == 3000
    assert service.most_in_flight > 48
    assert max(reading.limit for reading in readings) > 48
    assert max(reading.requests for reading in readings) > 48


@virtual
async def test_sends_with_one_message_merge_and_need_no_more_slots() -> None:
    service = FakeService(then=answer(after=0.05))
    async with client_of(service) as client:
        for _ in range(100):
            await asyncio.gather(*(client.send(f"user-{number}", MESSAGE) for number in range(100)))
        assert client.stats().limit == 16


class Core:
    """A core that another process takes from the loop for most of the time, and the clock of the loop."""

    def __init__(self, *, thread_waits: bool, is_virtual: bool) -> None:
        self.now, self._waits, self._thread_waits, self._is_virtual = 0.0, 0.0, thread_waits, is_virtual

    def time(self) -> float:
        return self.now

    def usage(self) -> tuple[float, float, float]:
        self._waits += self._thread_waits
        return 0.0 if self._is_virtual else self.now, 0.1 * self.now, self._waits


@pytest.mark.parametrize(("thread_waits", "is_virtual"), [(False, False), (True, False), (False, True)])
def test_late_answers_lower_the_limit_if_the_loop_has_waited_for_them_and_not_if_it_lost_its_core(
    thread_waits: bool, is_virtual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, dice = Core(thread_waits=thread_waits, is_virtual=is_virtual), random.Random(1)
    monkeypatch.setattr(limiter_module, "_thread_usage", core.usage)
    limiter = ConcurrencyLimiter(cast("asyncio.AbstractEventLoop", core), 1000, RateLimiter(Rate()))
    limiter.run_requests = 1000
    limits = list[int]()
    for number in range(5000):
        while limiter.try_acquire(1):
            pass
        # Nothing is slow at first; later, the answers of a turn of the loop are read after all requests of that turn.
        seconds = 0.001 if number < 500 else 0.02 * dice.random()
        core.now += seconds / limiter.in_flight
        limiter.release(1, seconds, ok=True, began=core.now - seconds)
        limits.append(limiter.limit)
    assert (limits[-1] < max(limits)) is (thread_waits or is_virtual)


async def test_without_a_cap_descriptors_and_the_pool_are_the_bound() -> None:
    assert 1 <= most_in_flight(Limits()) <= DESCRIPTORS // 2
    assert most_in_flight(Limits(in_flight=9)) == 9
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=7)) as session:
        assert most_in_flight(Limits(), session) == 7
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, limit_per_host=5)) as session:
        assert most_in_flight(Limits(), session) == 5
