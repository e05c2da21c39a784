"""A rejected merged request: its culprit is found, its neighbours are accepted, and no user is pushed twice."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from support.fake_service import (
    LATENCY,
    MESSAGE,
    FakeService,
    Request,
    answer,
    client_of,
    hang,
    idle,
    outcome_of,
    refused,
    reset_after,
    start,
)
from support.virtual_time import virtual

from pushsdk import (
    AsyncPushClient,
    Batching,
    Event,
    Limits,
    Outcome,
    PartialError,
    PayloadTooLargeError,
    Receipt,
    RejectedError,
    RequestSplit,
    RetryPolicy,
    SendAbandoned,
)

MANY = [f"a-user-with-a-long-name-{number}" for number in range(40)]


def refuses(*culprits: str, status: int = 400) -> Any:
    return lambda request: answer(status if {*culprits} & {*request.users} else 204)


async def send_all(client: AsyncPushClient, users: list[Any], message: Any = MESSAGE) -> list[Any]:
    tasks = [start(client.send(user, message)) for user in users]
    return [await outcome_of(task) for task in tasks]


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("count", [2, 3, 8, 21])
@virtual
async def test_one_culprit_is_found_with_few_extra_requests(status: int, count: int) -> None:
    service = FakeService(then=refuses("user-1", status=status))
    async with client_of(service) as client:
        outcomes = await send_all(client, [f"user-{number}" for number in range(count)])
        assert idle(client)
    assert [type(outcome) for number, outcome in enumerate(outcomes) if number != 1] == [Receipt] * (count - 1)
    assert type(outcomes[1]) is RejectedError
    assert outcomes[1].user_ids == ("user-1",)
    assert service.users() == Counter(f"user-{number}" for number in range(count) if number != 1)
    assert len(service.requests) - 1 <= min(count, 8 + 7 + 2)


@virtual
async def test_the_users_of_one_call_are_one_unit_for_a_400() -> None:
    service = FakeService(then=refuses("b"))
    async with client_of(service) as client:
        first, second = await send_all(client, [["a", "b", "c"], ["d", "e"]])
    assert (type(first), type(second)) == (RejectedError, Receipt)
    assert service.sent == [("a", "b", "c", "d", "e"), ("a", "b", "c"), ("d", "e")]


@virtual
async def test_a_message_that_fails_for_everybody_is_given_up_and_remembered() -> None:
    service = FakeService(then=lambda request: answer(400))
    async with client_of(service) as client:
        outcomes = await send_all(client, [f"user-{number}" for number in range(64)])
        assert all(type(outcome) is RejectedError and outcome.status == 400 for outcome in outcomes)
        first = len(service.requests)
        assert first == 9
        outcomes = await send_all(client, [f"user-{number}" for number in range(64)])
        assert all(type(outcome) is RejectedError for outcome in outcomes)
        assert len(service.requests) == first + 2
        # Another message is worth it still.
        await send_all(client, ["a", "b"], {"title": {"en": "Other"}})
        assert len(service.requests) == first + 2 + 3


@virtual
async def test_an_acceptance_makes_a_remembered_message_worth_splitting_again() -> None:
    broken = True
    service = FakeService(then=lambda request: answer(400 if broken or "culprit" in request.users else 204))
    async with client_of(service) as client:
        await send_all(client, [f"user-{number}" for number in range(16)])
        broken = False
        await client.send("one", MESSAGE)
        outcomes = await send_all(client, ["culprit", "a", "b"])
    assert [type(outcome) for outcome in outcomes] == [RejectedError, Receipt, Receipt]


@virtual
async def test_a_message_that_was_accepted_before_is_never_to_blame() -> None:
    users = [f"user-{number}" for number in range(40)]
    corners = [users[number * 39 // 7] for number in range(8)]
    service = FakeService(then=refuses(*corners))
    async with client_of(service) as client:
        await client.send("somebody", MESSAGE)
        outcomes = await send_all(client, users)
    assert Counter(map(type, outcomes)) == {RejectedError: 8, Receipt: 32}


@virtual
async def test_a_413_halves_within_a_call_and_the_receipt_counts_the_requests() -> None:
    service, events = FakeService(then=lambda request: answer(413 if len(request.users) > 10 else 204)), list[Event]()
    async with client_of(service, on_event=events.append) as client:
        receipt = await client.send(MANY, MESSAGE)
        assert (receipt.users, receipt.requests) == (40, 4)
        assert client.stats().splits == 3
    assert service.users() == Counter(MANY)
    splits = [event for event in events if isinstance(event, RequestSplit)]
    assert {(event.status, event.calls) for event in splits} == {(413, 1)}


@virtual
async def test_a_merged_call_that_was_split_reports_all_of_its_parts() -> None:
    service = FakeService(then=lambda request: answer(413 if len(request.users) > 4 else 204))
    calls = ["a" * 100], [name * 100 for name in "bcdef"], ["g" * 100]
    async with client_of(service) as client:
        receipts = await asyncio.gather(*(client.send(users, MESSAGE) for users in calls))
    assert service.users() == Counter(user for users in calls for user in users)
    assert [(receipt.users, receipt.requests) for receipt in receipts] == [(1, 1), (5, 2), (1, 1)]


@virtual
async def test_the_size_that_failed_is_remembered() -> None:
    service = FakeService(then=lambda request: answer(413 if len(request.users) > 10 else 204))
    async with client_of(service) as client:
        await client.send(MANY, MESSAGE)
        before = len(service.requests)
        receipt = await client.send(MANY, MESSAGE)
        assert 4 <= receipt.requests <= 5
        assert all(len(request.users) <= 10 for request in service.requests[before:])
        await send_all(client, MANY)
        assert all(len(request.users) <= 10 for request in service.requests[before:])


@virtual
async def test_a_413_for_a_message_that_is_most_of_the_bytes_is_not_halved() -> None:
    service = FakeService(then=answer(413))
    async with client_of(service) as client:
        with pytest.raises(PayloadTooLargeError):
            await client.send(["a", "b"], {"title": {"en": "x" * 1000}})
    assert len(service.requests) == 1


@virtual
async def test_parts_that_end_differently_are_a_partial_error_with_the_outcome_of_each_user() -> None:
    service = FakeService(answer(413), answer(), reset_after())
    async with client_of(service) as client:
        with pytest.raises(PartialError) as excinfo:
            await client.send(MANY, MESSAGE)
    error = excinfo.value
    assert error.outcome is Outcome.UNKNOWN
    assert (error.users(Outcome.ACCEPTED), error.users(Outcome.UNKNOWN)) == (tuple(MANY[:20]), tuple(MANY[20:]))
    assert error.user_ids == tuple(MANY)
    assert service.users() == Counter(MANY)


@virtual
async def test_parts_that_were_all_refused_are_one_rejected_error() -> None:
    service = FakeService(answer(413), then=answer(401))
    async with client_of(service) as client:
        with pytest.raises(RejectedError) as excinfo:
            await client.send(MANY, MESSAGE)
    assert excinfo.value.status == 401
    assert [attempt.status for attempt in excinfo.value.attempts] == [413, 401, 401]


@virtual
async def test_a_part_is_repeated_as_any_request() -> None:
    service = FakeService(answer(413), refused(), answer())
    async with client_of(service) as client:
        receipt = await client.send(MANY, MESSAGE)
    assert [attempt.status for attempt in receipt.attempts].count(204) == 2
    assert service.users() == Counter(MANY)


@virtual
async def test_a_request_with_an_unknown_attempt_behind_it_is_never_split() -> None:
    service = FakeService(reset_after(), answer(413), then=answer())
    async with client_of(service, retry=RetryPolicy.at_least_once()) as client:
        outcome = await outcome_of(start(client.send(MANY, MESSAGE)))
    assert outcome.outcome is Outcome.UNKNOWN
    assert len(service.requests) == 2


@virtual
async def test_an_empty_split_on_switches_it_off() -> None:
    service = FakeService(then=refuses("a"))
    async with client_of(service, batching=Batching(split_on=frozenset())) as client:
        outcomes = await send_all(client, ["a", "b", "c"])
    assert [type(outcome) for outcome in outcomes] == [RejectedError] * 3
    assert len(service.requests) == 1


@virtual
async def test_a_call_that_expires_during_a_split_reports_the_completed_part() -> None:
    def then(request: Request) -> Any:
        return answer(400) if len(request.users) == 4 else answer(after=0.01 if {"a", "b"} & {*request.users} else 5.0)

    service, events = FakeService(then=then), list[Event]()
    async with client_of(service, timeout=1.0, limits=Limits(in_flight=2), on_event=events.append) as client:
        outcomes = await send_all(client, ["a", "b", "c", "d"])
        assert idle(client)
    assert [outcome.outcome.value for outcome in outcomes] == ["ACCEPTED", "ACCEPTED", "UNKNOWN", "UNKNOWN"]


@virtual
async def test_a_call_in_two_pieces_past_its_deadline_knows_what_is_known() -> None:
    def then(request: Request) -> Any:
        if len(request.users) > 21:
            return answer(413)
        return answer(after=0.01) if MANY[0] in request.users else answer(after=5.0)

    service = FakeService(then=then)
    async with client_of(service, limits=Limits(in_flight=8)) as client:
        view = client.with_options(timeout=1.0)
        call = start(view.send(MANY, MESSAGE))
        await asyncio.sleep(0.0)
        other = start(view.send("late", MESSAGE))
        error = await outcome_of(call)
        assert isinstance(error, PartialError)
        assert {error.outcomes[user] for user in MANY[:20]} == {Outcome.ACCEPTED}
        assert {error.outcomes[user] for user in MANY[22:]} == {Outcome.UNKNOWN}
        await outcome_of(other)


def outcomes_of(error: Any) -> dict[str, Outcome]:
    return error.outcomes if isinstance(error, PartialError) else dict.fromkeys(error.user_ids, error.outcome)


@pytest.mark.parametrize("ending", ["cancelled", "closed", "late"])
@pytest.mark.parametrize("requests", [2, 3, 5])
@virtual
async def test_a_call_that_ends_while_it_is_halved_reports_no_user_as_not_sent(ending: str, requests: int) -> None:
    service, events = FakeService(then=lambda request: answer(413 if len(request.users) > 5 else 204)), list[Event]()
    async with client_of(service, limits=Limits(in_flight=1), on_event=events.append) as client:
        moment = LATENCY * (requests - 0.5)
        call = start(client.send(MANY, MESSAGE, timeout=moment if ending == "late" else 30.0))
        await asyncio.sleep(moment)
        if ending == "cancelled":
            call.cancel()
        elif ending == "closed":
            await client.aclose(drain=0.0)
        error = await outcome_of(call)
    if ending == "cancelled":
        report = {
            user: event.outcome for event in events if isinstance(event, SendAbandoned) for user in event.user_ids
        }
    else:
        report = outcomes_of(error)
        assert error.retryable == (not service.users() and set(report.values()) == {Outcome.REJECTED})
    assert sorted(report) == sorted(MANY)
    assert Outcome.NOT_SENT not in report.values()
    assert {user for user, outcome in report.items() if outcome is Outcome.ACCEPTED} <= set(service.users())


@virtual
async def test_a_loop_torn_down_as_the_halves_of_a_send_are_about_to_leave_rejects_the_whole() -> None:
    service, events, loop = FakeService(answer(413)), list[Event](), asyncio.get_running_loop()
    tasks = asyncio.all_tasks()

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, RequestSplit):
            loop.call_soon(lambda: [task.cancel() for task in asyncio.all_tasks() - tasks])

    async with client_of(service, on_event=on_event) as client:
        await outcome_of(start(client.send(MANY, MESSAGE)))
        assert client.stats().rejected == 40
    ends = [event for event in events if isinstance(event, SendAbandoned)]
    assert [(event.outcome, sorted(event.user_ids)) for event in ends] == [(Outcome.REJECTED, sorted(MANY))]
    assert [attempt.status for attempt in ends[0].attempts] == [413]
    assert len(service.requests) == 1


@virtual
async def test_a_loop_torn_down_while_a_merged_request_is_bisected_leaves_no_rejected_user_in_doubt() -> None:
    service, events = FakeService(answer(400), then=hang()), list[Event]()
    client = client_of(service, on_event=events.append)
    calls = [start(client.send(f"user-{number}", MESSAGE)) for number in range(20)]
    await asyncio.sleep(1.0)
    assert len(service.requests) == 9
    for task in asyncio.all_tasks() - {asyncio.current_task(), *calls}:
        task.cancel()
    errors = [await outcome_of(call) for call in calls]
    assert Counter(error.outcome for error in errors) == {Outcome.UNKNOWN: 8, Outcome.REJECTED: 12}
    assert all(error.retryable for error in errors if error.outcome is Outcome.REJECTED)
    await client.aclose()
