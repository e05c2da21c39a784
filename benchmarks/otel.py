"""OpenTelemetry: the cost of `instrument(client)` for distinct single sends, 64 in flight, and for merged sends.

The baseline is the same client without it. Contenders use OpenTelemetry's API alone, or its SDK with a batch processor
whose exporter drops all spans and a metric reader that is never read: every send sampled, with and without metrics; one
in ten sampled by the SDK; one in ten and one in a hundred by `sample_accepted`. The SDK's share of the cost shows in a
client without instrumentation whose caller makes the same span by hand. The same span, or a histogram entry, in an
otherwise empty loop costs a third of that, because it stays in the processor's caches.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.sdk import metrics as sdk_metrics
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import NoOpTracerProvider, SpanKind
from opentelemetry.trace import TracerProvider as AnyTracerProvider

from benchmarks import contenders as c
from benchmarks.coalesced import steadily
from benchmarks.harness import Contender, Plan, Run, Series, compare, difference, ratio, user
from benchmarks.report import Goal, result
from benchmarks.sink import sink

PLAN, QUICK = Plan(24, 0.25), Plan(3, 0.08)
TOGETHER = 1000

API, TRACES, ALL, TENTH = "API alone", "SDK, traces", "SDK, traces and metrics", "SDK, 1 in 10 traced"
ACCEPTED_TENTH, ACCEPTED_HUNDREDTH = "SDK, 1 in 10 accepted", "SDK, 1 in 100 accepted"
BY_HAND, BY_HAND_TENTH = "SDK, a span by hand", "SDK, by hand, 1 in 10"
SPAN, ENTRY = "a span in a loop", "an entry in a loop"
PLAIN_MERGED, MERGED = "pushsdk, merged", "SDK, all, merged"

# The attributes of an attempt.
STARTED = {
    "http.request.method": "POST",
    "server.address": "127.0.0.1",
    "server.port": 8080,
    "url.full": "http://127.0.0.1:8080/external/api/v1/push",
    "pushsdk.users": 1,
}
ENDED = {"http.response.status_code": 204, "network.protocol.version": "1.1", "pushsdk.outcome": "ACCEPTED"}
MEASURED = {name: STARTED[name] for name in ("http.request.method", "server.address", "server.port")} | {
    name: ENDED[name] for name in ("http.response.status_code", "network.protocol.version")
}


class Dropped(SpanExporter):
    """An exporter that drops all spans."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def traces(share: float = 1.0) -> TracerProvider:
    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(share))
    # Long enough that no span is dropped, which would log a warning.
    provider.add_span_processor(BatchSpanProcessor(Dropped(), max_queue_size=1 << 18))
    return provider


def measures() -> MeterProvider:
    return sdk_metrics.MeterProvider([InMemoryMetricReader()])


@asynccontextmanager
async def instrumented(
    base_url: str,
    *,
    tracers: Callable[[], AnyTracerProvider],
    meters: Callable[[], MeterProvider] = NoOpMeterProvider,
    sample_accepted: float = 1.0,
) -> AsyncIterator[c.Send]:
    """Open an instrumented pushsdk with its defaults."""
    from pushsdk import AsyncPushClient, MobilePush
    from pushsdk.otel import instrument

    client = AsyncPushClient(base_url, c.API_KEY)
    instrument(client, tracer_provider=tracers(), meter_provider=meters(), sample_accepted=sample_accepted)
    async with client:

        async def send(number: int) -> None:
            await client.send(user(number), MobilePush(ios_enabled=True, title=c.TITLE, body={"en": f"Hello {number}"}))

        yield send


@asynccontextmanager
async def by_hand(base_url: str, *, share: float = 1.0) -> AsyncIterator[c.Send]:
    """Open pushsdk without instrumentation, and make the span of an attempt around each send."""
    from pushsdk import AsyncPushClient, MobilePush

    tracer = traces(share).get_tracer("benchmark")
    async with AsyncPushClient(base_url, c.API_KEY) as client:

        async def send(number: int) -> None:
            span = tracer.start_span("POST", kind=SpanKind.CLIENT, attributes=STARTED)
            await client.send(user(number), MobilePush(ios_enabled=True, title=c.TITLE, body={"en": f"Hello {number}"}))
            if span.is_recording():
                span.set_attributes(ENDED)
            span.end()

        yield send


