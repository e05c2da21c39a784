"""The spans for one client, which ``_io.tracing`` asks for, by OpenTelemetry's API and its HTTP conventions.

Attributes are counts, statuses, outcomes and failure names; nothing is copied from a request, a response or an
exception. An exception in a provider is logged by its type, and the send continues.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from random import random
from time import time_ns
from typing import Any

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanKind, StatusCode, TracerProvider

from pushsdk._core.address import check_headers, host_and_port
from pushsdk._core.batching import Call
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.operations import PUSH, Operation
from pushsdk._core.outcome import Attempt, Failure, Outcome
from pushsdk._io.lifetime import Lifetime
from pushsdk._io.tracing import AttemptSpan, WorkSpan
from pushsdk._version import __version__
from pushsdk.otel._metrics import SCHEMA, Instruments

# The SDK's default limit for links per span.
MAX_LINKS = 128
# Worst first.
_FAILURES = (Outcome.UNKNOWN, Outcome.NOT_SENT, Outcome.REJECTED)
_COUNTS = {outcome: f"pushsdk.{outcome.lower()}" for outcome in Outcome}
logger: logging.Logger = logging.getLogger("pushsdk")
# aiohttp's instrumentation makes no span if this key is set in the current context (its
# ``is_http_instrumentation_enabled``, since 0.60b0). The key has a random part, so it must be read from the API.
_SUPPRESS: str = getattr(otel_context, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation")

# Globals cost less than attributes.
_ACCEPTED, _CLIENT = Outcome.ACCEPTED, SpanKind.CLIENT
_current = otel_context.get_current

_Value = str | int


class _Guard:
    """Log an OpenTelemetry exception in the block by its type, and suppress it: tracing must not break a send."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        logger.error("OpenTelemetry raised %s; the send continues", kind.__name__)
        return True


_GUARD = _Guard()


class _Work:
    """OpenTelemetry's ``WorkSpan``: current until it ends."""

    def __init__(self, span: Span, context: Context) -> None:
        self._span = span
        self._current = _AttachedContext(trace.set_span_in_context(span, context))
        self._current.__enter__()

    def end(self, users: Mapping[Outcome, int]) -> None:
        with _GUARD:
            self._span.set_attributes({_COUNTS[outcome]: count for outcome, count in users.items() if count})
            worst = next((outcome for outcome in _FAILURES if users.get(outcome)), None)
            if worst is not None:
                fail(self._span, worst)
        self._current.__exit__()
        with _GUARD:
            self._span.end()


def _span_context(context: Context | None) -> trace.SpanContext:
    """Return the current span's context, or an invalid one: a span class that the application wrote may raise."""
    with _GUARD:
        return trace.get_current_span(context).get_span_context() or trace.INVALID_SPAN_CONTEXT
    return trace.INVALID_SPAN_CONTEXT


def caller_contexts(calls: Sequence[Call]) -> tuple[Context, list[Link], int]:
    """Return the parent context, links to the callers' sampled spans, and the number of links over ``MAX_LINKS``.

    The parent is the first caller with a sampled span, else the first caller. A link to an unsampled span leads
    nowhere.
    """
    contexts: dict[tuple[int, int], tuple[Context, trace.SpanContext]] = {}
    for call in calls:
        context: Context = call.caller[1]
        span_context = _span_context(context)
        if span_context.trace_flags.sampled and span_context.is_valid:
            contexts.setdefault((span_context.trace_id, span_context.span_id), (context, span_context))
    first: Context = next(iter(contexts.values()))[0] if contexts else calls[0].caller[1]
    linked = list(contexts.values())[:MAX_LINKS]
    return first, [Link(span_context) for _, span_context in linked], len(contexts) - len(linked)


def fail(span: Span, kind: str) -> None:
    """Mark a span as failed; ``kind`` names the failure."""
    span.set_attribute("error.type", kind.lower())
    span.set_status(StatusCode.ERROR)


