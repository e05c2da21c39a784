"""The places on the wire: first come, first served, within limit and gate."""

from __future__ import annotations

import asyncio
import math

import pytest
from support.virtual_time import turns, virtual

from pushsdk import Rate
from pushsdk._core.outcome import Failure
from pushsdk._core.rate_limit import RateLimiter
from pushsdk._io.limiter import ConcurrencyLimiter


def slots_of(limit: int, rate: Rate | None = None) -> ConcurrencyLimiter:
    return ConcurrencyLimiter(asyncio.get_running_loop(), limit, RateLimiter(rate or Rate()))


def now() -> float:
    return asyncio.get_running_loop().time()


def take(slots: ConcurrencyLimiter, deadline: float = math.inf) -> asyncio.Task[Failure | None]:
    return asyncio.get_running_loop().create_task(slots.acquire(1, deadline))


@virtual
async def test_places_are_taken_up_to_the_limit_and_given_back() -> None:
    slots = slots_of(2)
    assert [slots.try_acquire(1) for _ in range(3)] == [True, True, False]
    assert slots.in_flight == 2
    slots.release()
    assert slots.try_acquire(1)


@virtual
async def test_who_waits_is_served_in_turn_and_not_overtaken() -> None:
    slots = slots_of(1)
    assert slots.try_acquire(1)
    tasks = [take(slots) for _ in range(3)]
    await turns()
    slots.release()
    assert not slots.try_acquire(1)
    await turns()
    assert [task.done() for task in tasks] == [True, False, False]
    slots.release()
    slots.release()
    assert [await task for task in tasks] == [None, None, None]
    slots.release()
    assert slots.in_flight == 0


@virtual
async def test_a_ticket_that_is_cancelled_is_passed_over() -> None:
    slots = slots_of(1)
    assert slots.try_acquire(1)
    first, second = take(slots), take(slots)
    await turns()
    first.cancel()
    await turns()
    slots.release()
    assert await second is None
    slots.release()
    assert slots.in_flight == 0


@virtual
async def test_a_ticket_cancelled_with_its_place_in_hand_gives_it_to_the_next() -> None:
    slots = slots_of(1)
    assert slots.try_acquire(1)
    first, second = take(slots), take(slots)
    await turns()
    slots.release()
    first.cancel()
    assert await second is None
    assert first.cancelled()
    slots.release()
    assert slots.in_flight == 0


@virtual
async def test_a_ticket_given_up_and_then_cancelled_holds_no_place() -> None:
    slots = slots_of(1)
    assert slots.try_acquire(1)
    task = take(slots, now() + 100.0)
    await turns()
    slots.fail(Failure.CLOSED)
    task.cancel()
    await turns()
    assert task.cancelled()
    slots.release()
    assert slots.in_flight == 0


@virtual
async def test_a_pause_fails_calls_that_expire_before_it_ends_and_delays_the_rest() -> None:
    slots = slots_of(2)
    before = now()
    slots.pause(before + 10.0)
    assert not slots.try_acquire(1)
    short, patient = take(slots, before + 5.0), take(slots)
    await turns()
    slots.pause(before + 12.0)
    slots.pause(before + 1.0)
    assert await short is Failure.PAUSED
    assert slots.paused_until == before + 12.0
    assert await patient is None
    assert now() == pytest.approx(before + 12.0)
    slots.release()
    slots.close()


@virtual
async def test_a_close_stops_the_timer_of_the_gate() -> None:
    slots = slots_of(1, Rate(requests_per_second=1.0))
    assert slots.try_acquire(1)
    slots.release()
    task = take(slots, now() + 100.0)
    await turns()
    slots.fail(Failure.CLOSED)
    assert await task is Failure.CLOSED
    slots.close()
