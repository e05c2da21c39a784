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
        self._work = self._ranges_to_send()
        self._read: deque[tuple[UserRange, Chunk, bool]] = deque()
        # Requests given up, users still PENDING: users never tried alone are not rejected while others may be accepted.
        self._untried: list[Rejected[ChunkRequest]] = []
        self._left = math.inf if settings.limit is None else settings.limit
        self._progress = ProgressReporter(journal, settings.guarded_on_progress, now=self._loop.time())
        # True if the limit left users for a later run. Set by ``_next``.
        self._is_limited = False
        # The error that reading the plan raised. Set by ``_next``.
        self._read_error: RunFileError | None = None

    @property
    def stop_reason(self) -> StopReason | None:
        """The reason for an early end; None so far, or if all was sent."""
        return self._sender.stop_reason

    def stop(self, by: StopCause, reason: str) -> None:
        """Start nothing more; requests in flight complete."""
        self._sender.stop(by, reason)

    async def run(self) -> None:
        """Send until the run is complete or stopped. Raise RunFileError if the run file can't be read or written."""
        self._log.give_up_claims()
        self._report()
        ticker = self._loop.create_task(self._sender.tick(self._report))
        stop = self._settings.stop
        stop_waiter = None if stop is None else self._loop.create_task(self._await_stop(stop))
        try:
            while True:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(self._engine.settings.limits.in_flight, self._journal.chunks)):
                        workers.create_task(self._worker())
                if not self._retry_given_up():
                    break
        except* Exception as group:  # noqa: BLE001 - raised again, without its group
            raise _first(group) from None
        finally:
            for task in (ticker, stop_waiter):
                if task is not None:
                    task.cancel()
            await self._log.flush()
        self._log.check()
        if self._read_error is not None:
            raise self._read_error
        if self.stop_reason is None and self._is_limited:
            self.stop("limit", f"the limit of {count(self._settings.limit or 0)} is reached: resume for the rest")
        if self.stop_reason != self._journal.stop_reason:
            await self._log.record_stop(self.stop_reason)
        self._report()

    # -- the work -------------------------------------------------------------------------------------------------

    def _ranges_to_send(self) -> Iterator[tuple[UserRange, bool]]:
        """Yield the users to send to, and True if their last outcome is unknown. Unknown users come last."""
        # Listed now: users who become UNKNOWN during this run are not resent.
        resends = list(self._journal.ranges(IN_DOUBT)) if self._settings.resend else []
        pending = ((positions, False) for positions in self._journal.ranges(PENDING))
        return itertools.chain(pending, ((positions, True) for positions in resends))

    def _next(self) -> tuple[UserRange, Chunk, bool] | None:
        self._log.check()
        if self.stop_reason is None and not self._read:
            try:
                self._read_ahead()
            except RunFileError as error:
                # Requests in flight can still complete and be recorded.
                self._read_error = error
                self.stop("failure", "its plan can't be read")
        if self.stop_reason is not None or not self._read:
            return None
        if self._left <= 0:
            self._is_limited = True
            return None
        positions, chunk, in_doubt = self._read.popleft()
        if positions.users > self._left:
            positions = UserRange(positions.chunk, positions.start, positions.start + int(self._left))
            self._is_limited = True
        self._left -= positions.users
        return positions, chunk, in_doubt

    def _read_ahead(self) -> None:
        most = max(1, min(READ_AHEAD, READ_AHEAD_BYTES // self._journal.header.max_bytes))
        for positions, in_doubt in itertools.islice(self._work, most):
            self._read.append((positions, self._journal.load(positions.chunk), in_doubt))

    async def _worker(self) -> None:
        while (task := self._next()) is not None:
            positions, chunk, in_doubt = task
            first = self._journal.first_user(positions.chunk)
            request = ChunkRequest.of(positions, chunk, self._journal.header, first)
            self._untried += await self._sender.deliver(request, in_doubt=in_doubt)

    def _retry_given_up(self) -> bool:
        """Queue the requests that were given up if the message was accepted for any user; otherwise reject them."""
        untried, self._untried = self._untried, []
        if self.stop_reason is not None:
            return False
        if self._sender.message.accepted and self._journal.header.message is not None:
            self._left += sum([part.users for part, _ in untried])
            self._work = iter([(part.positions, False) for part, _ in untried])
            # What is left was read ahead, beyond the limit.
            self._read.clear()
            return bool(untried)
        # A limited run is resumed later, and its message may be accepted then.
        for part, verdict in [] if self._is_limited else untried:
            self._sender.reject(part, verdict)
        return False

    # -- progress -------------------------------------------------------------------------------------------------

    async def _await_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.stop("asked", "the caller asked for a stop")

    def _report(self) -> None:
        sender, now = self._sender, self._loop.time()
        paused = max(0.0, self._engine.limiter.paused_until - now)
        self._progress.report(now, paused=paused, waiting=sender.is_waiting, trouble=sender.trouble)


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