class ClientObserver:
    """OpenTelemetry's ``Observer``, whose protocol documents the methods."""

    def __init__(
        self,
        base_url: str,
        *,
        tracer_provider: TracerProvider | None,
        instruments: Instruments,
        propagator: TextMapPropagator | None,
        sample_accepted: float,
    ) -> None:
        host, port = host_and_port(base_url)
        self._server: dict[str, _Value] = {"server.address": host, "server.port": port}
        self._tracer = trace.get_tracer("pushsdk", __version__, tracer_provider, SCHEMA)
        self._instruments = instruments
        self._propagator = propagator
        self._ratio = sample_accepted
        self._request: dict[str, _Value] = {"http.request.method": PUSH.method, **self._server}
        self._base_url = base_url
        self._result_attributes = functools.cache(functools.partial(_result_attributes, self._request))

    def opened(self, lifetime: Lifetime) -> None:
        self._instruments.add(lifetime, tuple(self._server.items()))

    def caller(self, now: float) -> object:
        return now, _current()

    def dequeued(self, calls: Sequence[Call], now: float) -> None:
        with _GUARD:
            since, context = calls[0].caller
            self._instruments.queue_wait.record(max(0.0, now - since), self._server, context)

    def attempt(self, operation: Operation, users: int, resends: int, *, first: bool) -> AttemptSpan:
        attempt = _Attempt(self, operation, users, resends)
        if users > 1 and not resends:
            with _GUARD:
                self._instruments.batch_size.record(users, self._server)
        if first and self._outside_sample():
            # The span clock, in case this attempt gets one later.
            attempt.started = time_ns()
            return attempt
        attempt.span = span = self.start_attempt(operation, users, resends)
        if self._propagator is not None:
            carrier: dict[str, str] = {}
            with _GUARD:
                self._propagator.inject(carrier, trace.set_span_in_context(span))
                try:
                    check_headers(carrier)
                    attempt.headers = carrier
                except ConfigurationError:
                    logger.error("the propagator set an invalid header, or one of the client's own: none is propagated")
        return attempt

    def _outside_sample(self) -> bool:
        """Draw the sample. Return True if an attempt that starts here gets no span, unless it fails."""
        # At random, not every n-th: with callers that take turns, some would never be drawn.
        if self._ratio >= 1.0 or random() < self._ratio:  # noqa: S311 - not for secrets
            return False
        # Under a sampled span, even from another process, the trace would have a hole.
        context = _current()
        return not context or not _span_context(context).trace_flags.sampled

    def start_attempt(self, operation: Operation, users: int, resends: int, started: int | None = None) -> Span:
        """Start the span for an attempt, which began at ``started``, in nanoseconds since the epoch, or begins now."""
        attributes = {**self._request, "url.full": f"{self._base_url}/{operation.path}"}
        if users:
            attributes["pushsdk.users"] = users
        if resends:
            attributes["http.request.resend_count"] = resends
        return self._start(operation.method, kind=_CLIENT, attributes=attributes, start_time=started)

    def batch(self, calls: Sequence[Call], users: int) -> WorkSpan:
        context, links, left_out = caller_contexts(calls)
        attributes: dict[str, _Value] = {"pushsdk.calls": len(calls), "pushsdk.users": users}
        if left_out:
            attributes["pushsdk.links_left_out"] = left_out
        return _Work(self._start("push batch", context, attributes=attributes, links=links), context)

    def campaign(self) -> WorkSpan:
        return self._work("push campaign", {})

    def run(self, users: int, requests: int) -> WorkSpan:
        return self._work("push broadcast", {"pushsdk.users": users, "pushsdk.requests": requests})

    def _work(self, name: str, attributes: dict[str, _Value]) -> WorkSpan:
        context = _current()
        return _Work(self._start(name, context, attributes=attributes), context)

    def _start(self, name: str, context: Context | None = None, **options: Any) -> Span:
        """Start a span. If the provider raises, return a span that records nothing and continues the caller's trace."""
        with _GUARD:
            return self._tracer.start_span(name, context, **options)
        return NonRecordingSpan(_span_context(context))

    def record(self, span: Span | None, attempt: Attempt, failure: Failure | None) -> None:
        """Record the result of an attempt in its span, if the span is recording, and in the metrics."""
        with _GUARD:
            of_span, of_metric = self._result_attributes(attempt.status, attempt.outcome, failure)
            # The context for the exemplar in the histogram entry.
            context: Context | None = None
            if span is not None and span.is_recording():
                span.set_attributes(of_span)
                if attempt.outcome is not _ACCEPTED:
                    span.set_status(StatusCode.ERROR)
                context = trace.set_span_in_context(span)
            self._instruments.duration.record(attempt.seconds, of_metric, context)


def _result_attributes(
    request: Mapping[str, _Value], status: int | None, outcome: Outcome, failure: Failure | None
) -> tuple[dict[str, _Value], dict[str, _Value]]:
    """Return the attributes for the result of an attempt, for its span and for the metrics."""
    common: dict[str, _Value] = {}
    if status is not None:
        # The only version that aiohttp speaks.
        common |= {"http.response.status_code": status, "network.protocol.version": "1.1"}
    if failure is not None:
        common["error.type"] = failure.name.lower()
    elif outcome is not _ACCEPTED:
        # A 2xx is a failure if the request was not sent whole; then the status says nothing.
        common["error.type"] = outcome.lower() if status is None or 200 <= status < 300 else str(status)
    return {**common, "pushsdk.outcome": outcome.value}, {**request, **common}


class _Attempt(msgspec.Struct, eq=False, gc=False):
    """OpenTelemetry's ``AttemptSpan``. Current only while other code may look at the context.

    An attempt outside the sample gets its span at the end, unless it is accepted.
    """

    observer: ClientObserver
    operation: Operation
    users: int
    resends: int
    span: Span | None = None
    started: int | None = None
    """Nanoseconds since the epoch, set outside the sample."""
    headers: Mapping[str, str] | None = None

    def current(self) -> AbstractContextManager[None]:
        context = otel_context.set_value(_SUPPRESS, True)
        return _AttachedContext(context if self.span is None else trace.set_span_in_context(self.span, context))

    def end(self, attempt: Attempt | None, failure: Failure | None) -> None:
        span, observer = self.span, self.observer
        if span is None and (attempt is None or attempt.outcome is not _ACCEPTED):
            span = observer.start_attempt(self.operation, self.users, self.resends, self.started)
        if attempt is not None:
            observer.record(span, attempt, failure)
        if span is not None:
            with _GUARD:
                if attempt is None:
                    fail(span, failure.name if failure is not None else "cancelled")
            with _GUARD:
                span.end()


class _AttachedContext:
    """Make a context the current one in the block, unless OpenTelemetry raises."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token: Any = None
        with _GUARD:
            self._token = otel_context.attach(self._context)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            otel_context.detach(self._token)
