"""The exceptions, named by what the caller can do next.

Plain data: picklable, without payload or key; user ids only in ``user_ids`` and ``outcomes``, never in a text or repr.
"""

import re
import sys
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from pushsdk._core.outcome import NO_HEADERS, Answered, Attempt, Outcome
from pushsdk._public import set_public_module

LIBRARY: Mapping[str, str] = {
    "timeout": "the timeout",
    "attempt_timeout": "the attempt timeout",
    "rate": "the rate",
    "in_flight": "in_flight",
    "cafile": "pass ssl=ssl.create_default_context(cafile=...)",
    "proxy": "proxy=",
    "emulator": "pushsdk emulator",
    "lint": "pushsdk message lint, or lint(message)",
    "outcomes": "; see .outcomes",
    "primary_key": "primary_key=",
    "query": "query=",
    "sent": ". Such ids are used as they are",
    "fallback": " It is sent with the fallback",
    "earlier_run": "; to exclude an earlier run: audience.exclude(read_report(run).pushed())",
    "dedupe": "leave out dedupe=False",
    "personalize": "use client.send_each(audience.personalize(message))",
    "only_users": "only_users",
    "resume": "client.resume(run)",
    "new_run": 'run=f"daily-{date.today()}.run"',
}
"""Option names in texts for a program. The command line has the same keys, with its names."""


class Wording(msgspec.Struct, frozen=True):
    """The text for an error or a warning, made when it is read. It names options as its reader does."""

    @property
    def code(self) -> str:
        """The error's short name; ``""`` if that depends on its class only."""
        return ""

    @abstractmethod
    def render(self, names: Mapping[str, str]) -> str:
        """Return the text with these names in place of the placeholders, which are the keys of `LIBRARY`."""

    def __str__(self) -> str:
        return self.render(LIBRARY)

    def __repr__(self) -> str:
        return str(self)  # also in an exception, and in the copy that Celery keeps


class Advice(Wording, frozen=True):
    """A text, which may hold any characters, and the fix after it, which names options by placeholders."""

    text: str
    fix: str

    def render(self, names: Mapping[str, str]) -> str:
        """Return the text and the fix."""
        return self.text + self.fix.format_map(names)


