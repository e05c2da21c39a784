"""Broadcasts on virtual time: claims, sends, outcomes and reports, judged by the pushes that the service received."""

import asyncio
import functools
import itertools
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tenacity
from support.fake_service import (
    LATENCY,
    MESSAGE,
    FakeService,
    answer,
    client_of,
    fails,
    hang,
    refused,
    reset_after,
    reset_before,
    start,
    unreachable,
)
from support.virtual_time import turns, virtual

from pushsdk import (
    AsyncPushClient,
    Audience,
    AudienceSummary,
    Batching,
    BroadcastError,
    BroadcastReport,
    ConfigurationError,
    Limits,
    MessageWarning,
    Outcome,
    Personalized,
    Progress,
    PushRequest,
    RetryPolicy,
    RunFileError,
    StopPolicy,
    ValidationError,
    read_report,
)
from pushsdk._core.outcome import Failure
from pushsdk._runs import planner as planning
from pushsdk._runs import progress
from pushsdk._runs.run_file.journal import Journal

SMALL = Batching(max_users=4)
NO_BRAKE = StopPolicy.off()


def users(count: int) -> list[str]:
    return [f"user-{number}" for number in range(count)]


def judge(report: BroadcastReport, service: FakeService, planned: list[str], *, doubled: bool = False) -> None:
    """Check that no push is lost or doubled and that the report is correct for every user."""
    rows = list(report.rows())
    assert [row.user_id for row in rows] == planned
    for row in rows:
        pushes = service.accepted(row.user_id)
        assert doubled or pushes <= 1, "pushed twice"
        if row.outcome is Outcome.ACCEPTED:
            assert pushes >= 1
        elif row.outcome is not Outcome.UNKNOWN:
            assert pushes == 0
    counts = {outcome: sum(row.outcome is outcome for row in rows) for outcome in Outcome}
    assert counts == {
        Outcome.ACCEPTED: report.accepted,
        Outcome.REJECTED: report.rejected,
        Outcome.NOT_SENT: report.not_sent,
        Outcome.UNKNOWN: report.unknown,
    }
    assert report.planned == len(planned)


def culprits(*names: str, status: int = 400) -> Any:
    return lambda request: answer(status if {*names} & {*request.users} else 204)


@pytest.fixture(params=["file", "no file"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "spring.run" if request.param == "file" else None


@virtual
async def test_every_user_is_pushed_to_once(run: Path | None) -> None:
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(users(10), MESSAGE, run=run, custom_fields={"a": 1})
    judge(report, service, users(10))
    assert (report.accepted, report.stopped, report.run) == (10, None, str(run) if run else None)
    assert [len(sent) for sent in service.sent] == [4, 4, 2]
    assert b'"customFields":{"a":1}' in service.requests[0].body
    report.raise_for_failures()


async def _async(ids: list[str]) -> AsyncIterator[str]:
    for user in ids:
        yield user


def _once(ids: list[str]) -> Iterator[str]:
    yield from ids


@pytest.mark.parametrize("source", [tuple, _async, _once])
@virtual
async def test_any_iterable_or_async_iterable_is_accepted(source: Callable[[list[str]], Any]) -> None:
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(source(users(9)), MESSAGE)
    judge(report, service, users(9))


@virtual
async def test_a_run_without_users_is_complete(run: Path | None) -> None:
    service = FakeService()
    async with client_of(service) as client:
        report = await client.broadcast([], MESSAGE, run=run)
    assert (report.planned, report.stopped, service.sent) == (0, None, [])


@virtual
async def test_a_broadcast_to_a_complete_run_warns_that_nothing_was_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pushsdk")
    text = "nothing was sent: an earlier call completed this run; to push again, pass a new run"
    path, service = tmp_path / "spring.run", FakeService()
    async with client_of(service, batching=SMALL) as client:
        for limit, warned in ((2, []), (None, []), (None, [text])):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", MessageWarning)
                await client.broadcast(users(4), MESSAGE, run=path, limit=limit)
            told = [str(warning.message) for warning in caught if "earlier call" in str(warning.message)]
            assert told + [record.getMessage() for record in caplog.records if record.getMessage() == text] == warned
        caplog.clear()
        await client.resume(path)
        assert [record.levelname for record in caplog.records if record.getMessage() == text] == ["INFO"]
    assert service.users() == dict.fromkeys(users(4), 1)


@virtual
async def test_a_duplicate_id_counts_once() -> None:
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast([*users(6), "user-1", "user-5"], MESSAGE)
    judge(report, service, users(6))
    assert report.duplicates == 2


@virtual
async def test_without_dedupe_every_id_is_a_push() -> None:
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(["a", "b", "a"], MESSAGE, dedupe=False)
    assert (report.planned, report.accepted, service.accepted("a")) == (3, 3, 2)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (["a", 7], "user id number 2: expected a str, got int"),
        (["a", "b", "", "c"], "user id number 3: the user id is empty"),
        ("user-1", "an iterable of ids, or an Audience; got str$"),
        (Path("users.csv"), "an iterable of ids, or an Audience; got PosixPath$"),
        (Audience, "an iterable of ids, or an Audience; got the class Audience$"),
        (b"user-1", "an iterable"),
        ({"a": 1}, "an iterable"),
        (None, "an iterable"),
        (["\ud800"], "user id number 1"),
    ],
)
@virtual
async def test_bad_ids_are_found_before_anything_is_sent(bad: Any, text: str) -> None:
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ValidationError, match=text):
            await client.broadcast(bad, MESSAGE)
    assert service.sent == []


