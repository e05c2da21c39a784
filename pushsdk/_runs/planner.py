"""From what a caller hands over to a sealed plan: ids or requests are checked, made distinct, encoded, and stored."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from pushsdk._audience.chunks import Chunk, ChunkSource, RequestSource, chunks_of
from pushsdk._audience.distinct import Distinct
from pushsdk._core import wire
from pushsdk._core.arguments import check_users
from pushsdk._core.errors import ValidationError
from pushsdk._core.models import UNSET, PushRequest
from pushsdk._core.words import count
from pushsdk._io.threads import Offload, settled
from pushsdk._runs.plan import StopCause, StopReason
from pushsdk._runs.run_file.journal import Journal

__all__ = ["Planner", "PlanningStoppedError", "blocks_of"]

# What is taken from a caller's iterable between two turns of the event loop: so many items, or what comes in so many
# seconds, looked at after some.
BLOCK = 1000
SOME = 50
PATIENCE = 0.02
# Chunks stored in one transaction: 10,000 users at the usual size, or 512 requests of send_each.
TOGETHER = 10
TOGETHER_EACH = 512


class PlanningStoppedError(Exception):
    """It was asked to stop while the plan was being made."""


class Planner:
    """Fills one journal. ``tell`` is called with the users planned so far, from the thread that plans."""

    def __init__(
        self,
        journal: Journal,
        *,
        offload: Offload,
        durable: bool,
        tell: Callable[[int], None],
        stop: asyncio.Event | None,
    ) -> None:
        self._journal = journal
        self._header = journal.header
        self._offload = offload
        self._tell = tell
        self._stop = stop
        self._durable = durable
        #: Why the planning ends before its end. Set by ``end``, also for a thread that plans.
        self.stop_reason: StopReason | None = None
        self._waiting: list[Chunk] = []
        self._ids: list[str] = []
        self._taken = 0
        self._duplicates = 0

    async def broadcast(self, user_ids: object) -> None:
        """Plan one message to these users, an Audience or an iterable of ids, and seal it."""
        if isinstance(user_ids, ChunkSource):
            await self._away(lambda: self._from_audience(user_ids))
        else:
            await self._from_ids(user_ids)
        await self._stored(lambda: self._journal.seal(duplicates=self._duplicates))

    async def each(self, requests: object) -> None:
        """Plan these requests, one by one, and seal it."""
        if isinstance(requests, RequestSource):
            await self._away(lambda: self._from_batches(requests))
        else:
            async with aclosing(blocks_of("requests", requests)) as blocks:
                async for block in blocks:
                    self._take_in(block)
                    await self._stored(lambda: self._store(TOGETHER_EACH))
        await self._stored(lambda: self._store(1))
        await self._stored(lambda: self._journal.seal(duplicates=self._duplicates))

    def stop(self, by: StopCause, reason: str) -> None:
        """Have it raise PlanningStoppedError at the next block."""
        if self.stop_reason is None:
            self.stop_reason = StopReason(by, f"{reason} before its plan was finished: nothing was sent")

    async def _away(self, work: Callable[[], Any]) -> Any:
        task = asyncio.ensure_future(self._offload(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.stop("asked", "it was cancelled")
            await settled(task)
            raise

    async def _stored(self, work: Callable[[], object]) -> None:
        """Do what writes to the file: in a thread where that waits for the disk."""
        if self._durable:
            await self._away(work)
        else:
            work()

    # -- users of one message -----------------------------------------------------------------------------------

    def _from_audience(self, audience: ChunkSource) -> None:
        header = self._header
        for chunks in audience.chunks(
            fixed=self._fixed(), max_users=header.max_users, max_bytes=header.max_bytes, distinct=header.dedupe
        ):
            self._waiting.extend(chunks)
            self._store(TOGETHER)
        self._store(1)
        self._duplicates = audience.duplicates

    async def _from_ids(self, user_ids: object) -> None:
        if isinstance(user_ids, str):
            raise ValidationError("user_ids is one str: pass a list, or use send() for one user")
        with Distinct() as distinct:
            async with aclosing(blocks_of("user_ids", user_ids)) as blocks:
                async for block in blocks:
                    self._check(block)
                    self._taken += len(block)
                    for ids in distinct.add(block) if self._header.dedupe else [block]:
                        self._plan(ids)
                    await self._stored(lambda: self._store(TOGETHER))
            rest = iter(distinct.finish())
            while (ids := await self._away(lambda: next(rest, None))) is not None:
                self._plan(ids)
                await self._stored(lambda: self._store(TOGETHER))
            self._plan((), last=True)
            await self._stored(lambda: self._store(1))
            self._duplicates = distinct.duplicates

    def _fixed(self) -> int:
        return len(self._header.message or b"") + len(self._header.custom_fields or b"")

    def _check(self, ids: Sequence[object]) -> None:
        """Raises ValidationError that says which id it is, by its number."""
        try:
            wire.encode_user_ids(ids)  # type: ignore[arg-type] # that is the question
        except ValidationError as error:
            # As $.userIds[3]: counted from 0, within this block.
            place, _, wrong = str(error).partition(": ")
            number = self._taken + int(place.partition("[")[2].rstrip("]")) + 1
            raise ValidationError(f"user id number {number}: {wrong}") from None

    def _plan(self, ids: Sequence[str], *, last: bool = False) -> None:
        header = self._header
        self._ids.extend(ids)
        whole = len(self._ids) if last else len(self._ids) // header.max_users * header.max_users
        if whole:
            self._waiting.extend(
                chunks_of(
                    self._ids[:whole], fixed=self._fixed(), max_users=header.max_users, max_bytes=header.max_bytes
                )
            )
            del self._ids[:whole]

    # -- requests of their own ----------------------------------------------------------------------------------

    def _from_batches(self, requests: RequestSource) -> None:
        for batch in requests.batches():
            self._take_in(batch)
            self._store(TOGETHER_EACH)
        self._duplicates += requests.duplicates

    def _take_in(self, requests: Iterable[object]) -> None:
        for request in requests:
            self._waiting.append(self._request(request))
            self._taken += 1

    def _request(self, request: object) -> Chunk:
        try:
            users, message, fields = _fields_of(request)
            distinct, ids, duplicates = check_users(users, self._header.max_users)
            encoded = wire.encode_message(message)
            custom = None if fields is None else wire.encode_custom_fields(fields)
        except ValidationError as error:
            raise ValidationError(f"request number {self._taken + 1}: {error}") from None
        self._duplicates += duplicates
        return Chunk(len(distinct), ids, encoded, custom)

    def _store(self, together: int) -> None:
        """Store what waits, if it is so many chunks, tell, and look whether to go on."""
        if len(self._waiting) >= together:
            self._journal.add(self._waiting)
            self._waiting = []
        self._tell(self._journal.users)
        if self._stop is not None and self._stop.is_set():
            self.stop("asked", "it was asked to stop")
        if self.stop_reason is not None:
            raise PlanningStoppedError


def _fields_of(request: object) -> tuple[Any, Any, Any]:
    if isinstance(request, PushRequest):
        users, message, fields = request.user_ids, request.message, request.custom_fields
    elif isinstance(request, Mapping):
        unknown = sorted(map(str, request.keys() - {"userIds", "message", "customFields"}))
        if unknown:
            raise ValidationError(
                f"$: {count(len(unknown), 'field')} that a push request does not have; "
                "it has userIds, message, customFields"
            )
        users, message, fields = (request.get(name, UNSET) for name in ("userIds", "message", "customFields"))
    else:
        raise ValidationError(f"expected a PushRequest or a mapping, got {type(request).__name__}")
    for name, value in (("userIds", users), ("message", message)):
        if value is UNSET:
            raise ValidationError(f"$.{name} is missing")
    if fields is None:
        raise ValidationError("$.customFields is null: leave it out")
    return users, message, None if fields is UNSET else fields


async def blocks_of(name: str, items: object) -> AsyncGenerator[list[Any]]:
    """The items in blocks, with a turn of the event loop between two of them; a slow source makes small ones.

    Raises ValidationError for what is neither an iterable nor an async one; what it raises itself passes through.
    """
    block: list[Any] = []
    if isinstance(items, AsyncIterable):
        source = aiter(items)
        due = time.monotonic() + PATIENCE
        try:
            async for item in source:
                block.append(item)
                if len(block) >= BLOCK or time.monotonic() >= due:
                    yield block
                    block, due = [], time.monotonic() + PATIENCE
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()
        if block:
            yield block
        return
    if not isinstance(items, Iterable) or isinstance(items, (str, Mapping, bytes, bytearray, memoryview)):
        raise ValidationError(f"{name} is an iterable or an async iterable, not {type(items).__name__}")
    iterator: Iterator[Any] = iter(items)
    due = time.monotonic() + PATIENCE
    while some := list(itertools.islice(iterator, SOME)):
        block += some
        if len(block) >= BLOCK or time.monotonic() >= due:
            yield block
            await asyncio.sleep(0)
            block, due = [], time.monotonic() + PATIENCE
    if block:
        yield block
