"""aclose: what is on its way may end within the drain; the rest is ended, nothing starts any more, all is told."""

import asyncio
from itertools import product
from unittest.mock import patch

import pytest
from support.fake_service import MESSAGE, FakeService, answer, client_of, hang, outcome_of, refused, start
from support.virtual_time import VirtualLoop, now, turns, virtual

from pushsdk import ClientClosedError, Outcome, OutcomeUnknownError, RetryPolicy


@pytest.mark.parametrize(
    ("script", "policy", "end"),
    [
        ([refused()], RetryPolicy.safe(initial_delay=5.0), ClientClosedError),
        ([], RetryPolicy.at_least_once(), OutcomeUnknownError),
        ([], RetryPolicy.from_tenacity(retry=lambda state: True), OutcomeUnknownError),
    ],
)
@virtual
async def test_nothing_is_repeated_after_a_close_under_any_policy(script, policy, end):
    service = FakeService(*script, then=hang())
    client = client_of(service, retry=policy)
    task = start(client.send("a", MESSAGE))
    await turns(10)
    before = now()
    report = await client.aclose(drain=0.0)
    assert now() == before
    assert len(service.requests) == 1
    assert isinstance(await outcome_of(task), end)
    assert report.not_sent + report.unknown == ("a",)


@virtual
async def test_what_ends_within_the_drain_is_reported_as_it_ended():
    service = FakeService(answer(after=0.5), answer(401, after=0.5), hang())
    client = client_of(service)
    tasks = [start(client.send(user, {"title": {"en": user}})) for user in ("a", "b", "c")]
    await turns()
    report = await client.aclose(drain=1.0)
    assert report.accepted == ("a",)
    assert report.rejected == ("b",)
    assert report.not_sent == ()
    assert report.unknown == ("c",)
    outcomes = [type(await outcome_of(task)).__name__ for task in tasks]
    assert outcomes == ["Receipt", "AuthenticationError", "OutcomeUnknownError"]


@virtual
async def test_a_close_waits_for_the_end_of_a_request_that_its_calls_have_left():
    async def connect(_):
        try:
            await asyncio.sleep(9)
        finally:
            await turns(9)

    client = client_of(FakeService(then=connect), timeout=1.0)
    await asyncio.gather(
        client.send("a", MESSAGE), client.send("b", MESSAGE), client.aclose(2.0), return_exceptions=True
    )
    assert client.stats().in_flight == 0


# -- in the loop turn in which a crowd is through -------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["flush", "aclose"])
@virtual
async def test_one_of_a_crowd_that_waits_for_all_waits_for_the_others_too(waits):
    client = client_of(FakeService(then=answer(after=0.1)))
    others = []

    async def first():
        await client.send("a", MESSAGE)
        await getattr(client, waits)()
        assert [other.done() for other in others] == [True] * 4

    leader = start(first())
    others += [start(client.send(user, MESSAGE)) for user in "bcde"]
    await leader
    await client.aclose()


@virtual
async def test_a_close_that_is_cancelled_again_and_again_ends_what_is_on_its_way_and_closes_the_transport():
    for turn, behavior in product(range(-1, 8), (hang(), answer(after=0.5))):
        service = FakeService(then=behavior)
        client = client_of(service)
        task = start(client.send("a", MESSAGE, timeout=9.0))
        await turns(10)
        closing = start(client.aclose(drain=5.0 if turn < 0 else 0.0))
        await (asyncio.sleep(1.0) if turn < 0 else turns(turn))
        while not closing.done():
            closing.cancel()
            await turns(1)
        # A close that was cancelled before it began has not begun.
        await client.aclose(drain=0.0)
        assert (await outcome_of(task)).outcome is (Outcome.ACCEPTED if service.users() else Outcome.UNKNOWN)
        assert service.closed == 1


@pytest.mark.parametrize("exits", [1, 2])
def test_a_call_that_exits_cut_off_as_it_was_settled_is_unknown_and_ends_with_the_client(exits):
    async def send():
        client = client_of(FakeService())
        closes.append(client.aclose)
        await client.submit("a", MESSAGE)

    closes = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        with patch("pushsdk._core.batching.Call.settle", side_effect=SystemExit):
            for work in (send, turns)[:exits]:
                with pytest.raises(SystemExit):
                    runner.run(work())
        report = runner.run(closes[0](1.0))
    assert [event.outcome for event in report.abandoned] == [Outcome.UNKNOWN]