@pytest.mark.parametrize(
    "options",
    [
        {"on_unknown": "ignore"},
        {"stop_policy": 0.5},
        {"on_progress": 1},
        {"stop": True},
        {"limit": 0},
        {"limit": True},
        {"limit": 1.5},
        {"run": 5},
    ],
)
@virtual
async def test_bad_options_are_found_before_anything_is_sent(options: dict[str, Any]) -> None:
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ConfigurationError):
            await client.broadcast(["a"], MESSAGE, **options)
        assert service.sent == []


@virtual
async def test_an_iterable_that_raises_sends_nothing_and_is_planned_again(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield from users(2000)
        raise RuntimeError("the database is gone")

    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(RuntimeError, match="the database is gone"):
            await client.broadcast(broken(), MESSAGE, run=tmp_path / "run")
        with pytest.raises(RunFileError, match="incomplete and nothing was sent: start the broadcast again"):
            read_report(tmp_path / "run")
        with pytest.raises(RunFileError, match="its plan is incomplete"):
            await client.resume(tmp_path / "run")
        assert service.sent == []
        report = await client.broadcast(users(3), MESSAGE, run=tmp_path / "run")
    judge(report, service, users(3))


@virtual
async def test_each_request_has_its_own_message(run: Path | None) -> None:
    service = FakeService()
    requests = [
        PushRequest(user_ids=["a"], message={"title": {"en": "A"}}, custom_fields={"n": 1}),
        {"userIds": ["b", "c", "b"], "message": {"title": {"en": "B"}}},
        {"userIds": "dan", "message": {"title": {"en": "D"}}},
    ]
    async with client_of(service) as client:
        report = await client.send_each(requests, run=run)
    judge(report, service, ["a", "b", "c", "dan"])
    assert sorted((request.users, request.message["title"]["en"]) for request in service.requests) == [
        (("a",), "A"),
        (("b", "c"), "B"),
        (("dan",), "D"),
    ]
    assert report.duplicates == 1


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ({"userIds": ["a"]}, r"number 1: \$.message is missing"),
        (PushRequest(message=MESSAGE), r"number 1: \$.userIds is missing"),
        ({"userIds": ["a"], "message": MESSAGE, "customFields": None}, "null"),
        (
            {"userIds": ["a"], "message": MESSAGE, "title": 1},
            r"number 1: \$\.title: unknown field: a push request has",
        ),
        ({"userIds": [1], "message": MESSAGE}, r"number 1: user_ids\[0\]"),
        ("a", "a request must be a PushRequest or a mapping; got str"),
    ],
)
@virtual
async def test_bad_requests_are_found_before_anything_is_sent(bad: Any, expected: str) -> None:
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ValidationError, match=expected):
            await client.send_each([bad])
    assert service.sent == []


@virtual
async def test_a_lost_response_is_unknown_and_skipped(run: Path | None) -> None:
    service = FakeService(reset_after(), reset_before())
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=1)) as client:
        report = await client.broadcast(users(12), MESSAGE, run=run, stop_policy=NO_BRAKE)
    judge(report, service, users(12))
    assert (report.unknown, report.accepted) == (8, 4)
    with pytest.raises(BroadcastError, match="8 UNKNOWN") as excinfo:
        report.raise_for_failures()
    assert (excinfo.value.outcome, excinfo.value.report) == (Outcome.UNKNOWN, report)


@virtual
async def test_a_lost_response_is_resent_if_asked_for() -> None:
    service = FakeService(reset_after(), reset_before())
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=1)) as client:
        report = await client.broadcast(users(8), MESSAGE, on_unknown="resend", stop_policy=NO_BRAKE)
    judge(report, service, users(8), doubled=True)
    assert (report.accepted, report.resent, service.accepted("user-0")) == (8, 4, 2)


