"""A crowd of our own calls at a claim store: each waits for its turn, and that is not the store's time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from support.shaky_claims import ShakyClaims
from support.virtual_time import turns, virtual

from pushsdk import ClaimStoreError, MobilePush, Receipt, Timeout
from pushsdk._core.dedupe import Mark
from pushsdk.claims import Claim, Put, _guard
from pushsdk.claims._turns import Turns
from pushsdk.client import AsyncPushClient
from pushsdk.testing import FakeService

HELLO = MobilePush(title={"en": "Hello"})


class Narrow(ShakyClaims):
    """Does one thing at a time, and takes a second for it."""

    def __init__(self) -> None:
        super().__init__(timeout=5.0)
        self.line = asyncio.Lock()

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        async with self.line:
            await asyncio.sleep(1.0)
            return await super().put(puts, ttl)


class Silent(ShakyClaims):
    """Answers nothing any more."""

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        self.ops.append("swap" if puts[0].expected else "add")
        await asyncio.get_running_loop().create_future()
        return []


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two visits at a time."""
    monkeypatch.setattr(_guard, "AT_A_TIME", 2)


async def crowd(client: AsyncPushClient, count: int, total: float | None = None) -> list[Receipt | BaseException]:
    """That many jobs at once."""
    sends = (
        client.send(f"user-{n}", HELLO, dedupe_key=f"job-{n}", timeout=Timeout(total=total, attempt=None))
        for n in range(count)
    )
    return await asyncio.gather(*sends, return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time()


# -- by a client ------------------------------------------------------------------------------------------------------


@virtual
async def test_a_crowd_at_a_store_that_is_well_waits_and_nobody_fails() -> None:
    service, claims = FakeService(), Narrow()
    async with service.client(claims=claims) as client:
        assert {type(each) for each in await crowd(client, 30)} == {Receipt}
    assert claims.marks() == [[Mark.ACCEPTED]] * 30
    assert len(service.users()) == 30


@virtual
async def test_who_waits_for_a_turn_waits_no_longer_than_the_call_may_take() -> None:
    service, claims = FakeService(), Narrow()
    async with service.client(claims=claims) as client:
        started = now()
        told = await crowd(client, 30, total=10.0)
        assert now() - started == pytest.approx(10.0, abs=0.01)
        late = [each for each in told if isinstance(each, ClaimStoreError)]
        assert {str(each) for each in late} == {"not sent: the claim store did not answer within the call's timeout"}
        assert client.stats().not_sent == len(late)
    assert 0 < len(late) < 30
    assert len(service.users()) == 30 - len(late)


@virtual
async def test_nobody_waits_behind_a_store_that_is_silent() -> None:
    service, claims = FakeService(), Silent(timeout=5.0)
    client = service.client(claims=claims)
    started = now()
    told = await crowd(client, 100)
    assert now() - started == pytest.approx(5.0, abs=0.01)
    assert {str(each) for each in told} == {"not sent: the claim store failed (TimeoutError)"}
    assert claims.ops.count("add") == 2, "the others were never asked for"
    await client.aclose(drain=10.0)
    assert now() - started < 30.0
    assert service.requests == []


@virtual
async def test_a_call_cancelled_in_line_asks_nothing_and_takes_no_turn() -> None:
    service, claims = FakeService(), Narrow()
    async with service.client(claims=claims) as client:
        tasks = [asyncio.create_task(client.send("user-1", HELLO, dedupe_key=f"job-{n}")) for n in range(6)]
        await turns()
        for task in tasks[2:5]:
            task.cancel()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in told] == [
            *[Receipt] * 2,
            *[asyncio.CancelledError] * 3,
            Receipt,
        ]
        assert client.stats().not_sent == 3
    assert claims.ops.count("add") == 3


# -- alone ------------------------------------------------------------------------------------------------------------


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
