"""The plan for a run, cut into chunks, and the events in its journal. Values only: others store and send them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Literal

import msgspec

from pushsdk._core.batching import FRAME
from pushsdk._core.body import EncodedIds, decode_user_ids, encode_texts, push_body
from pushsdk._core.outcome import Attempt, GuardedValue
from pushsdk._core.user_states import UserStatus


class Chunk(GuardedValue, frozen=True, array_like=True, gc=False):
    """One request in a plan. Its boundaries never change."""

    users: Annotated[int, msgspec.Meta(ge=1, le=2**32)]
    ids: EncodedIds
    message: bytes | None = None
    """Set only in a run of kind "each"; None is the message in the run's header."""
    custom_fields: bytes | None = None

    def user_ids(self) -> list[str]:
        return decode_user_ids(self.ids)


class Header(GuardedValue, frozen=True, kw_only=True):
    """Run identity: stored with the plan and compared on resume. Contains no Api-Key."""

    kind: Literal["broadcast", "each"]
    base_url: str
    message: bytes | None = None
    """The message as JSON; None if the chunks have different ones."""
    custom_fields: bytes | None = None
    source: str = ""
    """A description of the user id source."""
    max_users: int
    max_bytes: int
    dedupe: bool = True
    parts: int = 0
    """Number of run files that the plan is split into, which are sent instead; 0 for a run in one file."""
    not_after: datetime | None = None
    """The time after which no request is begun."""
    created: float = 0.0
    """Seconds since the epoch."""


class UserRange(msgspec.Struct, frozen=True, gc=False):
    """The plan's users ``start`` to ``stop`` - 1, counted from 0, all in chunk number ``chunk``."""

    chunk: int
    start: int
    stop: int

    @property
    def users(self) -> int:
        return self.stop - self.start


StopCause = Literal["stop_policy", "refused", "failure", "limit", "not_after", "asked", "closed"]
"""The cause of an early end, the worst first: the stop policy; a refused Api-Key (401, 403); a failure that every other
request would meet, such as a bad certificate; ``limit``; ``not_after``; ``stop`` or Ctrl-C; a closed client."""


class StopReason(msgspec.Struct, frozen=True):
    """The reason why a run ended early."""

    by: StopCause
    reason: str
    """Cause and fix, in words."""


MOST_ANSWERS = 20  # different answers that a run keeps
ANOTHER_TEXT = "another text"  # stands for the texts that are not kept


class Notes(GuardedValue, frozen=True):
    """Facts about a run's plan and its sending, for its reports: the requests do not depend on these facts."""

    duplicates: int = 0
    """Source ids that the plan leaves out because they occurred before."""
    excluded: int = 0
    """Excluded users that the plan leaves out."""
    answers: dict[str, int] = {}  # noqa: RUF012 - each Struct gets a copy
    """Counts of the answers to requests that were not accepted, by status and text, which may name users."""
    ended: float | None = None
    """Seconds since the epoch; None while a process sends, and if the last process was killed."""
    stop_reason: StopReason | None = None
    """The reason why the last process ended early; None if all was sent, or while a process sends."""


Event = tuple[int, int, UserStatus]
"""One change in the log: the plan's users ``start`` to ``stop`` - 1 have this status from now on."""


class ChunkRequest(GuardedValue, frozen=True, eq=False, gc=False):
    """One request: its users and its bytes. Split by ``_core.splitting.Splitter``, one unit per user."""

    positions: UserRange
    ids: EncodedIds
    message: bytes
    custom_fields: bytes | None

    @classmethod
    def of(cls, positions: UserRange, chunk: Chunk, header: Header, first: int) -> "ChunkRequest":
        """Return the request for some users in a chunk. ``first`` is the position of the chunk's first user."""
        start, stop = positions.start - first, positions.stop - first
        ids = chunk.ids if positions.users == chunk.users else encode_texts(chunk.user_ids()[start:stop])
        if chunk.message is not None:
            return cls(positions, ids, chunk.message, chunk.custom_fields)
        return cls(positions, ids, header.message or b"{}", header.custom_fields)

    @property
    def users(self) -> int:
        return self.positions.users

    @property
    def units(self) -> range:
        """The units that a rejection is narrowed down to: user positions."""
        return range(self.positions.start, self.positions.stop)

    @property
    def frame(self) -> int:
        """Body bytes beside the ids."""
        return FRAME + len(self.message) + len(self.custom_fields or b"")

    def body(self) -> bytes:
        return push_body(self.ids, self.message, self.custom_fields)

    def bisect(self, history: tuple[Attempt, ...] = ()) -> "list[ChunkRequest]":
        """Return two requests with about half the users each."""
        return self.split(history, [(self.users + 1) // 2])

    def split(self, history: tuple[Attempt, ...], at: Sequence[int]) -> "list[ChunkRequest]":
        """Return the requests between these indexes. ``history`` is not kept: the journal has it."""
        positions, ids = self.positions, decode_user_ids(self.ids)
        return [
            ChunkRequest(
                UserRange(positions.chunk, positions.start + start, positions.start + stop),
                encode_texts(ids[start:stop]),
                self.message,
                self.custom_fields,
            )
            for start, stop in pairwise((0, *at, self.users))
        ]


def chunks_of(user_ids: Sequence[str], header: Header) -> Iterator[tuple[Sequence[str], EncodedIds]]:
    """Cut checked ids into chunks within the header's bounds. Yield the ids in each, plain and encoded.

    An id that alone exceeds ``max_bytes`` gets a chunk to itself.
    """
    fixed = len(header.message or b"") + len(header.custom_fields or b"")
    # If the message takes more than half the bytes, fewer users would not make the request small enough.
    room = header.max_bytes - fixed - FRAME if fixed * 2 <= header.max_bytes else None
    for start in range(0, len(user_ids), header.max_users):
        yield from _bisected(user_ids[start : start + header.max_users], room)


def _bisected(users: Sequence[str], room: int | None) -> Iterator[tuple[Sequence[str], EncodedIds]]:
    ids = encode_texts(users)
    if room is None or len(ids) <= room or len(users) == 1:
        yield users, ids
        return
    middle = len(users) // 2
    for half in (users[:middle], users[middle:]):
        yield from _bisected(half, room)
