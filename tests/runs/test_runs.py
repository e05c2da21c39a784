"""Runs on virtual time: the requests that they send and the outcome of every user, judged by the service's pushes."""

import asyncio
import io
import threading
import warnings
from collections import Counter

import pytest
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
    start,
)
from support.virtual_time import turns, virtual

from pushsdk import (
    AsyncPushClient,
    Audience,
    Batching,
    ConfigurationError,
    Limits,
    MessageWarning,
    Outcome,
    PushRequest,
    Rate,
    RetryPolicy,
    RunFileError,
    StopPolicy,
    ValidationError,
    read_report,
)
from pushsdk._core.outcome import Failure

SMALL = Batching(max_users=4)
HUNDRED = Batching(max_users=100)
NO_BRAKE = StopPolicy.off()


def users(count):
    return [f"user-{number}" for number in range(count)]


def judge(report, service, planned):
    """Check the report for every user. Nobody was pushed to twice."""
    rows = list(report.rows())
    assert [row.user_id for row in rows] == planned
    counts = Counter(row.outcome for row in rows)
    told = (report.accepted, report.rejected, report.not_sent, report.unknown)
    assert told == tuple(counts[Outcome[name]] for name in ("ACCEPTED", "REJECTED", "NOT_SENT", "UNKNOWN"))
    assert report.planned == len(planned)
    for row in rows:
        possible = {Outcome.ACCEPTED: {1}, Outcome.UNKNOWN: {0, 1}}.get(row.outcome, {0})
        assert service.accepted(row.user_id) in possible


async def push(service, count, *, batching=SMALL, in_flight=64, **options):
    """Broadcast to a number of users, and judge the report."""
    async with client_of(service, batching=batching, limits=Limits(in_flight=in_flight)) as client:
        report = await client.broadcast(users(count), MESSAGE, **{"stop_policy": NO_BRAKE, **options})
    judge(report, service, users(count))
    return report


async def resume(service, run, count, **options):
    """Resume the run of these users, and judge the report."""
    async with client_of(service) as client:
        report = await client.resume(run, **options)
    judge(report, service, users(count))
    return report


# -- users and options ------------------------------------------------------------------------------------------------


class _Async:
    """An async iterator without ``aclose``."""

    def __init__(self, ids):
        self.left = iter(ids)

    def __aiter__(self):
        return self

    async def __anext__(self):
        for user in self.left:
            return user
        raise StopAsyncIteration


@pytest.mark.parametrize("source", [list, _Async, iter])
@virtual
async def test_every_user_is_pushed_to_once(source):
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        ids = source([*users(10), *["user-1"] * 2000])  # also blocks of nothing new
        report = await client.broadcast(ids, MESSAGE, custom_fields={"a": 1})
    judge(report, service, users(10))
    assert (report.duplicates, report.excluded) == (2000, 0)
    assert report.stopped is None
    assert report.run is None
    assert [len(sent) for sent in service.sent] == [4, 4, 2]
    assert b'"customFields":{"a":1}' in service.requests[0].body
    report.raise_for_failures()


@virtual
async def test_without_dedupe_every_id_is_a_push_also_in_the_next_call(tmp_path):
    service = FakeService()
    async with client_of(service, batching=SMALL) as client:
        report = await client.broadcast(["a", "b", "a"], MESSAGE, run=tmp_path / "run", dedupe=False)
        assert report.planned == 3
        assert report.accepted == 3
        assert service.accepted("a") == 2
        with pytest.raises(RunFileError, match="planned with dedupe=False: pass the same, or resume it"):
            await client.broadcast(["a", "b", "a"], MESSAGE, run=tmp_path / "run")


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (["a", 7], r"user_ids\[1\]: expected a str, got int: pass str\(id\)$"),
        ([*map(str, range(3000)), "", "c"], r"user_ids\[3000\]: the user id is empty"),
        (Audience, r"or for example Audience.read.*; got the class Audience$"),
    ],
)
@virtual
async def test_bad_ids_are_found_before_anything_is_sent(bad, text):
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ValidationError, match=text):
            await client.broadcast(bad, MESSAGE)
    assert service.sent == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("on_unknown", "ignore"), ("stop", True), ("run", 5)],
)
@virtual
async def test_bad_options_are_found_before_anything_is_sent(option, value):
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ConfigurationError, match=option):
            await client.broadcast(["a"], MESSAGE, **{option: value})
        with pytest.raises(ConfigurationError, match="run must be the path of a run file"):
            await client.resume(None)
    assert service.sent == []


