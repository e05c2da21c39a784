"""PushClient: the client for code without an event loop, for example Celery tasks, Django views, notebooks and scripts.

It drives an AsyncPushClient in an event loop that runs in a thread (``loop_thread``) from the first call on.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from pushsdk._core.arguments import ids_of
from pushsdk._core.error_mapping import closed_error
from pushsdk._core.errors import PushError
from pushsdk._core.events import SendAbandoned
from pushsdk._core.hints import check_options
from pushsdk._core.kinds import Delay, check, check_seconds
from pushsdk._core.models import AnyCampaign, AnyMessage, AnyRequest, CampaignCreated, CollectionNotStr
from pushsdk._core.outcome import Outcome
from pushsdk._core.policy import RetryPolicy, Seconds, Timeout
from pushsdk._core.results import DrainReport, Receipt
from pushsdk._core.secret import Secret, seal_options, sealed
from pushsdk._io.credentials import KeySource
from pushsdk._io.file_names import AnyPath
from pushsdk._io.forks import in_child
from pushsdk._io.sender import guarded
from pushsdk._views import ClientViews
from pushsdk.claims.store import ClaimStore
from pushsdk.client import NAMES, AsyncPushClient
from pushsdk.options import ClientOptions, RunOptions
from pushsdk.sync.caller_thread import asked_in_thread, check_plain, in_caller
from pushsdk.sync.loop_thread import EXIT_DRAIN, LoopThread, ThreadCall

if TYPE_CHECKING:
    from pushsdk._audience.audience import Audience
    from pushsdk._runs.report import BroadcastReport


def report_abandoned(client: AsyncPushClient, users: tuple[str, ...], call: ThreadCall[Receipt]) -> None:
    """Report the outcome for a send whose caller was interrupted. Called in the loop."""
    engine, end = client._lifetime.engine, call.error or call.result
    # Interrupted before the first call reached the loop, or a mistake in the call: nothing was sent.
    if engine is None or not isinstance(end, (Receipt, PushError)):
        return
    outcomes: Mapping[str, Outcome] = getattr(end, "outcomes", dict.fromkeys(users, end.outcome))
    for outcome in Outcome:
        if ids := tuple([user for user, found in outcomes.items() if found is outcome]):
            engine.sender.counters.abandoned += 1
            engine.pending.report(SendAbandoned(outcome=outcome, user_ids=ids, attempts=end.attempts))


class _Portal:
    """The way from a process's threads to one client in one loop."""

    def __init__(self, client: AsyncPushClient, claims: ClaimStore | Secret | None) -> None:
        self._client = client
        self._claims = claims
        #: Set by ``close``.
        self.closed = False
        # Held while the thread is started.
        self._lock = threading.RLock()
        # Set by the first call.
        self._thread: LoopThread | None = None
        in_child(self, _Portal._start_over)

    def enter(self) -> LoopThread:
        """Return the thread, started. Raises ClientClosedError once closed, ConfigurationError in the thread itself."""
        with self._lock:
            if self.closed:
                raise closed_error()
            thread = self._thread or self._open()
        thread.check_thread()
        return thread

    def close(self, drain: float) -> DrainReport:
        """Close the client, and wait until its thread has ended. A second call waits as well."""
        if self._thread is not None:
            self._thread.check_thread()
        with self._lock:
            self.closed = True
            thread = self._thread
        return DrainReport() if thread is None else thread.close(drain)

    def _open(self) -> LoopThread:
        lifetime = self._client._lifetime
        thread = self._thread = LoopThread(self._client.aclose)
        if isinstance(self._claims, ClaimStore):
            thread.closing_last.push_async_callback(self._claims.aclose)
        name = f"PushClient({lifetime.settings.base_url!r}), made at {lifetime.made_at}"
        finalizer = weakref.finalize(self, _close_dropped, thread, name)
        # When the interpreter exits, ``loop_thread`` closes every loop, without a warning.
        finalizer.atexit = False
        try:
            thread.start()
        except BaseException:
            # A signal handler may raise after the thread has started.
            if not thread.has_started:
                self._thread = None
            raise
        return thread

    def _start_over(self) -> None:
        """Start over in a forked child: the thread runs in the parent only, and another thread may hold the lock."""
        self._lock, self._thread = threading.RLock(), None
        self._client._lifetime.renew()


