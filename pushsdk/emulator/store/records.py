"""The values that the store keeps and returns: requests, pushes, campaigns, users."""

from typing import Any

import msgspec
from msgspec import Struct

from pushsdk.emulator.guard import Endpoint


class Redacted(Struct, frozen=True):
    """Base class with a repr without fields, because texts and user ids must not reach a log or a crash report."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []


class Preview(Struct, frozen=True, kw_only=True):
    """The body part that lists show: shortened texts by language, and a few other fields."""

    title: dict[str, str] = {}
    body: dict[str, str] = {}
    languages: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    first_user: str | None = None


class RequestRecord(Struct, kw_only=True):
    """One request to be stored; the store sets ``id``.

    ``status`` is None if no response was sent. ``accepted`` says whether the service accepted the request, which a
    fault can hide from the client: only then its users and the uuid of its ``campaign`` are stored. ``user_ids`` and
    ``digest`` (for the other content) come from a push. Lists show ``preview``, searches find ``title`` and ``text``.
    """

    inbox: int
    time: float
    endpoint: Endpoint
    body: bytes = b""
    user_ids: tuple[str, ...] = ()
    digest: int = 0
    preview: Preview = Preview()
    title: str = ""
    text: str = ""
    campaign: str | None = None
    status: int | None = None
    accepted: bool = False
    fault: str | None = None
    error: str | None = None
    id: int = 0


class Push(Struct, frozen=True, kw_only=True):
    """One accepted push send request.

    ``id`` counts up within the store, ``body`` is the raw body, ``time`` is in seconds since the epoch.
    """

    id: int
    body: bytes
    time: float

    @property
    def user_ids(self) -> tuple[str, ...]:
        """The users in the order sent."""
        return msgspec.json.decode(self.body, type=_PushContent).user_ids

    @property
    def message(self) -> dict[str, Any]:
        """The message as sent, including fields that the interface does not document."""
        return msgspec.json.decode(self.body, type=_PushContent).message

    @property
    def custom_fields(self) -> dict[str, Any] | None:
        """The custom fields as sent; None if the request has none."""
        return msgspec.json.decode(self.body, type=_PushContent).custom_fields


class _PushContent(Struct, frozen=True, rename="camel"):
    user_ids: tuple[str, ...]
    message: dict[str, Any]
    custom_fields: dict[str, Any] | None = None


class Campaign(Struct, frozen=True, kw_only=True):
    """One accepted campaign create request: the response's ``uuid``, and ``id``, ``body`` and ``time`` as in `Push`."""

    id: int
    uuid: str
    body: bytes
    time: float

    @property
    def request(self) -> dict[str, Any]:
        """The campaign create request as sent."""
        request: dict[str, Any] = msgspec.json.decode(self.body)
        return request


class Delivered(Push, frozen=True, kw_only=True):
    """A push request as one user got it, ``times`` in one request."""

    times: int


class RequestSummary(Preview, frozen=True, kw_only=True):
    """A request in a list. Texts are cut at 300 characters; ``time`` is in seconds since the epoch.

    ``inbox`` is the public name of the request's inbox. Consecutive pushes with the same texts have the same ``group``,
    the id of the oldest. In a grouped list the request stands for ``requests`` in its group: ``failed`` of them got no
    success, the accepted ones had ``reached`` users.
    """

    id: int
    group: int = 0
    requests: int = 1
    failed: int = 0
    reached: int = 0
    inbox: str = ""
    time: float
    endpoint: str
    status: int | None
    accepted: bool
    fault: str | None
    error: str | None
    users: int
    bytes: int
    campaign: str | None


class Unmatched(Struct, frozen=True):
    """A request's head that did not reach an inbox, and the error it was refused with."""

    time: float
    method: str
    path: str
    status: int
    error: str


class InboxView(Struct, frozen=True):
    """An inbox: its public name and label, the stored requests, and the campaigns among them.

    ``last`` is the last request's time, ``faults`` the number of fault rules.
    """

    inbox: str
    label: str
    requests: int
    campaigns: int
    last: float | None
    faults: int = 0


class UserCount(Struct, frozen=True):
    """A user, the number of accepted pushes, and the highest count for one and the same push: over 1 is a duplicate."""

    user_id: str
    accepted: int
    same: int


def user_key(user: str) -> tuple[str, int, str]:
    """Return the columns that hold a user id, which sort as people count."""
    stem = user.rstrip("0123456789")
    return stem, len(user), user.removeprefix(stem)
