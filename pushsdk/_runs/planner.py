"""Run planning: ids or requests are checked, made distinct, encoded and stored, then the plan is sealed."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from pushsdk._audience.audience import Audience, Personalized, damage_texts
from pushsdk._audience.distinct import Distinct
from pushsdk._core import wire
from pushsdk._core.arguments import check_users
from pushsdk._core.body import decode_user_ids, encode_user_ids
from pushsdk._core.damage import damage_of
from pushsdk._core.errors import RunPlanError, ValidationError, warn_caller
from pushsdk._core.kinds import must_be
from pushsdk._core.models import UNSET, PushRequest
from pushsdk._core.paths import show_path
from pushsdk._core.words import count, near_word
from pushsdk._io.threads import Offload, inline
from pushsdk._runs.plan import Chunk, StopCause, StopReason, chunks_of
from pushsdk._runs.run_file.file import OTHER_USERS, run_file_error
from pushsdk._runs.run_file.journal import Journal

T = TypeVar("T")

# The event loop gets a turn after this many items from a caller's iterable or this many seconds.
BLOCK = 1000
BLOCK_SECONDS = 0.02
# The steps in a plain iterable, BLOCK items in total: a slow one is noticed at its first item.
STEPS = (1, 9, 40, *[50] * 19)
# Chunks stored in one transaction, by run kind: 10,000 users at the default size, or 512 requests.
CHUNKS_PER_COMMIT = {"broadcast": 10, "each": 512}


class PlanningStoppedError(Exception):
    """Raised to end a planning that was asked to stop."""


class Comparison:
    """Stands in for a journal with a complete plan: its ``seal`` checks that the same users were planned again.

    The users are counted, and the hashes of each user with its message are summed up, in any order. Python's hash of a
    text is 64 bits of SipHash, so sums that are equal by accident are not to be expected. It differs between processes:
    nothing is stored, and the plan is summed up anew.
    """

    def __init__(self, journal: Journal) -> None:
        self.header = journal.header
        self.users = 0
        self._journal = journal
        self._sum = 0

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Add the next chunks that the call would send."""
        self.users += sum([chunk.users for chunk in chunks])
        self._sum += sum(map(_hashes, chunks))

    def seal(self, *, duplicates: int, excluded: int) -> None:
        """Raise RunPlanError unless the plan has the users that were added."""
        journal = self._journal
        planned = map(journal.load, range(journal.chunks))
        if self.users != journal.users or self._sum != sum(map(_hashes, planned)):
            why = f"this call has {count(self.users)}, as planned, but {_OTHERS[self.header.kind]}"
            if self.users != journal.users:
                used_up = "" if self.users else " (an iterator can be read only once)"
                why = f"it was planned for {count(journal.users)}, and this call has {count(self.users)}{used_up}"
            raise run_file_error(journal.path, why, OTHER_USERS, kind=RunPlanError)


def _hashes(chunk: Chunk) -> int:
    # Not a hash of tuples: these are nearly linear, so sums stay equal if two users swap their messages.
    content = f"{hash((chunk.message, chunk.custom_fields))} "
    return sum([hash(content + user) for user in chunk.user_ids()])


_OTHERS = {"broadcast": "not the same users", "each": "other users or messages"}


