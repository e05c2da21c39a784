"""``sample_accepted``: a share of the attempts accepted at once has a span, and all other attempts have one."""

import asyncio
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from support.fake_service import MESSAGE, FakeService, answer
from support.telemetry import Telemetry, sent, watched
from support.virtual_time import virtual

from pushsdk import AsyncPushClient, ConfigurationError, RetryPolicy
from pushsdk.otel import _spans as ours
from pushsdk.otel import instrument

RETRY = RetryPolicy.safe(initial_delay=0.1)
# A span of another process, that sent its context along.
REMOTE = SpanContext(trace_id=0xA, span_id=0xB, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


@pytest.fixture
def draws(monkeypatch):
    """Return random numbers in this order."""
    draws = []
    monkeypatch.setattr(ours, "random", lambda: draws.pop(0))
    return draws


# -- the accepted ---------------------------------------------------------------------------------------------------


@virtual
async def test_the_drawn_share_of_accepted_attempts_has_a_span(telemetry, draws):
    draws += [0.05, 0.1, 0.99, 0.0999, 0.5]
    await sent(telemetry, FakeService(), *(list("abcde"[:number]) for number in range(1, 6)), sample_accepted=0.1)
    assert telemetry.tree().splitlines() == ["POST  204  ACCEPTED  users=1", "POST  204  ACCEPTED  users=4"]
    assert draws == []


# -- what always has one --------------------------------------------------------------------------------------------


@virtual
async def test_a_span_that_is_made_late_begins_and_ends_when_its_attempt_did(telemetry):
    stamps = [time.time_ns()]

    async def refuse(request):
        stamps.append(time.time_ns())
        await answer(404)(request)
        stamps.append(time.time_ns())

    await sent(telemetry, FakeService(then=refuse), sample_accepted=0.0)
    (span,) = telemetry.spans
    before, begun, end = stamps
    assert before <= span.start_time <= begun < end <= span.end_time <= time.time_ns()


@virtual
async def test_a_shared_request_a_campaign_and_a_broadcast_have_all_of_theirs(telemetry):
    campaign = answer(200, body=b'{"uuid": "11111111-2222-3333-4444-555555555555"}')
    service = FakeService(then=lambda request: campaign if "campaigns" in request.path else answer())
    async with watched(telemetry, service, sample_accepted=0.0) as client:
        await asyncio.gather(*(client.send(user, MESSAGE) for user in "ab"))
        await client.create_campaign({"name": "spring", "externalId": "spring"})
        await client.broadcast(["c"], MESSAGE)
    assert telemetry.tree().splitlines() == [
        "push batch  calls=2  users=2",
        "└─ POST  204  ACCEPTED  users=2",
        "push campaign",
        "└─ POST  200  ACCEPTED",
        "push broadcast  users=1",
        "└─ POST  204  ACCEPTED  users=1",
    ]


# -- under a span of the caller's -----------------------------------------------------------------------------------


@virtual
async def test_no_attempt_is_left_out_under_a_sampled_span_of_another_process(telemetry):
    with trace.use_span(NonRecordingSpan(REMOTE)):
        await sent(telemetry, FakeService(), sample_accepted=0.0)
    (post,) = telemetry.spans
    assert post.parent == REMOTE


@pytest.mark.parametrize("draw", [0.0, 0.9])
@virtual
async def test_a_caller_whose_trace_is_not_sampled_has_decided_for_failures_too(draw, draws):
    quiet = Telemetry(ParentBased(ALWAYS_ON))
    draws += [draw, draw]
    unsampled = SpanContext(trace_id=0xA, span_id=0xB, is_remote=False, trace_flags=TraceFlags())
    with trace.use_span(NonRecordingSpan(unsampled)):
        await sent(quiet, FakeService(answer(), answer(404)), *"ab", sample_accepted=0.5)
    assert quiet.spans == []
    assert sum(point.count for point in quiet.points("http.client.request.duration")) == 2
    quiet.close()


# -- what it takes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [-0.1, 1.1, True])
def test_the_share_is_a_number_from_0_to_1(wrong):
    with pytest.raises(ConfigurationError, match="sample_accepted must be a number from 0 to 1"):
        instrument(AsyncPushClient("https://push.example", "secret-key"), sample_accepted=wrong)


def test_a_trace_that_goes_out_is_not_decided_on_later():
    client = AsyncPushClient("https://push.example", "secret-key")
    with pytest.raises(ConfigurationError, match="sample_accepted must be 1 with propagate"):
        instrument(client, propagate=True, sample_accepted=0.5)
    assert instrument(client, propagate=True, sample_accepted=1) is client
