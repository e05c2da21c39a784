"""How far a run is: a reading twice a second, its rate over the last seconds, and who is told."""

from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

from pushsdk._core.user_states import UserState
from pushsdk._public import set_public_module
from pushsdk._runs.run_file.journal import Journal

__all__ = ["TICK", "OnProgress", "Progress", "ProgressReporter"]

TICK = 0.5  # seconds between two readings
RATE_OVER = 10  # readings that the rate is measured over


class Progress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a broadcast is, as ``on_progress`` is told about twice a second."""

    stage: Literal["planning", "sending", "waiting"]
    """``waiting`` while nothing may be sent: a pause that the service asked for, or the wait after a failure."""
    planned: int = 0
    accepted: int = 0
    rejected: int = 0
    unknown: int = 0
    not_sent: int = 0
    """Users who wait for their turn."""
    in_flight: int = 0
    """Users of the requests that are on their way."""
    seconds: float = 0.0
    """Since this process took the run up."""
    rate: float = 0.0
    """Users settled per second, over the last seconds."""
    eta: float | None = None
    """Seconds until the end at this rate; None where it can't be told."""
    trouble: str = ""
    """What the last failure was, in words, where nothing was accepted since."""
    paused: float = 0.0
    """Seconds until the service's pause ends."""


OnProgress = Callable[[Progress], object]


class ProgressReporter:
    """Reads the journal's tally and tells ``on_progress``. Times are seconds on the caller's clock."""

    def __init__(self, journal: Journal, on_progress: OnProgress | None, *, now: float) -> None:
        self._journal = journal
        self._on_progress = on_progress
        self._started = now
        self._readings: deque[tuple[float, int]] = deque([(now, self._settled())], maxlen=RATE_OVER)

    def _settled(self) -> int:
        states = self._journal.states
        return states.users - states.count(UserState.PENDING) - states.count(UserState.CLAIMED)

    def tell(self, now: float, *, paused: float, waiting: bool, trouble: str) -> None:
        """Take a reading and tell it: ``paused`` seconds are left of the service's pause."""
        if self._on_progress is None:
            return
        tally, settled = self._journal.tally(), self._settled()
        in_flight = self._journal.states.count(UserState.CLAIMED)
        self._readings.append((now, settled))
        before, had = self._readings[0]
        rate = (settled - had) / (now - before) if now > before else 0.0
        progress = Progress(
            stage="waiting" if paused or waiting else "sending",
            planned=self._journal.users,
            accepted=tally.accepted,
            rejected=tally.rejected,
            unknown=tally.unknown - in_flight,
            in_flight=in_flight,
            not_sent=tally.not_sent,
            seconds=now - self._started,
            rate=rate,
            eta=(tally.not_sent + in_flight) / rate if rate else None,
            trouble=trouble,
            paused=paused,
        )
        self._on_progress(progress)


set_public_module(__name__)
