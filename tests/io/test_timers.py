"""Deadlines kept by one sweep, and the scope that ends an await at its deadline."""

import asyncio
import tracemalloc

import pytest
from support.virtual_time import now, turns, virtual

from pushsdk._core.outcome import Failure
from pushsdk._io.timers import TURNS_TO_READ, DeadlineScope, TimerWheel


class Item:
    """Notes when and why it expired."""

    def __init__(self):
        self.ends = []

    def expire(self, reason):
        self.ends.append((now(), reason))


@virtual
async def test_on_a_loop_that_is_always_late_each_item_gets_its_turns_and_expires_even_if_one_raises():
    loop = asyncio.get_running_loop()
    keeper = TimerWheel(loop)
    items = [Item() for _ in range(20)]
    for number, item in enumerate(items):
        keeper.add(item, now() + number)
    keeper.add(None, now() + 9.0)  # raises, as a log handler may
    late = {}
    for turn in range(40):
        loop.jump(1.0)
        await turns(1)
        late |= {number: turn - number for number, item in enumerate(items) if item.ends and number not in late}
    assert len(late) == 20
    assert min(late.values()) >= TURNS_TO_READ
    assert max(late.values()) <= 3 * TURNS_TO_READ
    assert "NoneType" in loop.complaints.pop()
    keeper.close()


@virtual
async def test_entries_that_have_left_before_their_deadline_keep_no_memory():
    wheel = TimerWheel(asyncio.get_running_loop())
    tracemalloc.start()
    for number in range(9999):
        wheel.add(None, now() + number).clear()
    assert tracemalloc.get_traced_memory()[0] < 1e6
    tracemalloc.stop()
    wheel.close()


@pytest.mark.parametrize("delay", [0.5, 1.0 - 0.0013, None])
@virtual
async def test_a_cancellation_from_outside_goes_through_also_together_with_the_deadline(delay):
    wheel = TimerWheel(asyncio.get_running_loop())
    scopes = []

    async def work():
        with DeadlineScope(wheel, now() + 1.0) as scope:
            scopes.append(scope)
            await asyncio.sleep(10.0)

    task = asyncio.ensure_future(work())
    await turns()
    if delay is not None:
        await asyncio.sleep(delay)
    else:
        scopes[0].expire(Failure.DEADLINE)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    wheel.close()


@virtual
async def test_a_scope_ends_once_for_the_first_reason_and_two_of_one_tick_both_end():
    wheel = TimerWheel(asyncio.get_running_loop())
    before = now()
    with DeadlineScope(wheel, before + 1.0) as outer:
        with DeadlineScope(wheel, before + 1.0) as closed:
            closed.expire(Failure.CLOSED)
            closed.expire(Failure.DEADLINE)
            await asyncio.sleep(10.0)
        with DeadlineScope(wheel, before + 1.0) as inner:
            await asyncio.sleep(10.0)
        await turns()
    assert closed.expired == Failure.CLOSED
    assert inner.expired == Failure.DEADLINE
    assert outer.expired == Failure.DEADLINE
    assert asyncio.current_task().cancelling() == 0
    assert now() <= before + 1.005
    wheel.close()
