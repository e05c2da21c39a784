"""The sending of a planned run: reads chunks ahead, feeds them to a ``ChunkSender``, reports progress, ends the run."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Iterator

from pushsdk._audience.chunks import Chunk
from pushsdk._core.errors import RunFileError
from pushsdk._core.splitting import Rejected
from pushsdk._core.words import count
from pushsdk._io.engine import Engine
from pushsdk._runs.log import RunFileLog
from pushsdk._runs.options import RunSettings
from pushsdk._runs.plan import ChunkRequest, StopCause, StopReason, UserRange
from pushsdk._runs.progress import ProgressReporter
from pushsdk._runs.run_file.journal import IN_DOUBT, PENDING, Journal
from pushsdk._runs.sender import ChunkSender

__all__ = ["Pipeline"]

# Chunks read ahead, by their number or by their bytes, whichever is less.
READ_AHEAD = 64
READ_AHEAD_BYTES = 4 * 1024 * 1024


class Pipeline:
    """Sends a plan, once. Made for one run in one event loop."""

    def __init__(self, journal: Journal, settings: RunSettings, engine: Engine) -> None:
        self._journal = journal
        self._settings = settings
        self._engine = engine
        self._loop = engine.enter()
        self._log = RunFileLog(journal, loop=self._loop, offload=engine.offload, durable=settings.syncs)
        self._sender = ChunkSender(
            engine,
            self._log,
            settings.policy,
            settings.timeout,
            stop_policy=settings.stop_policy,
            varied=journal.header.message is None,
            resends=settings.resend,
        )
        self._sender.message.accepted = journal.tally().accepted > 0
        self._work = self._agenda()
        self._read: deque[tuple[UserRange, Chunk, bool]] = deque()
        # Parts that were given up, still pending: a user never tried alone is not rejected if others may be accepted.
        self._untried: list[Rejected[ChunkRequest]] = []
        self._left = math.inf if settings.limit is None else settings.limit
        self._meter = ProgressReporter(journal, settings.tell, now=self._loop.time())
        # True if the limit left something for later. Set by ``_next``.
        self._limited = False
        # Why the plan can't be read any more. Set by ``_next``.
        self._broken: RunFileError | None = None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the sending ended before its end."""
        return self._sender.stop_reason

    def stop(self, by: StopCause, reason: str) -> None:
        """Start nothing more; requests in flight complete."""
        self._sender.stop(by, reason)

    async def run(self) -> None:
        """Send until all is complete, or the run is stopped. Raises RunFileError if its file can't be written."""
        self._log.give_up_claims()
        self._tell()
        ticker = self._loop.create_task(self._sender.tick(self._tell))
        stop = self._settings.stop
        waker = None if stop is None else self._loop.create_task(self._await_stop(stop))
        try:
            while True:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(self._engine.settings.limits.in_flight, self._journal.chunks)):
                        workers.create_task(self._worker())
                if not self._try_again():
                    break
        except* Exception as group:  # noqa: BLE001 - raised again, without its group
            raise _first(group) from None
        finally:
            for task in (ticker, waker):
                if task is not None:
                    task.cancel()
            await self._log.flush()
        self._log.check()
        if self._broken is not None:
            raise self._broken
        if self.stop_reason is None and self._limited:
            self.stop("limit", f"the limit of {count(self._settings.limit or 0)} is reached")
        if self.stop_reason != self._journal.stop_reason:
            await self._log.record_stop(self.stop_reason)
        self._tell()

    # -- the work -------------------------------------------------------------------------------------------------

    def _agenda(self) -> Iterator[tuple[UserRange, bool]]:
        """Yield the pieces to send, and whether each is in doubt. Those come last: there may be none to send."""
        resends = list(self._journal.ranges(IN_DOUBT)) if self._settings.resend else []
        pending = ((piece, False) for piece in self._journal.ranges(PENDING))
        return itertools.chain(pending, ((piece, True) for piece in resends))

    def _next(self) -> tuple[UserRange, Chunk, bool] | None:
        self._log.check()
        if self.stop_reason is None and not self._read:
            try:
                self._read_ahead()
            except RunFileError as error:
                # Requests in flight can still complete, and be recorded.
                self._broken = error
                self.stop("failure", "its plan can't be read")
        if self.stop_reason is not None or not self._read:
            return None
        if self._left <= 0:
            self._limited = True
            return None
        piece, chunk, in_doubt = self._read.popleft()
        if piece.users > self._left:
            piece = UserRange(piece.chunk, piece.start, piece.start + int(self._left))
            self._limited = True
        self._left -= piece.users
        return piece, chunk, in_doubt

    def _read_ahead(self) -> None:
        count = max(1, min(READ_AHEAD, READ_AHEAD_BYTES // self._journal.header.max_bytes))
        ahead = list(itertools.islice(self._work, count))
        chunks = self._journal.load([piece.chunk for piece, _ in ahead])
        self._read.extend((piece, chunk, in_doubt) for (piece, in_doubt), chunk in zip(ahead, chunks, strict=True))

    async def _worker(self) -> None:
        while (task := self._next()) is not None:
            piece, chunk, in_doubt = task
            request = ChunkRequest.of(piece, chunk, self._journal.header, self._journal.first_user(piece.chunk))
            self._untried += await self._sender.deliver(request, in_doubt=in_doubt)

    def _try_again(self) -> bool:
        """At the end: send what was given up, if the message was accepted for any user of the run; else reject it."""
        untried, self._untried = self._untried, []
        if self.stop_reason is not None:
            return False
        if self._sender.message.accepted and self._journal.header.message is not None:
            self._left += sum([part.users for part, _ in untried])
            self._work = iter([(part.positions, False) for part, _ in untried])
            # Read ahead, and beyond the limit.
            self._read.clear()
            return bool(untried)
        # After a limit the run goes on another time, and its message may be accepted then.
        for part, verdict in [] if self._limited else untried:
            self._sender.reject(part, verdict)
        return False

    # -- progress -------------------------------------------------------------------------------------------------

    async def _await_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.stop("asked", "it was asked to stop")

    def _tell(self) -> None:
        sender, now = self._sender, self._loop.time()
        paused = max(0.0, self._engine.limiter.paused_until - now)
        self._meter.tell(now, paused=paused, waiting=sender.is_waiting, trouble=sender.trouble)


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
