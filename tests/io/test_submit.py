"""Sends without a task: ``submit``, one user at a time."""

import gc
import logging

import pytest
from support.fake_service import (
    MESSAGE,
    OTHER,
    FakeService,
    answer,
    client_of,
    idle,
    outcome_of,
    reset_before,
    start,
    titled,
)
from support.virtual_time import turns, virtual

from pushsdk import (
    ClientClosedError,
    Limits,
    OutcomeUnknownError,
    QueueFullError,
    SendAbandoned,
    ValidationError,
)
from pushsdk._core.batching import Batches
from pushsdk._io.engine import Engine


def reported(events):
    """Return the outcome and the users of each SendAbandoned."""
    return [(event.outcome.value, event.user_ids) for event in events if isinstance(event, SendAbandoned)]


@pytest.mark.parametrize("turn", [0, 1])
@virtual
async def test_what_gets_its_slot_as_its_client_is_closed_is_not_sent(turn, monkeypatch):
    idle = Engine.idle

    async def without_drain(engine, seconds=None):
        return seconds is not None or await idle(engine)

    monkeypatch.setattr(Engine, "idle", without_drain)
    service = FakeService()
    client = client_of(service)
    future = client.submit("a", MESSAGE)
    await turns(turn)
    await client.aclose(drain=0.0)
    assert isinstance(await outcome_of(future), ClientClosedError)
    assert service.sent == []


@virtual
async def test_the_errors_of_futures_that_nobody_awaits_reach_on_event_and_asyncio_logs_none():
    service, events = FakeService(answer(404), reset_before()), []
    async with client_of(service, on_event=events.append) as client:
        client.submit("a", MESSAGE)
        client.submit("b", OTHER)
        await client.flush()
        gc.collect()
        assert client.stats().abandoned == 2
    # ``virtual`` fails if the loop's exception handler was called.
    assert reported(events) == [("REJECTED", ("a",)), ("UNKNOWN", ("b",))]


@virtual
async def test_without_on_event_a_failure_that_nobody_awaits_is_logged_as_a_warning(
    caplog,
):
    async with client_of(FakeService(answer(404), answer())) as client:
        client.submit("a-user-with-a-name", MESSAGE)
        client.submit("b", OTHER)
        await client.flush()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["a submitted send to 1 user ended as REJECTED: HTTP 404"]


@virtual
async def test_a_full_queue_refuses_a_submitted_send_at_once():
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=2)) as client:
        futures = [client.submit("a", MESSAGE)]
        await turns()
        futures += [client.submit(user, titled(n)) for n, user in enumerate("bc")]
        with pytest.raises(QueueFullError, match="queue is full") as excinfo:
            client.submit("d", OTHER)
        assert (excinfo.value.user_ids, excinfo.value.retryable) == (("d",), True)
        await client.flush()
        await client.submit("d", OTHER)
        assert [future.result().users for future in futures] == [1, 1, 1]
    assert service.users() == dict.fromkeys("abcd", 1)


@virtual
async def test_wrong_input_is_raised_by_submit_itself():
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ValidationError, match="user_id must be a str, as send takes several ids; got list"):
            client.submit(["a"], MESSAGE)
        with pytest.raises(ValidationError, match="empty"):
            client.submit("", MESSAGE)
        with pytest.raises(ValidationError, match="ttl"):
            client.submit("a", {"ttl": "60"})
        assert idle(client)
    assert service.sent == []


@pytest.mark.parametrize("method", ["join", "open"])
@virtual
async def test_a_bug_of_this_package_ends_a_send_and_a_submitted_one_as_unknown(method, monkeypatch):
    monkeypatch.setattr(Batches, method, None)
    async with client_of(FakeService()) as client:
        for call in (client.submit("a", MESSAGE), start(client.send("b", MESSAGE))):
            assert isinstance(await outcome_of(call), OutcomeUnknownError)
        assert idle(client)


@virtual
async def test_a_send_that_is_cancelled_in_its_loop_turn_is_not_sent_and_the_others_are(
    caplog,
):
    service = FakeService()
    async with client_of(service) as client:
        cancelled, other = client.submit("a", MESSAGE), client.submit("b", OTHER)
        cancelled.cancel()
        await other
        assert idle(client)
    assert (service.sent, caplog.messages) == ([("b",)], [])
