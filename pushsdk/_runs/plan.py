"""The plan of a run and the events that its journal is made of. Values only: who stores and who sends is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from pushsdk._audience.chunks import Chunk
from pushsdk._core import wire
from pushsdk._core.batching import FRAME
from pushsdk._core.outcome import Attempt
from pushsdk._core.splitting import LearnedSizes
from pushsdk._core.user_states import UserStatus

__all__ = ["ChunkRequest", "Event", "Header", "StopCause", "StopReason", "UserRange"]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is about. Stored with the plan, and compared when the run is taken up again; holds no key."""

    kind: Literal["broadcast", "each"]
    base_url: str
    message: bytes | None = None
    """As JSON; None where each chunk has its own."""
    custom_fields: bytes | None = None
    source: str = ""
    """Words that name where the user ids came from."""
    max_users: int
    max_bytes: int
    dedupe: bool = True
    policy: dict[str, Any] = {}
    """What was asked about repeats, as plain JSON, for people."""
    created: float = 0.0
    """Seconds since the epoch."""
    version: str = ""
    """Of the package that planned it."""

    def __repr__(self) -> str:
        return f"Header({self.kind!r}, {self.base_url!r}, source={self.source!r})"


class UserRange(msgspec.Struct, frozen=True, gc=False):
    """The users ``start`` to ``stop`` - 1 of the plan, who are all in chunk number ``chunk``; counted from 0."""

    chunk: int
    start: int
    stop: int

    @property
    def users(self) -> int:
        """How many."""
        return self.stop - self.start


StopCause = Literal["stop_policy", "refused", "failure", "limit", "asked", "closed"]
"""The reason for an early end: the stop policy; a refused Api-Key (401, 403); a failure that every other request would
meet, such as a bad certificate; ``limit``; ``stop`` or Ctrl-C; a closed client."""


class StopReason(msgspec.Struct, frozen=True):
    """That a run was ended before its end."""

    by: StopCause
    reason: str
    """In words."""


Event = tuple[int, int, UserStatus]
"""One change in the log: from this moment the users ``start`` to ``stop`` - 1 of the plan have this status."""


class ChunkRequest(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One request: its users and its bytes. Cut by ``_core.splitting.Splitter``, each user a unit of its own."""

    positions: UserRange
    ids: bytes
    message: bytes
    custom_fields: bytes | None

    @classmethod
    def of(cls, positions: UserRange, chunk: Chunk, header: Header, first: int) -> ChunkRequest:
        """Return the request for users of this chunk, whose first user is at position ``first``."""
        start, stop = positions.start - first, positions.stop - first
        ids = chunk.ids if positions.users == chunk.users else _encode(chunk.user_ids()[start:stop])
        if chunk.message is not None:
            return cls(positions, ids, chunk.message, chunk.custom_fields)
        return cls(positions, ids, header.message or b"{}", header.custom_fields)

    def __repr__(self) -> str:
        return f"ChunkRequest({self.positions}, bytes={len(self.ids)})"

    @property
    def users(self) -> int:
        """How many."""
        return self.positions.users

    @property
    def units(self) -> range:
        """The units that a rejection is pinned down to: its users."""
        return range(self.positions.start, self.positions.stop)

    @property
    def frame(self) -> int:
        """Bytes of the body that are not ids."""
        return FRAME + len(self.message) + len(self.custom_fields or b"")

    def body(self) -> bytes:
        """The request's body."""
        return wire.push_body(b"[" + self.ids + b"]", self.message, self.custom_fields)

    def bisect(self, history: tuple[Attempt, ...] = ()) -> list[ChunkRequest]:
        """Two parts of about half the users."""
        return self.split(history, [(self.users + 1) // 2])

    def split(self, history: tuple[Attempt, ...], at: Sequence[int]) -> list[ChunkRequest]:
        """The parts between these places among the users. The attempts before are in the journal."""
        piece, ids = self.positions, Chunk(self.users, self.ids).user_ids()
        return [
            ChunkRequest(
                UserRange(piece.chunk, piece.start + start, piece.start + stop),
                _encode(ids[start:stop]),
                self.message,
                self.custom_fields,
            )
            for start, stop in pairwise((0, *at, self.users))
        ]

    def within(self, sizes: LearnedSizes) -> Iterator[ChunkRequest]:
        """The part, in halves until each is what the service was found to take."""
        if sizes.fits(self.users, self.frame, len(self.ids)):
            yield self
            return
        for half in self.bisect():
            yield from half.within(sizes)


def _encode(user_ids: list[str]) -> bytes:
    return wire.encode_user_ids(user_ids)[1:-1]
