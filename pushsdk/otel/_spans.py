"""The spans of one client: what ``_io.observer`` asks for, by OpenTelemetry's API and its HTTP conventions.

Values of attributes are counts, statuses, outcomes and names of failures; nothing is copied from a request, an answer
or an exception. Whatever a provider raises is logged by its type, and the send goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import random
from time import time_ns
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider

from pushsdk._core.address import check_headers
from pushsdk._core.batching import Call
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import Attempt, Failure, Outcome
from pushsdk._io.engine import Engine
from pushsdk._io.sender import PATHS
from pushsdk._io.tracing import AttemptSpan, WorkSpan
from pushsdk._version import __version__
from pushsdk.otel._metrics import SCHEMA, Instruments, Where

__all__ = ["MAX_LINKS", "ClientObserver"]

# What the SDK keeps of a span's links by default.
MAX_LINKS = 128
# Worst first.
_BAD = (Outcome.UNKNOWN, Outcome.NOT_SENT, Outcome.REJECTED)
_FIGURES = {outcome: f"pushsdk.{outcome.lower()}" for outcome in Outcome}
logger: logging.Logger = logging.getLogger("pushsdk")
# aiohttp's instrumentation makes no span where this is set in the current context: its
# ``is_http_instrumentation_enabled``, since 0.60b0. The key has a random part, so it can only be had from the API.
_SUPPRESS: str = getattr(otel_context, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation")

# Looked up once: what is reached by a dot costs more than a global.
_ACCEPTED, _CLIENT = Outcome.ACCEPTED, SpanKind.CLIENT
_current = otel_context.get_current

_Endpoint = Literal["push", "campaigns"]
_Value = str | int


class _Guard:
    """Log by its type what OpenTelemetry raises in the block, and go on: tracing must not break a send."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        logger.error("OpenTelemetry raised %s; the send goes on", kind.__name__)
        return True


_GUARD = _Guard()


