"""One client's lifetime: made, used in one event loop of one process, closed."""

import asyncio
import warnings
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any
from weakref import ref

from pushsdk._core.batching import Call
from pushsdk._core.error_mapping import closed_error
from pushsdk._core.errors import ConfigurationError, caller_frame
from pushsdk._core.outcome import Failure, Outcome, Verdict
from pushsdk._core.policy import Options
from pushsdk._core.results import ClientStats, Counters, DrainReport
from pushsdk._core.words import count
from pushsdk._io.engine import Engine, EngineSettings
from pushsdk._io.forks import ProcessGuard, in_child
from pushsdk._io.pending import unsettled
from pushsdk._io.request import Transport
from pushsdk._io.threads import Offload, in_thread
from pushsdk._io.tracing import Observer

#: Seconds for cancelled calls to end.
CANCEL_TIMEOUT = 5.0


async def _until_end(lifetime: ref["Lifetime"], engine: Engine) -> AsyncGenerator[None, None]:
    """Yield once. ``asyncio.run`` closes such generators at its end: calls on a client that is not closed are lost."""
    guard = ProcessGuard()
    try:
        yield
    finally:
        if not guard.is_inherited:  # else the connections belong to the parent
            if (own := lifetime()) is not None:
                own.__del__()
            engine.timers.fail(Failure.CLOSED)
            try:
                await engine.work.idle(0.1)
            finally:
                await engine.transport.close()


