"""PushClient: the client for code without an event loop, as Celery tasks, Django views, notebooks and scripts.

The same core as AsyncPushClient, in one event loop in a thread (``loop_thread``) that starts with the first call.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

from pushsdk._audience.chunks import ChunkSource, RequestSource
from pushsdk._core.address import redacted
from pushsdk._core.error_mapping import closed_error
from pushsdk._core.errors import ConfigurationError, PartialError, PushError
from pushsdk._core.events import SendAbandoned
from pushsdk._core.models import CampaignCreated, CampaignRequest, MobilePush, PushRequest
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._core.policy import RetryPolicy, Timeout, check_seconds
from pushsdk._core.results import ClientStats, DrainReport, Receipt
from pushsdk._io.credentials import KeySource
from pushsdk._io.engine import Engine
from pushsdk._io.forks import in_child
from pushsdk._io.sender import guarded
from pushsdk._public import set_public_module
from pushsdk._runs.keyed import keyed_sends
from pushsdk._runs.options import RunPath
from pushsdk._runs.progress import Progress
from pushsdk._runs.report import BroadcastReport
from pushsdk.claims.store import ClaimStore
from pushsdk.client import AsyncPushClient
from pushsdk.options import ClientOptions, RunOptions
from pushsdk.sync.loop_thread import AT_EXIT, LoopThread, ThreadCall, read, readable

__all__ = ["PushClient", "report_abandoned"]

# Seconds between two looks at a ``threading.Event`` that stops a run.
LOOK_EVERY = 0.05


def report_abandoned(client: AsyncPushClient, user_ids: Any, call: ThreadCall) -> None:
    """In the loop: report what the call would have returned or raised, which its caller does not get."""
    engine = client._engine
    if engine.loop is None:  # the caller was interrupted before the loop did anything
        return
    users = (user_ids,) if isinstance(user_ids, str) else tuple(dict.fromkeys(user_ids))
    for outcome, ids, attempts in _endings(users, call):
        engine.counters.abandoned += 1
        engine.queue.pending.report(SendAbandoned(outcome=outcome, user_ids=ids, attempts=attempts))


def _endings(users: tuple[str, ...], call: ThreadCall) -> list[tuple[Outcome, tuple[str, ...], tuple[Attempt, ...]]]:
    error = call.error
    if error is None:
        return [(Outcome.ACCEPTED, users, call.result.attempts)]
    if isinstance(error, PartialError):
        ended = ((outcome, error.users(outcome)) for outcome in Outcome)
        return [(outcome, tuple(ids), error.attempts) for outcome, ids in ended if ids]
    # Any other error is a mistake in the call, found before anything was sent.
    return [(error.outcome, users, error.attempts)] if isinstance(error, PushError) else []


class _Portal:
    """Leads a process's threads to one client in one loop."""

    def __init__(self, client: AsyncPushClient, claims: ClaimStore | None) -> None:
        #: The client of this process; replaced in a forked child.
        self.client = client
        self._claims = claims
        #: Set by ``close``.
        self.closed = False
        # Guards the thread's start.
        self._lock = threading.RLock()
        # Set by the first call.
        self._thread: LoopThread | None = None
        in_child(self, _Portal._start_over)

    def enter(self) -> LoopThread:
        """Return the client's thread. Raises ClientClosedError, and ConfigurationError in that thread."""
        with self._lock:
            if self.closed:
                raise closed_error()
            thread = self._thread or self._open()
        thread.check_thread()
        return thread

    def close(self, drain: float) -> DrainReport:
        """Close the client, and wait until its thread has ended; the second of two waits as well."""
        if self._thread is not None:
            self._thread.check_thread()
        with self._lock:
            self.closed = True
            thread = self._thread
        return DrainReport() if thread is None else thread.close(drain)

    def _open(self) -> LoopThread:
        client, claims = self.client, self._claims

        async def close(drain: float) -> DrainReport:
            try:
                return await client.aclose(drain)
            finally:
                if claims is not None:
                    await claims.aclose()

        thread = self._thread = LoopThread(close)
        finalizer = weakref.finalize(self, _dropped, thread, f"PushClient({client._engine.settings.base_url!r})")
        # At the end of the interpreter ``LoopThread`` closes what is open, without a warning.
        finalizer.atexit = False
        try:
            thread.start()
        except BaseException:
            # A signal may have come when the thread had started.
            if not thread.has_started:
                self._thread = None
            raise
        return thread

    def _start_over(self) -> None:
        """In a forked child: the thread runs in the parent only, and another thread may have held the lock."""
        engine = self.client._engine
        self._lock, self._thread = threading.RLock(), None
        self.client = client = self.client.with_options()
        client._engine = Engine(engine.settings)
        client._engine.observer = engine.observer
        client._keyed = keyed_sends(self._claims, client._engine)


