"""``instrument``: its arguments, the propagated headers, and that OpenTelemetry can't break a send."""

import logging

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.trace import Span, SpanProcessor
from opentelemetry.trace import NonRecordingSpan, NoOpTracerProvider
from support.fake_service import MESSAGE, FakeService, answer, outcome_of, start
from support.programs import run_program
from support.telemetry import Telemetry, sent, watched
from support.virtual_time import virtual

from pushsdk import AsyncPushClient, ConfigurationError, Receipt, RejectedError, RetryPolicy
from pushsdk.otel import instrument


def client_of(service):
    return service.serve(AsyncPushClient("https://push.example/api", "secret-key"))


def test_without_the_extra_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "try: import pushsdk.otel\n"
        "except ImportError as error: print(error, error.__cause__, error.__suppress_context__)"
    )
    text = "pushsdk.otel needs opentelemetry (the extra 'otel'): pip install opentelemetry-api"
    assert run_program(code).out == f"{text} None True\n"


def test_a_client_is_instrumented_once():
    client = instrument(client_of(FakeService()))
    with pytest.raises(ConfigurationError, match="instrumented already"):
        instrument(client)


@pytest.mark.parametrize(
    ("client", "options", "text"),
    [
        ("client", {}, "client must be an AsyncPushClient or a PushClient"),
        (None, {"propagate": "traceparent"}, r"propagate must be True or False, or an opentelemetry\."),
        (None, {"tracer_provider": object()}, r"tracer_provider must be an opentelemetry\..+Provider; got object"),
        (None, {"meter_provider": object()}, r"meter_provider must be an opentelemetry\..+Provider; got object"),
    ],
)
def test_a_wrong_argument_is_an_error(client, options, text):
    with pytest.raises(ConfigurationError, match=text):
        instrument(client or client_of(FakeService()), **options)


@virtual
async def test_a_client_in_use_is_refused():
    async with client_of(FakeService()) as client:
        with pytest.raises(ConfigurationError, match="before its first call"):
            instrument(client)
        await client.send("a", MESSAGE)


@pytest.mark.parametrize(("spans", "share"), [(0, 1.0), (2, 1.0), (1, 0.0)])
@virtual
async def test_with_the_api_alone_sends_end_as_ever_and_spans_need_no_meters(telemetry, spans, share, caplog):
    client = client_of(FakeService(answer(), answer(404)))
    tracers = telemetry.tracers if spans else NoOpTracerProvider()
    meters = NoOpMeterProvider()
    async with instrument(client, tracer_provider=tracers, meter_provider=meters, sample_accepted=share):
        assert isinstance(await client.send("a", MESSAGE), Receipt)
        assert isinstance(await outcome_of(start(client.send("b", MESSAGE))), RejectedError)
    assert len(telemetry.spans) == spans
    assert caplog.text == ""


# -- what goes along ------------------------------------------------------------------------------------------------


class Sets(TextMapPropagator):
    """A propagator that injects the given headers."""

    def __init__(self, **headers):
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def extract(self, carrier, context=None, getter=None):
        raise NotImplementedError

    def inject(self, carrier, context=None, setter=None):
        carrier.update(self._headers)

    @property
    def fields(self):
        return set(self._headers)


@virtual
async def test_each_attempt_sends_its_own_traceparent_and_no_baggage(telemetry):
    service = FakeService(answer(429))
    token = context.attach(baggage.set_baggage("user", "user-1"))
    await sent(telemetry, service, retry=RetryPolicy.safe(initial_delay=0.01), propagate=True)
    context.detach(token)
    spans = [span.context for span in telemetry.spans]
    assert [dict(request.headers) for request in service.requests] == [
        {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"} for span in spans
    ]
    assert len(spans) == 2


@pytest.mark.parametrize(
    "headers",
    [{"api_key": "mine"}, {"Content_Type": "text/plain"}, {"b3": "1\r\nApi-Key: mine"}, {"b3": "1", "Api_Key": "mine"}],
)
@virtual
async def test_a_propagator_does_not_set_the_clients_headers(telemetry, headers, caplog):
    service = FakeService()
    with caplog.at_level(logging.ERROR):
        await sent(telemetry, service, propagate=Sets(**headers))
    assert service.requests[0].headers == {}
    assert "the propagator set an invalid header" in caplog.text
    assert "mine" not in caplog.text


# -- what raises ----------------------------------------------------------------------------------------------------


class BrokenError(Exception):
    """With a text that must not be logged."""


def raises(*_, **__):
    raise BrokenError("secret text")


class BrokenPropagator(TextMapPropagator):
    extract = inject = raises
    fields = frozenset()


#: The attribute that raises from then on, and of what.
BREAKS = {
    "a histogram": (Histogram, "record"),
    "an attribute": (Span, "set_attribute"),
    "attributes": (Span, "set_attributes"),
    "the start of a span": (SpanProcessor, "on_start"),
    "the end of a span": (SpanProcessor, "on_end"),
    "the caller's span": (NonRecordingSpan, "get_span_context"),
}


async def every_kind(client):
    """A lone send, two that share a rejected request, a campaign and a broadcast: how they ended."""
    tasks = [start(client.send("lone", MESSAGE))]
    await outcome_of(tasks[0])
    tasks += [start(client.send(user, {"title": {"en": "Bye"}})) for user in "ab"]
    tasks.append(start(client.create_campaign({"name": "spring"})))
    tasks.append(start(client.broadcast(["c"], MESSAGE)))
    return [type(await outcome_of(task)).__name__ for task in tasks]


@pytest.mark.parametrize("share", [1.0, 0.0])
@pytest.mark.parametrize("name", BREAKS)
@virtual
async def test_what_a_provider_raises_changes_nothing_and_is_logged_by_its_type(name, share, monkeypatch, caplog):
    telemetry = Telemetry()
    telemetry.tracers.add_span_processor(SpanProcessor())
    service = FakeService(then=lambda request: answer(404 if len(request.users) > 1 else 200))
    async with watched(telemetry, service, api_key=lambda: "secret-key", sample_accepted=share) as client:
        monkeypatch.setattr(*BREAKS[name], raises)
        token = context.attach(trace.set_span_in_context(NonRecordingSpan(trace.INVALID_SPAN_CONTEXT)))
        with caplog.at_level(logging.ERROR):
            outcomes = await every_kind(client)
        context.detach(token)
    assert outcomes == ["Receipt", "RejectedError", "RejectedError", "UnexpectedResponseError", "BroadcastReport"]
    assert "OpenTelemetry raised BrokenError; the send continues" in caplog.text
    assert "secret text" not in caplog.text
    assert context.get_current() == {}
    telemetry.close()


@virtual
async def test_a_propagator_that_raises_sends_nothing_along(telemetry, caplog):
    service = FakeService()
    assert isinstance(*(await sent(telemetry, service, propagate=BrokenPropagator())), Receipt)
    assert service.requests[0].headers == {}
    assert "BrokenError" in caplog.text
    assert "secret text" not in caplog.text
