"""The spans over attempts: of shared requests, campaigns and broadcasts. And what all spans here have in common."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, StatusCode

from pushsdk._core.batching import Call
from pushsdk._core.outcome import Outcome

__all__ = ["MAX_LINKS", "Work", "callers_of", "complain", "end", "fail"]

logger: logging.Logger = logging.getLogger("pushsdk")
# What the SDK keeps of a span's links by default.
MAX_LINKS = 128
# Worst first.
_BAD = (Outcome.UNKNOWN, Outcome.NOT_SENT, Outcome.REJECTED)
_FIGURES = {outcome: f"pushsdk.{outcome.lower()}" for outcome in Outcome}


class Work:
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
                fail(self._span, worst)
        except Exception as error:  # noqa: BLE001 - what watches must not break what it watches
            complain(error)
        otel_context.detach(self._token)
        end(self._span)


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


def end(span: Span) -> None:
    """End a span, whatever its provider raises."""
    try:
        span.end()
    except Exception as error:  # noqa: BLE001 - as above
        complain(error)


def complain(error: Exception) -> None:
    """Log what OpenTelemetry raised, by its type."""
    logger.error("OpenTelemetry raised %s; the send goes on", type(error).__name__)
