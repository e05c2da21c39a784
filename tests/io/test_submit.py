"""Sends without a task: ``submit``, one user at a time, and ``batch``, which collects users for one send."""

import asyncio
import gc
import logging
import weakref

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
    reset_after,
    reset_before,
    start,
    titled,
)
from support.virtual_time import now, turns, virtual

from pushsdk import (
    Batching,
    ClientClosedError,
    Event,
    Limits,
    NotSentError,
    OutcomeUnknownError,
    QueueFullError,
    Receipt,
    SendAbandoned,
    ValidationError,
)


def reported(events: list[Event]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the outcome and the users of each SendAbandoned."""
    return [(event.outcome.value, event.user_ids) for event in events if isinstance(event, SendAbandoned)]


# -- submit ---------------------------------------------------------------------------------------------------------


@virtual
async def test_a_submitted_send_ends_with_its_receipt() -> None:
    service = FakeService()
    async with client_of(service) as client:
        receipt = await client.submit("a", MESSAGE, custom_fields={"n": 1}, timeout=5.0)
        assert (receipt.users, receipt.status) == (1, 204)
        await turns()
        assert idle(client)
    assert service.sent == [("a",)]


@pytest.mark.parametrize("in_flight", [None, 1])
@virtual
async def test_submitted_sends_of_one_turn_share_a_request(in_flight: int | None) -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=in_flight)) as client:
        futures = [client.submit("other", OTHER), *[client.submit(user, MESSAGE) for user in "abc"]]
        assert [(await future).users for future in futures] == [1] * 4
    assert service.sent == [("other",), ("a", "b", "c")]


@pytest.mark.parametrize("first", ["send", "submit"])
@virtual
async def test_submitted_sends_share_a_request_with_sends(first: str) -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1)) as client:
        busy = client.submit("busy", OTHER)
        await turns()
        calls: list[asyncio.Future[Receipt]] = []
        for how in ("send", "submit") if first == "send" else ("submit", "send"):
            calls.append(client.submit(how, MESSAGE) if how == "submit" else start(client.send(how, MESSAGE)))
            await turns()
        assert [(await call).users for call in (busy, *calls)] == [1] * 3
        await turns()
        assert idle(client)
    assert [sorted(users) for users in service.sent] == [["busy"], ["send", "submit"]]


@virtual
async def test_a_lost_answer_is_unknown_and_pushes_nobody_twice() -> None:
    service, events = FakeService(reset_after()), list[Event]()
    async with client_of(service, on_event=events.append) as client:
        with pytest.raises(OutcomeUnknownError) as excinfo:
            await client.submit("a", MESSAGE)
        assert excinfo.value.user_ids == ("a",)
    assert service.users() == {"a": 1}
    assert reported(events) == [("UNKNOWN", ("a",))]


@virtual
async def test_the_errors_of_futures_that_nobody_awaits_reach_on_event_and_asyncio_logs_none() -> None:
    service, events = FakeService(answer(404), reset_before()), list[Event]()
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
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client_of(FakeService(answer(404), answer())) as client:
        client.submit("a-user-with-a-name", MESSAGE)
        client.submit("b", OTHER)
        await client.flush()
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    text = "a submitted send to 1 user ended as REJECTED: HTTP 404"
    assert warning.getMessage() == text


@virtual
async def test_a_deadline_in_a_shared_request_is_unknown_and_its_end_is_reported_once() -> None:
    service, events = FakeService(answer(after=3.0)), list[Event]()
    async with client_of(service, on_event=events.append) as client:
        hasty, patient = client.submit("a", MESSAGE, timeout=1.0), client.submit("b", MESSAGE, timeout=1.0)
        slow = start(client.send("c", MESSAGE))
        assert [type(await outcome_of(future)) for future in (hasty, patient)] == [OutcomeUnknownError] * 2
        await slow
        await client.flush()
    assert sorted(reported(events)) == [("UNKNOWN", ("a",)), ("UNKNOWN", ("b",))]
    assert max(service.users().values()) == 1


@virtual
async def test_a_submitted_send_that_is_cancelled_alone_in_flight_ends_its_request() -> None:
    service, events = FakeService(hang(accepted=True)), list[Event]()
    async with client_of(service, on_event=events.append) as client:
        future = client.submit("a", MESSAGE)
        await asyncio.sleep(1.0)
        assert future.cancel("no longer wanted")
        assert not future.cancel()
        await turns()
        assert idle(client)
        with pytest.raises(asyncio.CancelledError):
            await future
    assert reported(events) == [("UNKNOWN", ("a",))]
    assert service.users() == {"a": 1}


@virtual
async def test_a_submitted_send_that_is_cancelled_as_its_request_starts_frees_the_slot() -> None:
    for moment in range(4):
        service, events = FakeService(), list[Event]()
        async with client_of(service, on_event=events.append) as client:
            future = client.submit("a", MESSAGE)
            await turns(moment)
            assert future.cancel()
            await turns()
            assert idle(client), moment
        ((outcome, _),) = reported(events)
        assert outcome in ("NOT_SENT", "UNKNOWN")
        assert service.accepted("a") == 0


@virtual
async def test_a_submitted_send_that_is_cancelled_leaves_the_others_of_its_request() -> None:
    service, events = FakeService(), list[Event]()
    async with client_of(service, on_event=events.append) as client:
        first, second = client.submit("a", MESSAGE), client.submit("b", MESSAGE)
        first.cancel()
        third, fourth = client.submit("c", MESSAGE), client.submit("d", MESSAGE)
        await turns(2)
        fourth.cancel()
        assert isinstance(await second, Receipt)
        assert isinstance(await third, Receipt)
    assert service.sent == [("b", "c", "d")]
    assert reported(events) == [("NOT_SENT", ("a",)), ("ACCEPTED", ("d",))]


@virtual
async def test_the_task_that_awaits_a_submitted_send_cancels_the_send() -> None:
    service, events = FakeService(hang()), list[Event]()
    async with client_of(service, limits=Limits(in_flight=1), on_event=events.append) as client:
        busy = start(client.send("a", MESSAGE, timeout=2.0))
        await turns()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await client.submit("b", OTHER)
        await outcome_of(busy)
    assert reported(events) == [("NOT_SENT", ("b",))]
    assert "b" not in service.users()


@virtual
async def test_a_close_waits_for_submitted_sends_that_were_not_awaited() -> None:
    service = FakeService(answer(after=5.0))
    client = client_of(service)
    client.submit("a", MESSAGE)
    report = await client.aclose()
    assert report.accepted == ("a",)
    assert service.users() == {"a": 1}


@virtual
async def test_a_close_ends_submitted_sends_after_its_drain_time() -> None:
    service = FakeService(then=hang(accepted=True))
    client = client_of(service, limits=Limits(in_flight=1))
    sent, queued = client.submit("a", MESSAGE), None
    await turns()
    queued = client.submit("b", OTHER)
    report = await client.aclose(drain=1.0)
    assert isinstance(await outcome_of(sent), OutcomeUnknownError)
    assert isinstance(await outcome_of(queued), ClientClosedError)
    assert sorted(reported(list(report.abandoned))) == [("NOT_SENT", ("b",)), ("UNKNOWN", ("a",))]
    assert service.users() == {"a": 1}
    with pytest.raises(ClientClosedError):
        client.submit("c", MESSAGE)


@virtual
async def test_a_close_without_a_drain_does_not_send_what_was_submitted_in_the_same_turn() -> None:
    service = FakeService()
    client = client_of(service)
    future = client.submit("a", MESSAGE)
    client._lifetime.engine.sender.closed = True
    assert isinstance(await outcome_of(future), ClientClosedError)
    late = client.submit("b", MESSAGE)
    assert isinstance(await outcome_of(late), ClientClosedError)
    await client.aclose()
    assert service.sent == []


@pytest.mark.parametrize("when_full", ["wait", "raise"])
@virtual
async def test_a_full_queue_refuses_a_submitted_send_at_once(when_full: str) -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=2, when_full=when_full)) as client:
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
async def test_wrong_input_is_raised_by_submit_itself() -> None:
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ValidationError, match="user_id must be a str, as send takes several ids; got list"):
            client.submit(["a"], MESSAGE)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="empty"):
            client.submit("", MESSAGE)
        with pytest.raises(ValidationError, match="ttl"):
            client.submit("a", {"ttl": "60"})  # type: ignore[dict-item]
        assert idle(client)
    assert service.sent == []


@virtual
async def test_submitted_sends_linger_until_they_are_flushed_or_fill_their_batch() -> None:
    service = FakeService()
    async with client_of(service, batching=Batching(linger=9.0, max_users=2)) as client:
        full = [client.submit(user, MESSAGE) for user in "ab"]
        await asyncio.gather(*full)
        assert now() < 1.0 + 1000.0
        waiting = client.submit("c", MESSAGE)
        await turns()
        assert not waiting.done()
        await client.flush()
        assert waiting.result().users == 1
        # A deadline within the linger time: sent at once.
        await client.submit("d", MESSAGE, timeout=5.0)
    assert service.sent == [("a", "b"), ("c",), ("d",)]


@virtual
async def test_a_submitted_send_that_can_not_wait_for_a_pause_fails_at_once() -> None:
    service = FakeService(answer(429, {"Retry-After": "20"}))
    async with client_of(service) as client:
        paused = start(client.send("a", MESSAGE, timeout=30.0))
        await asyncio.sleep(1.0)
        with pytest.raises(NotSentError, match="pause"):
            await client.submit("b", OTHER, timeout=5.0)
        await paused
    assert service.users() == {"a": 1}


@virtual
async def test_a_future_can_be_collected_whatever_became_of_it() -> None:
    service = FakeService(answer(), answer(404), hang())
    async with client_of(service) as client:
        futures = [client.submit("a", MESSAGE), client.submit("b", OTHER), client.submit("c", titled(1))]
        await asyncio.sleep(1.0)
        futures[2].cancel()
        await turns()
        assert [future.done() for future in futures] == [True] * 3
        references = [weakref.ref(future) for future in futures]
        futures.clear()
        gc.collect()
        assert [reference() for reference in references] == [None] * 3


@virtual
async def test_a_bug_of_this_package_ends_a_submitted_send_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(FakeService()) as client:
        monkeypatch.setattr(client._lifetime.engine.queue, "_batches", None)
        assert isinstance(await outcome_of(client.submit("a", MESSAGE)), OutcomeUnknownError)
        assert idle(client)
