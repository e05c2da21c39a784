"""The exceptions, named by what the caller can do next.

Plain data: picklable, without payload or key; user ids only in ``user_ids`` and ``outcomes``, never in a text or repr.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._public import set_public_module

__all__ = [
    "AuthenticationError",
    "BroadcastError",
    "ClaimStoreError",
    "ClientClosedError",
    "ConfigurationError",
    "NotSentError",
    "OutcomeUnknownError",
    "PartialError",
    "PayloadTooLargeError",
    "PushError",
    "QueueFullError",
    "RateLimitedError",
    "RejectedError",
    "RunFileError",
    "UnexpectedResponseError",
    "ValidationError",
]


class PushError(Exception):
    """Base of all exceptions of this package.

    ``outcome`` is the outcome for all users of the call, ``attempts`` are the tries on the wire, oldest first, and
    ``user_ids`` the users concerned (empty for a campaign).

    ``retryable`` is True if the same call, with the same ``idempotency_key`` if any, may succeed later and can push no
    user twice: return such a job to its queue. False if the cause needs a fix first: 401, 403, certificate, TLS, proxy,
    a closed client or session, a callable that returns no key. ``retry_after`` is the wait in seconds that the service
    asked for, or None.
    """

    outcome: Outcome = Outcome.NOT_SENT
    retryable: bool = False
    retry_after: float | None = None

    def __init__(
        self,
        message: str = "",
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


class ConfigurationError(PushError):
    """A setting is wrong, or the client is used from the wrong loop or process. Nothing was sent."""


def must_be(name: str, rule: str, value: object) -> ConfigurationError:
    """Return the error for a setting that breaks its rule: ``{name} must be {rule}; got ...``.

    Shows a number, True, False or None, and only the type of any other value: a text may be a key, an id or a URL.
    """
    is_plain = value is None or (type(value) in (bool, int, float) and len(repr(value)) < 25)
    return ConfigurationError(f"{name} must be {rule}; got {value if is_plain else type(value).__name__}")


class ValidationError(PushError, ValueError):
    """The input can't be sent; the text names the path, such as ``$.message.ttl``. Nothing was sent."""


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
    """The queue is full and ``Limits(when_full="raise")`` is set."""


class Headers(Mapping[str, str]):
    """Response headers with case-insensitive names. Of several headers with the same name the first counts."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._items: dict[str, tuple[str, str]] = {}
        for name, value in headers.items():
            self._items.setdefault(name.lower(), (str(name), value))

    def __getitem__(self, name: str) -> str:
        return self._items[name.lower()][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(dict(self))


class RejectedError(PushError):
    """The service answered that it did not accept the request.

    ``status`` is the HTTP status, ``headers`` are the response headers with case-insensitive names, and ``body`` is at
    most the first 4 KiB of the response body.
    """

    outcome = Outcome.REJECTED
    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""


class AuthenticationError(RejectedError):
    """401 or 403: the Api-Key is missing, wrong, or lacks the permission."""


class RateLimitedError(RejectedError):
    """The service throttled the call for longer than its deadline. ``retry_after`` is in seconds, or None."""

    retryable: bool = True


class PayloadTooLargeError(RejectedError):
    """413, and the request could not be split further."""


class OutcomeUnknownError(PushError):
    """The push may have been enqueued: calling again may push twice. ``status`` is None if there was no response.

    For a campaign, ``external_id`` is the ``externalId`` of the request: look it up before you create it again.
    """

    outcome = Outcome.UNKNOWN
    status: int | None = None
    external_id: str | None = None


class PartialError(PushError):
    """The users of the call have different outcomes.

    ``outcomes`` maps every user id to its outcome; ``outcome`` is the worst (UNKNOWN, then NOT_SENT, then REJECTED).
    Without an ``idempotency_key``, ``retryable`` is False if a user was accepted, or may have been.
    """

    outcomes: Mapping[str, Outcome] = {}
    # True if some users may be sent to again. Set by ``partial_error``.
    _open: bool = False

    def users(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the ids of the users with this outcome, in the order of the call."""
        return tuple(user for user, user_outcome in self.outcomes.items() if user_outcome is outcome)


class UnexpectedResponseError(PushError):
    """A campaign was created, but the response has no readable uuid.

    ``status`` and ``body`` (at most 4 KiB) are those of the response, ``external_id`` is the ``externalId`` of the
    request.
    """

    outcome = Outcome.ACCEPTED
    status: int = 0
    body: bytes = b""
    external_id: str | None = None


class RunFileError(PushError):
    """The run file can't be used: it is damaged, another kind of file, in use, or not writable.

    ``outcome`` is NOT_SENT if this was noticed before sending. If UNKNOWN, the run stopped at once, and users that
    were claimed and not settled are UNKNOWN after a resume. ``path`` names the file.
    """

    path: str = ""


class BroadcastError(PushError):
    """Some users of a broadcast were not accepted. Raised by ``BroadcastReport.raise_for_failures``.

    ``report`` is the BroadcastReport; ``outcome`` is the worst outcome (UNKNOWN, then NOT_SENT, then REJECTED).
    """

    report: Any = None


set_public_module(__name__)
