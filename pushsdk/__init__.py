"""The push client that says of every user what happened, and never pushes twice unless asked."""

import importlib
from typing import TYPE_CHECKING

from pushsdk._version import __version__

if TYPE_CHECKING:
    from pushsdk._audience.audience import Audience, AudienceSummary, Personalized
    from pushsdk._core.errors import (
        AuthenticationError,
        BroadcastError,
        ClaimStoreError,
        ClientClosedError,
        ConfigurationError,
        NotSentError,
        OutcomeUnknownError,
        PartialError,
        PayloadTooLargeError,
        PushError,
        QueueFullError,
        RateLimitedError,
        RejectedError,
        RunFileError,
        UnexpectedResponseError,
        ValidationError,
    )
    from pushsdk._core.events import (
        AttemptEnded,
        ClientPaused,
        Event,
        RequestSplit,
        RetryScheduled,
        SendAbandoned,
    )
    from pushsdk._core.lint import Problem, lint
    from pushsdk._core.models import (
        UNSET,
        Action,
        ActionButton,
        ActionCategory,
        ActionCategoryType,
        ActionComponent,
        CampaignCreated,
        CampaignRequest,
        ClickAction,
        InterruptionLevel,
        MediaType,
        MessageType,
        MobilePush,
        Priority,
        PushRequest,
        RelevanceScore,
        Schedule,
        ScheduleType,
        Segment,
        UnsetType,
    )
    from pushsdk._core.outcome import (
        Attempt,
        Outcome,
    )
    from pushsdk._core.placeholders import Placeholder, find_placeholders, placeholder, render
    from pushsdk._core.policy import (
        Batching,
        Limits,
        Rate,
        RetryPolicy,
        Timeout,
    )
    from pushsdk._core.results import (
        ClientStats,
        DrainReport,
        Receipt,
    )
    from pushsdk._core.stop_policy import StopPolicy
    from pushsdk._runs.progress import Progress
    from pushsdk._runs.report import BroadcastReport, read_report
    from pushsdk._runs.run_file.journal import Row
    from pushsdk.client import (
        AsyncPushClient,
    )
    from pushsdk.sync.client import PushClient

else:  # a type checker would take any name for one that this finds

    def __getattr__(name):
        if name in __all__:
            for module in map(importlib.import_module, (f"{__name__}.{place}" for place in _MODULES)):
                if name in module.__all__:
                    globals()[name] = each = getattr(module, name)
                    return each
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return __all__


# Where the names live, cheap modules first. A name is imported when it is first asked for (PEP 562): a command line
# that only shows its help does not wait for msgspec, nor one that only reads a file for aiohttp.
_MODULES = (
    "_core.outcome",
    "_core.errors",
    "_core.models",
    "_core.policy",
    "_core.results",
    "_core.events",
    "_core.placeholders",
    "_core.lint",
    "_core.stop_policy",
    "_audience.audience",
    "_runs.run_file.journal",
    "_runs.progress",
    "_runs.report",
    "client",
    "sync.client",
)

__all__ = [
    "UNSET",
    "Action",
    "ActionButton",
    "ActionCategory",
    "ActionCategoryType",
    "ActionComponent",
    "AsyncPushClient",
    "Attempt",
    "AttemptEnded",
    "Audience",
    "AudienceSummary",
    "AuthenticationError",
    "Batching",
    "BroadcastError",
    "BroadcastReport",
    "CampaignCreated",
    "CampaignRequest",
    "ClaimStoreError",
    "ClickAction",
    "ClientClosedError",
    "ClientPaused",
    "ClientStats",
    "ConfigurationError",
    "DrainReport",
    "Event",
    "InterruptionLevel",
    "Limits",
    "MediaType",
    "MessageType",
    "MobilePush",
    "NotSentError",
    "Outcome",
    "OutcomeUnknownError",
    "PartialError",
    "PayloadTooLargeError",
    "Personalized",
    "Placeholder",
    "Priority",
    "Problem",
    "Progress",
    "PushClient",
    "PushError",
    "PushRequest",
    "QueueFullError",
    "Rate",
    "RateLimitedError",
    "Receipt",
    "RejectedError",
    "RelevanceScore",
    "RequestSplit",
    "RetryPolicy",
    "RetryScheduled",
    "Row",
    "RunFileError",
    "Schedule",
    "ScheduleType",
    "Segment",
    "SendAbandoned",
    "StopPolicy",
    "Timeout",
    "UnexpectedResponseError",
    "UnsetType",
    "ValidationError",
    "__version__",
    "find_placeholders",
    "lint",
    "placeholder",
    "read_report",
    "render",
]
