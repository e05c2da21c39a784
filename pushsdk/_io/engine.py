"""The parts of one client, put together inside its event loop, and their end.

Calls share batches (``queue``), which are sent as requests (``batch_sender``, ``sender``) over aiohttp (``transport``,
``fast_post``).
"""

import asyncio
import sys
import warnings
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any
from weakref import ref

import msgspec

from pushsdk._core.error_mapping import closed_error
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.events import Event
from pushsdk._core.learned_sizes import LearnedSizes
from pushsdk._core.operations import PUSH, Operation, Target
from pushsdk._core.outcome import Failure
from pushsdk._core.policy import Batching, Limits, Options, Rate, RetryPolicy, Timeout
from pushsdk._core.rate_limit import RateLimiter
from pushsdk._core.results import ClientStats, Counters, DrainReport
from pushsdk._core.words import count
from pushsdk._io.batch_sender import PendingCalls, unsettled
from pushsdk._io.forks import ProcessGuard, in_child
from pushsdk._io.limiter import Backlog, ConcurrencyLimiter
from pushsdk._io.queue import SendQueue
from pushsdk._io.sender import RequestSender, guarded
from pushsdk._io.threads import Offload, in_thread
from pushsdk._io.timers import TimerWheel
from pushsdk._io.tracing import Observer
from pushsdk._io.transport import AiohttpTransport, Transport, TransportSettings, most_in_flight


class EngineSettings(TransportSettings, frozen=True, kw_only=True, eq=False):
    """The checked settings of a client."""

    batching: Batching
    limits: Limits
    rate: Rate
    on_event: Callable[[Event], Any] | None
    show_answers: bool

    def target(self, operation: Operation) -> Target:
        """Return where the operation goes, for the texts of errors."""
        return Target(operation, self.base_url, self.show_answers)


async def _until_end(engine: ref["Engine"], queue: SendQueue, transport: Transport) -> AsyncGenerator[None, None]:
    """Yield once. ``asyncio.run`` closes such generators at its end: calls of a client that is not closed are lost."""
    guard = ProcessGuard()
    try:
        yield
    finally:
        if not guard.is_inherited:  # else the connections belong to the parent
            if (own := engine()) is not None:
                own.__del__()
            queue.timers.fail(Failure.CLOSED)
            if active := queue.pending.active:
                await queue.pending.wait({*active}, 0.1)
            await transport.close()