@virtual
async def test_a_rejection_after_an_unknown_outcome_stays_unknown_and_is_not_split() -> None:
    service = FakeService(reset_after(), then=answer(400))
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(users(4), MESSAGE, on_unknown="resend", stop_policy=NO_BRAKE)
    judge(report, service, users(4))
    assert (report.unknown, report.resent, len(service.sent)) == (4, 4, 2)


@virtual
async def test_resends_to_a_service_that_loses_every_response_are_bounded() -> None:
    service = FakeService(then=reset_before())
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(users(4), MESSAGE, on_unknown="resend", stop_policy=NO_BRAKE)
    assert (report.unknown, len(service.sent)) == (4, 4)


@pytest.mark.parametrize(
    "trouble",
    [
        answer(429),
        answer(429, {"Retry-After": "7"}),
        answer(503, {"Retry-After": "1"}),
        answer(408),
        refused(),
        fails(Failure.DNS),
        fails(Failure.CONNECT_TIMEOUT),
    ],
)
@virtual
async def test_throttled_requests_are_retried_until_accepted(trouble: Any) -> None:
    service = FakeService(*[trouble] * 15)
    async with client_of(service, batching=SMALL, retry=RetryPolicy.none()) as client:
        with pytest.warns(MessageWarning, match="a run does not use RetryPolicy.max_attempts: "):
            report = await client.broadcast(users(12), MESSAGE)
        assert client.stats().retry_tokens >= 500, "the waits of a run are not charged to the retry budget"
    judge(report, service, users(12))
    assert report.accepted == 12


@pytest.mark.parametrize(
    ("policy", "unused"),
    [
        (RetryPolicy.none(), "RetryPolicy.max_attempts"),
        (RetryPolicy.at_least_once(), "RetryPolicy.unknown"),
        (RetryPolicy.collapsible(max_attempts=9), "RetryPolicy.max_attempts and RetryPolicy.unknown"),
        (RetryPolicy.from_tenacity(stop=tenacity.stop_never), "RetryPolicy.stop"),
        (RetryPolicy.from_tenacity(wait=tenacity.wait_none()), "RetryPolicy.wait"),
        (RetryPolicy.from_tenacity(retry=tenacity.retry_never), "RetryPolicy.retry"),
    ],
)
@pytest.mark.parametrize("method", ["broadcast", "send_each", "resume"])
@virtual
async def test_a_run_says_before_it_sends_which_fields_of_the_policy_it_does_not_use(
    policy: RetryPolicy, unused: str, method: str, tmp_path: Path
) -> None:
    service = FakeService()
    async with client_of(service) as client:
        run = tmp_path / "spring.run"
        runs = {
            "broadcast": lambda client: client.broadcast(users(3), MESSAGE, run=run),
            "send_each": lambda client: client.send_each([PushRequest(user_ids=users(3), message=MESSAGE)], run=run),
            "resume": lambda client: client.resume(run),
        }
        if method == "resume":
            await client.broadcast(users(3), MESSAGE, run=run, limit=1)
        sent = len(service.requests)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "a run does not use")
            with pytest.raises(MessageWarning, match=f"^a run does not use {unused}: .* stop_policy "):
                await runs[method](client.with_options(retry=policy))
        assert len(service.requests) == sent
        report = await runs[method](client.with_options(retry=RetryPolicy.safe(initial_delay=0.2, max_delay=9.0)))
    assert report.accepted == 3


@pytest.mark.parametrize("status", [400, 422])
@virtual
async def test_one_culprit_is_found_and_its_neighbors_are_pushed_to(status: int) -> None:
    service = FakeService(then=culprits("user-77", status=status))
    async with client_of(service, batching=Batching(max_users=100)) as client:
        report = await client.broadcast(users(200), MESSAGE, stop_policy=NO_BRAKE)
    judge(report, service, users(200))
    assert [(row.user_id, row.status, row.reason) for row in report.rows(Outcome.REJECTED)] == [
        ("user-77", status, f"HTTP {status}")
    ]
    assert len(service.sent) <= 2 + 8 + 7 + 2 * 4


@virtual
async def test_a_message_rejected_for_all_users_is_not_bisected_in_every_chunk() -> None:
    service = FakeService(then=answer(400))
    async with client_of(service, batching=Batching(max_users=100)) as client:
        report = await client.broadcast(users(5000), MESSAGE, stop_policy=NO_BRAKE)
    assert (report.rejected, report.accepted) == (5000, 0)
    assert len(service.sent) == 50 * 2 + 7


