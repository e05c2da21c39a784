"""One chunk under its claim: what is still to be sent of it, what became of it, and until when that may go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import groupby

from pushsdk._broadcast.parts import Part
from pushsdk._broadcast.plan import Piece
from pushsdk._core import wire
from pushsdk._core.dedupe import Record
from pushsdk._core.outcome import Verdict
from pushsdk.arrow._chunks import Chunk
from pushsdk.arrow._outcomes import Places

__all__ = ["Load"]


class Load:
    """One chunk under its claim: see ``claims._guard.Load``."""

    def __init__(self, chunk: Chunk, number: int, send: Callable[[Load, tuple[int, ...]], Awaitable[None]]) -> None:
        self._send = send
        self.chunk = chunk
        #: Among the chunks of this dispatcher.
        self.number = number
        self.count = len(chunk.users)
        self.deadline = 0.0
        #: Until when its requests may wait for their places. Both are set for each claim, by ``due``.
        self.latest_start = 0.0
        self.places = Places(self.count)
        #: Requests that are still to come.
        self.requests = 0
        #: Whether anything of it was to be sent.
        self.is_busy = False
        #: Whether a place on the wire is taken that no request has taken over yet.
        self.has_place = False
        #: The last failure of somebody who is left to send to.
        self.trouble: Verdict | None = None
        # Who is sent to under this claim. Set by ``send``.
        self._claimed: tuple[int, ...] = ()

    def due(self, now: float, deadline: float, attempt: float | None) -> None:
        """It is claimed now, until that deadline, and an attempt takes so many seconds."""
        half = (deadline - now) / 2
        self.deadline = deadline
        # An attempt that is cut is UNKNOWN. One that was not begun is made under the next claim.
        self.latest_start = deadline - min(half, half if attempt is None else attempt)

    async def send(self, places: tuple[int, ...]) -> None:
        self._claimed = places
        await self._send(self, places)

    def after(self, record: Record) -> Record:
        return self.places.after(record, self._claimed)

    def parts(self, places: tuple[int, ...]) -> list[Part]:
        """The requests for these."""
        chunk = self.chunk
        if chunk.is_personal:
            return [Part(Piece(self.number, place, place + 1), *chunk.payloads[place]) for place in places]
        ((ids, message, custom_fields),) = chunk.payloads
        if len(places) == self.count:
            return [Part(Piece(self.number, 0, self.count), ids, message, custom_fields)]
        parts = []
        for _, run in groupby(enumerate(places), key=lambda each: each[1] - each[0]):
            alike = [place for _, place in run]
            start, stop = alike[0], alike[-1] + 1
            ids = wire.encode_user_ids(chunk.users[start:stop])[1:-1]
            parts.append(Part(Piece(self.number, start, stop), ids, message, custom_fields))
        return parts