class Work:
    """See ``_io.tracing.WorkSpan``. Its span is the current one until it ends."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span, context: Context) -> None:
        self._span = span
        self._token = otel_context.attach(trace.set_span_in_context(span, context))

    def end(self, users: Mapping[Outcome, int]) -> None:
        with _GUARD:
            self._span.set_attributes({_FIGURES[outcome]: count for outcome, count in users.items() if count})
            worst = next((outcome for outcome in _BAD if users.get(outcome)), None)
            if worst is not None:
                fail(self._span, worst)
        otel_context.detach(self._token)
        with _GUARD:
            self._span.end()


def callers_of(calls: Sequence[Call]) -> tuple[Context, list[Link], int]:
    """The context of the first caller in a sampled trace (or of the first), and links to all that are in one.

    Nobody could follow a link to a span that is not sampled. The third is how many of them were left out.
    """
    contexts: dict[tuple[int, int], tuple[Context, trace.SpanContext]] = {}
    last: Context | None = None
    for call in calls:
        context: Context = call.caller[1]
        # Calls of one task, or of tasks that it started, have one context.
        if context is not last:
            last = context
            of_span = trace.get_current_span(context).get_span_context()
            if of_span.trace_flags.sampled and of_span.is_valid:
                contexts.setdefault((of_span.trace_id, of_span.span_id), (context, of_span))
    first: Context = next(iter(contexts.values()))[0] if contexts else calls[0].caller[1]
    linked = list(contexts.values())[:MAX_LINKS]
    return first, [Link(of_span) for _, of_span in linked], len(contexts) - len(linked)


def fail(span: Span, kind: str) -> None:
    """Mark a span as failed, by a name for how."""
    span.set_attribute("error.type", kind.lower())
    span.set_status(StatusCode.ERROR)


class ClientObserver:
    """See ``_io.tracing.Observer``."""

    def __init__(
        self,
        base_url: str,
        *,
        tracer_provider: TracerProvider | None,
        instruments: Instruments,
        propagator: TextMapPropagator | None,
        sample_accepted: float,
    ) -> None:
        parts = urlsplit(base_url)
        # The service, for its metrics.
        self._where: Where = Where(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        self._tracer = trace.get_tracer("pushsdk", __version__, tracer_provider, SCHEMA)
        self._instruments = instruments
        self.measured = instruments.measured
        self._propagator = propagator
        self._ratio = sample_accepted
        self._server = self._where.attributes
        self._request: dict[str, _Value] = {"http.request.method": "POST", **self._server}
        self._urls = {endpoint: f"{base_url}/{path}" for endpoint, path in PATHS.items()}
        # Of nearly every attempt: the first, of one user. Whoever is given attributes copies them.
        self._single: dict[str, _Value] = {**self._request, "url.full": self._urls["push"], "pushsdk.users": 1}
        self._accepted = _Ending(self._request, 204, Outcome.ACCEPTED, None)
        # By status, outcome and failure: how an attempt ended, for its span and for its metric.
        self._endings: dict[tuple[int | None, Outcome, Failure | None], _Ending] = {}

    def opened(self, engine: Engine) -> None:
        """See ``Observer.opened``."""
        self._instruments.add(engine, self._where)

    def caller(self, now: float) -> object:
        """See ``Observer.caller``."""
        return now, _current()

    def dequeued(self, calls: Sequence[Call], now: float) -> None:
        """See ``Observer.dequeued``."""
        with _GUARD:
            since, context = calls[0].caller
            self._instruments.queue_wait.record(max(0.0, now - since), self._server, context)

    def attempt(self, endpoint: _Endpoint, users: int, resends: int, *, first: bool) -> AttemptSpan:
        """See ``Observer.attempt``."""
        with _GUARD:
            if users > 1 and not resends:
                self._instruments.batch_size.record(users, self._server)
            # By chance, not every n-th: of what comes in turns, by shards or tenants, some would never be drawn.
            if first and self._ratio < 1.0 and random() >= self._ratio:  # noqa: S311 - no secret hangs on it
                # Under a span that is sampled, if in another process, its trace would have a hole.
                context = _current()
                if not context or not trace.get_current_span(context).get_span_context().trace_flags.sampled:
                    # By the clock of spans that are made at once.
                    return _LeftOut(self, endpoint, users, time_ns())
            attributes = self._single if users == 1 and not resends else self._attributes(endpoint, users, resends)
            span = self._tracer.start_span("POST", None, _CLIENT, attributes)
            return _Attempt(self, span, None if self._propagator is None else _injected(self._propagator, span))
        return _NOTHING

    def late(self, endpoint: _Endpoint, users: int, started: int) -> AttemptSpan:
        """The attempt that began then, in nanoseconds since the epoch, and has to have its span after all."""
        attributes = self._attributes(endpoint, users, 0)
        return _Attempt(self, self._tracer.start_span("POST", None, _CLIENT, attributes, start_time=started))

    def _attributes(self, endpoint: _Endpoint, users: int, resends: int) -> dict[str, _Value]:
        attributes = {**self._request, "url.full": self._urls[endpoint]}
        if users:
            attributes["pushsdk.users"] = users
        if resends:
            attributes["http.request.resend_count"] = resends
        return attributes

    def batch(self, calls: Sequence[Call], users: int) -> WorkSpan:
        """See ``Observer.batch``."""
        with _GUARD:
            context, links, left_out = callers_of(calls)
            attributes: dict[str, _Value] = {"pushsdk.calls": len(calls), "pushsdk.users": users}
            if left_out:
                attributes["pushsdk.links_left_out"] = left_out
            span = self._tracer.start_span("push batch", context, attributes=attributes, links=links)
            return Work(span, context)
        return _NOTHING

    def campaign(self) -> WorkSpan:
        """See ``Observer.campaign``."""
        return self._work("push campaign", {})

    def run(self, users: int, requests: int) -> WorkSpan:
        """See ``Observer.run``."""
        return self._work("push broadcast", {"pushsdk.users": users, "pushsdk.requests": requests})

    def _work(self, name: str, attributes: dict[str, _Value]) -> WorkSpan:
        with _GUARD:
            context = _current()
            return Work(self._tracer.start_span(name, context, attributes=attributes), context)
        return _NOTHING

    def note(self, span: Span | None, attempt: Attempt, failure: Failure | None) -> None:
        """Write down how an attempt ended: in its span, where it has one that keeps it, and in the metrics."""
        if attempt.status == 204 and attempt.outcome is _ACCEPTED and failure is None:
            ending = self._accepted
        else:
            key = attempt.status, attempt.outcome, failure
            ending = self._endings.get(key) or self._endings.setdefault(key, _Ending(self._request, *key))
        # Where an entry of the histogram points to.
        context: Context | None = None
        if span is not None:
            span.set_attributes(ending.of_span)
            if ending.failed:
                span.set_status(StatusCode.ERROR)
            if self.measured:
                context = trace.set_span_in_context(span)
        if self.measured:
            self._instruments.duration.record(attempt.seconds, ending.of_metric, context)


class _Ending:
    """How attempts end, as attributes. There are few of them: statuses are three digits."""

    __slots__ = ("failed", "of_metric", "of_span")

    def __init__(
        self, request: Mapping[str, _Value], status: int | None, outcome: Outcome, failure: Failure | None
    ) -> None:
        common: dict[str, _Value] = {}
        if status is not None:
            # aiohttp speaks no other.
            common |= {"http.response.status_code": status, "network.protocol.version": "1.1"}
        self.failed = outcome is not Outcome.ACCEPTED
        if failure is not None:
            common["error.type"] = failure.name.lower()
        elif self.failed:
            # A 2xx to a request that was not written whole is an error that its status does not tell.
            common["error.type"] = outcome.lower() if status is None or 200 <= status < 300 else str(status)
        self.of_span = {**common, "pushsdk.outcome": outcome.value}
        self.of_metric = {**request, **common}


class _Attempt(msgspec.Struct, eq=False, gc=False):
    """See ``_io.tracing.AttemptSpan``. Its span is the current one only where somebody may look."""

    observer: ClientObserver
    span: Span
    headers: Mapping[str, str] | None = None

    def current(self) -> AbstractContextManager[None]:
        return _Attached(trace.set_span_in_context(self.span, otel_context.set_value(_SUPPRESS, True)))

    def application_context(self) -> AbstractContextManager[None]:
        return _Attached(trace.set_span_in_context(self.span))

    def end(self, attempt: Attempt | None, failure: Failure | None) -> None:
        span, observer = self.span, self.observer
        with _GUARD:
            recording = span.is_recording()
            if attempt is None:
                fail(span, failure.name if failure is not None else "cancelled")
            elif recording or observer.measured:
                observer.note(span if recording else None, attempt, failure)
        with _GUARD:
            span.end()


class _LeftOut(msgspec.Struct, eq=False, gc=False):
    """See ``_io.tracing.AttemptSpan``. It has no span, unless it ends otherwise than accepted."""

    headers: ClassVar[None] = None
    observer: ClientObserver
    endpoint: _Endpoint
    users: int
    started: int
    """In nanoseconds since the epoch."""

    def current(self) -> AbstractContextManager[None]:
        return _Attached(otel_context.set_value(_SUPPRESS, True))

    def application_context(self) -> AbstractContextManager[None]:
        return nullcontext()

    def end(self, attempt: Attempt | None, failure: Failure | None) -> None:
        with _GUARD:
            if attempt is None or attempt.outcome is not _ACCEPTED:
                self.observer.late(self.endpoint, self.users, self.started).end(attempt, failure)
            elif self.observer.measured:
                self.observer.note(None, attempt, failure)


class _Nothing:
    """What could not be watched."""

    headers = None

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def application_context(self) -> AbstractContextManager[None]:
        return nullcontext()

    def end(self, *_: object) -> None:
        pass


_NOTHING = _Nothing()


class _Attached:
    """In the block this context is the current one, if it can be had."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token: Any = None
        with _GUARD:
            self._token = otel_context.attach(self._context)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            otel_context.detach(self._token)


def _injected(propagator: TextMapPropagator, span: Span) -> Mapping[str, str] | None:
    """Return the headers for the request of this span."""
    carrier: dict[str, str] = {}
    with _GUARD:
        propagator.inject(carrier, trace.set_span_in_context(span))
        try:
            return check_headers(carrier)
        except ConfigurationError:
            logger.error("the propagator set a header that the client sets itself, or that is none; nothing is sent")
    return None
