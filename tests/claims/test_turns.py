"""The line of visits to a claim store: each waits for its turn, and that is not the store's time."""

from __future__ import annotations

import asyncio

from support.virtual_time import turns, virtual

from pushsdk.claims._turns import Turns


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_turns_come_in_the_order_of_the_line() -> None:
    line, came = Turns(2), list[int]()

    async def one(number: int) -> None:
        await line.take()
        came.append(number)
        await turns(number % 3)
        line.give()

    await asyncio.gather(*(one(number) for number in range(20)))
    assert came == list(range(20))


@virtual
async def test_a_turn_that_comes_with_a_cancellation_goes_to_the_next() -> None:
    line = Turns(2)
    for _ in range(2):
        await line.take()
    first, second = (asyncio.create_task(line.take()) for _ in range(2))
    await turns()
    line.give()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await second
    line.give()
    line.give()
    for _ in range(2):
        await asyncio.wait_for(line.take(), 1.0)


@virtual
async def test_a_line_goes_on_when_one_visit_had_no_answer_and_others_had() -> None:
    line = Turns(2)
    for _ in range(2):
        await line.take()
    began = now()
    waiting = asyncio.create_task(line.take())
    await asyncio.sleep(1.0)
    line.heard()
    line.silent(began)
    line.give()
    await waiting


@virtual
async def test_who_left_the_line_is_not_told_that_the_store_is_silent() -> None:
    line = Turns(2)
    for _ in range(2):
        await line.take()
    gone, waiting = (asyncio.create_task(line.take()) for _ in range(2))
    await turns()
    gone.cancel()
    await turns()
    line.silent(now())
    told = await asyncio.gather(gone, waiting, return_exceptions=True)
    assert [type(each) for each in told] == [asyncio.CancelledError, TimeoutError]
