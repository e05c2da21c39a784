"""The spans of sends, campaigns and broadcasts, as trees, on the fake service and virtual time."""

import asyncio
import itertools

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from support.fake_service import (
    MESSAGE,
    FakeService,
    answer,
    fails,
    hang,
    outcome_of,
    refused,
    reset_after,
    stale,
    start,
    unreachable,
)
from support.telemetry import Telemetry, sent, watched
from support.virtual_time import turns, virtual

from pushsdk import Batching, Limits, Outcome, PushError, RetryPolicy, Timeout
from pushsdk._core.outcome import Failure
from pushsdk.otel._spans import MAX_LINKS


async def in_span(telemetry, name, client, users, **options):
    """A send under a span of its caller's; its error as a value."""
    with telemetry.span(name):
        try:
            return await client.send(users, MESSAGE, **options)
        except PushError as error:
            return error


@virtual
async def test_a_lone_send_is_one_client_span_by_the_conventions(telemetry):
    async with watched(telemetry, FakeService()) as client:
        await in_span(telemetry, "handler", client, ["a", "b"])
    handler, post = telemetry.spans
    assert post.name == "POST"
    assert post.kind == SpanKind.CLIENT
    assert post.parent == handler.context
    assert dict(post.attributes) == {
        "http.request.method": "POST",
        "server.address": "push.example",
        "server.port": 443,
        "url.full": "https://push.example/api/v1/push",
        "http.response.status_code": 204,
        "network.protocol.version": "1.1",
        "pushsdk.users": 2,
        "pushsdk.outcome": "ACCEPTED",
    }
    assert post.status.status_code == StatusCode.UNSET
    assert post.status.description is None
    assert post.events == ()
    assert post.instrumentation_scope.name == "pushsdk"
    assert post.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.23.1"


async def slow_and_stale(request):
    # Past the deadline, and before the sweep that would end the attempt for it: no time for another.
    await asyncio.sleep(1.002)
    await stale()(request)


def no_key():
    raise ConnectionError("the vault's own text")


KEYS = itertools.count()
NONE = {"retry": RetryPolicy.none(), "timeout": Timeout(attempt=1.0)}
STORIES = [
    ([answer(200)], NONE, ["200  ACCEPTED"]),
    ([answer(500)], {"retry": RetryPolicy.none(statuses={500: Outcome.ACCEPTED})}, ["500  ACCEPTED"]),
    ([answer(204)], {"retry": RetryPolicy.none(statuses={204: Outcome.REJECTED})}, ["204  REJECTED  error=rejected"]),
    ([answer(500)], NONE, ["500  UNKNOWN  error=500"]),
    ([reset_after()], NONE, ["UNKNOWN  error=reset"]),
    ([hang()], NONE, ["UNKNOWN  error=attempt_timeout"]),
    ([unreachable()], NONE, ["NOT_SENT  error=attempt_timeout"]),
    ([fails(Failure.CERTIFICATE)], NONE, ["NOT_SENT  error=certificate"]),
    ([], {**NONE, "api_key": no_key}, ["NOT_SENT  error=key_failed"]),
    ([slow_and_stale], {"timeout": 1.0}, ["error=stale"]),
    ([answer(401)], {"api_key": lambda: f"key-{next(KEYS)}"}, ["401  REJECTED  error=401", "204  ACCEPTED  resend=1"]),
    (
        [answer(429), refused(), answer(503, {"Retry-After": "1"})],
        {"retry": RetryPolicy.safe(initial_delay=0.1)},
        [
            "429  REJECTED  error=429",
            "NOT_SENT  error=refused  resend=1",
            "503  REJECTED  error=503  resend=2",
            "204  ACCEPTED  resend=3",
        ],
    ),
]


@pytest.mark.parametrize(("script", "options", "lines"), STORIES)
@pytest.mark.parametrize("share", [1.0, 0.0])
@virtual
async def test_each_attempt_has_its_outcome_and_its_error_and_those_accepted_at_once_are_sampled(
    telemetry, script, options, lines, share
):
    await sent(telemetry, FakeService(*script), sample_accepted=share, **options)
    shown = [f"POST  {line}  users=1" for line in lines]
    assert telemetry.tree().splitlines() == (shown if share or "error=" in shown[0] else [])
    for span in telemetry.spans:
        assert span.kind is SpanKind.CLIENT
        assert span.status.status_code is (StatusCode.ERROR if "error.type" in span.attributes else StatusCode.UNSET)
        assert span.status.description is None


@virtual
async def test_a_batch_is_linked_to_each_span_of_its_callers_once(telemetry):
    async with watched(telemetry, FakeService()) as client:
        await asyncio.gather(*(client.send(user, MESSAGE) for user in "ab"))
        await asyncio.gather(*(client.send(user, MESSAGE) for user in "abc"), in_span(telemetry, "job", client, "d"))
        with telemetry.span("handler"):
            await asyncio.gather(*(client.send(user, MESSAGE) for user in "abc"))
    assert telemetry.tree().splitlines() == [
        "push batch  calls=2  users=2",
        "└─ POST  204  ACCEPTED  users=2",
        "job",
        "└─ push batch  calls=4  users=4  links: job",
        "   └─ POST  204  ACCEPTED  users=4",
        "handler",
        "└─ push batch  calls=3  users=3  links: handler",
        "   └─ POST  204  ACCEPTED  users=3",
    ]


