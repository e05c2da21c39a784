"""Group commits: items that come together are committed together, and slow commits don't block the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from pushsdk._io.threads import Offload

__all__ = ["Commit", "GroupCommit"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Commit(Protocol[T_contra]):
    """Commits items. Raises if they can't be; then nothing more is committed."""

    def __call__(self, items: Sequence[T_contra], /, *, at_once: bool = False) -> bool:
        """Return False only with ``at_once``: nothing was done, because the commit would have to wait."""
        ...


class _Group(Generic[T]):
    """Items that share a commit."""

    def __init__(self, ended: asyncio.Future[None]) -> None:
        #: Resolved when the items have been committed, or can't be.
        self.ended = ended
        self.items: list[T] = []
        #: Resolved with ``ended``: callers that wait for their items.
        self.added: list[asyncio.Future[None]] = []
        #: The commit was begun, and waits if it has to. Set by ``_write``.
        self.is_begun = False


class GroupCommit(Generic[T]):
    """Commits items in groups: what comes in one loop turn, or while a commit is under way, shares the next commit.

    A commit that need not reach the disk takes tens of microseconds and is made in the event loop: a thread would
    cost more, and under load up to 5 ms of latency, the interpreter's switch interval. One that must (``durable``), or
    that another program's lock holds up, is made in a thread.
    """

    def __init__(
        self,
        commit: Commit[T],
        committed: Callable[[Sequence[T]], object],
        *,
        loop: asyncio.AbstractEventLoop,
        offload: Offload,
        durable: bool = False,
    ) -> None:
        """``committed`` is called in the event loop with each group of items after their commit."""
        self._commit = commit
        self._committed = committed
        self._loop = loop
        self._offload = offload
        self._durable = durable
        # The items of the next commit. Set by ``_arrange``.
        self._pending: _Group[T] | None = None
        # The commit that a thread is making.
        self._task: asyncio.Future[object] | None = None
        #: The error of the first commit that failed: nothing was committed since.
        self.failed: BaseException | None = None

    def note(self, item: T) -> None:
        """Have the item committed with the next group."""
        self._arrange(item)

    async def add(self, item: T) -> bool:
        """Return True when the item has been committed, False if it can't be."""
        # A future of its own: a cancelled caller must not take along the others that share its commit.
        added = self._loop.create_future()
        self._arrange(item).added.append(added)
        await added
        return self.failed is None

    async def flush(self) -> None:
        """Wait until everything noted so far is committed, or can't be.

        A cancellation waits for that as well: the file must not be closed under a thread that writes to it.
        """
        cancelled: asyncio.CancelledError | None = None
        while (end := self._next_end()) is not None:
            try:
                await asyncio.wait([end])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _arrange(self, item: T) -> _Group[T]:
        group = self._pending
        if group is None:
            group = self._pending = _Group(self._loop.create_future())
            if self._task is None:
                self._loop.call_soon(self._begin, group)
        group.items.append(item)
        return group

    def _next_end(self) -> asyncio.Future[object] | asyncio.Future[None] | None:
        """Return a future that is resolved after the next commit."""
        if self._task is not None:
            return self._task
        return None if self._pending is None else self._pending.ended

    def _begin(self, group: _Group[T]) -> None:
        if self._durable or not self._write(group, at_once=True):
            self._begin_in_thread(group)
        else:
            self._pending = None
            self._end(group)

    def _begin_in_thread(self, group: _Group[T]) -> None:
        self._pending = None
        self._task = asyncio.ensure_future(self._offload(functools.partial(self._write, group)))
        self._task.add_done_callback(functools.partial(self._end_in_thread, group))

    def _end_in_thread(self, group: _Group[T], task: asyncio.Future[object]) -> None:
        self._task = None
        if task.cancelled():
            # As all tasks are when a loop is closed; perhaps before the commit began.
            if not group.is_begun:
                self._write(group)
        elif (error := task.exception()) is not None:  # such as a thread that can't be started
            self.failed = error
        self._end(group)
        if self._pending is not None:
            self._begin_in_thread(self._pending)

    def _write(self, group: _Group[T], *, at_once: bool = False) -> bool:
        """Return False if the commit has to wait for another program, and was not to."""
        if self.failed is None:
            group.is_begun = not at_once
            try:
                return self._commit(group.items, at_once=at_once)
            except Exception as error:  # noqa: BLE001 - whatever it is: the items are not known to be committed
                self.failed = error
        return True

    def _end(self, group: _Group[T]) -> None:
        if self.failed is None:
            self._committed(group.items)
        group.ended.set_result(None)
        for added in group.added:
            if not added.done():
                added.set_result(None)