class Planner:
    """Fills one journal. Calls ``report`` with the number planned so far, from the thread that plans.

    ``report`` may call ``stop``.
    """

    def __init__(
        self,
        journal: Journal | Comparison,
        *,
        offload: Offload,
        report: Callable[[int], None],
        read: Offload | None = None,
    ) -> None:
        """``read`` calls a function in the thread that may read plain iterables; by default the event loop's."""
        self._journal = journal
        self._header = journal.header
        self._offload = offload
        self._read = read or inline
        self._report = report
        #: The reason for an early end. Set by ``stop``, also while another thread plans.
        self.stop_reason: StopReason | None = None
        self._waiting: list[Chunk] = []
        self._ids: list[str] = []
        self._taken = 0
        # The damage that ids show.
        self._damages = Counter[str]()
        self._duplicates = 0

    async def broadcast(self, user_ids: object) -> None:
        """Plan one message to an Audience or an iterable of ids, and seal the plan."""
        if isinstance(user_ids, Audience):
            await self._in_thread(lambda: self._add_all(self._add_ids, user_ids.ids(distinct=self._header.dedupe)))
        else:
            await self._plan_ids(user_ids)
        self._add_ids((), last=True)
        await self._seal(user_ids)

    async def each(self, requests: object) -> None:
        """Plan requests with one message each, and seal the plan."""
        if isinstance(requests, Personalized):
            await self._in_thread(
                lambda: self._add_all(lambda batch: self._waiting.extend(self._encoded(batch)), requests.batches())
            )
        else:
            # Encoded as each is read: a generator may change a message to yield it again.
            async with aclosing(self._blocks_of(requests, self._encoded)) as blocks:
                async for block in blocks:
                    self._waiting += block
                    await self._in_thread(self._store)
        await self._seal(requests)

    def stop(self, by: StopCause, reason: str) -> None:
        """Raise PlanningStoppedError at the next block, in the code that plans."""
        if self.stop_reason is None:
            self.stop_reason = StopReason(by, f"{reason} before all its users were read: nothing was sent")

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await self._offload(work, lambda: self.stop("asked", "the call was cancelled"))

    async def _seal(self, users: object) -> None:
        await self._in_thread(lambda: self._store(1))
        # Told here: a thread has no line in the caller's code. Before the seal: the warning may be an error.
        for text in await self._in_thread(lambda: [*damage_texts(users, self._damages)]):
            warn_caller(text)
        excluded = 0
        if isinstance(users, (Audience, Personalized)):
            self._duplicates += users.summary.duplicates
            excluded = users.summary.excluded
        await self._in_thread(lambda: self._journal.seal(duplicates=self._duplicates, excluded=excluded))

    def _add_all(self, add: Callable[[Any], None], batches: Iterable[Sequence[Any]]) -> None:
        for batch in batches:
            add(batch)
            self._store()

    async def _plan_ids(self, user_ids: object) -> None:
        with Distinct() as distinct:
            async with aclosing(self._blocks_of(user_ids, iter)) as blocks:
                async for block in blocks:
                    # As plain texts; an error has the index of the wrong id in the whole input.
                    texts = decode_user_ids(encode_user_ids(block, first=self._taken))
                    self._taken += len(block)
                    for ids in distinct.add(texts) if self._header.dedupe else [texts]:
                        self._add_ids(ids)
                    await self._in_thread(self._store)
            await self._in_thread(lambda: self._add_all(self._add_ids, distinct.finish()))
            self._duplicates = distinct.duplicates

    def _add_ids(self, ids: Sequence[str], *, last: bool = False) -> None:
        header = self._header
        self._ids.extend(ids)
        end = len(self._ids) if last else len(self._ids) // header.max_users * header.max_users
        for users, encoded in chunks_of(self._ids[:end], header):
            self._damages.update(damage_of(users, encoded))
            self._waiting.append(Chunk(len(users), encoded))
        del self._ids[:end]

    def _encoded(self, requests: Iterable[object]) -> Iterator[Chunk]:
        # A StopIteration from a request's code is an error in a generator. In a map it would end the requests.
        for request in requests:
            self._taken += 1
            try:
                users, message, fields = _fields_of(request)
                distinct, ids, duplicates = check_users(users, self._header.max_users, self._damages.update)
                # ``personalize`` has warned.
                encoded, custom = wire.encode_content(message, fields, warn=not self._header.source)
            except ValidationError as error:
                raise ValidationError(f"request number {self._taken}: {error}") from None
            self._duplicates += duplicates
            yield Chunk(len(distinct), ids, encoded, custom)

    async def _blocks_of(self, items: Any, through: Callable[..., Iterator[Any]]) -> AsyncGenerator[list[Any]]:
        """Yield the items in blocks, passed ``through``, with an event loop turn between them.

        A slow source makes small blocks. Errors from ``items`` pass through.
        """
        if not isinstance(items, AsyncIterable):
            iterator = through(await self._read(lambda: iter(items)))
            while block := await self._read(lambda: next_block(iterator)):
                yield block
                await asyncio.sleep(0)
            return
        source = aiter(items)
        block, due = [], 0.0
        try:
            async for item in source:
                block += through((item,))
                if len(block) >= BLOCK or time.monotonic() >= due:
                    yield block
                    await asyncio.sleep(0)
                    block, due = [], time.monotonic() + BLOCK_SECONDS
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()
        if block:
            yield block

    def _store(self, at_least: int = 0) -> None:
        """Store the waiting chunks if there are enough; report; raise PlanningStoppedError if stopped."""
        if len(self._waiting) >= (at_least or CHUNKS_PER_COMMIT[self._header.kind]):
            self._journal.add(self._waiting)
            self._waiting = []
        self._report(self._journal.users)
        if self.stop_reason is not None:
            raise PlanningStoppedError


def _fields_of(request: object) -> tuple[Any, Any, Any]:
    if isinstance(request, PushRequest):
        users, message, fields = request.user_ids, request.message, request.custom_fields
    elif isinstance(request, Mapping):
        users, message, fields = _fields_in(request)
    else:
        raise must_be("a request", "a PushRequest or a mapping", request, ValidationError)
    if users is UNSET or message is UNSET:
        raise ValidationError(f"$.{'userIds' if users is UNSET else 'message'} is missing")
    if fields is None:
        raise ValidationError("$.customFields must be an object; got null: leave the field out")
    return users, message, None if fields is UNSET else fields


def _fields_in(request: Mapping[Any, Any]) -> list[Any]:
    """Return a request's fields, UNSET if it lacks one. Raise ValidationError for another one."""
    names = PushRequest.__struct_encode_fields__
    if unknown := sorted(map(str, request.keys() - {*names})):
        near = near_word(unknown[0], names)
        advice = f", did you mean {near}?" if near else f": a push request has {', '.join(names)}"
        raise ValidationError(f"{show_path((unknown[0],))}: unknown field{advice}")
    return [request.get(name, UNSET) for name in names]


def next_block(items: Iterator[T], steps: Sequence[int] = STEPS) -> list[T]:
    """Read items in steps until BLOCK_SECONDS have passed; none at the end. The clock is read after each step."""
    block: list[T] = []
    due = time.monotonic() + BLOCK_SECONDS
    for step in steps:
        block.extend(itertools.islice(items, step))
        if time.monotonic() >= due:
            break
    return block
