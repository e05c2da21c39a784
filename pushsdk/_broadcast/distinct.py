"""Each user once, exactly, in bounded memory: what was seen is kept in a set, and beyond that spilled to disk.

Sync, no duckdb. The file on disk has no name: nobody else can open it, and it is gone with the process.
"""

from __future__ import annotations

import operator
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from pushsdk._core.errors import RunFileError, ValidationError

__all__ = ["Distinct", "DistinctRows", "Row"]

MEMORY = 64 * 1024 * 1024
PARTS = 128

# Bytes that an id in a set costs besides its characters, at most, while the set's table grows (measured).
_COST = 130
# A row's columns cost up to this times more as objects than as bytes (measured).
_BLOAT = 10
# Of the memory: what the set may take, and what may wait to be written. The rest is the interpreter's own waste.
_SEEN, _WAITING = 0.6, 0.25

_encode = msgspec.msgpack.Encoder().encode

Row = tuple[str, dict[str, Any]]
"""A user id, and the other columns of its row."""
Item = TypeVar("Item")
Self = TypeVar("Self", bound="_Once[Any]")


class _Form(msgspec.Struct, Generic[Item], frozen=True):
    """What is different between ids and rows."""

    id_of: Callable[[Item], str]
    cost: Callable[[Sequence[Item]], int]
    """Bytes that items take in memory, at most."""
    decode: Callable[[bytes], list[Item]]
    merge: Callable[[Iterable[list[Item]]], list[Item]]
    """The first item of each id."""
    batch: int
    """Items handed out together, at most, when they come from the disk."""


class _Once(Generic[Item]):
    """What both forms share. ``Item`` is what is handed out."""

    def __init__(self, form: _Form[Item], memory: int) -> None:
        self.repeated = 0
        """Items whose id had been there before. Complete when ``finish`` has come to its end."""
        self._form = form
        self._memory = memory
        self._seen: set[str] = set()
        # Bytes that the set costs. Counted by _keep.
        self._used = 0
        # Made when the set is full; from then on nothing enters the set.
        self._spill: _Spill[Item] | None = None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give back the memory and the file. Safe to call twice."""
        self._seen = set()
        if self._spill is not None:
            self._spill.close()

    def finish(self) -> Iterator[list[Item]]:
        """The rest, in batches and no particular order; call it once, when all is added."""
        if self._spill is None:
            return
        self._seen = set()  # nothing on disk is in it
        left = self._spill.items
        for batch in self._spill.drain(int(self._memory * _SEEN)):
            left -= len(batch)
            for at in range(0, len(batch), self._form.batch):
                yield batch[at : at + self._form.batch]
        self.repeated += left

    def _keep(self, ids: Sequence[str], items: list[Item], given: int) -> list[list[Item]]:
        """``items`` are those of ``given`` that are not in the set, ``ids`` their ids."""
        self.repeated += given - len(items)
        if self._spill is not None:
            self._spill.add(ids, items)
            return []
        self._seen.update(ids)
        self._used += _cost_of_ids(ids)
        if self._used > self._memory * _SEEN:
            self._spill = _Spill(self._form, int(self._memory * _WAITING))
        return [items] if items else []


class Distinct(_Once[str]):
    """User ids, each once. Feed all with ``add``, then take the rest from ``finish``; close it, or use ``with``.

    The ids come out in the order they came in, until about 64 MB are used; from then on those not seen so far come
    out of ``finish``, in no particular order. ``memory`` bounds the bytes used, whatever the number of ids.
    """

    def __init__(self, *, memory: int = MEMORY) -> None:
        super().__init__(_IDS, memory)

    def add(self, ids: Sequence[str]) -> list[list[str]]:
        """Take a batch in; the ids that are there for the first time, as none or one batch.

        Raises ValidationError where an id that is not Unicode has to be spilled.
        """
        seen = self._seen
        fresh = [each for each in dict.fromkeys(ids) if each not in seen]
        if self._spill is not None:  # a str of a class of its own could not be written
            fresh = list(map(str.__str__, fresh))
        return self._keep(fresh, fresh, len(ids))


class DistinctRows(_Once[Row]):
    """The same for rows: the first row of an id counts, and later ones are repetitions whatever they hold."""

    def __init__(self, *, memory: int = MEMORY) -> None:
        super().__init__(_ROWS, memory)

    def add(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Take a batch in; the rows whose ids are there for the first time, as none or one batch."""
        seen = self._seen
        first: dict[str, Row] = {}
        for row in rows:
            if row[0] not in seen:
                first.setdefault(row[0], row)
        return self._keep(list(first), list(first.values()), len(rows))