class PushError(Answered, Exception):
    """Base class for all exceptions in this package."""

    outcome: Outcome = Outcome.NOT_SENT
    """The outcome for all users in the call."""
    attempts: tuple[Attempt, ...]
    """Tries on the wire, oldest first."""
    user_ids: tuple[str, ...]
    """The users concerned; empty for a campaign."""
    retryable: bool = False
    """True if the same call, with the same ``idempotency_key`` if any, may succeed later and can push no user twice:
    return such a job to its queue. False if the cause needs a fix first: 401, 403, certificate, TLS, proxy, a closed
    client or session, a callable that returns no key."""
    retry_after: float | None = None
    """Seconds that the service asked to wait: whole seconds, at most a day."""
    status: int | None = None
    """HTTP status of the answer that decided; None if there was no answer."""
    headers: Mapping[str, str] = NO_HEADERS
    """Headers in that answer, with case-insensitive names, without the Api-Key: at most 16 KiB, the shortest first."""
    body: bytes = b""
    """First 4 KiB of that answer's body, without the Api-Key: decompressed, or its compression's name."""

    def __init__(
        self,
        message: str | Wording = "",
        *,
        outcome: Outcome | None = None,
        attempts: tuple[Attempt, ...] = (),
        user_ids: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        if outcome is not None:
            self.outcome = outcome
        self.attempts = attempts
        self.user_ids = user_ids

    @property
    def code(self) -> str:
        """Short name for the cause, such as ``not-sent-dns`` or ``rejected-404``: for alerts, and to look up.

        It stays when a text changes. The guide's page on errors has each code.
        """
        text = self.args[0] if self.args else ""
        name = re.sub("(?!^)(?=[A-Z])", "-", type(self).__name__.removesuffix("Error")).lower()
        return (isinstance(text, Wording) and text.code) or name

    def retry_delay(self, default: float = 10.0, *, max_delay: float = 600.0) -> float:
        """Return the seconds to wait before a job is retried: ``retry_after`` or ``default``, at most ``max_delay``.

        Up to ``default`` more are added, so that jobs which failed together are not retried together.
        Raises this error itself if a retry does not help, so an ``except`` block needs one line:
        ``raise Retry(defer=error.retry_delay())``.
        """
        if not self.retryable:
            raise self
        # Jobs differ in their users, or at least in their errors.
        jitter = default * (hash((self.user_ids, id(self))) % 1000) / 1000
        return min((self.retry_after or default) + jitter, max_delay)


class ConfigurationError(PushError):
    """A setting is wrong, or the client is used from the wrong loop or process. Nothing was sent."""


class ValidationError(PushError, ValueError):
    """The input can't be sent; the text names the path, such as ``$.message.ttl``. Nothing was sent."""


class MessageWarning(UserWarning):
    """A call is probably a mistake: a misspelled name or value, no platform, or a complete run. Names its line."""


# The frame that waits for this call, if another thread performs the call. ``sys._current_frames`` may deadlock on 3.11.
caller: ContextVar[Sequence[Any]] = ContextVar("caller", default=())


def caller_frame() -> Any:
    """Return the frame that called this package, awaited it or runs the event loop."""
    frame = (*caller.get(), sys._getframe())[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("pushsdk", "asyncio"):
        frame = frame.f_back
    return frame


def warn_caller(text: str | Wording) -> None:
    """Warn at the caller's line: shown once per line and text."""
    frame = caller_frame()
    file, names = frame.f_code.co_filename, frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warning = MessageWarning(text)
    warnings.warn_explicit(warning, MessageWarning, file, frame.f_lineno, names.get("__name__"), registry)


class NotSentError(PushError):
    """The service provably never received the request, so calling again can't push twice.

    ``retry_after``, in seconds, is set if the call ended because the service asked for a longer wait.
    """

    retryable: bool = True


class ClientClosedError(NotSentError):
    """The client or its session was closed before this call was sent. Another client may send the call."""


class ClaimStoreError(NotSentError):
    """The claim store can't tell if the job was sent before, so nothing was sent.

    ``__cause__`` is the reason: the store is down, slow, full, or damaged.
    """


class QueueFullError(NotSentError):
    """The queue is full, and ``Limits(when_full="raise")`` is set or ``submit`` was called."""


class RejectedError(PushError):
    """The service answered that it did not accept the request, for the reason in ``status`` and ``answer``."""

    outcome = Outcome.REJECTED
    status: int = 0


class AuthenticationError(RejectedError):
    """401 or 403: the Api-Key is missing, wrong, or lacks the permission."""


class RateLimitedError(RejectedError):
    """The service throttled the call for longer than its deadline. ``retry_after`` is in seconds, or None."""

    retryable: bool = True


class PayloadTooLargeError(RejectedError):
    """413, and the request could not be split further."""


class OutcomeUnknownError(PushError):
    """The push may have been enqueued: calling again may push twice. ``retryable`` is True only while another call with
    the same ``idempotency_key`` may be in flight: the same call reports the outcome after ``retry_after`` seconds."""

    outcome = Outcome.UNKNOWN
    external_id: str | None = None
    """The campaign's ``externalId``: look it up before you create the campaign again."""


class PartialError(PushError):
    """The call's users have different outcomes. ``outcome`` is the worst: UNKNOWN, then NOT_SENT, then REJECTED.

    Without an ``idempotency_key``, ``retryable`` is False if a user was accepted, or may have been.
    """

    outcomes: Mapping[str, Outcome] = {}
    """Every user's outcome."""

    def users(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the user ids with this outcome, in the call's order."""
        return tuple(user for user, user_outcome in self.outcomes.items() if user_outcome is outcome)


class UnexpectedResponseError(PushError):
    """A campaign was created, but the response has no readable uuid."""

    outcome = Outcome.ACCEPTED
    status: int = 0
    external_id: str | None = None
    """The request's ``externalId``."""


class RunFileError(PushError):
    """The run file can't be used: it is damaged, another kind of file, in use, or not writable.

    ``outcome`` is NOT_SENT if this was noticed before sending. If UNKNOWN, the run stopped at once, and users that
    were claimed and not settled are UNKNOWN after a resume.
    """

    path: str = ""
    """File path."""


class RunInUseError(RunFileError):
    """Another call or process plans or sends the run. The same call continues the run later, if anything is left."""

    retryable: bool = True


class RunPlanError(RunFileError):
    """The run has another plan than this call asks for, or its plan is incomplete. Nothing was sent by this call.

    The plan is a run's users, message, custom fields and base_url. ``resume`` takes all but the base_url from the file.
    """


# Here and not when a name is first used: other packages raise these errors before that.
set_public_module(__name__, "pushsdk")
