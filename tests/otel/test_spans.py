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

RETRY = RetryPolicy.safe(initial_delay=0.1)
SAMPLED_OR_NOT = pytest.mark.parametrize("share", [1.0, 0.0], ids=["every attempt", "failures only"])


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
    assert (post.name, post.kind, post.parent) == ("POST", SpanKind.CLIENT, handler.context)
    assert dict(post.attributes or {}) == {
        "http.request.method": "POST",
        "server.address": "push.example",
        "server.port": 443,
        "url.full": "https://push.example/api/v1/push",
        "http.response.status_code": 204,
        "network.protocol.version": "1.1",
        "pushsdk.users": 2,
        "pushsdk.outcome": "ACCEPTED",
    }
    assert (post.status.status_code, post.status.description, post.events) == (StatusCode.UNSET, None, ())
    assert (post.instrumentation_scope.name, post.instrumentation_scope.schema_url) == (
        "pushsdk",
        "https://opentelemetry.io/schemas/1.23.1",
    )


@SAMPLED_OR_NOT
@virtual
async def test_a_failure_and_all_that_repeat_it_have_their_spans(telemetry, share):
    service = FakeService(answer(429), refused(), answer(503, {"Retry-After": "1"}))
    with telemetry.span("handler"):
        await sent(telemetry, service, retry=RETRY, sample_accepted=share)
    assert telemetry.tree().splitlines() == [
        "handler",
        "├─ POST  429  REJECTED  error=429  users=1",
        "├─ POST  NOT_SENT  error=refused  resend=1  users=1",
        "├─ POST  503  REJECTED  error=503  resend=2  users=1",
        "└─ POST  204  ACCEPTED  resend=3  users=1",
    ]
    assert all(span.status.description is None for span in telemetry.spans)


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
    assert (len(batch.links), batch.dropped_links) == (128, 0)
    assert (batch.attributes or {})["pushsdk.links_left_out"] == 1


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
    assert {name: (batch.attributes or {})[f"pushsdk.{name}"] for name in ("accepted", "rejected")} == {
        "accepted": 1,
        "rejected": 1,
    }
    assert batch.kind is SpanKind.INTERNAL


ENDINGS = [
    (answer(200), {}, "POST  200  ACCEPTED  users=1"),
    (answer(500), {500: Outcome.ACCEPTED}, "POST  500  ACCEPTED  users=1"),
    (answer(204), {204: Outcome.REJECTED}, "POST  204  REJECTED  error=rejected  users=1"),
    (answer(500), {}, "POST  500  UNKNOWN  error=500  users=1"),
    (reset_after(), {}, "POST  UNKNOWN  error=reset  users=1"),
    (hang(), {}, "POST  UNKNOWN  error=attempt_timeout  users=1"),
    (unreachable(), {}, "POST  NOT_SENT  error=attempt_timeout  users=1"),
    (fails(Failure.CERTIFICATE), {}, "POST  NOT_SENT  error=certificate  users=1"),
]


@pytest.mark.parametrize(("behavior", "statuses", "line"), ENDINGS, ids=[line for *_, line in ENDINGS])
@SAMPLED_OR_NOT
@virtual
async def test_each_ending_has_its_outcome_and_its_error_and_accepted_ones_are_sampled(
    telemetry, behavior, statuses, line, share
):
    options = {"retry": RetryPolicy.none(statuses=statuses), "timeout": Timeout(attempt=1.0)}
    await sent(telemetry, FakeService(then=behavior), sample_accepted=share, **options)
    failed = "error=" in line
    assert telemetry.tree() == (line if share or failed else "")
    assert {span.status.status_code for span in telemetry.spans} <= {StatusCode.ERROR if failed else StatusCode.UNSET}
    assert {span.kind for span in telemetry.spans} <= {SpanKind.CLIENT}


@SAMPLED_OR_NOT
@virtual
async def test_an_attempt_that_ends_before_it_is_judged_ends_its_span(telemetry, share):
    async def slow_and_stale(request):
        # Past the deadline, and before the sweep that would end the attempt for it: no time for another.
        await asyncio.sleep(1.002)
        await stale()(request)

    await sent(telemetry, FakeService(then=slow_and_stale), timeout=1.0, sample_accepted=share)
    assert telemetry.tree() == "POST  error=stale  users=1"


@SAMPLED_OR_NOT
@virtual
async def test_a_key_that_could_not_be_had_is_an_attempt_too(telemetry, share):
    def no_key():
        raise ConnectionError("the vault's own text")

    await sent(telemetry, FakeService(), api_key=no_key, retry=RetryPolicy.none(), sample_accepted=share)
    assert telemetry.tree() == "POST  NOT_SENT  error=key_failed  users=1"


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


@SAMPLED_OR_NOT
@virtual
async def test_a_rotated_key_is_a_resend(telemetry, share):
    keys = itertools.count()
    await sent(telemetry, FakeService(answer(401)), api_key=lambda: f"key-{next(keys)}", sample_accepted=share)
    assert telemetry.tree().splitlines() == [
        "POST  401  REJECTED  error=401  users=1",
        "POST  204  ACCEPTED  resend=1  users=1",
    ]


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
        (answer(200, body=b'{"uuid": "11111111-2222-3333-4444-555555555555"}'), ["", "POST  200  ACCEPTED"]),
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
    assert (run.name, run.parent, run.links) == ("push broadcast", job.context, ())
    assert dict(run.attributes or {}) == {"pushsdk.users": 6, "pushsdk.requests": 3, "pushsdk.accepted": 6}
    assert len(attempts) == 4
    assert all(span.parent == run.context for span in attempts)
    assert run.status.status_code is StatusCode.UNSET