class _Spill(Generic[Item]):
    """Items in a nameless file, in parts by the hash of their id: equal ids meet in one part, in their order."""

    def __init__(self, form: _Form[Item], room: int) -> None:
        self._form = form
        self._room = room
        with _on_disk():
            self._file = tempfile.TemporaryFile(prefix="pushsdk-")  # noqa: SIM115 # closed by close()
        self._end = 0
        self.items = 0
        """How many it was given."""
        # Per part: what waits, where its blocks are in the file (offset and length in turn), and what it costs.
        self._waiting: list[list[Item]] = [[] for _ in range(PARTS)]
        self._blocks = [array("Q") for _ in range(PARTS)]
        self._costs = [0] * PARTS
        # Bytes that wait. Counted by add, back to nothing when they are written.
        self._waits = 0

    def close(self) -> None:
        self._file.close()

    def add(self, ids: Iterable[str], items: Sequence[Item]) -> None:
        waiting = self._waiting
        for user, item in zip(ids, items, strict=True):
            waiting[hash(user) % PARTS].append(item)
        self.items += len(items)
        self._waits += self._form.cost(items)
        if self._waits >= self._room:
            self._write()

    def drain(self, room: int) -> Iterator[list[Item]]:
        """The first item of each id."""
        self._write()
        for part, cost in enumerate(self._costs):
            # A part too large for the memory is read several times, each time for another share of its ids.
            shares = 1 + cost // room
            for share in range(shares):
                if batch := self._form.merge(self._read(part, share, shares)):
                    yield batch

    def _write(self) -> None:
        for part, items in enumerate(self._waiting):
            if items:
                data = _packed(items)
                with _on_disk():
                    self._file.write(data)
                self._blocks[part].extend((self._end, len(data)))
                self._costs[part] += self._form.cost(items)
                self._end += len(data)
                items.clear()
        self._waits = 0

    def _read(self, part: int, share: int, shares: int) -> Iterator[list[Item]]:
        form, blocks = self._form, self._blocks[part]
        for offset, length in zip(blocks[::2], blocks[1::2], strict=True):
            with _on_disk():
                self._file.seek(offset)
                items = form.decode(self._file.read(length))
            yield items if shares == 1 else [e for e in items if hash(form.id_of(e)) // PARTS % shares == share]


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


def _cost_of_ids(ids: Sequence[str]) -> int:
    # Joined they tell how wide their characters are, and in a tenth of the time that asking each would take.
    return sys.getsizeof("".join(ids)) + _COST * len(ids)


def _merge_ids(batches: Iterable[list[str]]) -> list[str]:
    found: set[str] = set()
    for ids in batches:
        found.update(ids)
    return list(found)


def _merge_rows(batches: Iterable[list[Row]]) -> list[Row]:
    first: dict[str, Row] = {}
    for rows in batches:
        for row in rows:
            first.setdefault(row[0], row)
    return list(first.values())


_IDS: _Form[str] = _Form(
    id_of=str,
    cost=_cost_of_ids,
    decode=msgspec.msgpack.Decoder(list[str]).decode,
    merge=_merge_ids,
    batch=10_000,
)
_ROWS: _Form[Row] = _Form(
    id_of=operator.itemgetter(0),
    cost=lambda rows: _BLOAT * len(_packed(rows)) + _COST * len(rows),
    decode=msgspec.msgpack.Decoder(list[Row]).decode,
    merge=_merge_rows,
    batch=500,  # more rows at a time would keep the garbage collector busy
)
