"""Deadlines kept by one sweep, and the scope that ends an await at its deadline."""

import asyncio
import math
from itertools import count
from types import SimpleNamespace

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, idle, outcome_of, start
from support.virtual_time import now, turns, virtual

from pushsdk import Batching, Limits, NotSentError, RetryPolicy, Timeout
from pushsdk._core.batching import Batches, Call, Content
from pushsdk._core.learned_sizes import LearnedSizes
from pushsdk._core.outcome import Failure
from pushsdk._core.policy import Options
from pushsdk._io.queue import QueuedBatch
from pushsdk._io.timers import TICKS_PER_SECOND, TURNS_TO_READ, DeadlineScope, TimerWheel


class Item:
    """Notes when and why it expired."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, Failure]] = []

    def expire(self, reason: Failure) -> None:
        self.ends.append((now(), reason))


def timers() -> int:
    return len(asyncio.get_running_loop().timers)  # type: ignore[attr-defined]


@virtual
async def test_what_is_removed_while_a_late_loop_reads_does_not_expire() -> None:
    loop = asyncio.get_running_loop()
    keeper, read, unread = TimerWheel(loop), Item(), Item()
    tick = keeper.add(read, now() + 1.0)
    keeper.add(unread, now() + 1.0)
    loop.jump(60.0)  # type: ignore[attr-defined]
    await turns(2)
    keeper.remove(read, tick)
    await turns(5)
    assert (read.ends, len(unread.ends)) == ([], 1)
    keeper.close()


@virtual
async def test_on_a_loop_that_is_always_late_each_item_gets_its_turns_and_expires() -> None:
    loop = asyncio.get_running_loop()
    keeper, items = TimerWheel(loop), [Item() for _ in range(20)]
    for number, item in enumerate(items):
        keeper.add(item, now() + number)
    late = {}
    for turn in range(40):
        loop.jump(1.0)  # type: ignore[attr-defined]
        await turns(1)
        late |= {number: turn - number for number, item in enumerate(items) if item.ends and number not in late}
    assert len(late) == 20
    assert min(late.values()) >= TURNS_TO_READ
    assert max(late.values()) <= 3 * TURNS_TO_READ
    keeper.close()


@virtual
async def test_a_removed_item_does_not_expire_and_empty_ticks_cost_no_wake_up() -> None:
    keeper, before = TimerWheel(asyncio.get_running_loop()), now()
    removed, item = Item(), Item()
    for delay in (0.1, 0.2, 0.3):
        keeper.remove(removed, keeper.add(removed, before + delay))
    tick = keeper.add(item, before + 0.4)
    await asyncio.sleep(0.11)
    assert timers() == 1
    await asyncio.sleep(1.0)
    assert (removed.ends, len(item.ends)) == ([], 1)
    keeper.remove(item, tick)
    assert not keeper._buckets


@virtual
async def test_two_scopes_that_end_in_the_same_tick_both_end() -> None:
    keeper, before = TimerWheel(asyncio.get_running_loop()), now()
    with DeadlineScope(keeper, before + 1.0) as outer:
        with DeadlineScope(keeper, before + 1.0) as inner:
            await asyncio.sleep(10.0)
        await turns()
    assert (inner.expired, outer.expired) == (Failure.DEADLINE, Failure.DEADLINE)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    assert now() <= before + 1.005


@pytest.mark.parametrize("delay", [0.5, 1.0 - 0.0013, 1.002])
@virtual
async def test_a_cancellation_from_outside_goes_through_also_together_with_the_deadline(delay: float) -> None:
    keeper = TimerWheel(asyncio.get_running_loop())

    async def work() -> None:
        with DeadlineScope(keeper, now() + 1.0):
            await asyncio.sleep(10.0)

    task = asyncio.ensure_future(work())
    await turns()
    if delay < 1.0:
        await asyncio.sleep(delay)
    else:
        tick = next(iter(keeper._buckets.values()))
        next(iter(tick)).expire(Failure.DEADLINE)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    keeper.close()


@virtual
async def test_an_error_in_the_block_is_not_hidden_by_the_deadline() -> None:
    keeper = TimerWheel(asyncio.get_running_loop())
    with pytest.raises(KeyError):  # noqa: SIM117 - the scope is what is tested
        with DeadlineScope(keeper, now() + 1.0):
            try:
                await asyncio.sleep(10.0)
            except asyncio.CancelledError:
                raise KeyError from None
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@virtual
async def test_a_scope_ends_once_for_the_first_reason() -> None:
    keeper = TimerWheel(asyncio.get_running_loop())
    with DeadlineScope(keeper, now() + 1.0) as scope:
        scope.expire(Failure.CLOSED)
        scope.expire(Failure.DEADLINE)
        await asyncio.sleep(10.0)
    assert scope.expired is Failure.CLOSED
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    keeper.close()


@virtual
async def test_each_call_of_a_batch_ends_at_its_own_deadline_by_one_entry_of_the_wheel() -> None:
    service, before, ends = FakeService(answer(after=8.0)), now(), list[float]()
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        busy = start(client.send("busy", MESSAGE))

        async def send(number: int) -> None:
            await asyncio.sleep(number / 7)
            with pytest.raises(NotSentError):
                await client.send(f"user-{number}", MESSAGE, timeout=2.0)
            ends.append(now() - before)

        calls = [start(send(number)) for number in range(10)]
        await asyncio.sleep(1.9)
        assert sum(map(len, client._lifetime.engine.timers._buckets.values())) == 2
        await asyncio.gather(busy, *calls)
        assert idle(client)
    assert ends == pytest.approx([2.0 + number / 7 for number in range(10)], abs=0.005)


@virtual
async def test_a_call_that_has_left_its_batch_does_not_expire_and_one_that_came_later_does() -> None:
    service, before = FakeService(answer(after=8.0)), now()
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        busy = start(client.send("busy", MESSAGE))
        await turns()
        first, late = start(client.send("gone", MESSAGE, timeout=2.0)), start(client.send("late", MESSAGE, timeout=2.0))
        await asyncio.sleep(1.0)
        first.cancel()
        assert isinstance(await outcome_of(first), asyncio.CancelledError)
        assert isinstance(await outcome_of(late), NotSentError)
        assert now() == pytest.approx(before + 2.0, abs=0.005)
        await busy
        assert idle(client)


@virtual
async def test_a_deadline_that_rounding_puts_at_the_end_of_its_tick_comes_once() -> None:
    ticks = count(int(now() * TICKS_PER_SECOND) + 100)
    deadline = next(n / 250 for n in ticks if int(n / TICKS_PER_SECOND * TICKS_PER_SECOND) + 1 == n)
    wheel, call, expired = TimerWheel(asyncio.get_running_loop()), Call(("a",), b"", deadline, 1), []
    call.future = asyncio.get_running_loop().create_future()
    content = Content(b"{}", None, Options(RetryPolicy.safe(), Timeout()))
    queue = SimpleNamespace(timers=wheel, leave=lambda call, batch, reason: expired.append((call, reason)))
    entry = QueuedBatch(queue, Batches(Batching(), LearnedSizes()).open(content, call))
    entry.include(deadline)
    await asyncio.sleep(max(0.0, deadline - now()) + 0.1)
    assert expired == [(call, Failure.DEADLINE)]
    assert (timers(), entry.deadline) == (0, math.inf)
