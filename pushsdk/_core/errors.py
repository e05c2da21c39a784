"""The errors, one tree, by what the caller can do next.

They are plain data: picklable, without payload or key; user ids only in ``user_ids`` and ``outcomes``, never in
a text or repr.
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
    """Base of every error of this package.

    ``outcome`` says what happened to all of the call's users, ``attempts`` what was tried on the wire, oldest
    first, and ``user_ids`` whom it concerns (empty for a campaign).

    ``retryable`` is True where the same call again, with the same ``idempotency_key`` if any, can push nobody twice
    and may succeed: somebody was never sent, or refused for the moment. A worker gives such a job back to its queue. It
    is False for what only a person can fix: 401, 403, a certificate, TLS, a proxy, a closed client or session, a
    callable that gives no key.
    ``retry_after`` is what the service asked to wait before, in seconds, where it said so.
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
    """The client was set up wrongly, or is used from the wrong loop or process. Nothing was sent."""


class ValidationError(PushError, ValueError):
    """The input can't be sent as it is; the text names the path, as ``$.message.ttl``. Nothing was sent."""


class NotSentError(PushError):
    """Proven: the service never saw it, so calling again can't push twice.

    ``retry_after``, in seconds, is set where the call ended because the service asked for a longer wait.
    """

    retryable: bool = True


class ClientClosedError(NotSentError):
    """The client or its session is closed, or was closed before this call could leave: then another client may send."""


class ClaimStoreError(NotSentError):
    """The claim store can't be asked, so whether the job was sent before is not known, and nothing was sent.

    Its cause says why: down, slow, full, or not what it should be.
    """


class QueueFullError(NotSentError):
    """The queue is full and ``Limits(when_full="raise")`` is set."""


class Headers(Mapping[str, str]):
    """Headers of a response, found under their names in any case. Of several with one name the first counts."""

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
    """The service answered that it did not take it.

    ``status`` is the HTTP status, ``headers`` the response's headers, found under their names in any case, ``body`` at
    most the first 4 KiB of its body.
    """

    outcome = Outcome.REJECTED
    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""


class AuthenticationError(RejectedError):
    """401 or 403: the Api-Key is missing, wrong, or lacks the permission."""


class RateLimitedError(RejectedError):
    """Throttled, and the call could not wait it out. ``retry_after``, in seconds, where the service said it."""

    retryable: bool = True


class PayloadTooLargeError(RejectedError):
    """413, and there was nothing left to split."""


class OutcomeUnknownError(PushError):
    """It may have been enqueued: calling again may push twice. ``status`` is None where no response was returned.

    For a campaign ``external_id`` carries the request's ``externalId``: look it up before you create it again.
    """

    outcome = Outcome.UNKNOWN
    status: int | None = None
    external_id: str | None = None


class PartialError(PushError):
    """The call's users ended differently.

    ``outcomes`` maps every user id to its outcome; ``outcome`` is the worst of them (UNKNOWN, then NOT_SENT, then
    REJECTED). Without a ``idempotency_key``, ``retryable`` is False where somebody was accepted, or may have been.
    """

    outcomes: Mapping[str, Outcome] = {}
    # Whether some of them may be sent to again. Set where the error is made.
    _open: bool = False

    def users(self, outcome: Outcome) -> tuple[str, ...]:
        """The ids of the call's users that ended with ``outcome``, in the order they were given."""
        return tuple(user for user, ended in self.outcomes.items() if ended is outcome)


class UnexpectedResponseError(PushError):
    """Accepted, but the answer is not as documented: a campaign was created and its uuid can't be read.

    ``status`` and ``body`` (at most 4 KiB) are what came back; ``external_id`` the request's ``externalId``.
    """

    outcome = Outcome.ACCEPTED
    status: int = 0
    body: bytes = b""
    external_id: str | None = None


class RunFileError(PushError):
    """The run file can't be used: damaged, of something else, in use, or it could not be written.

    Found before anything was sent (``outcome`` NOT_SENT), or while sending (UNKNOWN): then the run stopped at once,
    and what had been claimed and was not settled is UNKNOWN when it is taken up again. ``path`` names the file.
    """

    path: str = ""


class BroadcastError(PushError):
    """Not every user of a broadcast was accepted: what ``BroadcastReport.raise_for_failures`` raises.

    ``report`` is that report; ``outcome`` the worst there was (UNKNOWN, then NOT_SENT, then REJECTED).
    """

    report: Any = None


set_public_module(__name__)
