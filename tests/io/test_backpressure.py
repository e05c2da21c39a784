"""Bounds on what waits: a call beyond the limits waits its turn, or is refused; nothing is dropped."""

import asyncio
from types import SimpleNamespace

import pytest
from support.fake_service import (
    LATENCY,
    MESSAGE,
    OTHER,
    FakeService,
    answer,
    client_of,
    hang,
    idle,
    outcome_of,
    start,
    titled,
)
from support.virtual_time import now, turns, virtual

from pushsdk import Batching, ClientClosedError, Limits, NotSentError, Outcome, QueueFullError, Receipt, ValidationError
from pushsdk.claims import MemoryClaims


@virtual
async def test_a_full_queue_raises_at_once_if_configured() -> None:
    service = FakeService()
    limits = Limits(in_flight=1, queued_users=2, when_full="raise")
    async with client_of(service, limits=limits) as client:
        tasks = [start(client.send("a", MESSAGE))]
        await turns()
        tasks.append(start(client.send(["b", "c"], OTHER)))
        await turns()
        with pytest.raises(QueueFullError) as excinfo:
            await client.send("d", OTHER)
        assert (excinfo.value.outcome, excinfo.value.user_ids) == (Outcome.NOT_SENT, ("d",))
        await asyncio.gather(*tasks)
        assert isinstance(await client.send("d", OTHER), Receipt)
    assert service.accepted("d") == 1


@virtual
async def test_a_full_queue_lets_calls_wait_in_the_order_they_came() -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=2)) as client:
        most = 0

        async def send(number: int) -> None:
            nonlocal most
            await client.send(f"user-{number}", titled(number))
            most = max(most, client.stats().queued_users)

        await asyncio.gather(*(send(number) for number in range(12)))
        assert 1 <= most <= 2
    assert service.sent == [(f"user-{number}",) for number in range(12)]
    assert service.most_in_flight == 1


@virtual
async def test_queued_bytes_bound_what_waits() -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_bytes=300)) as client:
        tasks = [start(client.send(f"user-{number}", titled(number))) for number in range(9)]
        most = 0
        while not all(task.done() for task in tasks):
            most = max(most, client.stats().queued_bytes)
            await asyncio.sleep(LATENCY / 4)
    # The limit, and one call.
    assert 300 <= most <= 400
    assert sum(service.users().values()) == 9


@virtual
async def test_no_more_than_the_bytes_of_the_limit_and_one_call_are_held_however_many_calls_wait() -> None:
    service, most = FakeService(), 0
    async with client_of(service, limits=Limits(in_flight=1, queued_bytes=20_000)) as client:
        calls = [start(client.send(f"user-{n}", {"title": {"en": f"{n}".ljust(2000)}})) for n in range(300)]
        while not all(call.done() for call in calls):
            queued = sum(len(call.ids) for call in client._lifetime.engine.pending.active) + client.stats().queued_bytes
            most = max(most, queued)
            await asyncio.sleep(LATENCY / 4)
        assert idle(client)
    assert 20_000 < most < 23_000
    assert len(service.requests) == 300


@virtual
async def test_calls_with_one_message_that_wait_for_room_are_merged() -> None:
    service, message = FakeService(then=answer(after=1.0)), {"title": {"en": "x" * 2000}}
    async with client_of(service, limits=Limits(in_flight=1, queued_bytes=20_000)) as client:
        others = [start(client.send(f"other-{n}", {"title": {"en": f"{n}".ljust(6000)}})) for n in range(5)]
        await turns()
        await asyncio.gather(*others, *(client.send(f"user-{number}", message) for number in range(300)))
        assert idle(client)
    assert len(service.requests) <= 5 + 2


@virtual
async def test_a_burst_larger_than_the_queue_is_merged_into_requests_of_its_size() -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(queued_users=100)) as client:
        await asyncio.gather(*(client.send(f"user-{number}", MESSAGE) for number in range(1000)))
        assert idle(client)
    assert len(service.requests) <= 12


@virtual
async def test_a_message_that_turns_out_invalid_after_the_wait_for_room_leaves_nothing_behind() -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1)) as client:
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        invalid, behind = start(client.send("c", {"title": 7})), start(client.send(["d", "e"], titled(1)))
        assert isinstance(await outcome_of(invalid), ValidationError)
        await asyncio.gather(*tasks, behind)
        await client.flush()
        assert idle(client)
    assert service.sent == [("a",), ("b",), ("d", "e")]


