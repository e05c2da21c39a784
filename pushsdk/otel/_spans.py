"""The spans of one client: what ``_io.observer`` asks for, by OpenTelemetry's API and its HTTP conventions.

Values of attributes are counts, statuses, outcomes and names of failures; nothing is copied from a request, an answer
or an exception. Whatever a provider raises is logged by its type, and the send goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal
from urllib.parse import urlsplit

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider

from pushsdk._core.batching import Call
from pushsdk._core.endpoint import check_headers
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.outcome import Attempt, Failure, Outcome
from pushsdk._io.engine import Engine
from pushsdk._io.observer import WatchedAttempt, WatchedWork
from pushsdk._io.sender import PATHS
from pushsdk._version import __version__
from pushsdk.otel._metrics import SCHEMA, Instruments, Where

__all__ = ["MAX_LINKS", "ClientObserver"]

logger: logging.Logger = logging.getLogger("pushsdk")
# What the SDK keeps of a span's links by default.
MAX_LINKS = 128
# aiohttp's instrumentation makes no span where this is set in the current context: its
# ``is_http_instrumentation_enabled``, since 0.60b0. The key has a random part, so it can only be had from the API.
_SUPPRESS: str = getattr(otel_context, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation")
# Worst first.
_BAD = (Outcome.UNKNOWN, Outcome.NOT_SENT, Outcome.REJECTED)
_FIGURES = {outcome: f"pushsdk.{outcome.lower()}" for outcome in Outcome}

# Looked up once: a member of an enumeration costs more to reach than a global.
_ACCEPTED, _CLIENT = Outcome.ACCEPTED, SpanKind.CLIENT

_Value = str | int


class ClientObserver:
    """See ``_io.observer.Observer``."""

    def __init__(
        self,
        base_url: str,
        *,
        tracer_provider: TracerProvider | None,
        instruments: Instruments,
        propagator: TextMapPropagator | None,
    ) -> None:
        parts = urlsplit(base_url)
        # The service, for its metrics.
        self._where: Where = Where(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        self._tracer = trace.get_tracer("pushsdk", __version__, tracer_provider, SCHEMA)
        self._instruments = instruments
        self._propagator = propagator
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
        return now, otel_context.get_current()

    def dequeued(self, calls: Sequence[Call], now: float) -> None:
        """See ``Observer.dequeued``."""
        try:
            since, context = calls[0].caller
            self._instruments.queue_wait.record(max(0.0, now - since), self._server, context)
        except Exception as error:  # noqa: BLE001 - what watches must not break what it watches
            _complain(error)

    def attempt(self, endpoint: Literal["push", "campaigns"], users: int, resends: int) -> WatchedAttempt:
        """See ``Observer.attempt``."""
        try:
            attributes = self._single
            if users != 1 or resends:
                attributes = self._attributes(endpoint, users, resends)
                if users > 1 and not resends:
                    self._instruments.batch_size.record(users, self._server)
            span = self._tracer.start_span("POST", None, _CLIENT, attributes)
            return _Attempt(self, span, self._propagator)
        except Exception as error:  # noqa: BLE001 - as above
            _complain(error)
        return _NOTHING

    def _attributes(self, endpoint: Literal["push", "campaigns"], users: int, resends: int) -> dict[str, _Value]:
        attributes = {**self._request, "url.full": self._urls[endpoint]}
        if users:
            attributes["pushsdk.users"] = users
        if resends:
            attributes["http.request.resend_count"] = resends
        return attributes

    def batch(self, calls: Sequence[Call], users: int) -> WatchedWork:
        """See ``Observer.batch``."""
        try:
            context, links, left_out = _callers(calls)
            attributes: dict[str, _Value] = {"pushsdk.calls": len(calls), "pushsdk.users": users}
            if left_out:
                attributes["pushsdk.links_left_out"] = left_out
            span = self._tracer.start_span("push batch", context, attributes=attributes, links=links)
            return _Work(span, context)
        except Exception as error:  # noqa: BLE001 - as above
            _complain(error)
        return _NOTHING

    def campaign(self) -> WatchedWork:
        """See ``Observer.campaign``."""
        return self._work("push campaign", {})

    def run(self, users: int, requests: int) -> WatchedWork:
        """See ``Observer.run``."""
        return self._work("push broadcast", {"pushsdk.users": users, "pushsdk.requests": requests})

    def _work(self, name: str, attributes: dict[str, _Value]) -> WatchedWork:
        try:
            context = otel_context.get_current()
            return _Work(self._tracer.start_span(name, context, attributes=attributes), context)
        except Exception as error:  # noqa: BLE001 - as above
            _complain(error)
        return _NOTHING

    def note(self, span: Span, attempt: Attempt, failure: Failure | None) -> None:
        """Write down how an attempt ended."""
        if attempt.status == 204 and attempt.outcome is _ACCEPTED and failure is None:
            ending = self._accepted
        else:
            key = attempt.status, attempt.outcome, failure
            ending = self._endings.get(key) or self._endings.setdefault(key, _Ending(self._request, *key))
        if span.is_recording():
            span.set_attributes(ending.of_span)
            if ending.failed:
                span.set_status(StatusCode.ERROR)
        self._instruments.duration.record(attempt.seconds, ending.of_metric)


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


class _Attempt:
    """See ``_io.observer.WatchedAttempt``. Its span is the current one until it ends."""

    __slots__ = ("_around", "_observer", "_span", "_token", "headers")

    def __init__(self, observer: ClientObserver, span: Span, propagator: TextMapPropagator | None) -> None:
        self._observer = observer
        self._span = span
        self._around = otel_context.get_current()
        context = trace.set_span_in_context(span, otel_context.set_value(_SUPPRESS, True, self._around))
        self.headers = None if propagator is None else _injected(propagator, context)
        self._token = otel_context.attach(context)

    @contextmanager
    def aside(self) -> Iterator[None]:
        token = otel_context.attach(trace.set_span_in_context(self._span, self._around))
        try:
            yield
        finally:
            otel_context.detach(token)

    def end(self, attempt: Attempt | None, failure: Failure | None) -> None:
        try:
            if attempt is not None:
                self._observer.note(self._span, attempt, failure)
            else:
                _fail(self._span, failure.name if failure is not None else "cancelled")
        except Exception as error:  # noqa: BLE001 - as above
            _complain(error)
        _end(self._span, self._token)


class _Work:
    """See ``_io.observer.WatchedWork``. Its span is the current one until it ends."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span, context: Context) -> None:
        self._span = span
        self._token = otel_context.attach(trace.set_span_in_context(span, context))

    def end(self, users: Mapping[Outcome, int]) -> None:
        try:
            self._span.set_attributes({_FIGURES[outcome]: count for outcome, count in users.items() if count})
            worst = next((outcome for outcome in _BAD if users.get(outcome)), None)
            if worst is not None:
                _fail(self._span, worst)
        except Exception as error:  # noqa: BLE001 - as above
            _complain(error)
        _end(self._span, self._token)


class _Nothing:
    """What could not be watched."""

    headers = None

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def end(self, *_: object) -> None:
        pass


_NOTHING = _Nothing()


def _callers(calls: Sequence[Call]) -> tuple[Context, list[Link], int]:
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


def _injected(propagator: TextMapPropagator, context: Context) -> Mapping[str, str] | None:
    """What goes with a request in this context."""
    carrier: dict[str, str] = {}
    try:
        propagator.inject(carrier, context)
        return check_headers(carrier)
    except ConfigurationError:
        logger.error("the propagator set a header that the client sets itself, or that is none; nothing is sent")
    except Exception as error:  # noqa: BLE001 - as above
        _complain(error)
    return None


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind.lower())
    span.set_status(StatusCode.ERROR)


def _end(span: Span, token: object) -> None:
    otel_context.detach(token)  # type: ignore[arg-type]
    try:
        span.end()
    except Exception as error:  # noqa: BLE001 - as above
        _complain(error)


def _complain(error: Exception) -> None:
    logger.error("OpenTelemetry raised %s; the send goes on", type(error).__name__)
