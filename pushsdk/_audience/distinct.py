"""Each user once, exactly, in bounded memory: what was seen is kept in a set, and beyond that spilled to disk.

Sync, no duckdb. The file on disk has no name: nobody else can open it, and it is gone with the process.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import msgspec

from pushsdk._core.errors import RunFileError, ValidationError

__all__ = ["Distinct", "Row"]

MEMORY = 64 * 1024 * 1024
# Each part is read whole: 200 million ids make parts that the memory just holds.
PARTS = 1024

# Bytes that an id in a set costs besides its characters, at most, while the set's table grows (measured).
_COST = 130
# A row's columns cost up to this times more as objects than as bytes (measured).
_BLOAT = 10
# Of the memory: what the set may take, and what may wait to be written. The rest is the interpreter's own waste.
_SEEN, _WAITING = 0.6, 0.25

# A text of a class of its own is written as the text.
_encode = msgspec.msgpack.Encoder(enc_hook=str.__str__).encode
_decode_ids = msgspec.msgpack.Decoder(list[str]).decode

Row = tuple[str, dict[str, Any]]
"""A user id, and the other columns of its row."""
_decode_rows = msgspec.msgpack.Decoder(list[Row]).decode


class Distinct:
    """User ids, each once; or rows, of which the first of each id counts whatever later ones hold.

    Feed all with ``add``, then take the rest from ``finish``; close it, or use ``with``. The items come out in the
    order they came in, until about 64 MB are used; from then on the new ones come out of ``finish``, in no particular
    order. ``memory`` bounds the bytes used.
    """

    def __init__(self, *, rows: bool = False, memory: int = MEMORY) -> None:
        self.duplicates = 0
        """Number of items whose id came before. Complete when ``finish`` has ended."""
        self._rows = rows
        self._memory = memory
        self._seen: set[str] = set()
        # Bytes that the set costs. Counted by add.
        self._used = 0
        # Made when the set is full; from then on nothing enters the set.
        self._spill: _Spill | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give back the memory and the file. Safe to call twice."""
        self._seen = set()
        if self._spill is not None:
            self._spill.close()

    def add(self, items: Sequence[Any]) -> list[list[Any]]:
        """Take a batch in; the items whose ids are there for the first time, as none or one batch.

        Raises ValidationError if an id that is not Unicode has to be spilled.
        """
        seen = self._seen
        fresh = self._first(items)
        if not seen.isdisjoint(fresh):
            fresh = {user: item for user, item in fresh.items() if user not in seen}
        self.duplicates += len(items) - len(fresh)
        if self._spill is not None:
            self._spill.add(fresh, self._cost(fresh))
            return []
        seen.update(fresh)
        self._used += _cost_of_ids(fresh)
        if self._used > self._memory * _SEEN:
            self._spill = _Spill(int(self._memory * _WAITING))
        return [list(fresh.values())] if fresh else []

    def finish(self) -> Iterator[list[Any]]:
        """The rest, in batches and no particular order; call it once, when all is added."""
        if self._spill is None:
            return
        self._seen = set()  # nothing on disk is in it
        self.duplicates += self._spill.items
        # More rows at a time would keep the garbage collector busy.
        size, decode = (500, _decode_rows) if self._rows else (10_000, _decode_ids)
        # Parts are small unless ids are many: a batch may hold those of several.
        items: list[Any] = []
        for blocks in self._spill.parts():
            fresh = self._first(itertools.chain.from_iterable(map(decode, blocks)))
            self.duplicates -= len(fresh)
            items += fresh.values()
            while len(items) >= size:
                yield items[:size]
                del items[:size]
        if items:
            yield items

    def _first(self, items: Iterable[Any]) -> dict[str, Any]:
        """Return the first item of each id, by id."""
        if not self._rows:
            users = list(items)
            return dict(zip(users, users, strict=True))
        first: dict[str, Row] = {}
        for row in items:
            first.setdefault(row[0], row)
        return first

    def _cost(self, items: dict[str, Any]) -> int:
        """Return the bytes that items take in memory, at most."""
        return _BLOAT * len(_packed(list(items.values()))) + _COST * len(items) if self._rows else _cost_of_ids(items)


class _Spill:
    """Items in a nameless file, in parts by the hash of their id: equal ids meet in one part, in their order."""

    def __init__(self, room: int) -> None:
        self._room = room
        with _on_disk():
            self._file = tempfile.TemporaryFile(prefix="pushsdk-")  # noqa: SIM115 # closed by close()
        self._end = 0
        self.items = 0
        """How many it was given."""
        # Per part: what waits, and where its blocks are in the file (offset and length in turn).
        self._waiting: list[list[Any]] = [[] for _ in range(PARTS)]
        self._blocks = [array("Q") for _ in range(PARTS)]
        # Bytes that wait. Counted by add, back to nothing when they are written.
        self._waits = 0

    def close(self) -> None:
        self._file.close()

    def add(self, items: dict[str, Any], cost: int) -> None:
        waiting = self._waiting
        for user, item in items.items():
            waiting[hash(user) % PARTS].append(item)
        self.items += len(items)
        self._waits += cost
        if self._waits >= self._room:
            self._write()

    def parts(self) -> Iterator[Iterator[bytes]]:
        """The blocks of each part."""
        self._write()
        return map(self._read, self._blocks)

    def _write(self) -> None:
        for items, blocks in zip(self._waiting, self._blocks, strict=True):
            if items:
                data = _packed(items)
                with _on_disk():
                    self._file.write(data)
                blocks.extend((self._end, len(data)))
                self._end += len(data)
                items.clear()
        self._waits = 0

    def _read(self, blocks: array[int]) -> Iterator[bytes]:
        for offset, length in zip(blocks[::2], blocks[1::2], strict=True):
            with _on_disk():
                self._file.seek(offset)
                yield self._file.read(length)


@contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFileError(
            f"the ids seen so far can't be kept ({error.strerror}), and nothing was sent: make room in the folder for "
            "temporary files, or set TMPDIR to another one, then start again"
        ) from None


def _packed(items: object) -> bytes:
    try:
        return _encode(items)
    except UnicodeEncodeError:
        raise ValidationError("a user id holds a lone surrogate, which is not Unicode") from None


def _cost_of_ids(ids: Collection[str]) -> int:
    # Joined they tell how wide their characters are, and in a tenth of the time that asking each would take.
    return sys.getsizeof("".join(ids)) + _COST * len(ids)