@virtual
async def test_a_dedupe_key_of_another_payload_after_the_wait_for_room_leaves_nothing_behind() -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1), claims=MemoryClaims()) as client:
        await client.send("z", MESSAGE, idempotency_key="job")
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        later_calls, other = [start(client.send("z", text, idempotency_key="job")) for text in (MESSAGE, OTHER)]
        assert (await later_calls).already_accepted == 1
        assert isinstance(await outcome_of(other), ValidationError)
        await asyncio.gather(*tasks)
        await client.flush()
        assert idle(client)
    assert service.sent == [("z",), ("a",), ("b",)]


@virtual
async def test_a_call_larger_than_the_limits_is_admitted_if_nothing_else_waits() -> None:
    service = FakeService()
    for when_full in ("wait", "raise"):
        async with client_of(service, limits=Limits(queued_users=2, when_full=when_full)) as client:
            receipt = await client.send([f"user-{number}" for number in range(9)], MESSAGE)
            assert receipt.users == 9


@virtual
async def test_a_large_call_is_not_overtaken_for_ever() -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=2)) as client:
        first = start(client.send("first", MESSAGE))
        await turns()
        small = [start(client.send(f"before-{number}", titled(number))) for number in range(2)]
        large = start(client.send(["x", "y", "z"], OTHER))
        later = [start(client.send(f"after-{number}", titled(number))) for number in range(2)]
        await asyncio.gather(first, *small, large, *later)
    assert [users[0] for users in service.sent] == ["first", "before-0", "before-1", "x", "after-0", "after-1"]


@virtual
async def test_a_call_whose_deadline_passes_while_it_waits_for_room_was_not_sent() -> None:
    service = FakeService(answer(after=2.0))
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1)) as client:
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        before = now()
        with pytest.raises(NotSentError):
            await client.send("c", titled(0), timeout=0.5)
        assert before + 0.5 <= now() <= before + 0.51
        await asyncio.gather(*tasks)
        assert idle(client)
    assert service.accepted("c") == 0


@virtual
async def test_a_call_cancelled_while_it_waits_for_room_lets_the_next_one_in() -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=2)) as client:
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        full = start(client.send("c", titled(0)))
        cancelled, behind = start(client.send("d", titled(1))), start(client.send("e", titled(2)))
        await turns()
        cancelled.cancel()
        tasks[1].cancel()
        await turns()
        assert client.stats().queued_users == 2
        await asyncio.gather(tasks[0], full, behind)
        assert idle(client)
    assert service.sent == [("a",), ("c",), ("e",)]


@virtual
async def test_a_call_cancelled_in_the_turn_of_its_admission_gives_the_room_back() -> None:
    service = FakeService(then=answer(after=1.0))
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1)) as client:
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        waits = start(client.send("c", titled(0)))
        behind = start(client.send("d", titled(1)))
        await turns()
        # "b" leaves the queue, and "c" is told to come in; it is cancelled before it does.
        tasks[1].cancel()
        await turns(1)
        waits.cancel()
        assert isinstance(await outcome_of(waits), asyncio.CancelledError)
        await asyncio.gather(tasks[0], behind)
        assert idle(client)
    assert service.sent == [("a",), ("d",)]


@virtual
async def test_a_call_that_was_let_in_is_not_overtaken_by_one_that_comes_in_the_same_turn() -> None:
    service = FakeService()
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1)) as client:
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        waits = start(client.send("c", titled(0)))
        await turns()
        tasks[1].cancel()
        await asyncio.gather(tasks[0], waits, client.send("d", titled(1)))
    assert service.sent == [("a",), ("c",), ("d",)]


@virtual
async def test_a_call_that_waits_for_room_is_ended_by_the_close() -> None:
    service = FakeService(then=hang())
    client = client_of(service, limits=Limits(in_flight=1, queued_users=1))
    tasks = [start(client.send(user, titled(number))) for number, user in enumerate("abc")]
    await turns()
    report = await client.aclose(drain=0.0)
    assert (report.unknown, sorted(report.not_sent)) == (("a",), ["b", "c"])
    assert [isinstance(await outcome_of(task), ClientClosedError) for task in tasks] == [False, True, True]


