"""The options for one run, and its sending: feeds chunks to a ``ChunkSender``, reports progress, ends the run."""

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, force_setattr, replace

from pushsdk._core.decisions import DELIVERED
from pushsdk._core.errors import RunFileError
from pushsdk._core.kinds import Count, CountOrZero, Moment, check_values
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.policy import Options, warn_of_unused
from pushsdk._core.splitting import Rejected
from pushsdk._core.stop_policy import StopPolicy
from pushsdk._core.user_states import UserState, UserStatus
from pushsdk._io.credentials import Credentials
from pushsdk._io.engine import Engine
from pushsdk._io.file_names import AnyPath
from pushsdk._io.sender import guarded
from pushsdk._runs.log import RunFileLog
from pushsdk._runs.plan import Chunk, ChunkRequest, UserRange
from pushsdk._runs.progress import OnProgress, Pace
from pushsdk._runs.run_file.file import filled_in, run_path
from pushsdk._runs.run_file.journal import IN_DOUBT, PENDING, Journal
from pushsdk._runs.sender import ChunkAttempt, ChunkSender
from pushsdk._runs.stopping import StopEvent, Stopping

logger = logging.getLogger("pushsdk")
OnUnknown = Literal["skip", "resend"]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The options for one run. Raises ConfigurationError or RunFileError for an option with a wrong type or value."""

    run: AnyPath | None
    stop: StopEvent | None
    sending: Options
    credentials: Credentials
    on_unknown: OnUnknown = "skip"
    stop_policy: StopPolicy | None = None
    on_progress: OnProgress | None = None
    not_after: Moment | None = None
    limit: Count | None = None
    """The number of users after which the run pauses; None for no limit."""
    durable: bool = False
    parts: CountOrZero = 0
    """Plan the run, and split the plan into so many run files beside it, which are sent instead. Not public."""
    send_parts: Any = None
    """Sends these, called with the plan, whose lock and stop mark are those for all."""
    seen: Any = msgspec.UNSET
    """``Notes.ended`` as the caller has seen it: a run that another process has ended since is not sent."""
    read: Any = None
    """Reads plain iterables where that is allowed: see ``Planner``. Not public."""
    path: Path | None = None
    """The run file's absolute path. Set here, so changing the working directory later has no effect."""

    def __post_init__(self) -> None:
        if self.run is not None:
            force_setattr(self, "path", filled_in(run_path(self.run)))
        check_values(asdict(self), RunSettings)
        if self.on_progress is not None:
            force_setattr(self, "on_progress", guarded("on_progress", self.on_progress))
        warn_of_unused(self.sending.policy)