class Lifetime:
    """One client's lifetime, shared with the clients that ``with_options`` returns."""

    def __init__(self, settings: EngineSettings, keyed: Any) -> None:
        """``keyed.close()`` closes the claim store that the client has opened, ``renew()`` is for a forked child.

        None if there are no claims.
        """
        # Here, not above: these would double the time that this package takes to import. And not at the first send: a
        # fork during another thread's import leaves a module that the child can't import, or a lock that it
        # waits for. The first two are what asyncio imports to look a host up.
        import concurrent.futures.thread  # noqa: F401 - see above
        import encodings.idna  # noqa: F401 - see above

        import pushsdk._io.retrying  # noqa: F401 - see above

        frame = caller_frame()
        #: The line that made the client, for the warning if the client is never closed.
        self.made_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self.settings = settings
        self.counters = Counters()
        self.closed = False
        #: The observer, if any. Set by ``watch``.
        self.observer: Observer | None = None
        #: The engine. Set by the first use.
        self.engine: Engine | None = None
        #: The same while it may be used: not after the end, nor in a forked child.
        self.home: Engine | None = None
        self._keyed = keyed
        # The transport instead of aiohttp, and the threads for blocking work. Set by ``serve``.
        self._transport: Transport | None = None
        self._offload: Offload = in_thread
        # Set by ``begin_block``.
        self._has_block = False
        #: Returns one object for equal options, which is quick to compare. Needs all of them, always in this order.
        self.options_of = lru_cache(1024)(Options)
        # Kept until ``asyncio.run`` or this client ends. Set by the first use.
        self._until_end: AsyncGenerator[None, None]
        self._guard = ProcessGuard()
        in_child(self, Lifetime._leave_home)

    def __del__(self) -> None:
        if (engine := getattr(self, "home", None)) is not None:
            self.home = None
            calls = len(engine.work.calls)
            lost = f", with {count(calls, 'call')} that had not ended" if calls else ""
            text = (
                f"unclosed AsyncPushClient({self.settings.base_url!r}), made at {self.made_at}{lost}: "
                "use `async with`, or call aclose() at the end"
            )
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)
            # Python hides a ResourceWarning by default.
            engine.loop.call_exception_handler({"message": text})

    def serve(self, transport: Transport, *, offload: Offload = in_thread) -> None:
        """Send by this transport, and run blocking work by ``offload``. Raises ConfigurationError after the first use.

        The way in for ``pushsdk.testing``.
        """
        if self.engine is not None:
            raise ConfigurationError("the client is in use already: have it served before its first call")
        self._transport, self._offload = transport, offload

    def watch(self, observer: Observer) -> None:
        """Attach an observer. Raises ConfigurationError after the first use, or if there is another observer.

        The way in for ``pushsdk.otel``.
        """
        if self.engine is not None:
            raise ConfigurationError("the client is in use already: instrument it before its first call")
        if self.observer is not None:
            raise ConfigurationError("the client is instrumented already")
        self.observer = observer

    def begin_block(self) -> None:
        """Begin a client's ``with`` block. Raises ConfigurationError in or after another one."""
        if self._has_block:
            raise ConfigurationError("the client is open already: a second `with` would close it in the first")
        self._has_block = True

    def enter(self) -> Engine:
        """Return the engine, if this client may be used here. Raises ConfigurationError or ClientClosedError."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._guard.check("the client was made")  # a forked child has no running loop
            rule = "AsyncPushClient must be used in an event loop, as asyncio.run(main()) makes one: or use PushClient"
            raise ConfigurationError(rule) from None
        engine = self.home
        if engine is None or engine.loop is not loop:
            return self._open(loop)
        return engine

    def _open(self, loop: asyncio.AbstractEventLoop) -> Engine:
        """Make the engine, in the first loop that uses the client."""
        if self.closed:
            raise closed_error()
        self._guard.check("the client was made")
        if self.engine is not None:
            rule = "the client is in use by another event loop: make all calls in one asyncio.run(), or use PushClient"
            raise ConfigurationError(rule)
        engine = Engine(
            self.settings,
            loop,
            self.counters,
            observer=self.observer,
            transport=self._transport,
            offload=self._offload,
        )
        self._until_end = engine.queue.until_end = _until_end(ref(self), engine)
        with suppress(StopIteration):
            anext(self._until_end).__await__().send(None)
        # Last: another thread may ask for ``stats`` meanwhile.
        self.engine = self.home = engine
        if self.observer is not None:
            self.observer.opened(self)
        return engine

    def renew(self) -> None:
        """Begin anew in a forked child."""
        # Kept, as dropping it would close it: all that was opened belongs to the parent.
        self._former = {**vars(self)}
        self.engine = self.home = None
        self.counters, self._guard, self._has_block = Counters(), ProcessGuard(), False
        if self._keyed is not None:
            self._keyed.renew()

    def _leave_home(self) -> None:
        """Disable the client in a forked child: the connections belong to the parent."""
        self.home = None

    async def close(self, drain: float) -> DrainReport:
        """Accept no more calls, wait ``drain`` seconds for the current calls, and end the rest."""
        engine = self.engine
        if self.closed or engine is None:
            self.closed = True
            return DrainReport()
        is_late = engine.loop.is_closed()
        if not is_late:
            self.enter()  # raises in another loop
        self.closed = True
        self.home = None
        if is_late:
            return await self._close_late(engine)
        engine.work.drained = []
        try:
            engine.queue.flush()
            for run in tuple(engine.work.runs):
                run.stop("closed", "the client was closed")
            await engine.work.idle(drain)
        finally:
            engine.work.closed = True
            engine.timers.fail(Failure.CLOSED)
            try:
                await engine.work.idle(CANCEL_TIMEOUT)
                # Left are calls that an exit, such as Ctrl-C, cut off as they were settled.
                lost = [*engine.work.calls]
                engine.pending.settle_rest(lost, Verdict(outcome=Outcome.UNKNOWN, failure=Failure.CLOSED))
                engine.work.end(lost)
                # Keyed sends write their outcomes, for as long as the claim store's timeout allows.
                await engine.work.idle()
            finally:
                await self._release(engine)
        return _drain_report(engine, [call for call in engine.work.drained if not call.abandoned])

    async def _release(self, engine: Engine) -> None:
        """Close the connections and the claim store."""
        engine.limiter.close()
        engine.timers.close()
        try:
            await self._until_end.aclose()
        finally:
            if self._keyed is not None:
                await self._keyed.close()

    async def _close_late(self, engine: Engine) -> DrainReport:
        """Release as much as another event loop can, as the client's loop is gone. The calls can't end any more."""
        for part in filter(None, (engine.transport, self._keyed)):
            with suppress(Exception):
                await part.close()
        return _drain_report(engine, engine.work.calls)

    def stats(self) -> ClientStats:
        """Return the current counters."""
        counts = {**vars(self.counters)}
        counts |= {outcome.lower(): users for outcome, users in counts.pop("users").items()}
        if (engine := self.engine) is not None:
            counts.update(
                in_flight=engine.limiter.in_flight,
                limit=engine.limiter.limit,
                seconds_needed=engine.limiter.times.likely,
                queued_users=engine.backlog.users,
                queued_bytes=engine.backlog.bytes,
                retry_tokens=engine.sender.budget.tokens,
                paused=engine.limiter.rate_limiter.pause_left(engine.loop.time()),
            )
        return ClientStats(**counts)


def _drain_report(engine: Engine, calls: Iterable[Call]) -> DrainReport:
    """Return the users in these calls. In doubt without a verdict are those whose request had begun."""
    ended: defaultdict[str, list[str]] = defaultdict(list)
    for call in calls:
        is_begun = call.batch is not None and not call.batch.is_waiting
        ended["unknown" if is_begun else "not_sent"] += unsettled(call)
        for users, verdict in call.parts:
            ended[verdict.outcome.lower()] += users
    return DrainReport(
        **{outcome: tuple(users) for outcome, users in ended.items()}, abandoned=tuple(engine.pending.abandoned)
    )