class PushClient:
    """The client of the push service for code without an event loop: says of every user what happened.

    ``with PushClient(base_url, api_key) as client:`` closes it at the end; else call ``close``. One is enough for all
    threads of a process. It may be made before a fork: the child then has a client of its own, with a thread and
    connections of its own, and nothing of what the parent had on its way. A call blocks its thread, also where that
    runs an event loop: in a notebook that is fine, in async code use AsyncPushClient.

    ``on_event`` and ``api_key`` callables are called in the client's own thread: they must be quick, and not call it.
    A client that was not closed is closed at the end of the interpreter; what is on its way then has five seconds.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | KeySource | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """As AsyncPushClient's, but for ``session``, which would be another loop's. Nothing is opened yet.

        ``claims`` is used in the client's loop, and closed with it. Raises ConfigurationError.
        """
        base_url, api_key, options["proxy"] = redacted(base_url), redacted(api_key), redacted(options.get("proxy"))
        # No session: it would be another loop's.
        client = AsyncPushClient(base_url, api_key, session=None, **options)
        # Replaced in a forked child, by ``_enter``.
        self._client = client
        self._portal = _Portal(client, options.get("claims"))

    def __repr__(self) -> str:
        portal = getattr(self, "_portal", None)
        if portal is None:
            return "PushClient(not constructed)"
        return f"PushClient({portal.client._engine.settings.base_url!r}, closed={portal.closed})"

    def __enter__(self) -> Self:
        self._portal.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, drain: float = 30.0) -> DrainReport:
        """Take no more calls, wait ``drain`` seconds for those on their way, end the rest, close, and end the thread.

        From any thread. The calls of other threads get their true outcome, NOT_SENT or UNKNOWN where they were ended.
        The report says whom that concerns. Closing twice does nothing.
        """
        return self._portal.close(check_seconds("drain", drain, or_zero=True))

    def send(
        self,
        user_ids: str | Iterable[str],
        message: MobilePush | Mapping[str, Any],
        *,
        custom_fields: Mapping[str, Any] | None = None,
        timeout: Timeout | float | None = None,
        retry: RetryPolicy | None = None,
        idempotency_key: str | None = None,
    ) -> Receipt:
        """Push a message to one user, or to at most ``Batching.max_users`` users: see ``AsyncPushClient.send``.

        Calls of several threads with an equal message are merged into one request. An exception of a signal handler,
        as Ctrl-C or a task's time limit, cancels the call: what becomes of it is told to ``on_event`` (SendAbandoned).
        """
        thread, client = self._enter()
        users = read(user_ids, self._portal.client._engine.settings.batching.max_users)
        call = ThreadCall()
        call.work = lambda: client.send(
            users, message, custom_fields=custom_fields, timeout=timeout, retry=retry, idempotency_key=idempotency_key
        )
        receipt: Receipt = thread.perform(call, lambda call: report_abandoned(client, users, call))
        return receipt

    def create_campaign(
        self,
        request: CampaignRequest | Mapping[str, Any],
        *,
        timeout: Timeout | float | None = None,
        retry: RetryPolicy | None = None,
    ) -> CampaignCreated:
        """Create a push campaign: see ``AsyncPushClient.create_campaign``."""
        thread, client = self._enter()
        call = ThreadCall()
        call.work = lambda: client.create_campaign(request, timeout=timeout, retry=retry)
        created: CampaignCreated = thread.perform(call)
        return created

    def broadcast(
        self,
        user_ids: Iterable[str] | ChunkSource,
        message: MobilePush | Mapping[str, Any],
        *,
        custom_fields: Mapping[str, Any] | None = None,
        run: RunPath | None = None,
        stop: threading.Event | None = None,
        dedupe: bool = True,
        **options: Unpack[RunOptions],
    ) -> BroadcastReport:
        """Push one message to any number of users: see ``AsyncPushClient.broadcast``.

        ``user_ids`` is read, and ``on_progress`` called, in the thread that called this. ``stop`` is set from another.
        """
        call = ThreadCall()
        users = readable("user_ids", user_ids, call.callbacks.put)
        return self._run(
            call,
            lambda client, stop: client.broadcast(
                users, message, custom_fields=custom_fields, run=run, stop=stop, dedupe=dedupe, **options
            ),
            stop,
            options,
        )

    def send_each(
        self,
        requests: Iterable[PushRequest | Mapping[str, Any]] | RequestSource,
        *,
        run: RunPath | None = None,
        stop: threading.Event | None = None,
        **options: Unpack[RunOptions],
    ) -> BroadcastReport:
        """Send many requests, each with a message of its own: see ``AsyncPushClient.send_each``, and ``broadcast``."""
        call = ThreadCall()
        given = readable("requests", requests, call.callbacks.put)
        return self._run(
            call, lambda client, stop: client.send_each(given, run=run, stop=stop, **options), stop, options
        )

    def resume(
        self, run: RunPath, *, stop: threading.Event | None = None, **options: Unpack[RunOptions]
    ) -> BroadcastReport:
        """Take up a run file where it ended: see ``AsyncPushClient.resume``, and ``broadcast``."""
        return self._run(ThreadCall(), lambda client, stop: client.resume(run, stop=stop, **options), stop, options)

    def with_options(self, *, timeout: Timeout | float | None = None, retry: RetryPolicy | None = None) -> Self:
        """Return a client with another timeout or policy that shares everything else, and ends with this one."""
        client = object.__new__(type(self))
        client.__dict__ |= self.__dict__
        client._client = self._client.with_options(timeout=timeout, retry=retry)
        return client

    def flush(self) -> None:
        """Send what lingers, and wait until every call made so far, by any thread, has ended."""
        thread, client = self._enter()
        call = ThreadCall()
        call.work = client.flush
        thread.perform(call)

    def stats(self) -> ClientStats:
        """The client's counters as of now, in this process."""
        return self._portal.client.stats()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client is not pickled: it holds connections and the Api-Key; make one in each process")

    def _run(
        self,
        call: ThreadCall,
        start: Callable[[AsyncPushClient, asyncio.Event | None], Coroutine[Any, Any, BroadcastReport]],
        stop: threading.Event | None,
        options: RunOptions,
    ) -> BroadcastReport:
        """Run what ``start`` starts. Its options are of this call alone: ``on_progress`` is replaced in them."""
        if stop is not None and not isinstance(stop, threading.Event):
            raise ConfigurationError("stop is a threading.Event: set it in another thread to end it early")
        thread, client = self._enter()
        options["on_progress"] = _in_caller(options.get("on_progress"), call)
        call.work = functools.partial(_stoppable, functools.partial(start, client), stop)
        report: BroadcastReport = thread.perform(call)
        return report

    def _enter(self) -> tuple[LoopThread, AsyncPushClient]:
        thread, own = self._portal.enter(), self._portal.client
        if self._client._engine is not own._engine:
            options = self._client._options
            self._client = own.with_options(timeout=options.timeout, retry=options.policy)
        return thread, self._client