@virtual
async def test_links_are_bounded_and_omitted_links_are_counted(telemetry):
    async with watched(telemetry, FakeService()) as client:
        await asyncio.gather(*(in_span(telemetry, "job", client, f"user-{n}") for n in range(MAX_LINKS + 1)))
    (batch,) = [span for span in telemetry.spans if span.name == "push batch"]
    assert len(batch.links) == 128
    assert batch.dropped_links == 0
    assert batch.attributes["pushsdk.links_left_out"] == 1


@virtual
async def test_a_caller_whose_trace_is_not_sampled_is_neither_parent_nor_link(telemetry):
    unsampled = Telemetry(ALWAYS_OFF)
    async with watched(telemetry, FakeService()) as client:
        await asyncio.gather(in_span(unsampled, "unsampled", client, "a"), in_span(telemetry, "job", client, "b"))
    assert telemetry.tree().splitlines() == [
        "job",
        "└─ push batch  calls=2  users=2  links: job",
        "   └─ POST  204  ACCEPTED  users=2",
    ]
    unsampled.close()


@virtual
async def test_a_split_shows_its_pieces_under_the_batch(telemetry):
    service = FakeService(answer(422), then=lambda request: answer(422 if "b" in request.users else 204))
    async with watched(telemetry, service) as client:
        await asyncio.gather(*(in_span(telemetry, f"job {user}", client, user) for user in "ab"))
    assert telemetry.tree().splitlines() == [
        "job a",
        "└─ push batch  error=rejected  calls=2  users=2  links: job a, job b",
        "   ├─ POST  422  REJECTED  error=422  users=2",
        "   ├─ POST  204  ACCEPTED  users=1",
        "   └─ POST  422  REJECTED  error=422  users=1",
        "job b",
    ]
    (batch,) = [span for span in telemetry.spans if span.name == "push batch"]
    assert {name: batch.attributes[f"pushsdk.{name}"] for name in ("accepted", "rejected")} == {
        "accepted": 1,
        "rejected": 1,
    }
    assert batch.kind is SpanKind.INTERNAL


@virtual
async def test_what_a_key_callable_does_is_traced_by_its_own_instrumentation(telemetry):
    spans = []

    async def key():
        await asyncio.sleep(0.1)
        spans.append((is_http_instrumentation_enabled(), trace.get_current_span()))
        return "secret-key"

    async with watched(telemetry, FakeService(refused()), api_key=key) as client:
        with telemetry.tracer.start_as_current_span("job") as job:
            await client.send("a", MESSAGE)
    assert spans == [(True, job)] * 2


@virtual
async def test_a_cancelled_lone_send_ends_its_span(telemetry):
    async with watched(telemetry, FakeService(hang())) as client:
        task = start(in_span(telemetry, "job", client, "a"))
        await asyncio.sleep(1.0)
        assert len(telemetry.open) == 2
        task.cancel()
        await outcome_of(task)
        assert telemetry.open == []
    assert telemetry.tree().splitlines()[1] == "└─ POST  UNKNOWN  error=cancelled  users=1"


@virtual
async def test_the_callers_of_a_shared_request_may_go_and_its_spans_end_with_it(telemetry):
    async with watched(telemetry, FakeService(answer(after=5.0))) as client:
        tasks = [start(in_span(telemetry, f"job {user}", client, user)) for user in "ab"]
        await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
        await turns()
        assert [span.name for span in telemetry.open] == ["push batch", "POST"]
        await asyncio.sleep(5.0)
        assert telemetry.open == []


@pytest.mark.parametrize(
    ("behavior", "lines"),
    [
        (answer(400), ["  error=rejected", "POST  400  REJECTED  error=400"]),
        (hang(), ["  error=unknown", "POST  UNKNOWN  error=deadline"]),
    ],
)
@virtual
async def test_a_campaign_is_a_span_over_its_attempts(telemetry, behavior, lines):
    async with watched(telemetry, FakeService(behavior), timeout=Timeout(total=2.0, attempt=None)) as client:
        with telemetry.span("handler"):
            await outcome_of(start(client.create_campaign({"name": "spring", "externalId": "spring"})))
    assert telemetry.tree().splitlines() == ["handler", f"└─ push campaign{lines[0]}", f"   └─ {lines[1]}"]
    assert telemetry.attempts[0]["url.full"] == "https://push.example/api/v1/campaigns"


@virtual
async def test_a_broadcast_is_one_span_over_one_span_per_attempt_without_links(telemetry):
    service = FakeService(answer(), answer(429), then=lambda request: answer())
    async with watched(telemetry, service, batching=Batching(max_users=2), limits=Limits(in_flight=1)) as client:
        with telemetry.span("job"):
            report = await client.broadcast([f"user-{n}" for n in range(6)], MESSAGE)
    assert report.accepted == 6
    job, run, *attempts = telemetry.spans
    assert run.name == "push broadcast"
    assert run.parent == job.context
    assert run.links == ()
    assert dict(run.attributes) == {"pushsdk.users": 6, "pushsdk.requests": 3, "pushsdk.accepted": 6}
    assert len(attempts) == 4
    assert all(span.parent == run.context for span in attempts)
    assert run.status.status_code is StatusCode.UNSET