class Engine:
    """The parts of one client, put together inside its event loop. Shared with what ``with_options`` returns."""

    def __init__(self, settings: EngineSettings) -> None:
        # Here, not above: these would double the time that this package takes to import. And not at the first send: a
        # fork in the middle of another thread's import leaves a module that the child can't import, or a lock that it
        # waits for. The other two are what asyncio imports to look a host up.
        import concurrent.futures.thread  # noqa: F401 - see above
        import encodings.idna  # noqa: F401 - see above

        from pushsdk._io.retrying import retry

        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pushsdk."):
            frame = frame.f_back
        # Shown if the client is never closed.
        self._made_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self.settings = settings
        self._retry = retry
        self.counters = Counters()
        self.closed = False
        self._has_block = False
        self._options_of = lru_cache(1024)(Options)
        #: Runs blocking work of runs. Set by ``serve`` if there are no threads.
        self.offload: Offload = in_thread
        #: The transport that replaces aiohttp. Set by ``serve``, in tests only.
        self.given: Transport | None = None
        #: The observer, if any. Set by ``watch``.
        self.observer: Observer | None = None
        #: Closes the claim store of the client, if it has its own. Set by ``keyed_sends``.
        self.close_store: Callable[[], Awaitable[None]] | None = None
        #: Set on first use.
        self.loop: asyncio.AbstractEventLoop | None = None
        #: The same while it may be used: not after the end, nor in a forked child.
        self.home: asyncio.AbstractEventLoop | None = None
        self._guard = ProcessGuard()
        in_child(self, Engine._leave_home)

    def __del__(self) -> None:
        if (loop := getattr(self, "home", None)) is not None:
            self.home = None
            lost = f", with {count(calls, 'call')} that had not ended" if (calls := len(self.pending.active)) else ""
            text = (
                f"unclosed AsyncPushClient({self.settings.base_url!r}), made at {self._made_at}{lost}: "
                "use `async with`, or call aclose() at the end"
            )
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)
            loop.call_exception_handler({"message": text})  # Python hides a ResourceWarning by default

    def serve(self, transport: Transport, *, offload: Offload = in_thread) -> None:
        """Send by this transport, and run blocking work by ``offload``. Raises ConfigurationError after the first use.

        The way in of ``pushsdk.testing``.
        """
        if self.loop is not None:
            raise ConfigurationError("the client is in use already: have it served before its first call")
        self.given, self.offload = transport, offload

    def watch(self, observer: Observer) -> None:
        """Attach an observer. Raises ConfigurationError after the first use, or if there is another observer.

        The way in of ``pushsdk.otel``.
        """
        if self.loop is not None:
            raise ConfigurationError("the client is in use already: instrument it before its first call")
        if self.observer is not None:
            raise ConfigurationError("the client is instrumented already")
        self.observer = observer

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Put the parts together."""
        settings = self.settings
        emit = None if settings.on_event is None else guarded("on_event", settings.on_event)
        self.timers = TimerWheel(loop)
        self.rate_limiter = RateLimiter(settings.rate)
        cap = most_in_flight(settings.limits, settings.session)
        self.limiter = ConcurrencyLimiter(loop, cap, self.rate_limiter)
        self.backlog = Backlog(settings.limits)
        self.transport = self.given or AiohttpTransport(settings, limit=cap)
        #: Learned from 413 by sends and broadcasts alike.
        self.sizes = LearnedSizes()
        self.sender = RequestSender(
            loop=loop,
            transport=self.transport,
            begin_post=getattr(self.transport, "begin", None) if self.observer is None else None,
            timers=self.timers,
            limiter=self.limiter,
            backlog=self.backlog,
            counters=self.counters,
            retry=self._retry,
            replacements=cap + 1,
            emit=emit,
            observer=self.observer,
        )
        self.pending = PendingCalls(self.counters, emit, settings.target(PUSH))
        self.queue = SendQueue(
            self.sender, self.pending, sizes=self.sizes, batching=settings.batching, limits=settings.limits
        )
        #: Campaigns, and sends with idempotency keys, that have not ended.
        self.campaigns: set[object] = set()
        #: Writes to a claim store that outlive their calls: only ``close`` waits for them.
        self.late: set[object] = set()
        #: Runs that are planned, and runs that are sent.
        self.plans: set[Any] = set()
        self.runs: set[Any] = set()
        # Kept until ``asyncio.run`` or this engine ends.
        self._until_end = self.queue.until_end = _until_end(ref(self), self.queue, self.transport)
        with suppress(StopIteration):
            anext(self._until_end).__await__().send(None)
        # Last: another thread may ask for ``stats`` meanwhile.
        self.loop = self.home = loop
        if self.observer is not None:
            self.observer.opened(self)

    def begin_block(self) -> None:
        """Begin the ``with`` block of a client. Raises ConfigurationError in or after another one."""
        if self._has_block:
            raise ConfigurationError("the client is open already: a second `with` would close it in the first")
        self._has_block = True

    def enter(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, if this client may be used in it. Raises ConfigurationError or ClientClosedError."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._guard.check("the client was made")  # a forked child has no running loop
            rule = "AsyncPushClient must be used in an event loop, as asyncio.run(main()) makes one: or use PushClient"
            raise ConfigurationError(rule) from None
        if loop is not self.home:
            self.first_use(loop)
        return loop

    def first_use(self, loop: asyncio.AbstractEventLoop) -> None:
        """``enter`` in a loop that is not ``home``."""
        if self.closed:
            raise closed_error()
        self._guard.check("the client was made")
        if self.loop is not None:
            rule = (
                "the client is in use by another event loop: make all calls in one asyncio.run(), or a client for each"
            )
            raise ConfigurationError(rule)
        self.open(loop)

    def _leave_home(self) -> None:
        """Disable the client in a forked child: the connections belong to the parent."""
        self.home = None

    async def idle(self, seconds: float | None = None) -> bool:
        """Wait until all current calls, campaigns and runs have ended. Return False if that takes longer."""
        items: set[object] = {*self.pending.active, *self.campaigns, *self.runs}
        if self.closed:
            items |= self.late
        return not items or await self.pending.wait(items, seconds)

    async def close(self, drain: float) -> DrainReport:
        """Accept no more calls, wait ``drain`` seconds for the current calls, and end the rest."""
        if self.closed:
            return DrainReport()
        self.closed = True
        self.home = None
        if self.loop is None:
            return DrainReport()
        if self.loop.is_closed():
            return await self._close_late()
        self.pending.drained = []
        try:
            self.queue.flush()
            for run in (*self.plans, *self.runs):
                run.stop("closed", "the client was closed")
            until = self.loop.time() + drain
            await self.idle(drain)
            # Calls that have ended may have left writes to a claim store.
            await self.idle(max(0.0, until - self.loop.time()))
        finally:
            self.sender.closed = True
            self.timers.fail(Failure.CLOSED)
            try:
                await self.idle()
                await self.idle()  # as above
            finally:
                self.limiter.close()
                self.timers.close()
                try:
                    await self._until_end.aclose()
                finally:
                    if self.close_store is not None:
                        await self.close_store()
        ended: defaultdict[str, list[str]] = defaultdict(list)
        for call in self.pending.drained or ():
            if not call.abandoned:
                for users, verdict in call.parts:
                    ended[verdict.outcome.lower()] += users
        by_outcome = {outcome: tuple(users) for outcome, users in ended.items()}
        return DrainReport(**by_outcome, abandoned=tuple(self.pending.abandoned))

    def options_of(
        self, policy: RetryPolicy, timeout: Timeout, *, keyed: bool = False, is_urgent: bool = False
    ) -> Options:
        """Return one object for equal options, which is quick to compare."""
        return self._options_of(policy, timeout, keyed, is_urgent)

    async def _close_late(self) -> DrainReport:
        """Release what another event loop can, as that of the client is gone. Its calls can't end any more."""
        for close in (self.transport.close, self.close_store):
            if close is not None:
                with suppress(Exception):
                    await close()
        return DrainReport(unknown=tuple(user for call in self.pending.active for user in unsettled(call)))

    def stats(self) -> ClientStats:
        """Return the current counters."""
        counts = msgspec.structs.asdict(self.counters)
        counts |= {outcome.lower(): users for outcome, users in counts.pop("users").items()}
        if self.loop is not None:
            counts.update(
                in_flight=self.limiter.in_flight,
                limit=self.limiter.limit,
                seconds_needed=self.limiter.times.likely,
                queued_users=self.backlog.users,
                queued_bytes=self.backlog.bytes,
                retry_tokens=self.sender.budget.tokens,
                paused=max(0.0, self.rate_limiter.paused_until - self.loop.time()),
            )
        return ClientStats(**counts)
