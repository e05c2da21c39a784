"""A case of the fault matrix: a fault, and the expected result of the client."""

from dataclasses import dataclass

from pushsdk import (
    AuthenticationError,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    PayloadTooLargeError,
    PushError,
    RateLimitedError,
    RejectedError,
    UnexpectedResponseError,
)
from support.wire_answers import response
from support.wire_faults import Step, answering


@dataclass(frozen=True)
class Looks:
    """The name lookup goes wrong."""

    #: "fail" or "hang".
    how: str


@dataclass(frozen=True)
class Connects:
    """The connect ends up somewhere else."""

    #: Makes the destination that is reached, as an async context manager.
    place: object


@dataclass(frozen=True)
class Pooled:
    """The pooled connection is spoiled at the moment it is taken for the request."""

    #: Does something to the connection from the server's end; the client's loop must not get to see it.
    spoil: object


@dataclass(frozen=True)
class Case:
    """A fault, and its expected result if it happens every time.

    ``outcome`` and ``error`` are the call's, ``status`` the error's. ``repeated``: a safe policy tries again.
    ``race``: the fault may also bite before the first byte is written, which is then NOT_SENT and repeated.
    """

    name: str
    #: Looks, Connects, Pooled or Step.
    fault: object
    outcome: Outcome
    error: type[PushError] | None
    status: int | None = None
    repeated: bool = False
    race: bool = False
    tls: bool = False
    campaign: bool = False
    big: bool = False
    #: It ends by the client's patience only.
    hangs: bool = False
    #: Met alone only: a sister of a case that is met everywhere.
    minor: bool = False

    @property
    def at(self):
        """The key by which the fault is counted."""
        match self.fault:
            case Looks():
                return "lookup"
            case Connects() | Step(moment="accept"):
                return "connect"
            case Pooled():
                return "pool"
            case _:
                return "request"


def not_sent(name, fault, *, repeated=True, **option):
    """The server never saw it."""
    return Case(name, fault, Outcome.NOT_SENT, NotSentError, repeated=repeated, **option)


def unknown(name, fault, *, status=None, **option):
    """An unknown outcome, never retried."""
    return Case(name, fault, Outcome.UNKNOWN, OutcomeUnknownError, status, **option)


def accepted(name, fault, **option):
    """The call does not notice."""
    return Case(name, fault, Outcome.ACCEPTED, None, **option)


def created(name, fault, **option):
    """The campaign is there, its uuid is lost: never repeated."""
    return Case(name, fault, Outcome.ACCEPTED, UnexpectedResponseError, status=200, campaign=True, **option)


ERRORS = {401: AuthenticationError, 403: AuthenticationError, 413: PayloadTooLargeError, 429: RateLimitedError}


def rejected(name, status, *, repeated=False, minor=False, **headers):
    """The service said no; ``headers`` are the answer's."""
    error = RateLimitedError if "Retry_After" in headers else ERRORS.get(status, RejectedError)
    answer = answering(response(status, b"" if status == 304 else b"{}", **headers))
    return Case(name, answer, Outcome.REJECTED, error, status, repeated=repeated, minor=minor)
