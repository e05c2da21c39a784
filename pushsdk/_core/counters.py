"""The counters behind ``ClientStats``."""

from __future__ import annotations

from pushsdk._core.outcome import Outcome

__all__ = ["Counters"]


class Counters:
    """Counted up by the shell as things happen; never reset."""

    __slots__ = (
        "abandoned",
        "attempts",
        "campaigns",
        "requests",
        "retries",
        "splits",
        "stale_connections",
        "users",
    )

    def __init__(self) -> None:
        self.users = dict.fromkeys(Outcome, 0)
        self.abandoned = 0
        self.attempts = 0
        self.campaigns = 0
        self.requests = 0
        self.retries = 0
        self.splits = 0
        self.stale_connections = 0