@virtual
async def test_a_413_halves_the_request_and_the_size_is_learned() -> None:
    service = FakeService(then=lambda request: answer(413 if len(request.users) > 10 else 204))
    async with client_of(service, batching=Batching(max_users=40), limits=Limits(in_flight=1)) as client:
        report = await client.broadcast(users(400), MESSAGE)
    judge(report, service, users(400))
    assert report.accepted == 400
    assert sum(len(request.users) > 10 for request in service.requests) <= 5


@pytest.mark.parametrize("number", [4, 60])
@virtual
async def test_a_message_too_large_for_a_single_user_stops_the_run_without_rejections(number: int) -> None:
    service = FakeService(then=answer(413))
    async with client_of(service, batching=Batching(max_users=number)) as client:
        report = await client.broadcast(users(number), MESSAGE, stop_policy=NO_BRAKE)
    judge(report, service, users(number))
    assert (report.not_sent, report.stopped_by) == (number, "failure")
    assert "smaller message" in (report.stopped or "")
    assert {(row.status, row.reason) for row in report.rows()} == {(413, "HTTP 413")}


@virtual
async def test_a_user_too_large_alone_stays_pending_and_the_others_are_sent_to() -> None:
    service = FakeService(then=culprits("user-100", status=413))
    async with client_of(service, batching=Batching(max_users=60), limits=Limits(in_flight=1)) as client:
        report = await client.broadcast(users(180), MESSAGE, stop_policy=NO_BRAKE)
    judge(report, service, users(180))
    # If the message is most of a request, fewer users do not make it fit.
    assert (report.accepted + report.not_sent, report.stopped) == (180, None)
    assert 1 <= report.not_sent < 10


@virtual
async def test_a_request_with_a_too_large_message_stays_pending_and_the_others_are_sent() -> None:
    service = FakeService(then=culprits("user-0", status=413))
    async with client_of(service) as client:
        requests = [PushRequest(user_ids=[user], message=MESSAGE) for user in users(4)]
        report = await client.send_each(requests)
    assert (report.accepted, report.not_sent, report.stopped) == (3, 1, None)


@virtual
async def test_a_413_outside_split_on_stops_the_run() -> None:
    service = FakeService(then=answer(413))
    async with client_of(service, batching=Batching(max_users=4, split_on=frozenset())) as client:
        report = await client.broadcast(users(8), MESSAGE)
    assert (report.not_sent, report.stopped_by) == (8, "failure")
    assert "batching.max_users" in (report.stopped or "")


@virtual
async def test_a_redirect_stops_the_run_without_rejections() -> None:
    service = FakeService(then=answer(302))
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(users(20), MESSAGE)
    judge(report, service, users(20))
    assert (report.not_sent, report.stopped_by) == (20, "failure")
    assert (report.stopped or "").startswith("HTTP 302: a redirect, which is never followed. Check base_url")


@pytest.mark.parametrize("status", [401, 403])
@virtual
async def test_a_refused_key_stops_the_run_at_once_and_leaves_users_pending(status: int, tmp_path: Path) -> None:
    service = FakeService(then=answer(status))
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=2)) as client:
        report = await client.broadcast(users(100), MESSAGE, run=tmp_path / "run")
    assert report.stopped is not None
    assert f"HTTP {status}" in report.stopped
    assert (report.stopped_by, read_report(tmp_path / "run").stopped_by) == ("refused", "refused")
    assert (report.not_sent, len(service.sent)) == (100, 2)
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        report = await client.resume(tmp_path / "run")
    judge(report, service, users(100))
    assert report.accepted == 100


@virtual
async def test_a_failure_that_needs_a_fix_stops_the_run() -> None:
    service = FakeService(then=fails(Failure.CERTIFICATE))
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=2)) as client:
        report = await client.broadcast(users(100), MESSAGE)
    assert report.stopped is not None
    assert "certificate" in report.stopped
    assert report.stopped_by == "failure"
    assert (report.not_sent, len(service.sent)) == (100, 2)


@virtual
async def test_the_stop_policy_stops_a_run_that_is_rejected() -> None:
    service = FakeService(then=answer(404))
    stop_policy = StopPolicy(rejected=0.1, after=40)
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=1)) as client:
        report = await client.broadcast(users(1000), MESSAGE, stop_policy=stop_policy)
    assert report.stopped is not None
    assert report.rejected == 80, "twenty requests prove something"
    judge(report, service, users(1000))


@virtual
async def test_the_stop_policy_stops_a_run_after_an_outage() -> None:
    service = FakeService(then=refused())
    loop = asyncio.get_running_loop()
    async with client_of(service, batching=SMALL) as client:
        started = loop.time()
        report = await client.broadcast(users(1000), MESSAGE, stop_policy=StopPolicy(max_outage=60.0))
    assert report.stopped is not None
    assert "(last: the connection could not be opened: " in report.stopped
    assert 60.0 <= loop.time() - started < 70.0
    judge(report, service, users(1000))


