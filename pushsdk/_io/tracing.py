"""What may watch a client at work: the seam of ``pushsdk.otel``. Nothing here does anything.

It stands beside ``on_event``, which tells what has happened. A span has to be current where others see its request,
may add headers to it, and belongs under what the caller was doing when it called: an event comes too late for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pushsdk._core.batching import Call
from pushsdk._core.operations import Operation
from pushsdk._core.outcome import Attempt, Failure, Outcome

__all__ = ["AttemptSpan", "Observer", "WorkSpan"]


class AttemptSpan(Protocol):
    """One attempt, from before its key is asked for until it is judged. Ended in the task that it began in."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """What goes with its request, beside the client's headers."""
        ...

    def current(self) -> AbstractContextManager[None]:
        """In the block its request is where others see it: aiohttp's instrumentation, hooks of a session."""
        ...

    def application_context(self) -> AbstractContextManager[None]:
        """In the block the application's own code runs, as its callable for the key: what that does is its own."""
        ...

    def end(self, attempt: Attempt | None, failure: Failure | None) -> None:
        """How it ended; no ``attempt`` where it was not judged. ``failure`` is why there was no response."""
        ...


class WorkSpan(Protocol):
    """Something that attempts are part of. Ended in the task that it began in."""

    def end(self, users: Mapping[Outcome, int]) -> None:
        """How it ended, by outcome (a campaign counts as one); none where it was cut short."""
        ...


class Observer(Protocol):
    """Watches one client. No method waits or raises."""

    def opened(self, engine: Any) -> None:
        """The client's engine is in use from now on; in a forked child it is another one."""
        ...

    def caller(self, now: float) -> object:
        """What is to be remembered of the caller of a ``send()`` that came in now, for ``Call.caller``."""
        ...

    def dequeued(self, calls: Sequence[Call], now: float) -> None:
        """These calls had to wait, and have their place on the wire now."""
        ...

    def attempt(self, operation: Operation, users: int, resends: int, *, first: bool) -> AttemptSpan:
        """An attempt begins, in this task, after ``resends`` others of its request.

        ``first`` where none of its users had one before, as they have where a larger request was split.
        """
        ...

    def batch(self, calls: Sequence[Call], users: int) -> WorkSpan:
        """A request that several callers share begins, in a task of its own."""
        ...

    def campaign(self) -> WorkSpan:
        """A campaign is about to be created, in this task."""
        ...

    def run(self, users: int, requests: int) -> WorkSpan:
        """The sending of a broadcast of so many planned users and requests begins, in this task."""
        ...