@asynccontextmanager
async def merged(base_url: str, *, traced: bool) -> AsyncIterator[Run]:
    """Open pushsdk for one message to all users, from tasks that each have a current span."""
    from opentelemetry import trace

    from pushsdk import AsyncPushClient, MobilePush
    from pushsdk.otel import instrument

    message = MobilePush(ios_enabled=True, title=c.TITLE, body={"en": "Hello"})
    client, provider = AsyncPushClient(base_url, c.API_KEY), traces()
    if traced:
        instrument(client, tracer_provider=provider, meter_provider=measures())
    tracer = provider.get_tracer("benchmark")
    spans = [tracer.start_span("caller") for _ in range(TOGETHER)]

    async def send(number: int) -> None:
        with trace.use_span(spans[number % TOGETHER]):
            await client.send(user(number), message)

    async with client:
        yield lambda numbers: steadily(send, numbers, tasks=TOGETHER)


@asynccontextmanager
async def spans_alone(base_url: str) -> AsyncIterator[Run]:
    tracer = traces().get_tracer("benchmark")

    async def run(numbers: range) -> None:
        for _ in numbers:
            span = tracer.start_span("POST", kind=SpanKind.CLIENT, attributes=STARTED)
            span.set_attributes(ENDED)
            span.end()

    yield run


@asynccontextmanager
async def entries_alone(base_url: str) -> AsyncIterator[Run]:
    entries = measures().get_meter("benchmark").create_histogram("http.client.request.duration", unit="s")

    async def run(numbers: range) -> None:
        for _ in numbers:
            entries.record(0.002, MEASURED)

    yield run


def field() -> list[Contender]:
    contenders = [
        c.singly(c.OURS, c.ours),
        c.singly(API, partial(instrumented, tracers=NoOpTracerProvider)),
        c.singly(TENTH, partial(instrumented, tracers=partial(traces, 0.1))),
        c.singly(ACCEPTED_TENTH, partial(instrumented, tracers=traces, sample_accepted=0.1)),
        c.singly(ACCEPTED_HUNDREDTH, partial(instrumented, tracers=traces, sample_accepted=0.01)),
        c.singly(TRACES, partial(instrumented, tracers=traces)),
        c.singly(ALL, partial(instrumented, tracers=traces, meters=measures)),
    ]
    hands = [c.singly(BY_HAND, by_hand), c.singly(BY_HAND_TENTH, partial(by_hand, share=0.1))]
    alone = [Contender(SPAN, spans_alone, posts="none"), Contender(ENTRY, entries_alone, posts="none")]
    together = [
        Contender(PLAIN_MERGED, partial(merged, traced=False), posts="merged"),
        Contender(MERGED, partial(merged, traced=True), posts="merged"),
    ]
    return [*contenders, *hands, *alone, *together]


def goals(series: dict[str, Series]) -> list[Goal]:
    plain = series[c.OURS]
    return [
        Goal("x pushsdk, API alone", ratio(series[API], plain), at_least=0.9),
        Goal("x pushsdk, 1 in 10 traced", ratio(series[TENTH], plain), at_least=0.9),
        Goal("x pushsdk, 1 in 10 accepted traced", ratio(series[ACCEPTED_TENTH], plain), at_least=0.9),
        Goal("x pushsdk, 1 in 100 accepted traced", ratio(series[ACCEPTED_HUNDREDTH], plain), at_least=0.9),
        Goal("x pushsdk, every send traced", ratio(series[TRACES], plain), at_least=0.9),
        Goal("x by hand, every send traced", ratio(series[TRACES], series[BY_HAND]), at_least=0.9),
        Goal("x by hand, 1 in 10 traced", ratio(series[TENTH], series[BY_HAND_TENTH]), at_least=0.9),
        Goal("x pushsdk, traces and metrics", ratio(series[ALL], plain)),
        Goal("us of CPU, a span by hand", difference(series[BY_HAND], plain)),
        Goal("us of CPU, every send traced", difference(series[TRACES], plain)),
        Goal("us of CPU, 1 in 10 accepted traced", difference(series[ACCEPTED_TENTH], plain)),
        Goal("us of CPU, 1 in 100 accepted traced", difference(series[ACCEPTED_HUNDREDTH], plain)),
        Goal("us of CPU, the metrics on top", difference(series[ALL], series[TRACES])),
        Goal("us of CPU, API alone: ours", difference(series[API], plain)),
        Goal("x pushsdk, merged, traces and metrics", ratio(series[MERGED], series[PLAIN_MERGED])),
    ]


async def run(*, quick: bool) -> dict[str, Any]:
    with sink() as server:
        series = await compare(field(), server, QUICK if quick else PLAN)
    return result("otel", "send", list(series.values()), goals(series), baseline=series[c.OURS])
