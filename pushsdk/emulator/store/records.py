"""What the store keeps and tells: requests, pushes, campaigns. Values only."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

__all__ = [
    "Campaign",
    "Delivered",
    "Endpoint",
    "InboxView",
    "Preview",
    "Push",
    "RequestRecord",
    "RequestSummary",
    "Unmatched",
    "UserCount",
]

Endpoint: TypeAlias = Literal["push", "campaigns"]


class Preview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a list shows of a request without reading its body: texts by language, cut, and what else it says."""

    title: dict[str, str] = {}
    body: dict[str, str] = {}
    languages: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    collapse_id: str | None = None
    first_user: str | None = None


class RequestRecord(Struct, kw_only=True):
    """One request on its way into the store, which gives it its ``id``.

    ``status`` is the answer's, None where none is given; ``accepted`` says whether the service took it, which a fault
    can part from the answer. ``user_ids`` are those of an accepted push, ``digest`` that of its content. ``title`` and
    ``text`` are what is searched.
    """

    inbox: int
    time: float
    body: bytes
    endpoint: Endpoint | None = None
    status: int | None = None
    accepted: bool = False
    fault: str | None = None
    error: str | None = None
    users: int = 0
    user_ids: tuple[str, ...] = ()
    digest: int = 0
    card: Preview = Preview()
    title: str = ""
    text: str = ""
    campaign: "Campaign | None" = None
    id: int = 0


class Push(Struct, frozen=True, kw_only=True):
    """One accepted push send request.

    ``id`` counts up within the store, ``body`` holds the bytes as they came, ``time`` is in seconds since the epoch.
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
        """The message as it was sent, fields that the interface does not know included."""
        return msgspec.json.decode(self.body, type=_PushContent).message

    @property
    def custom_fields(self) -> dict[str, Any] | None:
        """The custom fields as they were sent, or None where there were none."""
        return msgspec.json.decode(self.body, type=_PushContent).custom_fields


class _PushContent(Struct, frozen=True, rename="camel"):
    """The parts of a push body, read when somebody asks."""

    user_ids: tuple[str, ...]
    message: dict[str, Any]
    custom_fields: dict[str, Any] | None = None


class Campaign(Struct, frozen=True, kw_only=True):
    """One accepted campaign: its ``uuid`` as answered, the ``body`` as it came, ``time`` as in `Push`.

    ``state`` is "waiting", "running", "done", "failed" or "not run"; ``start`` is when it starts, in seconds since the
    epoch, None where nothing says when; ``reading`` says how that was read. ``users`` and ``error`` tell what became of
    its segment.
    """

    uuid: str
    body: bytes
    time: float
    id: int = 0
    name: str | None = None
    external_id: str | None = None
    state: str = "not run"
    start: float | None = None
    reading: str = ""
    started: float | None = None
    finished: float | None = None
    users: int | None = None
    error: str | None = None

    @property
    def request(self) -> dict[str, Any]:
        """The campaign create request as it was sent."""
        request: dict[str, Any] = msgspec.json.decode(self.body)
        return request


class Delivered(Struct, frozen=True, kw_only=True):
    """What one user got: the push request or campaign ``id`` with its ``body``, and how many ``times``.

    ``campaign`` is the uuid where it is one, ``fields`` then the user's row of the segment.
    """

    id: int
    time: float
    body: bytes
    times: int
    campaign: str | None = None
    fields: dict[str, Any] | None = None


class RequestSummary(Struct, frozen=True, kw_only=True):
    """A request in a list. Texts are cut at 300 characters; ``time`` is in seconds since the epoch."""

    id: int
    time: float
    endpoint: str | None
    status: int | None
    accepted: bool
    fault: str | None
    error: str | None
    users: int
    bytes: int
    first_user: str | None
    title: Mapping[str, str]
    body: Mapping[str, str]
    languages: Sequence[str]
    platforms: Sequence[str]
    collapse_id: str | None
    campaign: str | None


class Unmatched(Struct, frozen=True, kw_only=True):
    """The head of a request that reached no inbox, and why it was refused."""

    time: float
    method: str
    path: str
    status: int
    error: str


class InboxView(Struct, frozen=True):
    """An inbox: its public name, its label, its requests that are kept, and the time of the last."""

    inbox: str
    label: str
    requests: int
    last: float | None


class UserCount(Struct, frozen=True):
    """A user, how many pushes were accepted, and how often the same one at most: over 1 is a duplicate."""

    user_id: str
    accepted: int
    same: int