@virtual
async def test_a_run_says_before_it_sends_which_fields_of_the_policy_it_does_not_use():
    async with client_of(service := FakeService()) as client:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "a run does not use")
            unused = "RetryPolicy.max_attempts and RetryPolicy.unknown"
            with pytest.raises(MessageWarning, match=f"^a run does not use {unused}: .* stop_policy "):
                await client.with_options(retry=RetryPolicy.collapsible(max_attempts=9)).broadcast(["a"], MESSAGE)
            assert service.sent == []
            used = RetryPolicy.safe(initial_delay=0.2, max_delay=9.0)
            assert (await client.with_options(retry=used).broadcast(["a"], MESSAGE)).accepted == 1


@virtual
async def test_an_iterable_that_raises_sends_nothing_and_is_planned_again(tmp_path):
    def broken():
        yield from users(2000)
        raise RuntimeError("the database is gone")

    service = FakeService()
    run = tmp_path / "run"
    async with client_of(service) as client:
        with pytest.raises(RuntimeError, match="the database is gone"):
            await client.broadcast(broken(), MESSAGE, run=run)
        with pytest.raises(RunFileError, match="incomplete and nothing was sent: start the broadcast again"):
            read_report(run)
        with pytest.raises(RunFileError, match="its plan is incomplete"):
            await client.resume(run)
    assert service.sent == []
    assert (await push(service, 3, run=run)).accepted == 3


@pytest.mark.parametrize(
    ("base_url", "message", "fields", "why"),
    [
        ("https://push.example/api", {"title": {"en": "Other"}}, None, "it has another message; to send its message"),
        ("https://push.example/api", MESSAGE, {"a": 2}, "it has other custom_fields; to send"),
        ("https://other.example", MESSAGE, None, "another base_url, https://push.example/api: resume it with that one"),
    ],
)
@virtual
async def test_another_broadcast_is_refused_on_the_same_file(base_url, message, fields, why, tmp_path):
    service = FakeService()
    run = tmp_path / "run"
    await push(service, 4, run=run)
    before = run.read_bytes()
    async with client_of(service, base_url=base_url) as client:
        with pytest.raises(RunFileError, match=why) as excinfo:
            await client.broadcast(users(4), message, run=run, custom_fields=fields)
    assert excinfo.value.path == str(run)
    assert run.read_bytes() == before
    assert len(service.sent) == 1


# -- each user's message ----------------------------------------------------------------------------------------------


@virtual
async def test_each_request_has_its_own_message(tmp_path):
    service = FakeService()
    run = tmp_path / "run"
    requests = [
        PushRequest(user_ids=["a"], message={"title": {"en": "A"}}, custom_fields={"n": 1}),
        {"userIds": ["b", "c", "b"], "message": {"title": {"en": "B"}}},
        {"userIds": "dan", "message": {"title": {"en": "D"}}},
    ]
    async with client_of(service) as client:
        report = await client.send_each(requests, run=run)
        with pytest.raises(RunFileError, match=r"message for all users; to send its message .*"):
            await client.broadcast(["a"], MESSAGE, run=run)
    judge(report, service, ["a", "b", "c", "dan"])
    sent = {request.users: request.message["title"]["en"] for request in service.requests}
    assert sent == {("a",): "A", ("b", "c"): "B", ("dan",): "D"}
    assert report.duplicates == 1


@pytest.mark.parametrize("source", [iter, _Async])
@virtual
async def test_a_generator_may_change_a_request_and_yield_it_again(source):
    service, request = FakeService(), {"message": MESSAGE}
    async with client_of(service) as client:
        await client.send_each(source(request for request["userIds"] in "abc"))
    assert service.sent == [("a",), ("b",), ("c",)]


