"""OpenTelemetry for a client: ``instrument(client)``. Needs opentelemetry-api alone; what it exports to is yours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pushsdk._core.errors import ConfigurationError
from pushsdk._io.engine import Engine

try:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    raise ImportError("pushsdk.otel needs opentelemetry-api: pip install 'pushsdk[otel]'") from None

from pushsdk.otel._metrics import instruments_of
from pushsdk.otel._spans import ClientObserver

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["instrument"]

Client = TypeVar("Client")


def instrument(
    client: Client,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    propagate: bool | TextMapPropagator = False,
    sample_accepted: float = 1.0,
) -> Client:
    """Have an AsyncPushClient or a PushClient traced and measured, and return it: before its first call.

    Each attempt is a CLIENT span by the HTTP conventions, under the caller's span. A request that several ``send()``
    calls share has a span of its own over its attempts: under the first sampled caller's, with links to all of them
    (at most 128). So have campaigns and broadcasts. No span or metric holds a user id, a text or the key. The spans
    of aiohttp's own instrumentation (0.60b0 or later) are left out for these requests.

    The providers are the global ones where None. ``propagate`` sends ``traceparent`` and ``tracestate`` (never
    baggage), or what a propagator of yours injects; headers that the client sets itself stay as they are.

    ``sample_accepted`` is the share, from 0 to 1, of attempts accepted at the first try that get a span; they are drawn
    at random. All others get one: what is refused, fails, is unknown, cancelled or a repeat (at its end, if need be,
    with the time of its start), and what is under a sampled span, as a caller's or that of a shared request. Your
    provider's sampler has the last word, and metrics count everything. Not below 1 with ``propagate``, which has to
    tell the service at once whether a trace is sampled.

    Raises ConfigurationError where the client is in use or instrumented already, or an argument is not what it takes.
    """
    # A PushClient is one for threads around an async one.
    engine: Any = getattr(getattr(client, "_client", client), "_engine", None)
    if not isinstance(engine, Engine):
        raise ConfigurationError("instrument takes a client, as AsyncPushClient(...)")
    if not isinstance(propagate, bool | TextMapPropagator):
        raise ConfigurationError("propagate is True, False or a TextMapPropagator")
    if not (type(sample_accepted) in (int, float) and 0 <= sample_accepted <= 1):
        raise ConfigurationError("sample_accepted is a number from 0 to 1, as 0.1 for one in ten")
    if propagate is not False and sample_accepted < 1:
        raise ConfigurationError("with propagate, sample_accepted is 1: have the sampler of your provider choose")
    propagator = propagate if isinstance(propagate, TextMapPropagator) else None
    observer = ClientObserver(
        engine.settings.base_url,
        tracer_provider=tracer_provider,
        instruments=instruments_of(meter_provider),
        propagator=TraceContextTextMapPropagator() if propagate is True else propagator,
        sample_accepted=sample_accepted,
    )
    engine.watch(observer)
    return client