@virtual
async def test_a_call_that_was_let_in_while_the_client_closes_and_lingers_is_ended_by_the_close() -> None:
    client = client_of(FakeService(), limits=Limits(queued_users=1), batching=Batching(linger=9.0))
    tasks = [start(client.send("a", MESSAGE, timeout=90.0)), start(client.send("b", OTHER, timeout=90.0))]
    await turns()
    report = await client.aclose(drain=5.0)
    assert (report.accepted, report.not_sent) == (("a",), ("b",))
    assert [isinstance(await outcome_of(task), ClientClosedError) for task in tasks] == [False, True]


@virtual
async def test_an_observer_remembers_the_caller_from_before_the_wait_for_room() -> None:
    async with client_of(FakeService(), limits=Limits(in_flight=1, queued_users=1)) as client:
        coalescer, times = client._lifetime.engine.queue, list[float]()
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        coalescer._observer = SimpleNamespace(caller=lambda at: times.append(at) or at, dequeued=lambda *_: None)
        tasks.append(start(client.send("c", titled(0))))
        await asyncio.gather(*tasks)
    assert len(times) == 1


@virtual
async def test_waits_between_attempts_count_as_queued() -> None:
    service = FakeService(answer(429, {"Retry-After": "5"}))
    async with client_of(service, limits=Limits(queued_users=1, when_full="raise")) as client:
        waits = start(client.send("a", MESSAGE))
        await asyncio.sleep(1.0)
        with pytest.raises(QueueFullError):
            await client.send("b", OTHER)
        await waits


@virtual
async def test_a_call_that_waits_for_admission_behind_a_patient_one_ends_when_the_pause_is_too_long_for_it() -> None:
    service = FakeService(answer(429, {"Retry-After": "20"}, after=0.1))
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1)) as client:
        tasks = [start(client.send("a", MESSAGE)), start(client.send("in line", OTHER))]
        await turns()
        tasks.append(start(client.send("patient", {"title": {"en": "x"}})))
        await turns()
        before = now()
        error = await outcome_of(start(client.send("impatient", {"title": {"en": "y"}}, timeout=5.0)))
        assert isinstance(error, NotSentError)
        end, delay = now(), error.retry_after
        await asyncio.gather(*tasks)
    assert (end, delay) == pytest.approx((before + 0.1, 20.0))


@virtual
async def test_a_call_that_comes_to_a_full_queue_during_a_pause_too_long_for_it_ends_at_once() -> None:
    service = FakeService(answer(429, {"Retry-After": "20"}))
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1)) as client:
        tasks = [start(client.send("a", MESSAGE)), start(client.send("in line", OTHER))]
        await asyncio.sleep(1.0)
        before = now()
        error = await outcome_of(start(client.send("impatient", MESSAGE, timeout=5.0)))
        assert isinstance(error, NotSentError)
        end, delay = now(), error.retry_after
        await asyncio.gather(*tasks)
    assert (end, delay) == pytest.approx((before, 19.0 + LATENCY))


@virtual
async def test_a_call_that_comes_in_a_pause_too_long_for_it_does_not_linger() -> None:
    service = FakeService(answer(429, {"Retry-After": "20"}))
    async with client_of(service, batching=Batching(linger=0.5)) as client:
        patient = start(client.send("a", MESSAGE))
        await asyncio.sleep(1.0)
        before = now()
        error = await outcome_of(start(client.send("impatient", MESSAGE, timeout=5.0)))
        assert isinstance(error, NotSentError)
        end, delay = now(), error.retry_after
        await patient
    assert (end, delay) == pytest.approx((before, 19.5 + LATENCY))


@virtual
async def test_calls_that_gave_up_waiting_for_room_are_forgotten() -> None:
    service = FakeService(answer(429, {"Retry-After": "20"}, after=1.0))
    async with client_of(service, limits=Limits(in_flight=1, queued_users=1)) as client:
        tasks = [start(client.send("a", MESSAGE)), start(client.send("b", OTHER))]
        await turns()
        short = start(client.send("c", OTHER, timeout=5.0))
        await turns()
        for _ in range(3):
            expired = [start(client.send(f"gone-{number}", OTHER)) for number in range(600)]
            await turns()
            for task in expired:
                task.cancel()
            await turns()
        before = now()
        assert isinstance(await outcome_of(short), NotSentError)
        assert now() == pytest.approx(before + 1.0)
        await asyncio.gather(*tasks)
        assert idle(client)
    assert sum(service.users().values()) == 2
