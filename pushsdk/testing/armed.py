"""Faults for the time of a ``with``: a test of a failure that never happened has tested nothing, and is told so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from pushsdk.emulator import Fault, Inbox
from pushsdk.emulator.records import Summary
from pushsdk.testing.words import call_of

__all__ = ["ArmedFaults"]

_OPTIONAL = "A test that may pass without it says `required=False`."


class ArmedFaults:
    """Faults for the time of a ``with``, made by `PushInbox.fault` and `PushInbox.faults`."""

    def __init__(
        self,
        inbox: Inbox,
        faults: Sequence[Fault],
        *,
        told: Callable[[Sequence[Summary]], str],
        needed: Literal["each", "any", "none"],
        seed: int,
    ) -> None:
        self._inbox = inbox
        self._faults = faults
        self._told = told
        self._needed = needed  # how many of them have to fire
        self._seed = seed
        self._added = inbox.adding(faults, seed=seed)
        self._counts: Callable[[], Mapping[str, int]] = dict  # set by __enter__
        self._newest = 0  # the last request before; set by __enter__
        #: Why they tested nothing, where no error of theirs said so; set by __enter__ and __exit__.
        self.unsaid: str | None = None if needed == "none" else self._never_used()

    @property
    def hits(self) -> int:
        """How many times they acted so far."""
        return sum(self._counts().values())

    def __enter__(self) -> Self:
        self._newest = max((request.id for request in self._inbox.requests()), default=0)
        self._counts = self._added.__enter__()
        self.unsaid = None
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
        if error is None:
            raise AssertionError(self._never_fired(idle))
        if isinstance(error, Exception):  # else the test is over: skipped, or interrupted
            self.unsaid = self._never_fired(idle)  # by a test that expects the error
            error.add_note(self.unsaid)

    def _never_fired(self, idle: Sequence[Fault]) -> str:
        requests = [request for request in self._inbox.requests() if request.id > self._newest]
        which = "This fault" if len(idle) == 1 else "None of these faults" if self._needed == "any" else "These faults"
        never = "ever" if which.startswith("None") else "never"
        if not requests:
            why = "no request came in its `with`"
        elif all(fault.probability for fault in idle):
            why = f"none won its draw (seed={self._seed})"
        else:
            why = "no request met the conditions"
        return f"{which} {never} fired: {why}. {_OPTIONAL}\n{_calls(idle)}\n\n{self._told(requests)}"

    def _never_used(self) -> str:
        which = "This fault was" if len(self._faults) == 1 else "These faults were"
        return f"{which} never used: write `with push.fault(...):`\n{_calls(self._faults)}"


def _calls(faults: Sequence[Fault]) -> str:
    return "\n".join(f"  {call_of(fault)}" for fault in faults)