@virtual
async def test_a_stop_iteration_in_a_callers_code_is_not_the_end_of_the_users():
    class Users:
        def __iter__(self):
            raise StopIteration

    async with client_of(FakeService()) as client:
        for call in (client.send_each([{"userIds": Users(), "message": MESSAGE}]), client.broadcast(Users(), MESSAGE)):
            with pytest.raises(RuntimeError, match="StopIteration"):
                await call


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ({"userIds": ["a"]}, r"number 1: \$.message is missing"),
        ({"userIds": ["a"], "message": MESSAGE, "customFields": None}, "null"),
        ("a", "a request must be a PushRequest or a mapping; got str"),
        ({"userIds": [1], "message": MESSAGE}, r"number 1: user_ids\[0\]"),
    ],
)
@virtual
async def test_bad_requests_are_found_before_anything_is_sent(bad, expected):
    service = FakeService()
    async with client_of(service) as client:
        with pytest.raises(ValidationError, match=expected):
            await client.send_each([bad])
    assert service.sent == []


# -- audiences --------------------------------------------------------------------------------------------------------


async def test_a_plan_made_in_a_thread_stops_when_it_is_cancelled():
    loop = asyncio.get_running_loop()
    started = asyncio.Event()
    cancelled = threading.Event()
    lines = 0

    class Stream(io.BytesIO):
        def readline(self, size=-1):
            nonlocal lines
            lines += 1
            if lines == 100_000:
                loop.call_soon_threadsafe(started.set)
                assert cancelled.wait(60)
            return b"user-%d\n" % lines

    async with AsyncPushClient("http://127.0.0.1:9", "key") as client:
        running = asyncio.ensure_future(client.broadcast(Audience.lines(Stream()), MESSAGE))
        await started.wait()
        running.cancel()
        await turns(5)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert lines <= 110_000, "no batch more"


# -- lost answers, failures and rejections ----------------------------------------------------------------------------


@virtual
async def test_only_one_chunk_tests_whether_the_message_is_to_blame():
    service = FakeService(then=answer(400))
    assert (await push(service, 5000, batching=HUNDRED)).rejected == 5000
    # The requests that are in flight before the first answer, then the users of one of them; at last one of each other.
    sent = [len(sent) for sent in service.sent]
    assert sent[: sent.index(1) + 8] == [100] * sent.index(1) + [1] * 8
    assert len(sent) == 50 * 2 + 7


@virtual
async def test_a_user_too_large_alone_stays_pending_and_the_others_are_sent_to():
    service = FakeService(then=lambda request: answer(413 if "user-100" in request.users else 204))
    report = await push(service, 180, batching=Batching(max_users=60), in_flight=1)
    # If the message is most of a request, fewer users do not make it fit.
    assert report.accepted + report.not_sent == 180
    assert report.stopped is None
    assert 1 <= report.not_sent < 10


@pytest.mark.parametrize(
    ("trouble", "options", "by", "why", "most"),
    [
        (answer(401), {}, "refused", "HTTP 401", 2),
        (answer(403), {}, "refused", "HTTP 403: the Api-Key is not allowed", 2),
        (fails(Failure.CERTIFICATE), {}, "failure", "certificate", 2),
        (answer(302), {}, "failure", "HTTP 302: a redirect, which is never followed. Check base_url", 2),
        (answer(413), {}, "failure", "smaller message", 6),
        (answer(413), {"batching": Batching(max_users=4, split_on=frozenset())}, "failure", "batching.max_users", 2),
        (refused(), {"stop_policy": StopPolicy(max_outage=60.0)}, "stop_policy", "(last: the connection could", 99),
    ],
)
@virtual
async def test_a_run_that_can_not_succeed_stops_without_rejections_and_a_resume_completes_it(
    trouble, options, by, why, most, tmp_path
):
    service = FakeService(then=trouble)
    run = tmp_path / "run"
    report = await push(service, 100, in_flight=2, run=run, **options)
    assert report.not_sent == 100
    assert report.stopped_by == by
    assert read_report(run).stopped_by == by
    assert why in str(report.stopped)
    assert len(service.sent) <= most
    service.then = answer()
    report = await resume(service, run, 100)
    assert report.accepted == 100
    assert report.stopped is None
    assert read_report(run).stopped_by is None


def stale_but_for(good, *, late):
    """Reject the first hundred users except some that none of 8 probes reaches, and accept slowly."""
    stale = {*users(100)} - {f"user-{number}" for number in good}

    def then(request):
        if stale & {*request.users}:
            return answer(400)
        return answer(after=5.0 if late in request.users else LATENCY)

    return then


