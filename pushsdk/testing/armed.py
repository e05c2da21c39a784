"""Faults for the time of a ``with``: a test of a failure that never happened has tested nothing, and is told so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from pushsdk.emulator import Fault, Inbox
from pushsdk.emulator.records import Request
from pushsdk.testing.words import call_of

__all__ = ["ArmedFaults"]


class ArmedFaults:
    """Faults for the time of a ``with``, made by `PushInbox.fault` and `PushInbox.faults`."""

    def __init__(
        self,
        inbox: Inbox,
        faults: Sequence[Fault],
        *,
        told: Callable[[Sequence[Request]], str],
        needed: Literal["each", "any", "none"],
        seed: int,
    ) -> None:
        self._inbox = inbox
        self._faults = faults
        self._told = told
        self._needed = needed  # how many of them have to fire
        self._added = inbox.adding(faults, seed=seed)
        self._counts: Callable[[], Mapping[str, int]] = dict  # set by __enter__
        self._newest = 0  # the last request before; set by __enter__

    @property
    def hits(self) -> int:
        """How many times they acted so far."""
        return sum(self._counts().values())

    def __enter__(self) -> Self:
        self._newest = max((request.id for request in self._inbox.requests()), default=0)
        self._counts = self._added.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        counts = list(self._counts().values())
        self._added.__exit__(kind, error, trace)
        idle = [fault for fault, hits in zip(self._faults, counts, strict=True) if not hits]
        if self._needed == "none" or not idle or (self._needed == "any" and len(idle) < len(self._faults)):
            return
        problem = self._never_fired(idle)
        if error is None:
            raise AssertionError(problem)
        error.add_note(problem)

    def _never_fired(self, idle: Sequence[Fault]) -> str:
        requests = [request for request in self._inbox.requests() if request.id > self._newest]
        names = "\n".join(f"  {call_of(fault)}" for fault in idle)
        which = "This fault" if len(idle) == 1 else "None of these faults" if self._needed == "any" else "These faults"
        never = "ever" if which.startswith("None") else "never"
        why = "no request met the conditions" if requests else "no request came in its `with`"
        return (
            f"{which} {never} fired: {why}. A test that may pass without it says `required=False`.\n{names}\n\n"
            f"{self._told(requests)}"
        )