@virtual
async def test_a_limit_pauses_the_run_and_a_resume_continues_it(tmp_path: Path) -> None:
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(users(20), MESSAGE, run=tmp_path / "run", limit=6)
        judge(report, service, users(20))
        assert (report.accepted, report.not_sent) == (6, 14)
        assert (report.stopped, report.stopped_by) == ("the limit of 6 users is reached: resume for the rest", "limit")
        assert read_report(tmp_path / "run").stopped_by == "limit"
        report = await client.resume(tmp_path / "run")
    judge(report, service, users(20))
    assert (report.accepted, report.stopped) == (20, None)
    assert read_report(tmp_path / "run").stopped_by is None


@virtual
async def test_a_stop_ends_the_run_after_its_requests_in_flight() -> None:
    service = FakeService(then=answer(after=1.0))
    stop = asyncio.Event()
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=2)) as client:
        running = start(client.broadcast(users(100), MESSAGE, stop=stop))
        while len(service.written) < 2:
            await turns(1)
        stop.set()
        report = await running
    judge(report, service, users(100))
    assert (report.accepted, report.unknown, report.not_sent) == (8, 0, 92)
    assert report.stopped == "the caller asked for a stop"


@virtual
async def test_a_stop_ends_a_wait() -> None:
    service = FakeService(then=answer(429, {"Retry-After": "50"}))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=2)) as client:
        started = loop.time()
        loop.call_later(5.0, stop.set)
        report = await client.broadcast(users(100), MESSAGE, stop=stop)
        assert loop.time() - started < 5.1
    judge(report, service, users(100))
    assert report.not_sent == 100


@virtual
async def test_a_stop_while_planning_sends_nothing() -> None:
    service = FakeService()
    stop = asyncio.Event()

    def ids() -> Iterator[str]:
        for number, user in enumerate(users(100_000)):
            if number == 50_000:
                stop.set()
            yield user

    async with client_of(service) as client:
        report = await client.broadcast(ids(), MESSAGE, stop=stop)
    assert report.stopped is not None
    assert (report.accepted, service.sent) == (0, [])


@virtual
async def test_a_cancellation_says_how_to_continue_the_run(tmp_path: Path) -> None:
    service = FakeService(then=hang(accepted=True))
    async with client_of(service) as client:
        running = start(client.broadcast(users(4), MESSAGE, run=tmp_path / "spring.run"))
        while not service.users():
            await turns(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await running
        await client.resume(tmp_path / "spring.run")
        with pytest.warns(MessageWarning, match="4 users UNKNOWN; on_unknown='resend' pushes to these again"):
            await client.broadcast(users(4), MESSAGE, run=tmp_path / "spring.run")
    again = f"to continue the run: await client.resume({str(tmp_path / 'spring.run')!r})"
    assert cancelled.value.__notes__ == [f"pushsdk: the users of the cancelled run are 4 UNKNOWN; {again}"]


@virtual
async def test_a_cancelled_run_without_a_file_says_what_is_known() -> None:
    service = FakeService(then=hang(accepted=True))
    async with client_of(service) as client:
        running = start(client.broadcast(users(4), MESSAGE))
        while not service.users():
            await turns(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await running
    again = "a run can be continued if it has a file: pass run="
    assert cancelled.value.__notes__ == [f"pushsdk: the users of the cancelled run are 4 UNKNOWN; {again}"]


@virtual
async def test_a_cancelled_run_settles_its_requests_in_flight_and_can_be_resumed(tmp_path: Path) -> None:
    service = FakeService(hang(accepted=True), unreachable())
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=2)) as client:
        running = start(client.broadcast(users(20), MESSAGE, run=tmp_path / "run"))
        while not service.users() or len(service.sent) < 2:
            await turns(1)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        report = read_report(tmp_path / "run")
        judge(report, service, users(20))
        assert (report.unknown, report.not_sent) == (4, 16)
        report = await client.resume(tmp_path / "run")
    judge(report, service, users(20))
    assert (report.accepted, report.unknown) == (16, 4)


@virtual
async def test_skipped_users_are_resent_if_a_resume_asks_for_it(tmp_path: Path) -> None:
    service = FakeService(reset_after())
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=1)) as client:
        report = await client.broadcast(users(8), MESSAGE, run=tmp_path / "run", stop_policy=NO_BRAKE)
        assert (report.unknown, report.accepted) == (4, 4)
        report = await client.resume(tmp_path / "run")
        assert (report.unknown, len(service.sent)) == (4, 2)
        report = await client.resume(tmp_path / "run", on_unknown="resend")
    judge(report, service, users(8), doubled=True)
    assert (report.accepted, report.resent) == (8, 4)


