"""Deadlines kept by one sweep, and the scope that ends an await at its deadline."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest
from support.virtual_time import turns, virtual

from pushsdk._core.outcome import Failure
from pushsdk._io import clock
from pushsdk._io.clock import Company, Deadlines, Scope


class Item:
    """Notes when and why it expired."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, Failure]] = []

    def expire(self, reason: Failure) -> None:
        self.ends.append((now(), reason))


def now() -> float:
    return asyncio.get_running_loop().time()


def timers() -> int:
    return len(asyncio.get_running_loop().timers)  # type: ignore[attr-defined]


@virtual
async def test_each_item_expires_once_after_its_deadline_and_within_a_tick() -> None:
    keeper, before = Deadlines(asyncio.get_running_loop()), now()
    items = {delay: Item() for delay in (0.5, 0.0001, 0.0039, 0.25, 0.2501, 3.0)}
    for delay, item in items.items():
        keeper.add(item, before + delay)
    assert timers() == 1
    await asyncio.sleep(4.0)
    for delay, item in items.items():
        ((at, reason),) = item.ends
        assert reason is Failure.DEADLINE
        assert delay <= at - before <= delay + 0.005
    assert timers() == 0


@virtual
async def test_what_is_removed_while_a_late_loop_reads_does_not_expire() -> None:
    loop = asyncio.get_running_loop()
    keeper, read, unread = Deadlines(loop), Item(), Item()
    tick = keeper.add(read, now() + 1.0)
    keeper.add(unread, now() + 1.0)
    loop.jump(60.0)  # type: ignore[attr-defined]
    await turns(2)
    keeper.remove(read, tick)
    await turns(5)
    assert (read.ends, len(unread.ends)) == ([], 1)
    keeper.close()


@virtual
async def test_on_a_loop_that_is_late_in_every_turn_each_item_has_turns_of_its_own_and_expires() -> None:
    loop = asyncio.get_running_loop()
    keeper, items = Deadlines(loop), [Item() for _ in range(20)]
    for number, item in enumerate(items):
        keeper.add(item, now() + number)
    late = {}
    for turn in range(40):
        loop.jump(1.0)  # type: ignore[attr-defined]
        await turns(1)
        late |= {number: turn - number for number, item in enumerate(items) if item.ends and number not in late}
    assert len(late) == 20
    assert min(late.values()) >= clock.TURNS_TO_READ
    assert max(late.values()) <= 3 * clock.TURNS_TO_READ
    keeper.close()


@virtual
async def test_a_removed_item_does_not_expire_and_empty_ticks_cost_no_wake_up() -> None:
    keeper, before = Deadlines(asyncio.get_running_loop()), now()
    removed, kept = Item(), Item()
    for delay in (0.1, 0.2, 0.3):
        keeper.remove(removed, keeper.add(removed, before + delay))
    tick = keeper.add(kept, before + 0.4)
    await asyncio.sleep(0.11)
    assert timers() == 1
    await asyncio.sleep(1.0)
    assert (removed.ends, len(kept.ends)) == ([], 1)
    keeper.remove(kept, tick)
    assert not keeper._buckets


@virtual
async def test_an_earlier_deadline_moves_the_timer_and_a_later_one_does_not() -> None:
    keeper, before = Deadlines(asyncio.get_running_loop()), now()
    late, early, equal = Item(), Item(), Item()
    keeper.add(late, before + 5.0)
    keeper.add(early, before + 1.0)
    keeper.add(equal, before + 1.0)
    assert timers() == 1
    await asyncio.sleep(2.0)
    assert (len(early.ends), len(equal.ends), late.ends) == (1, 1, [])
    keeper.close()
    assert timers() == 0


@virtual
async def test_what_has_no_deadline_is_ended_by_the_close_only() -> None:
    keeper = Deadlines(asyncio.get_running_loop())
    with Scope(keeper, math.inf) as scope:
        assert timers() == 0
        keeper.add(Item(), math.inf)
        asyncio.get_running_loop().call_later(100.0, keeper.end_scopes, Failure.CLOSED)
        await asyncio.get_running_loop().create_future()
    assert scope.expired is Failure.CLOSED
    keeper.close()


@virtual
async def test_a_scope_ends_its_await_and_goes_on_after_the_block() -> None:
    keeper, before = Deadlines(asyncio.get_running_loop()), now()
    with Scope(keeper, before + 1.0) as scope:
        await asyncio.sleep(10.0)
    assert scope.expired is Failure.DEADLINE
    assert before + 1.0 <= now() <= before + 1.005
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    await asyncio.sleep(1.0)


@virtual
async def test_a_scope_that_is_left_in_time_says_so() -> None:
    keeper = Deadlines(asyncio.get_running_loop())
    with Scope(keeper, now() + 1.0) as scope:
        await asyncio.sleep(0.5)
    await asyncio.sleep(2.0)
    assert scope.expired is None


