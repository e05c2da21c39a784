"""A push client that reports the outcome of every user, and never retries into a second push unless asked.

To read the code, start with ``client.py``; ``_core/__init__.py`` explains how it works.
"""

from typing import TYPE_CHECKING

import pushsdk._public
from pushsdk._version import __version__

# The modules of the public names, cheap ones first: the first that has a name defines it. A name is imported on first
# use (PEP 562): ``pushsdk --help`` does not import msgspec, and reading a run file does not import aiohttp.
_CORE = ("outcome", "errors", "models", "policy", "results", "events", "placeholders", "lint", "stop_policy")
_MODULES = (
    *[f"pushsdk._core.{name}" for name in _CORE],
    "pushsdk._runs.run_file.journal",
    "pushsdk._audience.audience",
    "pushsdk._runs.progress",
    "pushsdk._runs.report",
    "pushsdk.client",
    "pushsdk.sync.client",
)

if TYPE_CHECKING:
    from pushsdk._audience.audience import Audience, AudienceSummary, Personalized
    from pushsdk._core.errors import *
    from pushsdk._core.events import (
        AttemptEnded,
        ClientPaused,
        Event,
        RequestSplit,
        RetryScheduled,
        SendAbandoned,
        SendNotBegun,
    )
    from pushsdk._core.lint import Problem, lint
    from pushsdk._core.models import *
    from pushsdk._core.outcome import Attempt, Outcome
    from pushsdk._core.placeholders import Placeholder, find_placeholders, placeholder, render
    from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout
    from pushsdk._core.results import ClientStats, DrainReport, Receipt
    from pushsdk._core.stop_policy import StopPolicy
    from pushsdk._runs.progress import Progress
    from pushsdk._runs.report import BroadcastError, BroadcastReport, read_report
    from pushsdk._runs.run_file.journal import Row
    from pushsdk.client import AsyncPushClient
    from pushsdk.sync.client import PushClient

else:  # hidden from type checkers: with a module __getattr__ they would accept any name
    # The clients need half of the modules.
    _CLIENTS = {"AsyncPushClient": "pushsdk.client", "PushClient": "pushsdk.sync.client"}
    __getattr__, __dir__ = pushsdk._public.lazy_names(__name__, _MODULES, **_CLIENTS)


# The clients; settings; messages and their values; advice and texts; results and events; runs; errors.
__all__ = ["AsyncPushClient", "PushClient", "__version__"]
__all__ += ["Batching", "Limits", "Rate", "RetryPolicy", "StopPolicy", "Timeout"]
__all__ += ["UNSET", "MobilePush", "MobilePushDict", "PushRequest", "PushRequestDict", "UnsetType"]
__all__ += ["ActionButton", "ActionButtonDict", "ActionCategory", "ActionCategoryDict", "ActionComponent"]
__all__ += ["ActionComponentDict", "CampaignCreated", "CampaignDict", "CampaignRequest", "Schedule", "ScheduleDict"]
__all__ += ["Segment", "SegmentDict"]
__all__ += ["Placeholder", "Problem", "find_placeholders", "lint", "placeholder", "render"]
__all__ += ["Attempt", "ClientStats", "DrainReport", "Outcome", "Receipt"]
__all__ += ["AttemptEnded", "ClientPaused", "Event", "RequestSplit", "RetryScheduled", "SendAbandoned", "SendNotBegun"]
__all__ += ["Audience", "AudienceSummary", "BroadcastReport", "Personalized", "Progress", "Row", "read_report"]
__all__ += ["AuthenticationError", "BroadcastError", "ClaimStoreError", "ClientClosedError", "ConfigurationError"]
__all__ += ["MessageWarning", "NotSentError", "OutcomeUnknownError", "PartialError", "PayloadTooLargeError"]
__all__ += ["PushError", "QueueFullError", "RateLimitedError", "RejectedError", "RunFileError"]
__all__ += ["RunInUseError", "RunPlanError"]
__all__ += ["UnexpectedResponseError", "ValidationError"]