@virtual
async def test_untried_users_are_sent_to_at_the_end_if_the_message_was_accepted_since():
    service = FakeService(then=stale_but_for(range(43, 56), late="user-150"))
    report = await push(service, 300, batching=HUNDRED, limit=200)
    # The limit counts a user once.
    assert report.accepted == 113
    assert report.rejected == 87
    assert report.not_sent == 100
    assert {*service.sent[2:10]} == {(f"user-{number * 99 // 7}",) for number in range(8)}


# -- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["spring.run", None])
@virtual
async def test_a_cancellation_says_what_is_known_and_how_to_continue(name, tmp_path):
    service = FakeService(then=hang(accepted=True))
    run = tmp_path / name if name else None
    running = start(push(service, 4, run=run))
    while not service.written:
        await turns(1)
    await asyncio.sleep(1.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await running
    again = "a run can be continued if it has a file: pass run="
    if run is not None:
        again = f"to continue the run: await client.resume({str(run)!r})"
        await resume(service, run, 4)
        with pytest.warns(MessageWarning, match="4 users UNKNOWN; on_unknown='resend' pushes to these again"):
            await push(service, 4, run=run)
    assert cancelled.value.__notes__ == [f"pushsdk: the users of the cancelled run are 4 UNKNOWN; {again}"]


# -- progress ---------------------------------------------------------------------------------------------------------


@virtual
async def test_eager_tasks_do_not_begin_each_other_without_end():
    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
    async with client_of(FakeService(then=answer(after=0.3)), batching=Batching(max_users=1)) as client:
        for _ in range(4):
            assert (await client.broadcast(users(300), MESSAGE)).accepted == 300


@virtual
async def test_a_run_waits_from_a_failure_until_a_request_is_accepted():
    states = []
    service = FakeService(*[answer()] * 99, then=refused())
    await push(service, 999, stop_policy=StopPolicy(max_outage=60.0), on_progress=states.append)
    assert {state.stage for state in states[:-1] if "Is the service up?" in state.trouble} == {"waiting"}


@virtual
async def test_a_run_does_not_wait_for_a_failure_that_settles_its_users():
    states = []
    async with client_of(FakeService(then=answer(500)), batching=SMALL, rate=Rate(requests_per_second=2)) as client:
        await client.broadcast(users(40), MESSAGE, stop_policy=NO_BRAKE, on_progress=states.append)
    assert {state.stage for state in states if state.trouble} == {"sending"}


@virtual
async def test_a_run_that_is_stopped_with_its_last_request_says_so_and_is_complete():
    stop, states = asyncio.Event(), []
    asyncio.get_running_loop().call_later(2.0, stop.set)
    report = await push(FakeService(then=answer(after=9.0)), 4, stop=stop, on_progress=states.append)
    first = next(state for state in states if state.stage == "stopping")
    assert (first.requests, first.eta) == (1, None)
    assert report.stopped is None


@virtual
async def test_a_resend_that_is_stopped_says_why(tmp_path):
    service = FakeService(reset_after(), reset_after(), then=answer(401))
    async with client_of(service, batching=SMALL, limits=Limits(in_flight=2)) as client:
        await client.broadcast(users(8), MESSAGE, run=tmp_path / "run", stop_policy=NO_BRAKE)
        report = await client.resume(tmp_path / "run", on_unknown="resend")
    assert report.stopped_by == "refused"


@virtual
async def test_an_on_progress_that_raises_is_logged_with_its_place(caplog):
    def broken(progress):
        raise RuntimeError(f"secret {'text'}")

    async with client_of(FakeService()) as client:
        report = await client.broadcast(users(4), MESSAGE, on_progress=broken)
    assert report.accepted == 4
    assert "on_progress raised RuntimeError at test_runs.py:" in caplog.text
    assert "secret text" not in caplog.text


@virtual
async def test_answers_that_take_less_than_max_outage_are_no_outage():
    service = FakeService(then=answer(after=0.6))
    report = await push(service, 40, in_flight=1, stop_policy=StopPolicy(max_outage=1.0))
    assert report.stopped is None


@virtual
async def test_an_hour_of_a_stopped_process_is_no_outage():
    def then(request):
        if len(service.written) == 3:
            # While it is in flight: the stop policy is checked before its response arrives.
            loop.call_later(0.25, loop.jump, 3600.0)
        return answer(after=1.0)

    loop = asyncio.get_running_loop()
    service = FakeService(then=then)
    report = await push(service, 40, in_flight=1, stop_policy=StopPolicy(unknown=None))
    assert report.stopped is None
    assert report.accepted + report.unknown == 40
