"""The limit on requests in flight as senders see it: one for sends and runs, raised by demand, shown and logged."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, titled
from support.kill_child import ids
from support.virtual_time import virtual

from pushsdk import Batching, Limits, NotSentError, Progress, Rate
from pushsdk._core.rate_limit import RateLimiter
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


class Loop:
    """An event loop with one timer that is idle, blocked between its turns, or busy in each turn."""

    def __init__(self, kind: str) -> None:
        self.now, self._kind = 0.0, kind
        self._timers = list[tuple[float, Callable[[], None]]]()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object:
        self._timers.append((self.now + seconds, callback))
        return callback

    def thread_time(self) -> float:
        return self.now if self._kind == "busy" else 0.0

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            when, callback = self._timers.pop(0)
            self.now = max(self.now, until if self._kind == "blocked" else when)
            callback()
        self.now = until


@pytest.mark.parametrize(
    ("kind", "is_steady"), [("idle", True), ("blocked", True), ("busy", True), ("idle", False), ("busy", False)]
)
def test_late_answers_lower_the_limit_of_an_idle_loop_only(
    kind: str, is_steady: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(kind)
    monkeypatch.setattr(time, "thread_time", loop.thread_time)
    limiter = ConcurrencyLimiter(cast("asyncio.AbstractEventLoop", loop), 1000, RateLimiter(Rate()))
    limiter.run_requests = 1000
    limits = list[int]()
    for number in range(100):
        while limiter.try_acquire(1):
            pass
        seconds = 0.001 if number < 20 else 0.02
        limiter.run_requests = 1000 * is_steady
        loop.wait(seconds)
        limiter.run_requests = 1000
        for _ in range(limiter.in_flight):
            limiter.release(1, seconds, ok=True, began=loop.now - seconds)
        limits.append(limiter.limit)
    assert (limits[-1] < max(limits) / 4) is (kind == "idle")


async def test_without_a_cap_descriptors_and_the_pool_are_the_bound() -> None:
    assert 1 <= most_in_flight(Limits()) <= DESCRIPTORS // 2
    assert most_in_flight(Limits(in_flight=9)) == 9
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=7)) as session:
        assert most_in_flight(Limits(), session) == 7
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, limit_per_host=5)) as session:
        assert most_in_flight(Limits(), session) == 5


@virtual
async def test_an_attempt_that_its_deadline_prevents_tells_nothing_about_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with client_of(FakeService()) as client:
        await client.send("warm", MESSAGE)
        limiter, loop, waits = client._engine.limiter, asyncio.get_running_loop(), list[float]()

        def release(users: int, seconds: float | None = None, *, ok: bool = False, began: float | None = None) -> None:
            waits.append(loop.time() - (began or loop.time()))
            ConcurrencyLimiter.release(limiter, users, seconds, ok=ok, began=began)

        monkeypatch.setattr(limiter, "release", release)
        send = client.submit("user", MESSAGE, timeout=1.0)
        await asyncio.sleep(0)
        loop.jump(2.0)  # type: ignore[attr-defined] # it has a slot, and its task has not begun
        with pytest.raises(NotSentError):
            await send
    assert waits == [0.0]
