"""Group commit: all that arrives in one turn of the loop is one transaction, and is answered after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import TypeAlias

from pushsdk.emulator.records import Entry
from pushsdk.emulator.store import Store, StoreError

__all__ = ["Writer"]

_SWEEP = 0.05  # seconds between two steps of giving room back
_TOGETHER = 100_000  # users; what is over them waits for the next turn of the loop
_Waiting: TypeAlias = tuple[Entry, asyncio.Future[StoreError | None]]


class Writer:
    """Writes entries on the loop's own thread: there is no fsync in it, and a thread would cost more than it frees.

    ``stored`` is called with what one transaction stored, after it.
    """

    def __init__(self, store: Store, stored: Callable[[Sequence[Entry]], None]) -> None:
        self._store = store
        self._stored = stored
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Waiting] = []
        self._sweeping: asyncio.TimerHandle | None = None  # until the next step, set where there is something to do
        self._closed = False

    def add(self, entry: Entry) -> asyncio.Future[StoreError | None]:
        """Store an entry with the rest of this turn; why it can't be, or None once it is."""
        done: asyncio.Future[StoreError | None] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._commit)
        self._waiting.append((entry, done))
        return done

    def sweep(self) -> None:
        """Give the room of what is gone back, a step at a time, until there is no more. From any thread, also late."""
        with suppress(RuntimeError):  # the loop is closed: the next to open the store does it
            self._loop.call_soon_threadsafe(self._sweep_later)

    def close(self) -> None:
        """Write what waits, and sweep no more."""
        while self._waiting:
            self._commit()
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep_later(self) -> None:
        if self._store.unswept and self._sweeping is None and not self._closed:
            self._sweeping = self._loop.call_later(_SWEEP, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        with suppress(StoreError):  # a full disk: whatever is written next tries again
            self._store.sweep()
            self._sweep_later()

    def _commit(self) -> None:
        if not self._waiting:  # close() was first
            return
        users = accumulate(len(entry.user_ids) for entry, _ in self._waiting)
        end = 1 + sum(1 for _ in takewhile(_TOGETHER.__gt__, users))
        group, self._waiting = self._waiting[:end], self._waiting[end:]
        if self._waiting:
            self._loop.call_soon(self._commit)
        error = self._write(group)
        if error is None or len(group) == 1:
            _settle(group, error)
        else:
            for one in group:  # one that can't be stored, too large for the disk, takes no other along
                _settle([one], self._write([one]))
        self._sweep_later()

    def _write(self, group: Sequence[_Waiting]) -> Exception | None:
        entries = [entry for entry, _ in group]
        try:
            self._store.write(entries)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to hear of it
            return error
        self._stored(entries)
        return None


def _settle(group: Sequence[_Waiting], error: Exception | None) -> None:
    for _, done in group:
        if done.cancelled():
            continue  # its handler was ended with the server
        if error is None or isinstance(error, StoreError):
            done.set_result(error)
        else:
            done.set_exception(error)
