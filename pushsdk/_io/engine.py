"""One client's parts in its event loop: made at its first use, shared with the clients that ``with_options`` returns.

Calls share batches (``queue``), which are sent as requests (``batch_sender``, ``sender``) over aiohttp (``transport``,
``fast_post``). ``work`` has the calls and runs that have not ended. ``lifetime`` makes the engine, and ends it.
"""

import asyncio
from collections.abc import Callable, Set
from typing import Any

from pushsdk._core.events import Event
from pushsdk._core.learned_limit import LearnedLimit
from pushsdk._core.operations import PUSH, Operation, Target
from pushsdk._core.policy import Batching, Limits, Rate
from pushsdk._core.rate_limit import RateLimiter
from pushsdk._core.results import Counters
from pushsdk._io.backlog import Backlog
from pushsdk._io.limiter import ConcurrencyLimiter
from pushsdk._io.pending import PendingCalls
from pushsdk._io.queue import SendQueue
from pushsdk._io.request import Transport
from pushsdk._io.sender import RequestSender, guarded
from pushsdk._io.threads import Offload
from pushsdk._io.timers import TimerWheel
from pushsdk._io.tracing import Observer
from pushsdk._io.transport import AiohttpTransport, TransportSettings, most_in_flight
from pushsdk._io.work import Work


class EngineSettings(TransportSettings, frozen=True, kw_only=True, eq=False):
    """A client's checked settings."""

    batching: Batching = Batching()
    limits: Limits = Limits()
    rate: Rate = Rate()
    max_pause: float
    """The longest pause that an answer causes, in seconds."""
    only_users: Set[str] | None = None
    on_event: Callable[[Event], Any] | None = None
    show_answers: bool

    def target(self, operation: Operation) -> Target:
        """Return where the operation goes, for error texts."""
        return Target(operation, self.base_url, self.show_answers)


class Engine:
    """One client's parts in its event loop."""

    def __init__(
        self,
        settings: EngineSettings,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        *,
        observer: Observer | None,
        transport: Transport | None,
        offload: Offload,
    ) -> None:
        """``transport`` replaces aiohttp, and ``offload`` the threads for runs' blocking work: for tests."""
        from pushsdk._io.retrying import retry  # imported early by ``Lifetime``

        emit = None if settings.on_event is None else guarded("on_event", settings.on_event, loop)
        cap = most_in_flight(settings.limits, settings.session)
        self.settings = settings
        self.loop = loop
        self.offload = offload
        self.timers = TimerWheel(loop)
        self.work = Work()
        self.limiter = ConcurrencyLimiter(loop, cap, RateLimiter(settings.rate))
        self.backlog = Backlog(settings.limits)
        self.transport: Transport = transport or AiohttpTransport(settings, limit=cap)
        #: Learned from 413 by sends and broadcasts alike.
        self.learned = LearnedLimit()
        self.sender = RequestSender(
            loop=loop,
            transport=self.transport,
            timers=self.timers,
            limiter=self.limiter,
            backlog=self.backlog,
            counters=counters,
            work=self.work,
            retry=retry,
            replacements=cap + 1,
            emit=emit,
            observer=observer,
            max_pause=settings.max_pause,
        )
        self.pending = PendingCalls(self.work, counters, emit, settings.target(PUSH), settings.only_users)
        self.queue = SendQueue(
            self.sender, self.pending, learned=self.learned, batching=settings.batching, limits=settings.limits
        )
