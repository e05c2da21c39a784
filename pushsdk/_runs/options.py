"""The options of one run, as the client's methods take them, and their checks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Literal

import msgspec

from pushsdk._core.errors import ConfigurationError, must_be
from pushsdk._core.policy import RetryPolicy, Timeout
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._io.sender import guarded
from pushsdk._runs.progress import OnProgress

OnUnknown = Literal["skip", "resend"]
RunPath = str | os.PathLike[str]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The options of one run. Unchecked until ``check`` is called."""

    run: RunPath | None
    stop: asyncio.Event | None
    policy: RetryPolicy
    timeout: Timeout
    on_unknown: OnUnknown = "skip"
    stop_policy: StopPolicy | None = None
    on_progress: OnProgress | None = None
    limit: int | None = None
    """The number of users after which the run pauses; None for no limit."""
    durable: bool = False
    path: Path | None = None
    """The absolute path of the run file. Set here, so a later change of the working directory has no effect."""

    def __post_init__(self) -> None:
        path = Path(os.path.abspath(self.run)) if isinstance(self.run, (str, os.PathLike)) else None
        msgspec.structs.force_setattr(self, "path", path)

    @property
    def name(self) -> str | None:
        """Return the run file's path for the report."""
        return None if self.path is None else str(self.path)

    @property
    def resend(self) -> bool:
        """Return True if users with an unknown outcome are sent to again."""
        return self.on_unknown == "resend"

    @property
    def syncs(self) -> bool:
        """Return True if each commit must reach the disk. A temporary file does not survive a power failure anyway."""
        return self.durable and self.path is not None

    @property
    def guarded_on_progress(self) -> OnProgress | None:
        """Return ``on_progress`` with its exceptions logged."""
        return None if self.on_progress is None else guarded("on_progress", self.on_progress)

    def check(self) -> None:
        """Raise ConfigurationError if an option has a wrong type or value."""
        if self.on_unknown not in ("skip", "resend"):
            raise ConfigurationError(f"on_unknown must be 'skip' or 'resend'; got {self.on_unknown!r}")
        if self.stop_policy is not None and not isinstance(self.stop_policy, StopPolicy):
            raise must_be("stop_policy", "a StopPolicy, for example StopPolicy(rejected=0.1)", self.stop_policy)
        if self.on_progress is not None and not callable(self.on_progress):
            raise must_be("on_progress", "a callable that takes one Progress", self.on_progress)
        if self.stop is not None and not isinstance(self.stop, asyncio.Event):
            raise must_be("stop", "an asyncio.Event: set it to end the run early", self.stop)
        limit = self.limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise must_be("limit", "a number of users, 1 or more", limit)
        if self.run is not None and self.path is None:
            raise must_be("run", "the path of a run file, for example 'spring.run'", self.run)
