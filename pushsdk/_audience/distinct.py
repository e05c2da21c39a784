"""Exact user deduplication and exclusion in bounded memory: ids are kept in sets, and beyond that spilled to disk.

The file on disk has no name: no other process can open it, and it is gone with the process.
"""

import itertools
import sys
import tempfile
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from pushsdk._core.errors import RunFileError

# Ids in a batch.
BATCH = 10_000
# Rows in a batch. The garbage collector walks through all objects that live: more rows cost more than all the rest.
ROWS = 500

MEMORY = 64 * 1024 * 1024
# Each part is read whole: 200 million ids make parts that just fit into the memory.
PARTS = 1024

# Bytes that a set needs for an id besides its characters, at most, while its table grows (measured).
_OVERHEAD = 130
# Memory that a row's columns need as objects, per encoded byte, at most (measured).
_BLOAT = 10
# Memory shares: for the set, and for the items that are not written yet. The interpreter wastes the rest.
_SEEN, _WAITING = 0.6, 0.25

_encode = msgspec.msgpack.Encoder().encode

Row = tuple[str, dict[str, Any]]
"""A user id, and the other columns in the row."""
_decode: Any = msgspec.msgpack.Decoder(list[str | Row]).decode


class Distinct(AbstractContextManager["Distinct"]):
    """A filter that returns each user id once, or the first row of each id, unless the id is excluded.

    Pass ids to ``exclude``, all items to ``add``, then take the rest from ``finish``; use ``with``. Items are returned
    in their order until ``memory`` (bytes) is used up; later new items are returned by ``finish``, in no particular
    order.
    """

    def __init__(self, *, rows: bool = False, memory: int = MEMORY) -> None:
        self.duplicates = 0
        """Number of items whose id was seen before. Set when ``finish`` has ended; before, new items may be in it."""
        self.excluded = 0
        """Number of other items whose id is excluded. Complete when ``finish`` has ended."""
        self._rows = rows
        self._memory = memory
        self._seen: set[str] = set()
        self._excluded: set[str] = set()
        # Bytes that the sets take. Set by _keep.
        self._used = 0
        # For items and excluded ids. Created when the sets are full; from then on no id enters them.
        self._spills: tuple[_Spill, _Spill] | None = None

    def __exit__(self, *_: object) -> None:
        for spill in self._spills or ():
            spill.file.close()

    def exclude(self, ids: Sequence[str]) -> None:
        """Return no item with these ids. Call it before ``add``."""
        if self._spills is None:
            self._keep(ids, self._excluded)
        else:
            self._spills[1].add({user: user for user in ids}, _size_of(ids))

    def add(self, items: Sequence[Any]) -> list[list[Any]]:
        """Add a batch and return its items whose ids are new, as none or one batch."""
        fresh = _without(self._first(items), self._seen)
        self.duplicates += len(items)
        if self._spills is not None:
            columns = _BLOAT * len(_encode(list(fresh.values()))) if self._rows else 0
            self._spills[0].add(fresh, _size_of(fresh) + columns)
            return []
        left = self._left(fresh, self._excluded)
        self._keep(fresh, self._seen)
        return left

    def finish(self) -> Iterator[list[Any]]:
        """Yield the rest in batches, in no particular order. Call it once, after all calls to ``add``."""
        if self._spills is None:
            return
        self._seen = set()  # no id on disk is in it
        spill, excluded = self._spills
        for blocks, ids in zip(spill.parts(), excluded.parts(), strict=True):
            fresh = self._first(itertools.chain.from_iterable(map(_decode, blocks)))
            yield from self._left(fresh, set().union(*map(_decode, ids)))

    def _keep(self, ids: Collection[str], known: set[str]) -> None:
        known.update(ids)
        self._used += _size_of(ids)
        if self._used > self._memory * _SEEN:
            room = int(self._memory * _WAITING)
            self._spills = _Spill(room), _Spill(room)
            excluded, self._excluded = self._excluded, set()
            self.exclude(list(excluded))

    def _left(self, fresh: dict[str, Any], excluded: set[str]) -> list[list[Any]]:
        """Subtract the items from the duplicates. Return those that are not excluded, as none or one batch."""
        self.duplicates -= len(fresh)
        left = _without(fresh, excluded)
        self.excluded += len(fresh) - len(left)
        return [list(left.values())] if left else []

    def _first(self, items: Iterable[Any]) -> dict[str, Any]:
        """Return the first item of each id, by id."""
        if not self._rows:
            return {user: user for user in items}
        first: dict[str, Row] = {}
        for row in items:
            first.setdefault(row[0], row)
        return first


def _size_of(ids: Collection[str]) -> int:
    """Return the bytes that the ids take in memory, at most."""
    # The width of the characters shows in the joined text, in a tenth of the time that a look at each id takes.
    return sys.getsizeof("".join(ids)) + _OVERHEAD * len(ids)


def _without(items: dict[str, Any], ids: set[str]) -> dict[str, Any]:
    return items if ids.isdisjoint(items) else {user: item for user, item in items.items() if user not in ids}


class _Spill:
    """Items in a nameless file, in parts by the hash of their id: equal ids are in one part, in their order."""

    def __init__(self, room: int) -> None:
        self._room = room
        with _on_disk():
            self.file = tempfile.TemporaryFile(prefix="pushsdk-")  # noqa: SIM115 # closed by Distinct
        self._end = 0
        # Per part: the items that are not written, and the offset and length of each block in the file, in turn.
        self._waiting: list[list[Any]] = [[] for _ in range(PARTS)]
        self._blocks = [array("Q") for _ in range(PARTS)]
        # Bytes of the items that are not written. Set by add and _write.
        self._pending = 0

    def add(self, items: dict[str, Any], size: int) -> None:
        waiting = self._waiting
        for user, item in items.items():
            waiting[hash(user) % PARTS].append(item)
        self._pending += size
        if self._pending >= self._room:
            self._write()

    def parts(self) -> Iterator[Iterator[bytes]]:
        self._write()
        return map(self._read, self._blocks)

    def _write(self) -> None:
        for items, blocks in zip(self._waiting, self._blocks, strict=True):
            if items:
                data = _encode(items)
                with _on_disk():
                    self.file.write(data)
                blocks.extend((self._end, len(data)))
                self._end += len(data)
                items.clear()
        self._pending = 0

    def _read(self, blocks: "array[int]") -> Iterator[bytes]:
        for offset, length in zip(blocks[::2], blocks[1::2], strict=True):
            with _on_disk():
                self.file.seek(offset)
                yield self.file.read(length)


@contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFileError(
            f"the ids seen so far can't be kept ({error.strerror}), and nothing was sent: make room in the folder for "
            "temporary files, or set TMPDIR to another one, then start again"
        ) from None
