"""Protocols for an observer that watches one client, implemented by ``pushsdk.otel``.

``on_event`` reports what has happened. A span has to be current while its request is sent, may add headers, and has the
caller's span as its parent: events come too late for that.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pushsdk._core.batching import Call
    from pushsdk._core.operations import Operation
    from pushsdk._core.outcome import Attempt, Failure, Outcome


class AttemptSpan(Protocol):
    """One attempt, from when it has its key until it is judged. Ended in the task that it began in."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Headers for the request, added to the client's."""

    def current(self) -> AbstractContextManager[None]:
        """Make the span current for a block in which other code sees the request, such as session hooks."""

    def end(self, attempt: "Attempt | None", failure: "Failure | None") -> None:
        """End the span. ``attempt`` is None if it was not judged; ``failure`` is the reason for no response."""


class WorkSpan(Protocol):
    """Work made up of attempts. Ended in the task that it began in."""

    def end(self, users: "Mapping[Outcome, int]") -> None:
        """End the span with the users by outcome (a campaign counts as one); empty if cut short."""


class Observer(Protocol):
    """An observer for one client. No method waits or raises."""

    def opened(self, lifetime: Any) -> None:
        """Note that the client is in use. Called again in a forked child that uses the client."""

    def caller(self, now: float) -> object:
        """Return the record for a ``send()`` caller, for ``Call.caller``."""

    def dequeued(self, calls: "Sequence[Call]", now: float) -> None:
        """Note that these calls have waited and have a slot now."""

    def attempt(self, operation: "Operation", users: int, resends: int, *, first: bool) -> AttemptSpan:
        """Return the span for an attempt that begins in this task, after ``resends`` earlier attempts for its request.

        ``first``: its users were not in an attempt before. After a split, all were.
        """

    def batch(self, calls: "Sequence[Call]", users: int) -> WorkSpan:
        """Return the span for a request with several callers, which begins in a task for itself."""

    def campaign(self) -> WorkSpan:
        """Return the span for a campaign that is created in this task."""

    def run(self, users: int, requests: int) -> WorkSpan:
        """Return the span for a run with this number of planned users and requests."""
