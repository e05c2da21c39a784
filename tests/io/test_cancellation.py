"""A caller that is cancelled: its CancelledError propagates, its users' true outcome is told, its place comes back."""

import asyncio
import gc
import sys
import weakref
from contextlib import suppress
from unittest.mock import patch

import pytest
from support.fake_service import (
    MESSAGE,
    OTHER,
    FakeService,
    answer,
    client_of,
    hang,
    idle,
    outcome_of,
    refused,
    start,
    titled,
    unreachable,
)
from support.virtual_time import turns, virtual

from pushsdk import Batching, Limits, Outcome, QueueFullError, Rate, RetryPolicy, SendAbandoned

MANY = [f"a-user-with-a-long-name-{number}" for number in range(40)]


def abandoned(events):
    """Return the outcome that SendAbandoned reported for each user; every user is reported once."""
    outcomes = {}
    for event in events:
        if isinstance(event, SendAbandoned):
            assert not outcomes.keys() & set(event.user_ids)
            outcomes |= dict.fromkeys(event.user_ids, event.outcome)
    return outcomes


async def cancel(task):
    """Cancel it, and see that it ends so."""
    task.cancel()
    assert isinstance(await outcome_of(task), asyncio.CancelledError)


@virtual
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "pushsdk: the outcome of the cancelled call to 40 users is NOT_SENT"),
        (0.3, "is REJECTED, UNKNOWN: another send may push twice"),  # during a split
    ],
)
async def test_a_call_that_a_timeout_of_asyncio_cancels_has_a_note(seconds, text):
    async with client_of(FakeService(answer(413), answer(413), then=answer(after=5.0))) as client:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(seconds):
                await client.send(MANY, MESSAGE)
        assert idle(client)
        (note,) = caught.value.__context__.__notes__
        assert text in note


@virtual
async def test_an_unknown_end_of_a_cancelled_call_is_logged_as_a_warning_unless_it_is_reported(caplog):
    for options in ({}, {"on_event": [].append}):
        async with client_of(FakeService(then=answer(after=5.0)), **options) as client:
            for seconds in (0.0, 1.0, 1.0):  # not sent, and unknown twice
                task = start(client.send("ann", MESSAGE))
                await asyncio.sleep(seconds)
                await cancel(task)
    assert [record.levelname for record in caplog.records if "waiting caller" in record.getMessage()] == ["WARNING"]


async def slow_key():
    await asyncio.sleep(0.02)
    return "key"


async def quick_key():
    await turns(4)
    return "key"