class PushClient(ClientViews):
    """A client for the push service, for code without an event loop: reports every user's outcome.

    One client is enough for all threads in a process. After a fork the child has its own thread and connections; calls
    in flight stay with the parent. A call blocks its thread, even if an event loop runs there: fine in a notebook, but
    in async code use AsyncPushClient.

    A sync ``api_key`` callable runs in the thread that calls the client. ``on_event`` and an async ``api_key`` callable
    run in the client's thread: they must be quick, and must not call the client. A client that was not closed is
    closed when the interpreter exits, with five seconds for calls in flight.

    Example:
        with PushClient(base_url, api_key) as client:
            receipt = client.send("user-1", MobilePush(title={"en": "Hello"}, ios_enabled=True))
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | KeySource | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        """Check the arguments; nothing is opened yet.

        Args:
            base_url: Service address, without ``/v1``; by default the variable PUSHSDK_BASE_URL.
            api_key: The key, or a callable that is called for each call and again for each retry; by default the
                variable PUSHSDK_API_KEY.
            retry: A RetryPolicy; by default ``RetryPolicy.safe()``, with at most 4 attempts.
            timeout: A Timeout, or seconds for a whole call; by default 30 s, with 10 s per attempt and 5 s to connect.
            batching: A Batching; by default at most 1,000 users or 1 MiB per request, without lingering.
            limits: A Limits; by default 100,000 users or 64 MiB are queued, then new calls wait.
            rate: A Rate, in requests or users per second; by default unlimited.
            claims: A claim store, or its location such as ``"sqlite:claims.db"``; closed with the client.
            only_users: The ids of the only users that get pushes, for a staging system. Everybody else is NOT_SENT.
            on_event: A callable that gets each Event, in the client's thread.
            show_answers: True quotes the service's answers in errors; by default only if ``base_url`` is loopback.
            **options: proxy, headers, ssl, keepalive and allow_insecure; see ``pushsdk.options.ClientOptions``.

        Raises:
            ConfigurationError: An argument is missing or wrong. The text quotes neither the key nor the URL.
        """
        base_url, api_key = sealed(base_url), sealed(api_key)
        seal_options(options)
        check_options("PushClient", options, NAMES)
        # A session would belong to another loop.
        self._client = AsyncPushClient(base_url, asked_in_thread(api_key), session=None, **options)
        self._portal = _Portal(self._client, options.get("claims"))  # type: ignore[arg-type]
        self._lifetime = self._client._lifetime

    def __enter__(self) -> Self:
        self._portal.enter()
        self._lifetime.begin_block()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, drain: Seconds = 30.0) -> DrainReport:
        """Refuse new calls, wait up to ``drain`` seconds for the calls in flight, cancel the rest, and end the thread.

        May be called from any thread. A second call does nothing.

        Returns:
            The users of the calls that ended meanwhile. Cancelled calls have their true outcome, NOT_SENT or UNKNOWN.
        """
        seconds = check_seconds("drain", drain, Delay)
        return self._portal.close(seconds)

    @property
    def closed(self) -> bool:
        """True once the client, or one of ``with_options``, was closed."""
        return self._portal.closed

    def send(
        self,
        user_ids: str | Iterable[str],
        message: AnyMessage,
        *,
        custom_fields: Mapping[str, Any] | None = None,
        timeout: Timeout | Seconds | None = None,
        retry: RetryPolicy | None = None,
        idempotency_key: str | None = None,
    ) -> Receipt:
        """Push a message to one user or to several, and return when all are accepted.

        Concurrent calls with an equal message are merged into one request. An exception that a signal handler raises,
        for example Ctrl-C or a task's time limit, cancels the call; ``on_event`` gets its outcome (SendAbandoned).

        Args:
            user_ids: One id, or at most ``Batching.max_users`` ids.
            message: The message, or a mapping with the interface's names.
            custom_fields: Any JSON object, for the message's placeholders.
            timeout: A Timeout, or the total in seconds; by default the client's.
            retry: The policy for this call; by default the client's.
            idempotency_key: Name for a job that may run several times, at most 512 bytes; needs the option ``claims``.
                Users to whom an earlier call with the key has sent are not pushed again.

        Raises:
            ValidationError: The input can't be sent. Nothing was sent.
            NotSentError: No byte was sent for any user.
            RejectedError: The service rejected all users.
            OutcomeUnknownError: All users may have been pushed.
            PartialError: The users have different outcomes.
        """
        thread, client = self._portal.enter(), self._client
        max_users = self._lifetime.settings.batching.max_users
        users = (user_ids,) if isinstance(user_ids, str) else ids_of(user_ids, max_users)
        options: dict[str, Any] = {"custom_fields": custom_fields, "timeout": timeout, "retry": retry}
        call = ThreadCall(
            lambda: client.send(users, message, idempotency_key=idempotency_key, **options),
            lambda call: report_abandoned(client, users, call),
        )
        return thread.perform(call)

    def create_campaign(
        self,
        request: AnyCampaign,
        *,
        timeout: Timeout | Seconds | None = None,
        retry: RetryPolicy | None = None,
    ) -> CampaignCreated:
        """Create a push campaign, and return its uuid.

        Args:
            request: The campaign, or a mapping with the interface's names.
            timeout: A Timeout, or the total in seconds; by default the client's.
            retry: The policy for this call; by default the client's.

        Raises:
            ValidationError: The request can't be sent. Nothing was sent.
            NotSentError: No byte was sent.
            RejectedError: The service rejected the campaign.
            OutcomeUnknownError: The campaign may exist: look up its ``external_id`` before you create it again.
            UnexpectedResponseError: The campaign was created, but the response has no readable uuid.
        """
        thread, client = self._portal.enter(), self._client
        return thread.perform(ThreadCall(lambda: client.create_campaign(request, timeout=timeout, retry=retry)))

    def broadcast(
        self,
        user_ids: CollectionNotStr | Iterator[str] | Audience,
        message: AnyMessage,
        *,
        custom_fields: Mapping[str, Any] | None = None,
        run: AnyPath | None = None,
        stop: threading.Event | None = None,
        dedupe: bool = True,
        **options: Unpack[RunOptions],
    ) -> BroadcastReport:
        """Push one message to any number of users, in constant memory. Failures are in the report, not raised.

        Args:
            user_ids: Ids in a collection, a generator or another iterator, or an Audience. An iterator is read in the
                calling thread.
            message: The message, or a mapping with the interface's names.
            custom_fields: Any JSON object, for the message's placeholders.
            run: Run file path; by default a temporary file. An existing run is continued if message, base_url and
                users are the same. Users that were claimed and never settled are UNKNOWN.
            stop: Ends the run after the requests in flight, once another thread sets it.
            dedupe: False keeps duplicate ids.
            **options: Resending, stopping, progress and durability; see ``pushsdk.options.RunOptions``.
                ``on_progress`` is called in the calling thread.

        Raises:
            ValidationError: The message or an id can't be sent. Nothing was sent.
            ConfigurationError: An option is wrong. Nothing was sent.
            RunPlanError: The run has other users, or another message or base_url. Nothing was sent.
            RunFileError: The run file can't be used.
        """
        check_plain("user_ids", user_ids)
        return self._run(
            lambda inner: inner.broadcast(
                user_ids, message, custom_fields=custom_fields, run=run, stop=stop, dedupe=dedupe, **options
            ),
            options,
        )

    def send_each(
        self,
        requests: Iterable[AnyRequest],
        *,
        run: AnyPath | None = None,
        stop: threading.Event | None = None,
        **options: Unpack[RunOptions],
    ) -> BroadcastReport:
        """Send many requests, each with its own message: planned, claimed and settled like a ``broadcast``.

        Args:
            requests: Items with ``user_ids`` (at most ``Batching.max_users``) and a ``message``.
            run: Run file path. An existing run is continued if its users have the same messages.
            stop: Ends the run after the requests in flight, once another thread sets it.
            **options: Resending, stopping, progress and durability; see ``pushsdk.options.RunOptions``.

        Raises:
            PushError: As for ``broadcast``.
        """
        check_plain("requests", requests)
        return self._run(lambda inner: inner.send_each(requests, run=run, stop=stop, **options), options)

    def resume(
        self, run: AnyPath, *, stop: threading.Event | None = None, **options: Unpack[RunOptions]
    ) -> BroadcastReport:
        """Resume a run file. Needs nothing but the file and a client with the same base_url.

        Args:
            run: Run file path.
            stop: Ends the run after the requests in flight, once another thread sets it.
            **options: Resending, stopping, progress and durability; see ``pushsdk.options.RunOptions``.

        Raises:
            RunFileError: The file is not a run, is in use or damaged, or its plan was never finished.
        """
        return self._run(lambda inner: inner.resume(run, stop=stop, **options), options)

    def flush(self) -> None:
        """Send lingering calls at once, and wait until every call made so far, in any thread, is complete."""
        thread, client = self._portal.enter(), self._client
        thread.perform(ThreadCall(client.flush))

    def _change(self, *, timeout: Any, retry: Any, api_key: Any, urgent: bool | None) -> None:
        api_key = asked_in_thread(api_key)
        self._client = self._client.with_options(timeout=timeout, retry=retry, api_key=api_key, urgent=urgent)

    def _run(
        self,
        start: Callable[[AsyncPushClient], Coroutine[Any, Any, BroadcastReport]],
        options: Any,
    ) -> BroadcastReport:
        """Perform the run that ``start`` starts. ``options`` belongs to this call, and is changed."""
        options["read"] = in_caller
        thread, client = self._portal.enter(), self._client
        call = ThreadCall(lambda: start(client))
        on_progress = options.get("on_progress")
        check("on_progress", on_progress, Callable[[Any], object] | None)
        if on_progress is not None:
            report = guarded("on_progress", on_progress)
            options["on_progress"] = lambda progress: call.callbacks.put(lambda: report(progress))
        return thread.perform(call)


def _close_dropped(thread: LoopThread, name: str) -> None:
    """Close a client that was garbage-collected, as when the interpreter exits."""
    if not thread.is_inherited and thread.close_soon(EXIT_DRAIN):
        warnings.warn(f"unclosed {name}: close it, or use it in a with block", ResourceWarning, stacklevel=2)
