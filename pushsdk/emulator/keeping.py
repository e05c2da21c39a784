"""What is kept: how many requests each inbox has and how large they are, and which go where that is too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from sqlite3 import Connection

from pushsdk.emulator import changes
from pushsdk.emulator.changes import Size
from pushsdk.emulator.records import Entry

__all__ = ["Keeping"]

_SLACK = 100  # where the bytes are too many, a hundredth more goes: not one request for each that comes


class Keeping:
    """The bounds, and the counts they are held against. See `Store` for what they mean. In one thread at a time."""

    def __init__(self, *, keep: int, max_bytes: int, max_age: float | None) -> None:
        if keep < 0 or max_bytes < 0 or (max_age is not None and max_age < 0):
            raise ValueError("what is kept must not be negative: keep, max_bytes, max_age")
        self._keep = keep
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._requests: dict[int, int] = {}  # by inbox
        self._bytes: Counter[int] = Counter()  # of their bodies
        self._all_bytes = 0

    def __contains__(self, inbox: int) -> bool:
        """Whether this inbox is known, and was not forgotten."""
        return inbox in self._requests

    def add(self, inbox: int, requests: int = 0, size: int = 0) -> None:
        """An inbox, new or with what is in it."""
        self._requests[inbox], self._bytes[inbox] = requests, size
        self._all_bytes += size

    def forget(self, inbox: int) -> None:
        """An inbox is no more."""
        del self._requests[inbox]
        self._all_bytes -= self._bytes.pop(inbox)

    def surplus(self, db: Connection, new: Sequence[Entry]) -> list[Size]:
        """What has to go, now that these are stored too."""
        gone: set[Size] = set()
        if self._max_age is not None and new:
            gone.update(changes.older(db, new[-1].time - self._max_age))
        for inbox, number in Counter(entry.inbox for entry in new).items():
            if (over := self._requests[inbox] + number - self._keep) > 0:
                gone.update(changes.oldest(db, inbox, count=over))
        total = self._all_bytes + sum(len(entry.body) for entry in new)
        if total - sum(each.bytes for each in gone) > self._max_bytes:
            gone.update(self._too_large(db, new, total))
        return list(gone)

    def _too_large(self, db: Connection, new: Sequence[Entry], total: int) -> Iterable[Size]:
        """Enough of the oldest; who has most gives first."""
        sizes = self._bytes.copy()
        for entry in new:
            sizes[entry.inbox] += len(entry.body)
        excess = total - self._max_bytes * (_SLACK - 1) // _SLACK
        for inbox, size in sizes.most_common():
            if excess > 0:
                yield from changes.oldest(db, inbox, size=excess)
                excess -= size

    def count(self, new: Iterable[Entry], gone: Iterable[Size]) -> None:
        """The first were stored, the others dropped."""
        for entry in new:
            self._change(entry.inbox, 1, len(entry.body))
        for size in gone:
            if size.inbox in self:
                self._change(size.inbox, -1, -size.bytes)

    def _change(self, inbox: int, requests: int, size: int) -> None:
        self._requests[inbox] += requests
        self._bytes[inbox] += size
        self._all_bytes += size