async def _stoppable(
    start: Callable[[asyncio.Event | None], Coroutine[Any, Any, BroadcastReport]], stop: threading.Event | None
) -> BroadcastReport:
    """In the loop: start the run, and watch the caller's ``threading.Event`` for it."""
    if stop is None:
        return await start(None)
    event = asyncio.Event()

    async def watch() -> None:
        while not stop.is_set():  # noqa: ASYNC110 - a threading.Event can't be awaited
            await asyncio.sleep(LOOK_EVERY)
        event.set()

    watching = asyncio.create_task(watch())
    try:
        return await start(event)
    finally:
        watching.cancel()


def _in_caller(on_progress: Callable[[Progress], object] | None, call: ThreadCall) -> Any:
    """Return an ``on_progress`` for the loop that has the waiting thread call the caller's."""
    if on_progress is None or not callable(on_progress):
        return on_progress
    tell = guarded("on_progress", on_progress)
    return lambda progress: call.callbacks.put(functools.partial(tell, progress))


def _dropped(thread: LoopThread, name: str) -> None:
    """Nothing can call the client any more: close it as at the end of the interpreter."""
    if not thread.is_inherited and thread.close_soon(AT_EXIT):
        warnings.warn(f"unclosed {name}: close it, or use it in a with block", ResourceWarning, stacklevel=2)


set_public_module(__name__)
