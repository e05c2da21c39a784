"""What a caller asks for of a run, beside the users and the message: kept as it was given, and checked."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Literal

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.policy import RetryPolicy, Timeout
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._io.sender import guarded
from pushsdk._runs.progress import OnProgress

__all__ = ["OnUnknown", "RunPath", "RunSettings"]

OnUnknown = Literal["skip", "resend"]
RunPath = str | os.PathLike[str]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """As the client's methods take them. Not checked until ``check`` is called."""

    run: RunPath | None
    stop: asyncio.Event | None
    policy: RetryPolicy
    timeout: Timeout
    on_unknown: OnUnknown = "skip"
    stop_policy: StopPolicy | None = None
    on_progress: OnProgress | None = None
    limit: int | None = None
    """Users to send to at most, before the run is left for later; None is all."""
    durable: bool = False
    path: Path | None = None
    """Of the run file, absolute whatever the working directory becomes. Set here."""

    def __post_init__(self) -> None:
        path = Path(os.path.abspath(self.run)) if isinstance(self.run, (str, os.PathLike)) else None
        msgspec.structs.force_setattr(self, "path", path)

    @property
    def name(self) -> str | None:
        """The run file as a report names it."""
        return None if self.path is None else str(self.path)

    @property
    def resend(self) -> bool:
        """Whether users that may have been pushed are pushed again."""
        return self.on_unknown == "resend"

    @property
    def syncs(self) -> bool:
        """Whether each commit has to reach the disk: a temporary file is gone with the power in any case."""
        return self.durable and self.path is not None

    @property
    def tell(self) -> OnProgress | None:
        """Return ``on_progress``, made unable to break a run."""
        return None if self.on_progress is None else guarded("on_progress", self.on_progress)

    def check(self) -> None:
        """Raises ConfigurationError where something is not what it has to be."""
        if self.on_unknown not in ("skip", "resend"):
            raise ConfigurationError("on_unknown is 'skip' or 'resend'")
        if self.stop_policy is not None and not isinstance(self.stop_policy, StopPolicy):
            raise ConfigurationError("stop_policy is a StopPolicy, as StopPolicy(rejected=0.1)")
        if self.on_progress is not None and not callable(self.on_progress):
            raise ConfigurationError("on_progress is a callable that takes one Progress")
        if self.stop is not None and not isinstance(self.stop, asyncio.Event):
            raise ConfigurationError("stop is an asyncio.Event: set it to end the broadcast early")
        limit = self.limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ConfigurationError("limit is a number of users, 1 or more")
        if self.run is not None and not isinstance(self.run, (str, os.PathLike)):
            raise ConfigurationError("run is the path of a file, as 'spring.run'")