class Pipeline:
    """Sends a plan, once. Made for one run in one event loop."""

    def __init__(self, journal: Journal, settings: RunSettings, engine: Engine) -> None:
        self._journal = journal
        self._settings = settings
        self._engine = engine
        self._log = RunFileLog(journal, loop=engine.loop, offload=engine.offload)
        not_after = min(filter(None, (journal.header.not_after, settings.not_after)), default=None)
        #: Ends the run early.
        self.stopping = Stopping(
            engine.timers, engine.limiter.rate_limiter, settings.stop_policy, not_after=not_after, event=settings.stop
        )
        self._sender = ChunkSender(
            engine,
            self._log,
            settings.sending,
            settings.credentials,
            self.stopping,
            varied=journal.header.message is None,
            resends=settings.on_unknown == "resend",
        )
        self._sender.answers.update(journal.notes.answers)
        self._sender.message.accepted = journal.states.count(UserState.ACCEPTED) > 0
        # Users with an unknown outcome come last. Listed now: those who become UNKNOWN during this run are not resent.
        resends = list(journal.ranges(IN_DOUBT)) if settings.on_unknown == "resend" else []
        #: Time when an earlier call ended the run, if nothing is left to send.
        self.ended = None if resends or journal.states.count(UserState.PENDING) else journal.notes.ended
        pending = ((positions, False) for positions in journal.ranges(PENDING))
        self._work: Iterator[tuple[UserRange, bool]] = itertools.chain(pending, [(users, True) for users in resends])
        # Requests given up, users still PENDING: users never tried alone are not rejected while others may be accepted.
        self._untried: list[Rejected[ChunkRequest]] = []
        # The number of tasks that send chunks, and their group. Set by ``_send_all``.
        self._workers = 0
        self._tasks: asyncio.TaskGroup
        self._left = math.inf if settings.limit is None else settings.limit
        left = sum(map(journal.states.count, (UserState.PENDING, UserState.CLAIMED)))
        self._pace = Pace(engine.loop.time(), left)
        # True if the limit left users for a later run. Set by ``_next``.
        self._is_limited = False
        # The error that reading the plan raised. Set by ``_worker``.
        self._read_error: RunFileError | None = None

    async def run(self) -> None:
        """Send until the run is complete or stopped. Raise RunFileError if the run file can't be read or written."""
        self._log.give_up_claims()
        logger.info("the run begins: %s", str(self._journal.states))
        self._tick()
        ticker = self._engine.loop.create_task(self.stopping.tick(self._tick))
        try:
            await self._restrict()
            await self._send_all()
            await self._explain_rest()
        finally:
            ticker.cancel()
            self._note(ended=time.time())
            await self._log.flush()
        self._log.check()
        if self._read_error is not None:
            raise self._read_error
        self._report()
        logger.info("the run ends: %s", str(self._journal.states))

    async def _explain_rest(self) -> None:
        """Say why users are left, if no failure does."""
        states = PENDING | IN_DOUBT if self._settings.on_unknown == "resend" else PENDING
        await self._log.flush()
        reason, asked = self.stopping.reason, self._journal.stop_asked()
        if reason is None and self._is_limited:
            self.stopping.stop("limit", "the limit is reached: resume for the rest")
        elif not any(map(self._journal.states.count, states)):
            self.stopping.reason = None  # the run is complete all the same
        elif reason is not None and asked is not None and reason.by == asked.by:
            self.stopping.reason = asked  # it says more than the signal that came with it

    async def _restrict(self) -> None:
        """Leave out users who may not get pushes. They keep their state; if it is PENDING, with the reason."""
        only_users = self._engine.settings.only_users
        if only_users is None:
            return
        work: list[tuple[UserRange, bool]] = []
        for positions, in_doubt in self._work:
            users = (await self._log.load(positions.chunk)).user_ids()
            start, first = positions.start, self._journal.first_user(positions.chunk)
            listed = [user in only_users for user in users[start - first : positions.stop - first]]
            for is_listed, group in itertools.groupby(listed):
                part = UserRange(positions.chunk, start, start + len([*group]))
                start = part.stop
                if is_listed:
                    work.append((part, in_doubt))
                elif not in_doubt:
                    self._log.settle(part, _NOT_LISTED)
        self._work = iter(work)

    async def _send_all(self) -> None:
        """Send the plan, and the requests that were given up again if the message was accepted for any user."""
        while True:
            async with asyncio.TaskGroup() as self._tasks:
                self._add_workers()
            if not self._retry_given_up():
                return

    def _next(self) -> ChunkAttempt | None:
        """Return an attempt for the next request; None if none is left or may start. Raises RunFileError.

        Raises BlockingIOError with the arguments for ``_attempt`` if its chunk can't be read at once.
        """
        if not self.stopping.may_begin() or self._room() < 0 or (work := next(self._work, None)) is None:
            return None
        if self._left <= 0:
            self._is_limited = True
            return None
        positions, in_doubt = work
        self._left -= positions.users
        if self._left < 0:
            positions = UserRange(positions.chunk, positions.start, positions.stop + int(self._left))
            self._left, self._is_limited = 0, True
        self._add_workers()
        try:
            return self._attempt(positions, in_doubt, self._journal.load(positions.chunk, at_once=True))
        except BlockingIOError:
            raise BlockingIOError(positions, in_doubt) from None

    def _attempt(self, positions: UserRange, in_doubt: bool, chunk: Chunk) -> ChunkAttempt:
        journal = self._journal
        request = ChunkRequest.of(positions, chunk, journal.header, journal.first_user(positions.chunk))
        return self._sender.attempt(request, in_doubt=in_doubt)

    def _room(self) -> int:
        """Return how many more workers the limit allows. A request that waits after a failure needs no slot."""
        return self._engine.limiter.limit - self._workers + self._sender.waiting

    def _add_workers(self) -> None:
        while self._room() > 0 and self._workers < self._journal.chunks:
            self._workers += 1
            self._tasks.create_task(self._worker())

    async def _worker(self) -> None:
        # In the next turn: an eager task would begin the next one here, and that its next one.
        await asyncio.sleep(0)
        limiter = self._engine.limiter
        limiter.run_requests += 1
        try:
            while True:
                try:
                    attempt = await self._send_at_once()
                except BlockingIOError as error:  # another program has the file, or a commit runs
                    positions, in_doubt = error.args
                    attempt = self._attempt(positions, in_doubt, await self._log.load(positions.chunk))
                if attempt is None:
                    return
                self._untried += await self._sender.deliver(attempt)
        except RunFileError as error:
            # Requests in flight can still complete. They are recorded if it was the plan that could not be read.
            error.outcome = Outcome.UNKNOWN
            self._read_error = error
            self.stopping.stop("failure", "its run file can't be used")
        finally:
            limiter.run_requests -= 1

    async def _send_at_once(self) -> ChunkAttempt | None:
        """Send on idle connections, without a task as long as each request is answered by a plain 204.

        Returns the attempt that needs a task; None if no request is left or may start. Raises as ``_next``.
        """
        self._log.check()
        waiter = self._engine.loop.create_future()
        attempt: ChunkAttempt | None = None

        def go_on(is_good: bool) -> None:
            nonlocal attempt
            if waiter.done():
                return
            try:
                attempt = steps.send(is_good)
            except Exception as error:  # noqa: BLE001 - raised below
                attempt = None
                waiter.set_exception(error)

        steps = self._steps(waiter, go_on)
        try:
            attempt = next(steps)
            await waiter
        except asyncio.CancelledError:
            if attempt:  # pragma: no branch - the last request may have ended in the same turn
                # Cancelled again where it waits, which records its outcome.
                task: Any = asyncio.current_task()
                task.cancel()
                await self._sender.deliver(attempt)
            raise  # pragma: no cover - reached only if the last request had just ended
        return attempt

    def _steps(self, waiter: Any, go_on: Callable[[bool], None]) -> Generator[ChunkAttempt | None, bool]:
        """Yield each request twice, as it waits for its claim and for its response: ``go_on`` follows both.

        Resolves the waiter before it yields the last one.
        """
        sender, requests = self._sender, self._engine.sender
        while (attempt := self._next()) and sender.reserve(attempt):
            self._log.claim_soon(attempt.chunk.positions, go_on, resent=attempt.in_doubt)
            is_claimed = yield attempt
            # Never, if it may not begin.
            begins = self._engine.limiter.clock() if is_claimed and self.stopping.may_begin() else math.inf
            if not requests.begin(attempt, go_on, begins):
                attempt.record(_UNCLAIMED)
                break
            is_plain = yield attempt
            if not is_plain or requests.accept(attempt) is None:
                break
            self._log.settle(attempt.chunk.positions, DELIVERED.status)
            sender.count(attempt.users, DELIVERED.status)
        if attempt is None:
            self._workers -= 1  # at once: of the workers above a limit that has fallen, only so many end
        waiter.set_result(None)
        yield attempt

    def _retry_given_up(self) -> bool:
        """Queue the requests that were given up if the message was accepted for any user; otherwise reject them."""
        untried, self._untried = self._untried, []
        if self.stopping.reason is not None:
            return False
        if self._sender.message.accepted and self._journal.header.message is not None:
            self._left += sum([part.users for part, _ in untried])
            self._work = iter([(part.positions, False) for part, _ in untried])
            return bool(untried)
        # A limited run is resumed later, and its message may be accepted then.
        for part, verdict in [] if self._is_limited else untried:
            self._sender.reject(part, verdict)
        return False

    def _tick(self) -> bool:
        """Return True: the run sends from its begin to its end."""
        self._report()
        self._note()
        if (asked := self._journal.stop_asked()) is not None:
            self.stopping.stop(asked.by, asked.reason)
        return True

    def _note(self, *, ended: float | None = None) -> None:
        reason = None if ended is None else self.stopping.reason
        known, answers = self._journal.notes, self._sender.answers.copy()
        notes = replace(known, answers=answers, ended=self.ended or ended, stop_reason=reason)
        if notes != known:
            self._log.note(notes)

    def _report(self) -> None:
        if self._settings.on_progress is None:
            return
        now, limiter, users = self._engine.loop.time(), self._engine.limiter, self._journal.states.count
        paused = limiter.rate_limiter.pause_left(now)
        stage = "waiting" if paused or (self._sender.is_held and not limiter.in_flight) else "sending"
        progress = self._pace.progress(
            now,
            stage="stopping" if self.stopping.reason else stage,
            planned=self._journal.users,
            accepted=users(UserState.ACCEPTED),
            rejected=users(UserState.REJECTED),
            unknown=users(UserState.UNKNOWN),
            not_sent=users(UserState.PENDING),
            in_flight=users(UserState.CLAIMED),
            requests=limiter.in_flight,
            limit=limiter.limit,
            trouble=self._sender.trouble,
            paused=paused,
        )
        self._settings.on_progress(progress)


_UNCLAIMED = Verdict(outcome=Outcome.NOT_SENT, failure=Failure.UNCLAIMED)
_NOT_LISTED = UserStatus(UserState.PENDING, reason=str(Failure.NOT_LISTED))
