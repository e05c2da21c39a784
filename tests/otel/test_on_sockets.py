"""Real sockets: aiohttp's own instrumentation, received headers, threads, and a search of all exported data."""

import asyncio

import aiohttp
import pytest
from opentelemetry import context
from opentelemetry.instrumentation.aiohttp_client import AioHttpClientInstrumentor
from support.telemetry import texts_of
from support.wire_server import WireServer

from pushsdk import AsyncPushClient, CampaignRequest, MobilePush, RetryPolicy, Segment, Timeout
from pushsdk.emulator import Emulator, Fault

KEY = "KEYMARKER"
USER = "USERMARKER"
TEXT = "TEXTMARKER"
MESSAGE = MobilePush(title={"en": TEXT}, collapse_id=TEXT, key_vals={TEXT: TEXT})
CAMPAIGN = CampaignRequest(name=TEXT, external_id=TEXT, segment=Segment(query=TEXT))
ECHO = f"no such user {USER}: {TEXT}, {KEY}"
RETRY = RetryPolicy.safe(initial_delay=0.001, throttle_delay=0.001)

FAULTS = {
    "nothing": Fault.delay(0.0),
    "throttled": Fault.status(429, headers={"Retry-After": "0", "X-Echo": ECHO}, body=ECHO, first=2),
    "rejected": Fault.status(400, headers={"X-Echo": ECHO}, body=ECHO),
    "redirected": Fault.status(302, headers={"Location": f"https://elsewhere.example/{USER}?{TEXT}"}),
    "unknown": Fault.status(500, body=ECHO),
    "reset_before": Fault.reset_before(),
    "reset_after": Fault.reset_after(),
    "silence": Fault.hang(),
    "truncated": Fault.truncated(),
}


@pytest.fixture
def instrumented(telemetry, request):
    """aiohttp's own instrumentation, unless the test says no."""
    if not getattr(request, "param", True):
        yield False
        return
    instrumentor = AioHttpClientInstrumentor()
    instrumentor.instrument(tracer_provider=telemetry.tracers, meter_provider=telemetry.meters)
    yield True
    instrumentor.uninstrument()


@pytest.fixture
async def emulator():
    async with Emulator(api_key=KEY) as emulator:
        yield emulator


async def ended(work):
    return (await asyncio.gather(work, return_exceptions=True))[0]


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_id_text_or_key_is_exported_whatever_happens(telemetry, instrumented, fault):
    async with Emulator(api_key=KEY, faults=[FAULTS[fault]]) as emulator:
        client = AsyncPushClient(emulator.base_url, KEY, retry=RETRY, timeout=Timeout(total=3.0, attempt=0.2))
        async with telemetry.instrument(client, propagate=True):
            with telemetry.span("handler"):
                await asyncio.gather(*(ended(client.send(f"{USER}-{n}", MESSAGE)) for n in range(3)))
                await ended(client.send(USER, MESSAGE))
                await ended(client.create_campaign(CAMPAIGN))
            async with asyncio.timeout(1.0):
                stop = asyncio.Event()
                asyncio.get_running_loop().call_later(0.3, stop.set)
                await ended(client.broadcast([USER], MESSAGE, stop=stop))
            exported = texts_of(telemetry)
    assert all(marker not in exported for marker in (KEY, USER, TEXT))
    assert all(name in exported for name in ("POST", "push batch", "push campaign", "push broadcast", "pushsdk.users"))
    assert all(span.events == () for span in telemetry.spans)
    # One span each, by whichever instrumentation.
    assert {span.instrumentation_scope.name for span in telemetry.spans if span.name == "POST"} == {"pushsdk"}


async def test_other_requests_of_the_application_keep_the_spans_of_aiohttps_instrumentation(
    telemetry, instrumented, emulator
):
    async with (
        aiohttp.ClientSession() as session,
        telemetry.instrument(AsyncPushClient(emulator.base_url, KEY, session=session)) as client,
    ):
        with telemetry.span("handler"):
            await client.send("a", MESSAGE)
            async with session.get(emulator.base_url):
                pass
    handler, ours, theirs = telemetry.spans
    assert ours.name == "POST"
    assert theirs.name == "GET"
    assert ours.parent == theirs.parent == handler.context
    assert "aiohttp" in theirs.instrumentation_scope.name


@pytest.mark.parametrize("share", [1.0, 0.0])
@pytest.mark.parametrize("own", [True, False])
async def test_aiohttps_instrumentation_makes_no_span_with_or_without_ours(
    telemetry, instrumented, own, share, emulator
):
    async with aiohttp.ClientSession() as session:
        client = AsyncPushClient(emulator.base_url, KEY, session=None if own else session)
        async with telemetry.instrument(client, sample_accepted=share):
            await client.send("a", MESSAGE)
            emulator.set_faults([Fault.status(404, first=1)])
            await ended(client.send("b", MESSAGE))
    lines = ["POST  204  ACCEPTED  users=1", "POST  404  REJECTED  error=404  users=1"]
    assert telemetry.tree().splitlines() == (lines if share else lines[1:])
    assert {span.instrumentation_scope.name for span in telemetry.spans} == {"pushsdk"}


async def test_a_run_request_on_an_idle_connection_has_its_span(telemetry, emulator):
    async with telemetry.instrument(AsyncPushClient(emulator.base_url, KEY)) as client:
        await client.send("a", MESSAGE)
        await client.broadcast(["b"], MESSAGE)
    assert len(telemetry.attempts) == 2


async def test_the_send_continues_if_no_context_can_be_attached(telemetry, emulator, monkeypatch, caplog):
    def broken(_):
        raise RuntimeError("no context for user a")

    async with (
        aiohttp.ClientSession() as session,
        telemetry.instrument(AsyncPushClient(emulator.base_url, KEY, session=session)) as client,
    ):
        monkeypatch.setattr(context, "attach", broken)
        await client.send("a", MESSAGE)
    assert emulator.users() == {"a": 1}
    assert caplog.messages == ["OpenTelemetry raised RuntimeError; the send continues"]


@pytest.mark.parametrize(
    ("instrumented", "own", "propagate"),
    [(False, True, False), (True, True, True), (True, False, False), (False, False, True)],
    indirect=["instrumented"],
)
async def test_a_traceparent_arrives_only_with_propagate(telemetry, instrumented, own, propagate):
    async with WireServer() as server, aiohttp.ClientSession() as session:
        client = AsyncPushClient(
            server.base_url, KEY, session=None if own else session, headers={"X-Team": "growth", "Traceparent": "mine"}
        )
        async with telemetry.instrument(client, propagate=propagate):
            await client.send("a", MESSAGE)
        (request,) = server.requests
    (span,) = telemetry.spans
    sent = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{int(span.context.trace_flags):02x}"
    assert request.headers["traceparent"] == (sent if propagate else "mine")
    assert request.head.lower().count(b"traceparent:") == 1
    assert request.headers["api-key"] == KEY
    assert request.headers["x-team"] == "growth"
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_send_that_is_cancelled_before_its_request_begins_leaves_no_span_open(telemetry, emulator, calls):
    def cancel_others():
        for task in asyncio.all_tasks() - {this}:
            task.cancel()

    this = asyncio.current_task()
    async with telemetry.instrument(AsyncPushClient(emulator.base_url, KEY)) as client:
        sending = [asyncio.create_task(client.send(f"{USER}-{number}", MESSAGE)) for number in range(calls)]
        await asyncio.sleep(0)
        # Comes between the dispatch, which finds no connection, and the first step of the task that opens one.
        asyncio.get_running_loop().call_soon(cancel_others)
        await asyncio.wait(sending)
    assert telemetry.open == []