@virtual
async def test_the_inner_of_two_scopes_ends_alone() -> None:
    keeper, before = Deadlines(asyncio.get_running_loop()), now()
    with Scope(keeper, before + 2.0) as outer:
        with Scope(keeper, before + 1.0) as inner:
            await asyncio.sleep(10.0)
        assert (inner.expired, outer.expired) == (Failure.DEADLINE, None)
        await asyncio.sleep(10.0)
    assert outer.expired is Failure.DEADLINE
    assert now() <= before + 2.005


@virtual
async def test_two_scopes_that_end_in_the_same_tick_both_end() -> None:
    keeper, before = Deadlines(asyncio.get_running_loop()), now()
    with Scope(keeper, before + 1.0) as outer:
        with Scope(keeper, before + 1.0) as inner:
            await asyncio.sleep(10.0)
        await turns()
    assert (inner.expired, outer.expired) == (Failure.DEADLINE, Failure.DEADLINE)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    assert now() <= before + 1.005


@pytest.mark.parametrize("delay", [0.5, 1.0 - 0.0013, 1.002])
@virtual
async def test_a_cancellation_from_outside_goes_through_also_together_with_the_deadline(delay: float) -> None:
    keeper = Deadlines(asyncio.get_running_loop())

    async def work() -> None:
        with Scope(keeper, now() + 1.0):
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
    keeper = Deadlines(asyncio.get_running_loop())
    with pytest.raises(KeyError):  # noqa: SIM117 - the scope is what is tested
        with Scope(keeper, now() + 1.0):
            try:
                await asyncio.sleep(10.0)
            except asyncio.CancelledError:
                raise KeyError from None
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@virtual
async def test_a_scope_ends_once_for_the_first_reason() -> None:
    keeper = Deadlines(asyncio.get_running_loop())
    with Scope(keeper, now() + 1.0) as scope:
        scope.expire(Failure.CLOSED)
        scope.expire(Failure.DEADLINE)
        await asyncio.sleep(10.0)
    assert scope.expired is Failure.CLOSED
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    keeper.close()


class Member(Item):
    """An item that knows its deadline, ``delay`` seconds from now."""

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.deadline = now() + delay


DELAYS = (3.0, 0.5, 7.0, 0.5001, 0.502, 3.0, math.inf, 4.0)


@virtual
@pytest.mark.parametrize("delays", [DELAYS, DELAYS[::-1], sorted(DELAYS)], ids=["mixed", "reversed", "ascending"])
async def test_each_of_a_company_expires_at_its_own_deadline_by_one_place_in_the_sweep(
    delays: Sequence[float],
) -> None:
    keeper, before = Deadlines(asyncio.get_running_loop()), now()
    members = [Member(delay) for delay in delays]
    company = Company(keeper, members)
    for member in members:
        company.include(member.deadline)
        assert sum(map(len, keeper._buckets.values())) <= 1
    await asyncio.sleep(10.0)
    for delay, member in zip(delays, members, strict=True):
        if delay < math.inf:
            assert delay <= member.ends[0][0] - before <= delay + 0.005
            assert {reason for _, reason in member.ends} == {Failure.DEADLINE}
        else:
            assert member.ends == []
    assert timers() == 0


@virtual
async def test_a_deadline_that_rounding_puts_at_the_end_of_its_tick_comes_once() -> None:
    deadline = 32001 / clock.TICKS_PER_SECOND
    assert int(deadline * clock.TICKS_PER_SECOND) + 1 == 32001
    member = Member(0.0)
    member.deadline = deadline
    company = Company(Deadlines(asyncio.get_running_loop()), [member])
    company.include(deadline)
    await asyncio.sleep(max(0.0, deadline - now()) + 0.1)
    assert len(member.ends) == 1
    assert timers() == 0


@virtual
async def test_who_has_left_a_company_does_not_expire_and_who_came_later_does() -> None:
    keeper = Deadlines(asyncio.get_running_loop())
    gone, stays, late = Member(1.0), Member(2.0), Member(1.5)
    members = [gone, stays]
    company = Company(keeper, members)
    company.include(gone.deadline)
    members.remove(gone)
    await asyncio.sleep(1.2)
    members.append(late)
    company.include(late.deadline)
    await asyncio.sleep(1.0)
    assert (gone.ends, bool(late.ends), bool(stays.ends)) == ([], True, True)


@virtual
async def test_a_company_that_is_closed_leaves_the_sweep_and_takes_nobody() -> None:
    keeper = Deadlines(asyncio.get_running_loop())
    member = Member(1.0)
    company = Company(keeper, [member])
    company.include(member.deadline)
    company.close()
    company.include(member.deadline - 0.5)
    assert not any(keeper._buckets.values())
    await asyncio.sleep(2.0)
    assert member.ends == []
