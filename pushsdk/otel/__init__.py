"""OpenTelemetry for a client: ``instrument(client)``. Needs opentelemetry-api; the exporter is your choice."""

from typing import Any, TypeVar

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import Probability, check_arguments, must_be
from pushsdk._io.lifetime import Lifetime

try:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    raise ImportError("pushsdk.otel needs opentelemetry (the extra 'otel'): pip install opentelemetry-api") from None

from pushsdk.otel._metrics import instruments_of
from pushsdk.otel._spans import ClientObserver

__all__ = ["instrument"]

Client = TypeVar("Client")


def instrument(
    client: Client,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    propagate: bool | TextMapPropagator = False,
    sample_accepted: Probability = 1.0,
) -> Client:
    """Trace and measure an AsyncPushClient or a PushClient, and return it. Call it before the client's first call.

    Each attempt is a CLIENT span by the HTTP conventions, under the caller's span. A request that several ``send()``
    calls share has a parent span over its attempts, under the first sampled caller's span and with links to all
    callers (at most 128). Campaigns and broadcasts have such a span too. No span or metric holds a user id, a text or
    the key. aiohttp's instrumentation (0.60b0 or later) makes no spans for these requests.

    A provider that is None is the global one. ``propagate=True`` sends ``traceparent`` and ``tracestate`` (never
    baggage); a TextMapPropagator sends the headers it injects. Headers that the client sets itself are not replaced.

    ``sample_accepted``, from 0 to 1, is the random share of attempts accepted at the first try that get a span. All
    other attempts get one: rejected, failed, unknown, cancelled, retried, and all under a sampled span. Your provider's
    sampler decides after that, and metrics count everything. ``sample_accepted`` must be 1 with ``propagate``, which
    has to tell the service at once if a trace is sampled.

    Raises ConfigurationError if the client is in use or instrumented already, or an argument has the wrong type.
    """
    lifetime: Any = getattr(client, "_lifetime", None)
    if not isinstance(lifetime, Lifetime):
        raise must_be("client", "an AsyncPushClient or a PushClient", client)
    check_arguments(instrument, locals(), ConfigurationError)
    if propagate is not False and sample_accepted < 1:
        raise ConfigurationError("sample_accepted must be 1 with propagate: use a sampler of your provider instead")
    propagator = propagate if isinstance(propagate, TextMapPropagator) else None
    observer = ClientObserver(
        lifetime.settings.base_url,
        tracer_provider=tracer_provider,
        instruments=instruments_of(meter_provider),
        propagator=TraceContextTextMapPropagator() if propagate is True else propagator,
        sample_accepted=sample_accepted,
    )
    lifetime.watch(observer)
    return client
