"""What one request of a run carries: a piece of a chunk with its bytes, and how it is cut when it was rejected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from pushsdk._broadcast.plan import Chunk, Header, Piece
from pushsdk._core import wire
from pushsdk._core.batching import FRAME
from pushsdk._core.outcome import Attempt
from pushsdk._core.splitting import LearnedSizes

__all__ = ["Part"]


class Part(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A piece, and the bytes of its request. Cut by ``_core.splitting.Splitter``, each user a unit of its own."""

    piece: Piece
    ids: bytes
    message: bytes
    custom_fields: bytes | None

    @classmethod
    def of(cls, piece: Piece, chunk: Chunk, header: Header, first: int) -> Part:
        """The piece of this chunk, whose first user is at position ``first``."""
        start, stop = piece.start - first, piece.stop - first
        ids = chunk.ids if piece.users == chunk.users else _encode(chunk.user_ids()[start:stop])
        if chunk.message is not None:
            return cls(piece, ids, chunk.message, chunk.custom_fields)
        return cls(piece, ids, header.message or b"{}", header.custom_fields)

    def __repr__(self) -> str:
        return f"Part({self.piece}, bytes={len(self.ids)})"

    @property
    def users(self) -> int:
        """How many."""
        return self.piece.users

    @property
    def segments(self) -> range:
        """The units that a rejection is pinned down to: its users."""
        return range(self.piece.start, self.piece.stop)

    @property
    def frame(self) -> int:
        """Bytes of the body that are not ids."""
        return FRAME + len(self.message) + len(self.custom_fields or b"")

    def body(self) -> bytes:
        """The request's body."""
        return wire.push_body(b"[" + self.ids + b"]", self.message, self.custom_fields)

    def halves(self, history: tuple[Attempt, ...] = ()) -> list[Part]:
        """Two parts of about half the users."""
        return self.cut(history, [(self.users + 1) // 2])

    def cut(self, history: tuple[Attempt, ...], at: Sequence[int]) -> list[Part]:
        """The parts between these places among the users. The attempts before are in the journal."""
        piece, ids = self.piece, Chunk(self.users, self.ids).user_ids()
        return [
            Part(
                Piece(piece.chunk, piece.start + start, piece.start + stop),
                _encode(ids[start:stop]),
                self.message,
                self.custom_fields,
            )
            for start, stop in pairwise((0, *at, self.users))
        ]

    def within(self, sizes: LearnedSizes) -> Iterator[Part]:
        """The part, in halves until each is what the service was found to take."""
        if sizes.fits(self.users, self.frame, len(self.ids)):
            yield self
            return
        for half in self.halves():
            yield from half.within(sizes)


def _encode(user_ids: list[str]) -> bytes:
    return wire.encode_user_ids(user_ids)[1:-1]
