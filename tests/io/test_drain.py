"""aclose: what is on its way may end within the drain; the rest is ended, nothing starts any more, all is told."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.fake_service import MESSAGE, FakeService, Request, answer, client_of, hang, outcome_of, refused, start
from support.virtual_time import turns, virtual

from pushsdk import (
    Batching,
    ClientClosedError,
    DrainReport,
    Limits,
    OutcomeUnknownError,
    PushError,
    Rate,
    RejectedError,
    RetryPolicy,
    Timeout,
)


@virtual
async def test_a_call_that_waits_for_its_retry_is_ended_and_not_sent_any_more() -> None:
    service = FakeService(refused(), then=hang())
    client = client_of(service, retry=RetryPolicy.safe(initial_delay=5.0))
    task = start(client.send("a", MESSAGE))
    await turns(10)
    before = asyncio.get_running_loop().time()
    report = await client.aclose(drain=0.0)
    assert asyncio.get_running_loop().time() == before
    assert len(service.requests) == 1
    assert report.not_sent == ("a",)
    assert isinstance(await outcome_of(task), ClientClosedError)


@pytest.mark.parametrize(
    "policy",
    [RetryPolicy.at_least_once, lambda: RetryPolicy.from_tenacity(retry=lambda state: True)],
    ids=["at_least_once", "from_tenacity"],
)
@virtual
async def test_an_attempt_ended_by_the_close_is_not_repeated_under_any_policy(
    policy: Callable[[], RetryPolicy],
) -> None:
    service = FakeService(then=hang())
    client = client_of(service, retry=policy())
    task = start(client.send("a", MESSAGE))
    await turns()
    before = asyncio.get_running_loop().time()
    report = await client.aclose(drain=0.0)
    assert asyncio.get_running_loop().time() == before
    assert len(service.requests) == 1
    assert report.unknown == ("a",)
    assert isinstance(await outcome_of(task), OutcomeUnknownError)


@virtual
async def test_who_is_accepted_at_the_very_end_of_its_deadline_is_in_the_report_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = client_of(FakeService(then=answer(after=1.0)))
    tasks = [start(client.send(user, MESSAGE)) for user in "ab"]
    await turns(4)
    pending = client._lifetime.engine.pending
    settle = pending.settle_part

    def settle_late(part: Any, verdict: Any) -> None:
        next(iter(pending.active)).wake()
        settle(part, verdict)

    monkeypatch.setattr(pending, "settle_part", settle_late)
    report = await client.aclose(drain=5.0)
    assert sorted(report.accepted) == ["a", "b"]
    assert [(await outcome_of(task)).users for task in tasks] == [1, 1]


@virtual
async def test_pieces_of_a_split_that_have_not_left_do_not_leave_after_the_close() -> None:
    def then(request: Request) -> object:
        return answer(400) if len(request.users) > 2 else hang()

    service = FakeService(then=then)
    client = client_of(service, limits=Limits(in_flight=4))
    tasks = [start(client.send(f"user-{number}", MESSAGE)) for number in range(8)]
    # The whole is rejected, the first four of its calls hang.
    await asyncio.sleep(0.05)
    assert len(service.requests) == 5
    before = asyncio.get_running_loop().time()
    report = await client.aclose(drain=0.0)
    assert asyncio.get_running_loop().time() == before
    assert len(service.requests) == 5
    assert (len(report.unknown), len(report.rejected)) == (4, 4)
    outcomes = [type(await outcome_of(task)) for task in tasks]
    assert (
        sorted(kind.__name__ for kind in outcomes) == [OutcomeUnknownError.__name__] * 4 + [RejectedError.__name__] * 4
    )


@virtual
async def test_a_call_admitted_while_the_client_closes_is_ended_with_the_drain() -> None:
    for lead in range(6):
        service = FakeService()
        limits, rate = Limits(queued_users=1), Rate(requests_per_second=0.1)
        client = client_of(service, limits=limits, rate=rate)
        await client.send("first", MESSAGE)
        in_line = start(client.send("in line", MESSAGE))
        await turns()
        not_admitted = start(client.send("not admitted", MESSAGE))
        await turns()
        before = asyncio.get_running_loop().time()
        closing = start(client.aclose(drain=0.0))
        await turns(lead)
        in_line.cancel()
        await closing
        assert isinstance(await outcome_of(not_admitted), ClientClosedError)
        assert asyncio.get_running_loop().time() == before, f"cancelled {lead} turns after"


@virtual
async def test_what_ends_within_the_drain_is_reported_as_it_ended() -> None:
    service = FakeService(answer(after=0.5), answer(401, after=0.5), hang())
    client = client_of(service)
    tasks = [start(client.send(user, {"title": {"en": user}})) for user in ("a", "b", "c")]
    await turns()
    report = await client.aclose(drain=1.0)
    assert (report.accepted, report.rejected, report.not_sent, report.unknown) == (("a",), ("b",), (), ("c",))
    outcomes = [type(await outcome_of(task)).__name__ for task in tasks]
    assert outcomes == ["Receipt", "AuthenticationError", "OutcomeUnknownError"]


@virtual
async def test_the_close_sends_what_lingers_within_the_drain() -> None:
    service = FakeService()
    client = client_of(service, batching=Batching(linger=9.0))
    tasks = [start(client.send(user, MESSAGE)) for user in ("a", "b")]
    await turns()
    before = asyncio.get_running_loop().time()
    report = await client.aclose()
    assert report.accepted == ("a", "b")
    assert asyncio.get_running_loop().time() < before + 1.0
    assert [await outcome_of(task) for task in tasks]
    assert service.closed == 1


@virtual
async def test_a_call_past_its_deadline_whose_request_is_out_is_reported_as_abandoned() -> None:
    service = FakeService(answer(after=1.0), hang())
    client = client_of(service, limits=Limits(in_flight=1), timeout=2.0)
    busy = start(client.send("busy", {"title": {"en": "x"}}))
    await turns()
    early = start(client.send("early", MESSAGE))
    await asyncio.sleep(0.9)
    later = start(client.send("later", MESSAGE))
    assert isinstance(await outcome_of(early), OutcomeUnknownError)
    report = await client.aclose(drain=0.1)
    assert [(event.user_ids, event.outcome.value) for event in report.abandoned] == [(("early",), "UNKNOWN")]
    assert report.unknown == ("later",)
    assert [await outcome_of(task) for task in (busy, later)]


@virtual
async def test_an_aclose_that_is_cancelled_ends_what_is_on_its_way_and_closes() -> None:
    service = FakeService(then=hang())
    client = client_of(service)
    task = start(client.send("a", MESSAGE))
    await turns()
    closing = start(client.aclose())
    await asyncio.sleep(1.0)
    closing.cancel()
    assert isinstance(await outcome_of(closing), asyncio.CancelledError)
    assert isinstance(await outcome_of(task), OutcomeUnknownError)
    assert service.closed == 1


@virtual
async def test_calls_without_any_deadline_are_ended_by_the_close_wherever_they_are() -> None:
    service = FakeService(answer(429, {"Retry-After": "50"}), then=hang())
    client = client_of(service, limits=Limits(in_flight=1, queued_users=3), timeout=Timeout(total=None, attempt=None))
    tasks = [start(client.send(f"user-{number}", {"title": {"en": f"{number}"}})) for number in range(6)]
    tasks.append(start(client.create_campaign({"externalId": "x"})))
    await asyncio.sleep(1.0)
    before = asyncio.get_running_loop().time()
    report = await client.aclose(drain=0.0)
    assert asyncio.get_running_loop().time() == before
    assert len(report.rejected + report.not_sent + report.unknown) == 6
    assert all([isinstance(await outcome_of(task), PushError) for task in tasks])


# -- in the loop turn in which a crowd is through -------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["flush", "aclose"])
@virtual
async def test_one_of_a_crowd_that_waits_for_all_waits_for_the_others_too(waits: str) -> None:
    client = client_of(FakeService(then=answer(after=0.1)))
    others: list[asyncio.Task[Any]] = []

    async def first() -> list[bool]:
        await client.send("a", MESSAGE)
        await getattr(client, waits)()
        return [other.done() for other in others]

    leader = start(first())
    others += [start(client.send(user, MESSAGE)) for user in "bcde"]
    assert await leader == [True] * 4
    await client.aclose()


@virtual
async def test_who_is_cancelled_as_the_crowd_is_through_is_in_the_report_of_the_close() -> None:
    client = client_of(FakeService(then=answer(after=0.1)))
    others: list[asyncio.Task[Any]] = []

    async def first() -> DrainReport:
        await client.send("a", MESSAGE)
        for other in others:
            other.cancel()
        return await client.aclose()

    leader = start(first())
    others += [start(client.send(user, MESSAGE)) for user in "bcd"]
    report = await leader
    assert [(event.outcome, event.user_ids) for event in report.abandoned] == [("ACCEPTED", (user,)) for user in "bcd"]


@virtual
async def test_a_call_that_is_about_to_wait_as_the_client_ends_was_not_sent() -> None:
    client = client_of(FakeService(hang()), limits=Limits(in_flight=1))
    first = start(client.send("a", {"title": {"en": "Other"}}))
    await turns()
    task = start(client.send("b", MESSAGE))
    # In one turn it looks for calls to travel with; in the next it would wait for its place.
    await turns(1)
    client._lifetime.engine.sender.closed = True
    assert isinstance(await outcome_of(task), ClientClosedError)
    await client.aclose(drain=0)
    assert isinstance(await outcome_of(first), OutcomeUnknownError)


@virtual
async def test_calls_merged_in_the_turn_of_a_close_end_with_it() -> None:
    service = FakeService(answer(429, {"Retry-After": "20"}), then=answer())
    for turn in range(12):
        client = client_of(service, limits=Limits(in_flight=1, queued_users=2), timeout=Timeout(total=None))
        await outcome_of(start(client.send("paused", MESSAGE, retry=RetryPolicy.none())))
        full = start(client.send(["a", "b"], {"title": {"en": "Other"}}))
        await turns(10)
        waiting = [start(client.send(name, MESSAGE)) for name in ("leader", "joiner")]
        await turns(10)
        before = asyncio.get_running_loop().time()
        closing = start(client.aclose(drain=0.0))
        await turns(turn)
        # Makes room for both.
        full.cancel()
        assert [type(await outcome_of(task)) for task in waiting] == [ClientClosedError, ClientClosedError]
        await closing
        assert asyncio.get_running_loop().time() == before
        service = FakeService(answer(429, {"Retry-After": "20"}), then=answer())


@virtual
async def test_a_close_that_is_cancelled_closes_the_transport() -> None:
    for turn in range(8):
        service = FakeService(answer(after=0.5))
        client = client_of(service)
        task = start(client.send("a", MESSAGE))
        await turns(10)
        closing = start(client.aclose(drain=0.0))
        await turns(turn)
        closing.cancel()
        await outcome_of(closing)
        await outcome_of(task)
        # A close that was cancelled before it began has not begun.
        await client.aclose()
        assert service.closed == 1
