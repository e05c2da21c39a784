"""A rejected merged request: its culprit is found, its neighbours are accepted, and no user is pushed twice."""

import asyncio
from collections import Counter

import pytest
from support.fake_service import MESSAGE, OTHER, FakeService, answer, client_of, hang, outcome_of, reset_after, start
from support.virtual_time import virtual

from pushsdk import Batching, Outcome, Rate, RequestSplit, RetryPolicy, SendAbandoned

MANY = [f"a-user-with-a-long-name-{number}" for number in range(40)]


async def send_all(client, users):
    tasks = [start(client.send(user, MESSAGE)) for user in users]
    return [await outcome_of(task) for task in tasks]


@virtual
async def test_a_413_halves_within_a_call_and_the_receipt_counts_the_requests_and_the_size_is_remembered():
    service = FakeService(then=lambda request: answer(413 if len(request.user_ids) > 10 else 204))
    events = []
    async with client_of(service, on_event=events.append) as client:
        receipt = await client.send(MANY, MESSAGE)
        assert receipt.users == 40
        assert receipt.requests == 4
        assert client.stats().splits == 3
        splits = [event for event in events if isinstance(event, RequestSplit)]
        assert {(event.status, event.calls) for event in splits} == {(413, 1)}
        assert service.users() == Counter(MANY)
        service.requests.clear()
        assert 4 <= (await client.send(MANY, MESSAGE)).requests <= 5
        await send_all(client, MANY)
    assert max(len(request.user_ids) for request in service.requests) <= 10


@virtual
async def test_a_message_that_was_accepted_before_many_sends_of_another_is_not_to_blame():
    good = {MANY[17], MANY[29]}
    service = FakeService(then=lambda request: answer(400 if {*request.user_ids} & {*MANY} - good else 204))
    async with client_of(service) as client:
        await client.send("before", MESSAGE)
        for number in range(300):
            await client.send(f"other-{number}", OTHER)
        outcomes = [each.outcome for each in await send_all(client, MANY)]
    assert {user for user, outcome in zip(MANY, outcomes, strict=True) if outcome is Outcome.ACCEPTED} == good


@virtual
async def test_a_request_with_an_unknown_attempt_behind_it_is_never_split():
    service = FakeService(reset_after(), answer(413), then=answer())
    async with client_of(service, retry=RetryPolicy.at_least_once()) as client:
        outcome = await outcome_of(client.send(MANY, MESSAGE))
    assert outcome.outcome is Outcome.UNKNOWN
    assert len(service.requests) == 2


@virtual
async def test_of_a_send_that_a_close_cuts_off_during_a_split_only_users_in_flight_are_in_doubt():
    client = client_of(FakeService(answer(413), answer(413), then=hang()))
    call = start(client.send(MANY, MESSAGE))
    await asyncio.sleep(1.0)
    await client.aclose(drain=0.0)
    await outcome_of(call)
    assert client.stats().rejected == client.stats().unknown == 20


@pytest.mark.parametrize(
    ("statuses", "outcomes"),
    [
        # All but the last are sent alone; the other half is in flight.
        ([400, 204], [Outcome.ACCEPTED, *[Outcome.UNKNOWN] * 3, Outcome.REJECTED]),
        ([413, 413], [Outcome.REJECTED] * 5),
    ],
)
@virtual
async def test_of_calls_that_expire_during_a_split_only_those_in_flight_are_in_doubt(statuses, outcomes):
    service = FakeService(*map(answer, statuses), then=answer(after=2.2))
    async with client_of(service, batching=Batching(linger=3.0), timeout=5.0) as client:
        early = [start(client.send(user, MESSAGE)) for user in MANY[:5]]
        await asyncio.sleep(2.9)
        later = [start(client.send(user, MESSAGE)) for user in MANY[5:10]]
        assert [(await outcome_of(call)).outcome for call in early] == outcomes
        await asyncio.gather(*later)
        stats = client.stats()
    assert stats.accepted + stats.rejected + stats.unknown == 10


@virtual
async def test_a_loop_torn_down_as_the_halves_of_a_send_are_about_to_leave_rejects_the_whole():
    service = FakeService(answer(413))
    events = []
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks()

    def on_event(event):
        events.append(event)
        if isinstance(event, RequestSplit):
            loop.call_soon(lambda: [task.cancel() for task in asyncio.all_tasks() - tasks])

    async with client_of(service, on_event=on_event) as client:
        await outcome_of(client.send(MANY, MESSAGE))
        assert client.stats().rejected == 40
    ends = [event for event in events if isinstance(event, SendAbandoned)]
    assert [(event.outcome, sorted(event.user_ids)) for event in ends] == [(Outcome.REJECTED, sorted(MANY))]
    assert [attempt.status for attempt in ends[0].attempts] == [413]
    assert len(service.requests) == 1


@pytest.mark.filterwarnings("ignore:Batching.linger")
@virtual
async def test_a_probe_that_is_late_before_it_is_sent_puts_no_blame_on_the_message():
    bad = [f"bad-{number}" for number in range(9)]
    service = FakeService(then=lambda request: answer(422 if {*bad} & {*request.user_ids} else 204, after=0.5))
    options = {"rate": Rate(requests_per_second=0.53), "batching": Batching(linger=28.0), "timeout": 30.0}
    async with client_of(service, **options) as client:
        rejected = [start(client.send(user, MESSAGE)) for user in bad]
        await asyncio.sleep(0.1)
        await client.flush()
        await asyncio.gather(*map(outcome_of, rejected))
        await asyncio.sleep(60.0)
        start(client.send("early", MESSAGE)).add_done_callback(lambda task: task.exception())
        await asyncio.sleep(27.5)
        later = [start(client.send(user, MESSAGE)) for user in ("ann", bad[0], "bob")]
        await asyncio.sleep(1.5)
        for number in range(3):  # before the probe in line
            client.submit("user", {"title": {"en": str(number)}}, timeout=27.0)
        ends = [await outcome_of(send) for send in later]
    assert [end.outcome for end in ends] == [Outcome.ACCEPTED, Outcome.REJECTED, Outcome.ACCEPTED]