@virtual
async def test_a_resume_with_nothing_to_send_clears_the_stop_reason(tmp_path: Path) -> None:
    stop = asyncio.Event()
    service = FakeService(reset_after())
    async with client_of(service, batching=SMALL) as client:
        asyncio.get_running_loop().call_later(0.001, stop.set)
        report = await client.broadcast(users(4), MESSAGE, run=tmp_path / "run", stop=stop)
        assert (report.unknown, report.stopped_by) == (4, "asked")
        assert (await client.resume(tmp_path / "run")).stopped_by is None
    assert read_report(tmp_path / "run").stopped_by is None


@virtual
async def test_a_finished_run_is_not_sent_again(tmp_path: Path) -> None:
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        for _ in range(3):
            report = await client.broadcast(users(8), MESSAGE, run=tmp_path / "run")
    judge(report, service, users(8))
    assert len(service.sent) == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"message": {"title": {"en": "Other"}}}, "another message"),
        ({"custom_fields": {"a": 2}}, "another message or other custom_fields"),
        (
            {"base_url": "https://other.example"},
            "another base_url, https://push.example/api: resume it with that one",
        ),
    ],
)
@virtual
async def test_another_broadcast_is_refused_on_the_same_file(change: Any, expected: str, tmp_path: Path) -> None:
    service = FakeService()
    async with client_of(service) as client:
        await client.broadcast(users(8), MESSAGE, run=tmp_path / "run")
    before = (tmp_path / "run").read_bytes()
    async with client_of(service, **({"base_url": change["base_url"]} if "base_url" in change else {})) as client:
        with pytest.raises(RunFileError, match=expected) as excinfo:
            await client.broadcast(
                users(8),
                change.get("message", MESSAGE),
                run=tmp_path / "run",
                custom_fields=change.get("custom_fields"),
            )
        with pytest.raises(RunFileError, match=r"of one message for all users, not of|another base_url"):
            await client.send_each([], run=tmp_path / "run")
    assert excinfo.value.path == str(tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == before
    assert len(service.sent) == 1


@virtual
async def test_closing_the_client_ends_the_run_after_its_requests_in_flight(tmp_path: Path) -> None:
    service = FakeService(then=answer(after=1.0))
    client: AsyncPushClient = client_of(service, batching=SMALL, limits=Limits(in_flight=2))
    running = start(client.broadcast(users(100), MESSAGE, run=tmp_path / "run"))
    while len(service.written) < 2:
        await turns(1)
    await client.aclose()
    report = await running
    judge(report, service, users(100))
    assert (report.accepted, report.unknown, report.stopped) == (8, 0, "the client was closed")


@virtual
async def test_closing_without_a_drain_leaves_requests_in_flight_unknown(tmp_path: Path) -> None:
    service = FakeService(then=hang(accepted=True))
    client: AsyncPushClient = client_of(service, batching=SMALL, limits=Limits(in_flight=2))
    running = start(client.broadcast(users(100), MESSAGE, run=tmp_path / "run"))
    while len(service.written) < 2:
        await turns(1)
    await client.aclose(drain=0.5)
    report = await running
    judge(report, service, users(100))
    assert (report.accepted, report.unknown) == (0, 8)


@virtual
async def test_progress_is_reported_during_a_run_and_at_its_end() -> None:
    readings: list[Progress] = []
    service = FakeService(answer(429, {"Retry-After": "5"}), then=answer(after=1.0))
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=1)) as client:
        await client.broadcast(users(40), MESSAGE, on_progress=readings.append)
    assert {reading.stage for reading in readings} == {"planning", "sending", "waiting"}
    assert [reading.accepted for reading in readings] == sorted(reading.accepted for reading in readings)
    assert (readings[-1].accepted, readings[-1].planned) == (40, 40)
    assert {reading.unknown for reading in readings} == {0}, "what is on its way is not unknown yet"
    assert {reading.in_flight for reading in readings} == {0, 4}
    assert any(reading.paused > 0 for reading in readings)
    assert any(reading.rate == pytest.approx(4.0, rel=0.3) and reading.eta for reading in readings)


@virtual
async def test_an_on_progress_that_raises_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    def broken(progress: Progress) -> None:
        raise RuntimeError(f"secret {'text'}")

    service = FakeService()
    async with client_of(service) as client:
        report = await client.broadcast(users(4), MESSAGE, on_progress=broken)
    assert report.accepted == 4
    assert "on_progress raised RuntimeError at test_runs.py:" in caplog.text
    assert "secret text" not in caplog.text


