"""The parts of one client, put together inside its event loop, and their end.

Calls share batches (``queue``), which are sent as requests (``batch_sender``, ``sender``) over aiohttp (``transport``,
``fast_post``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from pushsdk._core.batching import Options
from pushsdk._core.error_mapping import closed_error
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.events import Event
from pushsdk._core.outcome import Failure, Outcome
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.rate_limit import RateLimiter
from pushsdk._core.results import ClientStats, Counters, DrainReport
from pushsdk._core.splitting import LearnedSizes
from pushsdk._io.batch_sender import PendingCalls
from pushsdk._io.credentials import Credentials
from pushsdk._io.forks import ProcessGuard, in_child
from pushsdk._io.limiter import Backlog, ConcurrencyLimiter
from pushsdk._io.queue import SendQueue
from pushsdk._io.sender import RequestSender, guarded
from pushsdk._io.threads import Offload, in_thread
from pushsdk._io.timers import TimerWheel
from pushsdk._io.tracing import Observer
from pushsdk._io.transport import AiohttpTransport, Session, Transport


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The checked settings of a client."""

    base_url: str
    credentials: Credentials
    batching: Batching
    limits: Limits
    rate: Rate
    session: Session | None
    proxy: str | None
    allow_insecure: bool
    ssl: Any
    headers: dict[str, str]
    keepalive: float
    on_event: Callable[[Event], Any] | None

    def __repr__(self) -> str:
        return f"Settings({self.base_url!r})"


class Engine:
    """The parts of one client, put together inside its event loop. Shared with what ``with_options`` returns."""

    def __init__(self, settings: EngineSettings) -> None:
        # Here, not above: these would double the time that this package takes to import. And not at the first send: a
        # fork in the middle of another thread's import leaves a module that the child can't import, or a lock that it
        # waits for. The other two are what asyncio imports to look a host up.
        import concurrent.futures.thread  # noqa: F401 - see above
        import encodings.idna  # noqa: F401 - see above

        from pushsdk._io.retrying import retry

        self.settings = settings
        self._retry = retry
        self.counters = Counters()
        self.closed = False
        self.policies: dict[tuple[RetryPolicy, Timeout, bool], Options] = {}
        #: Runs blocking work of runs. Set by ``serve`` if there are no threads.
        self.offload: Offload = in_thread
        #: The transport that replaces aiohttp. Set by ``serve``, in tests only.
        self.given: Transport | None = None
        #: The observer, if any. Set by ``watch``.
        self.observer: Observer | None = None
        #: Set on first use.
        self.loop: asyncio.AbstractEventLoop | None = None
        #: The same while it may be used: not after the end, nor in a forked child.
        self.home: asyncio.AbstractEventLoop | None = None
        self._guard = ProcessGuard()
        in_child(self, Engine._leave_home)

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
        self.limiter = ConcurrencyLimiter(loop, settings.limits.in_flight, self.rate_limiter)
        self.backlog = Backlog(settings.limits)
        self.transport = self.given or AiohttpTransport(
            settings.base_url,
            headers=settings.headers,
            key=settings.credentials.fixed,
            session=settings.session,
            limit=settings.limits.in_flight,
            keepalive=settings.keepalive,
            ssl=settings.ssl,
            proxy=settings.proxy,
            allow_insecure=settings.allow_insecure,
        )
        #: Learned from 413 by sends and broadcasts alike.
        self.sizes = LearnedSizes()
        self.sender = RequestSender(
            self.transport,
            settings.credentials,
            timers=self.timers,
            limiter=self.limiter,
            backlog=self.backlog,
            counters=self.counters,
            retry=self._retry,
            pool_size=settings.limits.in_flight,
            emit=emit,
            on_pause=self._pause,
            observer=self.observer,
        )
        self.pending = PendingCalls(self.counters, emit)
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
        # Last: another thread may ask for ``stats`` meanwhile.
        self.loop = self.home = loop
        if self.observer is not None:
            self.observer.opened(self)

    def enter(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, if this client may be used in it. Raises ConfigurationError or ClientClosedError."""
        loop = asyncio.get_running_loop()
        if loop is not self.home:
            self.first_use(loop)
        return loop

    def first_use(self, loop: asyncio.AbstractEventLoop) -> None:
        """``enter`` in a loop that is not ``home``."""
        if self.closed:
            raise closed_error()
        self._guard.check("the client was made")
        if self.loop is not None:
            raise ConfigurationError(
                "the client is in use by another event loop: make one in each loop, and one asyncio.run() for it all"
            )
        self.open(loop)

    def _leave_home(self) -> None:
        """Disable the client in a forked child: the connections belong to the parent."""
        self.home = None

    def _pause(self, until: float) -> None:
        """Start no request before ``until``. Calls that can't wait that long end now."""
        self.limiter.pause(until)
        self.queue.pause(until)

    def options_of(self, policy: RetryPolicy, timeout: Timeout, *, keyed: bool = False) -> Options:
        """Return one object for equal options, which is quick to compare."""
        options = self.policies.get((policy, timeout, keyed))
        if options is None:
            if len(self.policies) >= 1024:
                # Calls before and after this do not share a batch.
                self.policies.clear()
            options = self.policies[policy, timeout, keyed] = Options(policy, timeout, keyed)
        return options

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
        self.pending.drain()
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
            self.queue.close()
            self.timers.end_scopes(Failure.CLOSED)
            try:
                await self.idle()
            finally:
                self.limiter.close()
                self.timers.close()
                await self.transport.close()
        ended: dict[Outcome, list[str]] = {outcome: [] for outcome in Outcome}
        for call in self.pending.drained or ():
            if not call.abandoned:
                for users, verdict in call.parts:
                    ended[verdict.outcome].extend(users)
        return DrainReport(
            accepted=tuple(ended[Outcome.ACCEPTED]),
            rejected=tuple(ended[Outcome.REJECTED]),
            not_sent=tuple(ended[Outcome.NOT_SENT]),
            unknown=tuple(ended[Outcome.UNKNOWN]),
            abandoned=tuple(self.pending.abandoned),
        )

    def stats(self) -> ClientStats:
        """Return the current counters."""
        counters = self.counters
        stats = ClientStats(
            accepted=counters.users[Outcome.ACCEPTED],
            rejected=counters.users[Outcome.REJECTED],
            not_sent=counters.users[Outcome.NOT_SENT],
            unknown=counters.users[Outcome.UNKNOWN],
            campaigns=counters.campaigns,
            requests=counters.requests,
            attempts=counters.attempts,
            retries=counters.retries,
            splits=counters.splits,
            stale_connections=counters.stale_connections,
            abandoned=counters.abandoned,
        )
        if self.loop is None:
            return stats
        return msgspec.structs.replace(
            stats,
            in_flight=self.limiter.in_flight,
            queued_users=self.backlog.users,
            queued_bytes=self.backlog.bytes,
            retry_tokens=self.sender.budget.tokens,
            paused=max(0.0, self.rate_limiter.paused_until - self.loop.time()),
        )