SCENES = {
    "plain": ({}, []),
    "connecting": ({}, [answer(connecting=0.05)]),
    "lingering": ({"batching": Batching(linger=0.03)}, []),
    "repeated": ({"retry": RetryPolicy.safe(initial_delay=0.05)}, [refused(), answer(429)]),
    "asking for a key": ({"api_key": slow_key}, [answer(401)]),
    "receiving a key": ({"api_key": quick_key}, []),
    "asking for another key": (
        {"api_key": slow_key, "retry": RetryPolicy.safe(initial_delay=0.01)},
        [refused()],
    ),
    "split": ({}, [answer(400), answer(400), answer(connecting=0.02)]),
    "halved": ({"retry": RetryPolicy.safe(initial_delay=0.05)}, [answer(413), answer(), refused()]),
    "paced": ({"rate": Rate(requests_per_second=30.0)}, [answer(), answer(400)]),
    "paused": ({}, [answer(429, {"Retry-After": "1"})]),
    "few places": ({"limits": Limits(in_flight=1, queued_users=2)}, [answer(), answer(), refused()]),
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(("which", "submitted"), [(0, False), (1, False), (0, True), (2, True)])
@virtual
async def test_a_call_cancelled_at_any_moment_leaves_nothing_and_is_reported_correctly(scene, which, submitted):
    options, script = SCENES[scene]
    calls = [["a"], MANY[:7], ["c"]]
    for moment in range(30):
        service = FakeService(*script)
        events = []
        tasks = []
        async with client_of(service, on_event=events.append, **options) as client:
            for users in calls:
                try:
                    tasks.append(client.submit(*users, MESSAGE) if submitted else start(client.send(users, MESSAGE)))
                except (TypeError, QueueFullError):  # several users, no room
                    tasks.append(start(client.send(users, MESSAGE)))
            await turns(min(moment, 9))
            await asyncio.sleep(max(0, moment - 9) * 0.0051)
            begun = len(service.requests)
            for _ in range(1 + moment % 3):  # again, while its request ends
                tasks[which].cancel()
                await turns(moment % 3)
            outcomes = [await outcome_of(task) for task in tasks]
            await client.flush()
            await turns()
            assert idle(client)
            later = [user for request in service.requests[begun:] for user in request.user_ids]
            ends = abandoned(events)
            for users, end in zip(calls, outcomes, strict=True):
                known = getattr(end, "outcomes", None) or dict.fromkeys(users, getattr(end, "outcome", None))
                for user in users:
                    is_cancelled = isinstance(end, asyncio.CancelledError)
                    outcome = ends[user] if is_cancelled else known[user]
                    assert not (is_cancelled and user in later)
                    count = service.accepted(user)
                    assert count <= 1
                    assert outcome is Outcome.UNKNOWN or count == (outcome is Outcome.ACCEPTED)


@pytest.mark.parametrize(
    ("behavior", "outcome"), [(refused(), Outcome.NOT_SENT), (answer(429, after=0.02), Outcome.REJECTED)]
)
@virtual
async def test_a_request_ends_at_once_if_all_its_calls_are_cancelled_in_flight_or_by_events(behavior, outcome):
    def on_event(event):
        events.append(event)
        for future in futures:
            future.cancel()

    events = []
    async with client_of(FakeService(behavior), on_event=on_event) as client:
        futures = [client.submit(user, MESSAGE) for user in "abc"]
        await turns(9)
        on_event(None)
        await asyncio.sleep(0.03)
        assert idle(client)
    assert abandoned(events) == dict.fromkeys("abc", outcome)


@virtual
async def test_a_campaign_cancelled_anywhere_gives_its_place_back():
    for script in ([hang()], [unreachable()], [refused(), hang()], [answer(429, {"Retry-After": "5"})]):
        async with client_of(FakeService(*script), limits=Limits(in_flight=1)) as client:
            tasks = [start(client.create_campaign({"externalId": "x"})) for _ in range(2)]
            await asyncio.sleep(0.5)
            for task in tasks:
                await cancel(task)
            assert idle(client)


@virtual
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("end", ["cancelled", "late", "refused"])
async def test_whatever_becomes_of_a_send_its_task_can_be_collected(calls, end):
    service = FakeService(then=answer(404) if end == "refused" else hang())
    async with client_of(service) as client:
        tasks = [start(client.send(str(number), MESSAGE, timeout=1.0)) for number in range(calls)]
        await turns()
        if end == "cancelled":
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
        references = [weakref.ref(task) for task in tasks]
        tasks.clear()
        task = None
        await asyncio.sleep(2.0)
        gc.collect()
        assert [reference() for reference in references] == [None] * calls


@virtual
async def test_an_event_may_cancel_other_submitted_sends_whose_deadline_expires_too():
    futures = []

    def on_event(event):
        if isinstance(event, SendAbandoned):
            for future in futures:
                future.cancel()

    service = FakeService(answer(after=5.0))
    async with client_of(service, limits=Limits(in_flight=1), on_event=on_event, timeout=1.0) as client:
        busy = start(client.send("busy", OTHER, timeout=5.5))
        await turns()
        client.submit("gone", MESSAGE).cancel()
        futures += [client.submit(user, titled(number // 2)) for number, user in enumerate("abcd")]
        await asyncio.wait(futures)
        await busy
        await turns()
        assert idle(client)
    assert service.sent == [("busy",)]


@pytest.mark.parametrize(
    ("behavior", "where", "error"),
    [
        (answer(), "pushsdk._io.sender.RequestSender.note", SystemExit),  # a signal's, after the answer
        (hang(), "logging.Logger.warning", OSError),  # a full disk, as the loop's end cancels all tasks
    ],
)
def test_an_exit_or_an_error_at_any_moment_leaves_no_call_pending_and_proves_nothing(behavior, where, error):
    async def send():
        client = client_of(FakeService(behavior))
        stats.append(client.stats)
        for user in "ab":
            client.submit(user, MESSAGE)
        await turns(9)

    stats = []
    with patch(where, side_effect=[error, None]), suppress(SystemExit):
        asyncio.run(send())
    assert stats[0]().unknown == 2


@virtual
async def test_calls_that_are_cancelled_together_leave_together():
    calls = []
    async with client_of(FakeService(then=unreachable())) as client:
        futures = [client.submit(str(number), MESSAGE) for number in range(300)]
        await turns()
        sys.setprofile(lambda *_: calls.append(1))
        for future in futures:
            future.cancel()
        await turns()
        sys.setprofile(None)
        assert idle(client)
    assert len(calls) < 60_000