@virtual
async def test_the_counters_include_the_users_of_a_run() -> None:
    service = FakeService(reset_before())
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=1)) as client:
        await client.broadcast(users(8), MESSAGE, stop_policy=NO_BRAKE)
        stats = client.stats()
    assert (stats.accepted, stats.unknown, stats.in_flight) == (4, 4, 0)


class Crowd(Audience):
    """Counts its batches. Its summary and its description are made up."""

    source = ""
    summary = AudienceSummary()

    def __init__(self, ids: list[str], source: str = "crowd") -> None:
        self.users = ids
        self.source = source
        self.summary = AudienceSummary(duplicates=3)
        self.on_batch: Callable[[], None] = lambda: None

    def ids(self, *, distinct: bool) -> Iterator[list[str]]:
        assert distinct
        for first in range(0, len(self.users), SMALL.max_users):
            self.on_batch()
            yield self.users[first : first + SMALL.max_users]


@virtual
async def test_users_may_come_in_batches_and_their_source_is_stored(tmp_path: Path) -> None:
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(Crowd(users(100)), MESSAGE, run=tmp_path / "run", limit=10)
        assert (report.planned, report.duplicates) == (100, 3)
        with pytest.raises(RunFileError, match="another source"):
            await client.broadcast(Crowd(users(100), "another"), MESSAGE, run=tmp_path / "run")
        report = await client.broadcast(Crowd(users(100)), MESSAGE, run=tmp_path / "run")
    judge(report, service, users(100))


@virtual
async def test_requests_may_come_in_batches_and_their_source_is_stored(tmp_path: Path) -> None:
    class Letters(Personalized):
        source = "letters"
        summary = AudienceSummary(duplicates=2)

        def __init__(self) -> None:
            pass

        def batches(self) -> Iterator[list[PushRequest]]:
            for name in "abc":
                yield [PushRequest(user_ids=[name], message=MESSAGE), PushRequest(user_ids=[name * 2], message=MESSAGE)]

    service = FakeService()
    async with client_of(service) as client:
        report = await client.send_each(Letters(), run=tmp_path / "run", limit=2)
        assert (report.planned, report.duplicates) == (6, 2)
        with pytest.raises(RunFileError, match="another source"):
            await client.send_each([], run=tmp_path / "run")
        report = await client.send_each(Letters(), run=tmp_path / "run")
    judge(report, service, ["a", "aa", "b", "bb", "c", "cc"])


async def test_a_plan_made_in_a_thread_stops_when_it_is_cancelled() -> None:
    crowd = Crowd(users(100_000))
    loop = asyncio.get_running_loop()
    started, cancelled = asyncio.Event(), threading.Event()
    blocks = 0

    def count() -> None:
        nonlocal blocks
        blocks += 1
        loop.call_soon_threadsafe(started.set)
        if blocks > 50:
            cancelled.wait(60)

    crowd.on_batch = count
    async with AsyncPushClient("http://127.0.0.1:9", "key", batching=SMALL) as client:
        running = asyncio.ensure_future(client.broadcast(crowd, MESSAGE))
        await started.wait()
        running.cancel()
        await turns(5)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert blocks <= 51


@pytest.mark.parametrize("count", [2000, 25_000])
@virtual
async def test_blocks_of_an_async_iterable_are_planned_one_by_one(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[Progress] = []
    service = FakeService()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 0.0))
    async with client_of(service) as client:
        report = await client.broadcast(_async(users(count)), MESSAGE, on_progress=readings.append)
    judge(report, service, users(count))
    assert sum(reading.stage == "planning" for reading in readings) == 1


@virtual
async def test_a_resume_needs_a_path() -> None:
    async with client_of(FakeService()) as client:
        with pytest.raises(ConfigurationError, match="path of a run file"):
            await client.resume(None)  # type: ignore[arg-type]


@virtual
async def test_a_part_that_waits_when_the_run_stops_stays_pending() -> None:
    """In the middle of a split: one half is throttled when the run is stopped."""
    stop = asyncio.Event()
    service = FakeService(answer(413), then=answer(429, {"Retry-After": "30"}))
    many = [f"a-user-with-a-long-name-{number}" for number in range(8)]
    async with client_of(service) as client:
        asyncio.get_running_loop().call_later(2.0, stop.set)
        report = await client.broadcast(many, MESSAGE, stop=stop)
    judge(report, service, many)
    assert (report.not_sent, {row.status for row in report.rows()}) == (8, {429})


