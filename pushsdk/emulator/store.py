"""What the service accepted, kept per Api-Key: the record of the oracle.

The seam of the emulator: a store takes what was accepted and tells it again. The form in memory lives here.
"""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

__all__ = ["Campaign", "MemoryStore", "Push", "Store"]


class _Sent(Struct, frozen=True, rename="camel"):
    """The parts of a push body that its record shows, read when somebody asks."""

    message: dict[str, Any]
    custom_fields: dict[str, Any] | None = None


class Push(Struct, frozen=True, kw_only=True):
    """One accepted push send request.

    ``id`` counts up from 1 within the store, ``user_ids`` is in the order sent, ``body`` holds the bytes as they
    came, ``time`` is in seconds since the epoch.
    """

    id: int
    user_ids: tuple[str, ...]
    body: bytes
    time: float

    @property
    def message(self) -> dict[str, Any]:
        """The message as it was sent, fields that the interface does not know included."""
        return msgspec.json.decode(self.body, type=_Sent).message

    @property
    def custom_fields(self) -> dict[str, Any] | None:
        """The custom fields as they were sent, or None where there were none."""
        return msgspec.json.decode(self.body, type=_Sent).custom_fields


class Campaign(Struct, frozen=True, kw_only=True):
    """One accepted campaign: its ``uuid`` as answered, the ``body`` as it came, ``time`` as in `Push`."""

    uuid: str
    body: bytes
    time: float

    @property
    def request(self) -> dict[str, Any]:
        """The campaign create request as it was sent."""
        request: dict[str, Any] = msgspec.json.decode(self.body)
        return request


class Store(Protocol):
    """Keeps what was accepted. Every method is synchronous: an acceptance has no middle."""

    def accept_push(self, api_key: str, user_ids: tuple[str, ...], body: bytes) -> Push: ...
    def accept_campaign(self, api_key: str, body: bytes) -> Campaign: ...
    def pushes(self, api_key: str) -> Sequence[Push]: ...
    def campaigns(self, api_key: str) -> Sequence[Campaign]: ...
    def accepted(self, api_key: str, user_id: str) -> int: ...
    def users(self, api_key: str) -> Mapping[str, int]: ...
    def forget(self, api_key: str) -> None: ...
    def api_keys(self) -> Sequence[str]: ...


class _Shelf:
    """All of one key."""

    def __init__(self) -> None:
        self.users: Counter[str] = Counter()
        self.pushes: deque[Push] = deque()
        self.campaigns: deque[Campaign] = deque()


class MemoryStore:
    """A `Store` that ends with the process.

    ``max_bytes`` bounds the bodies kept over all keys: beyond it the oldest record goes. The counts per user, on
    which the verdicts rest, are never cut. ``seed`` makes the campaigns' uuids repeatable.
    """

    def __init__(self, *, seed: int = 0, max_bytes: int = 256 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0  # of the bodies in _order
        self._order: deque[deque[Push] | deque[Campaign]] = deque()  # the shelf of each record, oldest first
        self._shelves: dict[str, _Shelf] = {}
        self._ids = itertools.count(1)
        self._random = random.Random(f"{seed}:campaigns")  # noqa: S311 - repeatable is the point

    def accept_push(self, api_key: str, user_ids: tuple[str, ...], body: bytes) -> Push:
        """Record a push for each entry of ``user_ids``: an id that is there twice counts twice."""
        push = Push(id=next(self._ids), user_ids=user_ids, body=body, time=time.time())
        shelf = self._shelves.setdefault(api_key, _Shelf())
        shelf.users.update(user_ids)
        shelf.pushes.append(push)
        self._kept(shelf.pushes, len(body))
        return push

    def accept_campaign(self, api_key: str, body: bytes) -> Campaign:
        """Record a campaign under a new uuid."""
        name = uuid.UUID(int=self._random.getrandbits(128), version=4)
        campaign = Campaign(uuid=str(name), body=body, time=time.time())
        shelf = self._shelves.setdefault(api_key, _Shelf())
        shelf.campaigns.append(campaign)
        self._kept(shelf.campaigns, len(body))
        return campaign

    def pushes(self, api_key: str) -> Sequence[Push]:
        """The pushes kept, oldest first."""
        return tuple(self._shelf(api_key).pushes)

    def campaigns(self, api_key: str) -> Sequence[Campaign]:
        """The campaigns kept, oldest first."""
        return tuple(self._shelf(api_key).campaigns)

    def accepted(self, api_key: str, user_id: str) -> int:
        """How many times a push to this user was accepted."""
        return self._shelf(api_key).users[user_id]

    def users(self, api_key: str) -> Mapping[str, int]:
        """Every user with an accepted push, and how many."""
        return dict(self._shelf(api_key).users)

    def forget(self, api_key: str) -> None:
        """Drop all of one key."""
        shelf = self._shelves.pop(api_key, None)
        if shelf is not None:
            self._bytes -= sum(len(push.body) for push in shelf.pushes)
            self._bytes -= sum(len(campaign.body) for campaign in shelf.campaigns)
            gone = (id(shelf.pushes), id(shelf.campaigns))
            self._order = deque(kept for kept in self._order if id(kept) not in gone)

    def api_keys(self) -> Sequence[str]:
        """The keys something was accepted with."""
        return tuple(self._shelves)

    def _shelf(self, api_key: str) -> _Shelf:
        return self._shelves.get(api_key) or _Shelf()

    def _kept(self, records: deque[Push] | deque[Campaign], size: int) -> None:
        self._order.append(records)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._order.popleft().popleft().body)
