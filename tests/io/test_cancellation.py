"""A caller that is cancelled: its CancelledError propagates, its users' true outcome is told, its place comes back."""

from __future__ import annotations

import asyncio

from support.fake_service import MESSAGE, FakeService, Request, answer, client_of, hang, idle, outcome_of, start
from support.virtual_time import turns, virtual

from pushsdk import AsyncPushClient, Batching, Event, Limits, Outcome, SendAbandoned

OTHER = {"title": {"en": "Other"}}
MANY = [f"a-user-with-a-long-name-{number}" for number in range(40)]


def abandoned(told: list[Event]) -> dict[str, Outcome]:
    """What SendAbandoned said of each user; every user is told of once."""
    ended: dict[str, Outcome] = {}
    for event in told:
        if isinstance(event, SendAbandoned):
            assert not ended.keys() & set(event.user_ids), "a user was told of twice"
            ended |= dict.fromkeys(event.user_ids, event.outcome)
    return ended


async def cancel(task: asyncio.Task[object]) -> None:
    """Cancel it, and see that it ends so."""
    task.cancel()
    assert isinstance(await outcome_of(task), asyncio.CancelledError)


async def learn(client: AsyncPushClient) -> None:
    """Let the client find out that the service takes ten users at most."""
    await client.send(MANY, MESSAGE)


def at_most_ten(request: Request) -> object:
    return answer(413) if len(request.users) > 10 else answer()


@virtual
async def test_a_call_cancelled_before_the_flush_takes_its_users_out_and_is_told_of_once() -> None:
    service, told = FakeService(), list[Event]()
    async with client_of(service, batching=Batching(linger=1.0), on_event=told.append) as client:
        task = start(client.send("a", MESSAGE))
        await turns()
        await cancel(task)
        assert idle(client)
        assert client.stats().abandoned == 1
        assert abandoned(told) == {"a": Outcome.NOT_SENT}
    assert service.requests == []


@virtual
async def test_a_cancelled_call_that_was_split_tells_the_truth_about_the_half_that_was_accepted() -> None:
    service, told = FakeService(answer(413), answer(), hang()), list[Event]()
    async with client_of(service, on_event=told.append) as client:
        task = start(client.send(MANY, MESSAGE))
        await asyncio.sleep(1.0)
        await cancel(task)
        assert idle(client)
    assert sum(service.processed.values()) == 20
    assert abandoned(told) == {user: Outcome.ACCEPTED if service.processed[user] else Outcome.UNKNOWN for user in MANY}


@virtual
async def test_a_cancelled_call_that_had_waited_for_its_place_and_was_split_gives_it_back_once() -> None:
    service = FakeService(answer(), answer(413), answer(), hang())
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        first = start(client.send("first", OTHER))
        await turns()
        task = start(client.send(MANY, MESSAGE))
        await asyncio.sleep(1.0)
        await cancel(task)
        await first
        assert client.stats().in_flight == 0


@virtual
async def test_a_call_sent_in_pieces_and_cancelled_before_they_start_gives_its_place_back() -> None:
    service = FakeService(then=at_most_ten)
    async with client_of(service) as client:
        await learn(client)
        before = len(service.requests)
        task = start(client.send(MANY, MESSAGE))
        # One turn to look who comes along, one to start: the pieces have their tasks, which did not run yet.
        await turns(2)
        assert len(service.requests) == before
        await cancel(task)
        assert client.stats().in_flight == 0