@virtual
async def test_a_stop_ends_the_wait_for_a_slot() -> None:
    stop = asyncio.Event()
    service = FakeService(hang(), then=answer())
    async with client_of(service, limits=Limits(in_flight=1), timeout=20.0) as client:
        lone = start(client.send("user", MESSAGE))
        asyncio.get_running_loop().call_later(2.0, stop.set)
        report = await client.broadcast(users(4), MESSAGE, stop=stop)
        assert not lone.done()
        await asyncio.wait([lone])
    assert (report.not_sent, len(service.sent)) == (4, 1)


@virtual
async def test_distinct_ids_that_were_spilled_to_disk_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "Distinct", functools.partial(planning.Distinct, memory=10_000))
    service = FakeService()
    async with client_of(service) as client:
        report = await client.broadcast(itertools.chain(users(3000), users(2000)), MESSAGE)
    assert {row.user_id for row in report.rows()} == {*users(3000)}
    assert (report.accepted, report.duplicates, max(service.users().values())) == (3000, 2000, 1)


@virtual
async def test_a_claim_that_can_not_be_written_stops_the_run_and_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService(then=culprits("user-1"))
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=2)) as client:
        await client.broadcast(users(100), MESSAGE, run=tmp_path / "run", limit=8)
        written = len(service.written)

        def broken(journal: Journal, *parts: Any, at_once: bool = False) -> bool:
            raise RunFileError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "commit", broken)
            with pytest.raises(RunFileError, match="the disk is full"):
                await client.resume(tmp_path / "run")
        assert len(service.written) == written
        assert client.stats().in_flight == 0
        report = await client.resume(tmp_path / "run")
    judge(report, service, users(100))


def stale_but_for(good: range, *, late: str) -> Any:
    """Reject the first hundred users except some that none of 8 probes reaches, and accept slowly."""
    stale = {*users(100)} - {f"user-{number}" for number in good}

    def then(request: Any) -> Any:
        if stale & {*request.users}:
            return answer(400)
        return answer(after=5.0 if late in request.users else LATENCY)

    return then


@virtual
async def test_untried_users_are_sent_to_at_the_end_if_the_message_was_accepted_since() -> None:
    service = FakeService(then=stale_but_for(range(43, 56), late="user-150"))
    async with client_of(service, batching=Batching(max_users=100)) as client:
        report = await client.broadcast(users(200), MESSAGE, stop_policy=NO_BRAKE)
    judge(report, service, users(200))
    assert (report.accepted, report.rejected) == (113, 87)
    assert {*service.sent[2:10]} == {(f"user-{number * 99 // 7}",) for number in range(8)}


@virtual
async def test_a_limit_counts_a_resent_user_once() -> None:
    service = FakeService(then=stale_but_for(range(43, 56), late="user-150"))
    async with client_of(service, batching=Batching(max_users=100)) as client:
        report = await client.broadcast(users(300), MESSAGE, stop_policy=NO_BRAKE, limit=200)
    assert (report.accepted, report.rejected, report.not_sent) == (113, 87, 100)


@virtual
async def test_untried_users_stay_pending_when_the_run_is_stopped(tmp_path: Path) -> None:
    service = FakeService(then=stale_but_for(range(0), late="user-150"))
    stop = asyncio.Event()
    async with client_of(service, batching=Batching(max_users=100)) as client:
        asyncio.get_running_loop().call_later(1.0, stop.set)
        report = await client.broadcast(users(200), MESSAGE, stop_policy=NO_BRAKE, run=tmp_path / "run", stop=stop)
        assert (report.accepted, report.rejected, report.not_sent) == (100, 8, 92)
        report = await client.resume(tmp_path / "run", stop_policy=NO_BRAKE)
    judge(report, service, users(200))
    assert (report.accepted, report.rejected) == (100, 100)


@virtual
async def test_the_stop_policy_counts_users_who_were_given_up() -> None:
    service = FakeService(then=answer(400))
    async with client_of(service, batching=Batching(max_users=1000)) as client:
        report = await client.broadcast(users(100_000), MESSAGE)
    assert report.stopped_by == "stop_policy"
    assert len(service.sent) < 64 + 8 + 63 + 20


@virtual
async def test_only_one_chunk_tests_whether_the_message_is_to_blame() -> None:
    service = FakeService(then=answer(400))
    async with client_of(service, batching=Batching(max_users=100)) as client:
        await client.broadcast(users(5000), MESSAGE, stop_policy=NO_BRAKE)
    # The requests that are in flight before the first answer, then the users of one of them.
    sent = [len(sent) for sent in service.sent]
    assert sent[: sent.index(1) + 8] == [100] * sent.index(1) + [1] * 8
