"""AsyncPushClient: sends pushes, creates campaigns, and reports every user's outcome. Start reading here.

The constructor checks the settings, and opens nothing. At the first use its ``Lifetime`` (``_io.lifetime``) makes an
``Engine`` (``_io.engine``), which holds all other parts. Then a push goes this way:

1. ``send`` and ``submit`` check and encode their arguments, and make a ``Call`` (``_core.batching``).
2. Equal calls of one moment share a batch, which waits for a slot (``_io.queue``).
3. The batch is sent as a request, or as several if it is too large (``_io.batch_sender``), with retries
   (``_io.sender``), over aiohttp (``_io.transport``, ``_io.fast_post``, ``_io.session_post``).
4. One table says what each attempt means (``_core.judging``); the outcome of all attempts becomes the receipt of each
   call, or its error (``_core.error_mapping``).

``broadcast``, ``send_each`` and ``resume`` go on in ``_runs.api``. ``_core/__init__.py`` defines the words.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from msgspec.structs import replace

from pushsdk._core import wire
from pushsdk._core.address import (
    check_base_url,
    check_headers,
    check_proxy,
    is_loopback,
    missing,
)
from pushsdk._core.arguments import check_timeout, check_users
from pushsdk._core.batching import Call, Content
from pushsdk._core.error_mapping import error_for, set_answer
from pushsdk._core.errors import Advice, ConfigurationError, UnexpectedResponseError, ValidationError
from pushsdk._core.hints import check_options, warn_of_milliseconds
from pushsdk._core.kinds import Delay, check, check_seconds, check_values, must_be
from pushsdk._core.models import (
    UNSET,
    AnyCampaign,
    AnyMessage,
    AnyRequest,
    CampaignCreated,
    CollectionNotStr,
)
from pushsdk._core.operations import CREATE_CAMPAIGN
from pushsdk._core.outcome import Failure, Outcome
from pushsdk._core.policy import (
    Options,
    RetryPolicy,
    Seconds,
    Timeout,
)
from pushsdk._core.results import DrainReport, Receipt
from pushsdk._core.secret import seal_options, sealed
from pushsdk._core.words import count
from pushsdk._io.credentials import Credentials, KeySource
from pushsdk._io.engine import Engine, EngineSettings
from pushsdk._io.file_names import AnyPath
from pushsdk._io.lifetime import Lifetime
from pushsdk._io.queue import SubmittedSend
from pushsdk._io.request import ApiRequest, WholePart
from pushsdk._io.transport import Session, check_host, check_session, check_ssl
from pushsdk._views import ClientViews
from pushsdk.options import ClientOptions, RunOptions

if TYPE_CHECKING:
    from pushsdk._audience.audience import Audience
    from pushsdk._runs.keyed import KeyedSends
    from pushsdk._runs.pipeline import RunSettings
    from pushsdk._runs.report import BroadcastReport

logger: logging.Logger = logging.getLogger("pushsdk")
# The argument names that both clients have.
NAMES = frozenset({"base_url", "api_key", *ClientOptions.__optional_keys__})


class AsyncPushClient(ClientViews):
    """An async client for the push service: sends pushes, creates campaigns, and reports every user's outcome.

    A client may be constructed anywhere; it is used in one event loop and one process. Close it by ``async with`` or by
    ``aclose``.

    Example:
        async with AsyncPushClient(base_url, api_key) as client:
            receipt = await client.send("user-1", MobilePush(title={"en": "Hello"}, ios_enabled=True))
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | KeySource | None = None,
        *,
        session: Session | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Check the arguments; nothing is opened yet.

        Args:
            base_url: Service address, without ``/v1``; by default the variable PUSHSDK_BASE_URL. It is https;
                http is allowed to localhost, 127.0.0.0/8 and ::1, and anywhere with ``allow_insecure``.
            api_key: The key, or a sync or async callable that is called for each call and again for each retry, in
                the caller's context; by default the variable PUSHSDK_API_KEY.
            session: Your aiohttp ClientSession, which is never closed here.
            retry: A RetryPolicy; by default ``RetryPolicy.safe()``, with at most 4 attempts.
            timeout: A Timeout, or seconds for a whole call; by default 30 s, with 10 s per attempt and 5 s to connect.
            batching: A Batching; by default at most 1,000 users or 1 MiB per request, without lingering.
            limits: A Limits; by default 100,000 users or 64 MiB are queued, then new calls wait.
            rate: A Rate, in requests or users per second; by default unlimited.
            claims: A claim store, or its location such as ``"sqlite:claims.db"``, for ``idempotency_key``.
            only_users: The ids of the only users that get pushes, for a staging system. Everybody else is NOT_SENT.
            on_event: A callable that gets each Event.
            show_answers: True quotes the service's answers in errors; by default only if ``base_url`` is loopback.
            **options: proxy, headers, ssl, keepalive and allow_insecure; see ``pushsdk.options.ClientOptions``.

        Raises:
            ConfigurationError: An argument is missing or wrong. The text quotes neither the key nor the URL.
        """
        # Secrets first: an error's traceback may show local variables.
        base_url, api_key = sealed(base_url), sealed(api_key)
        seal_options(options)
        check_options("AsyncPushClient", options, NAMES | {"session"})
        check_values(options, ClientOptions)
        # None is the default, which ``EngineSettings`` has but for claims, retries and time.
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        claims, retry = given.pop("claims", None), given.pop("retry", RetryPolicy.safe())
        timeout = check_timeout(given.pop("timeout", None), Timeout())
        # The service and its key
        allow_insecure = given.get("allow_insecure", False)
        url, self._credentials = _service(base_url, api_key, allow_insecure=allow_insecure)
        # Connections
        check_session(session)
        if "keepalive" in given:
            if session is not None:
                raise ConfigurationError("keepalive can't change your own session: set the keepalive of its connector")
            keepalive = given["keepalive"]
            given["keepalive"] = check_seconds("keepalive", keepalive)
            warn_of_milliseconds("keepalive", keepalive)
        check_ssl(given.get("ssl"))
        if "proxy" in given:
            given["proxy"] = check_proxy(given["proxy"], base_url=url, allow_insecure=allow_insecure)
            check_host("proxy", given["proxy"])
        given["headers"] = check_headers(given.get("headers", {}))
        # Who gets pushes
        if "only_users" in given:
            given["only_users"] = users = frozenset(given["only_users"])
            logger.warning("pushes are limited to %s (only_users): all others are NOT_SENT", count(len(users)))
        # What you learn
        given.setdefault("show_answers", _shows_answers(url))
        settings = EngineSettings(base_url=url, session=session, max_pause=retry.max_retry_after, **given)
        # Jobs that may run several times
        self._keyed = _keyed_sends_with(claims)
        self._lifetime: Lifetime = Lifetime(settings, self._keyed)
        # The defaults for each call
        self._options = self._lifetime.options_of(retry, timeout, keyed=False, is_urgent=False)
        # The latest call's.
        self._content = Content(b"", None, self._options)

    async def __aenter__(self) -> Self:
        self._lifetime.enter()
        self._lifetime.begin_block()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self, drain: Seconds = 30.0) -> DrainReport:
        """Refuse new calls, wait up to ``drain`` seconds for the calls in flight, cancel the rest, and close.

        A second call does nothing. Any event loop may make the call if the client's is closed.

        Returns:
            The users of the calls that ended meanwhile. Cancelled calls have their true outcome, NOT_SENT or UNKNOWN.
        """
        seconds = check_seconds("drain", drain, Delay)
        warn_of_milliseconds("drain", drain)
        return await self._lifetime.close(seconds)

    async def send(
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

        Concurrent calls with an equal message are merged into one request.

        Args:
            user_ids: One id, or at most ``Batching.max_users`` ids. A duplicate id counts once.
            message: The message, or a mapping with the interface's names. Likely mistakes cause a MessageWarning.
            custom_fields: Any JSON object, for the message's placeholders.
            timeout: A Timeout, or the total in seconds; by default the client's. To learn the outcome of a call that
                takes too long, use this and not ``asyncio.timeout``.
            retry: The policy for this call; by default the client's.
            idempotency_key: Name for a job that may run several times, at most 512 bytes; needs the option ``claims``.
                The call sends to users that no earlier call with the key has sent to, and to users with a temporary
                rejection. The others keep their recorded outcome, or are UNKNOWN if that is unclear or another call is
                sending to them.

        Raises:
            ValidationError: The input can't be sent. Nothing was sent.
            NotSentError: No byte was sent for any user.
            RejectedError: The service rejected all users.
            OutcomeUnknownError: All users may have been pushed.
            PartialError: The users have different outcomes.

        Example:
            receipt = await client.send(["user-1", "user-2"], message, timeout=5.0)
            print(receipt.users, receipt.status)
        """
        engine = self._lifetime.enter()
        call, options = self._call_of(engine, user_ids, timeout, retry)
        keyed = None if idempotency_key is None else self._keyed_sends()
        if engine.backlog.is_full:
            await engine.queue.wait_for_room(call)
        try:
            content = self._content_of(message, custom_fields, options)
        except BaseException:
            engine.work.end([call])
            raise
        if keyed is not None:
            content = replace(content, options=self._options_of(timeout, retry, keyed=True))
            return await keyed.send(engine, call, content, key=idempotency_key)
        try:
            # ``queue.send``, without the cost of another coroutine: a tenth of a merged call.
            receipt = await engine.queue.submit(call, content)
        except BaseException as error:
            await engine.queue.unwind(call, error)
            raise
        return receipt or engine.pending.conclude(call)

    def submit(
        self,
        user_id: str,
        message: AnyMessage,
        *,
        custom_fields: Mapping[str, Any] | None = None,
        timeout: Timeout | Seconds | None = None,
        retry: RetryPolicy | None = None,
    ) -> asyncio.Future[Receipt]:
        """Send to one user without a task: for code that starts many sends. The future ends as ``send`` would.

        Cancelling the future is like cancelling a task that awaits ``send``. It need not be awaited: ``on_event`` gets
        each failure (SendAbandoned), and ``flush`` waits for all. A call with an ``idempotency_key`` needs ``send``.

        Raises:
            ValidationError: The input can't be sent. Nothing was sent.
            QueueFullError: The queue is full, whatever ``Limits.when_full`` is: await ``flush`` before the next call.
        """
        if not isinstance(user_id, str):
            raise must_be("user_id", "a str, as send takes several ids", user_id, ValidationError)
        engine = self._lifetime.enter()
        call, options = self._call_of(engine, user_id, timeout, retry)
        content = self._content_of(message, custom_fields, options)
        queue = engine.queue
        if engine.backlog.is_full:
            queue.refuse(call, Failure.QUEUE_FULL)
        future = call.future = SubmittedSend()
        future.call, future.queue = call, queue
        queue.submit(call, content)
        return future

    async def create_campaign(
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
        engine = self._lifetime.enter()
        if engine.settings.only_users is not None:
            raise ConfigurationError(Advice("a campaign goes to a segment, which can't be limited", " to {only_users}"))
        options = self._options_of(timeout, retry)
        total = options.timeout.total
        body = wire.encode_campaign(request)
        external_id = wire.external_id(request)
        job = ApiRequest(
            CREATE_CAMPAIGN,
            body,
            WholePart((self._credentials,), users=0),
            options,
            deadline=math.inf if total is None else engine.loop.time() + total,
            key=self._credentials.key,
            is_asked=self._credentials.ask is None,
        )
        observer = engine.sender.observer
        watched = None if observer is None else observer.campaign()
        try:
            with engine.work.including(job):
                verdict = await engine.sender.run(job)
        finally:
            if watched is not None:
                watched.end({job.verdict().outcome: 1})
        if verdict.outcome is not Outcome.ACCEPTED:
            target = engine.settings.target(CREATE_CAMPAIGN)
            raise error_for(verdict, target=target, options=options, external_id=external_id)
        engine.sender.counters.campaigns += 1
        if (created := wire.decode_campaign_created(job.evidence.body or b"")) is None:
            error = UnexpectedResponseError(
                f"the campaign was created (HTTP {verdict.status}, {engine.settings.target(CREATE_CAMPAIGN)}), but the "
                "answer has no uuid that can be read. Don't create it again: look it up by its externalId",
                attempts=verdict.attempts,
            )
            error.external_id = external_id
            set_answer(error, verdict.attempts[-1])
            raise error
        return created

    async def broadcast(
        self,
        user_ids: CollectionNotStr | Iterator[str] | AsyncIterable[str] | Audience,
        message: AnyMessage,
        *,
        custom_fields: Mapping[str, Any] | None = None,
        run: AnyPath | None = None,
        stop: asyncio.Event | threading.Event | None = None,
        dedupe: bool = True,
        **options: Unpack[RunOptions],
    ) -> BroadcastReport:
        """Push one message to any number of users, in constant memory. Failures are in the report, not raised.

        The run is planned first: the distinct ids are cut into requests and stored in the run file. Each request is
        claimed in that file before its first byte is sent, and settled afterwards. Throttled and unsent requests are
        retried until ``stop_policy`` ends the run.

        Args:
            user_ids: Ids in a collection, a generator or another iterator, or an Audience.
            message: The message, or a mapping with the interface's names. Likely mistakes cause a MessageWarning.
            custom_fields: Any JSON object, for the message's placeholders.
            run: Run file path (mode 0600, as it holds user ids); by default a temporary file. An existing run is
                continued, also after kill -9, if message, base_url and users are the same: they are read and compared
                again, except for an unchanged file. Users that were claimed and never settled are UNKNOWN, and skipped
                unless ``on_unknown="resend"``.
            stop: Ends the run after the requests in flight, while it is set: leave it set until the call returns.
            dedupe: False keeps duplicate ids.
            **options: Resending, stopping, progress and durability; see ``pushsdk.options.RunOptions``.

        Raises:
            ValidationError: The message or an id can't be sent. Nothing was sent.
            ConfigurationError: An option is wrong. Nothing was sent.
            RunPlanError: The run has other users, or another message or base_url. Nothing was sent.
            RunFileError: The run file can't be used.

        Example:
            report = await client.broadcast(Audience.read("users.parquet"), message, run="spring.run")
            print(report.accepted, report.unknown)
        """
        settings = self._run_settings(run, stop, options)
        # Not above: runs are a third of the import time, and most processes only send.
        from pushsdk._runs import api

        return await api.broadcast(
            self._lifetime, settings, user_ids, message=message, custom_fields=custom_fields, dedupe=dedupe
        )

    async def send_each(
        self,
        requests: Iterable[AnyRequest] | AsyncIterable[AnyRequest],
        *,
        run: AnyPath | None = None,
        stop: asyncio.Event | threading.Event | None = None,
        **options: Unpack[RunOptions],
    ) -> BroadcastReport:
        """Send many requests, each with its own message: planned, claimed and settled like a ``broadcast``.

        Args:
            requests: Items with ``user_ids`` (at most ``Batching.max_users``) and a ``message``.
            run: Run file path. An existing run is continued if its users have the same messages.
            stop: Ends the run after the requests in flight, while it is set: leave it set until the call returns.
            **options: Resending, stopping, progress and durability; see ``pushsdk.options.RunOptions``.

        Raises:
            PushError: As for ``broadcast``.
        """
        settings = self._run_settings(run, stop, options)
        from pushsdk._runs import api

        return await api.send_each(self._lifetime, settings, requests)

    async def resume(
        self, run: AnyPath, *, stop: asyncio.Event | threading.Event | None = None, **options: Unpack[RunOptions]
    ) -> BroadcastReport:
        """Resume a run file. Needs nothing but the file and a client with the same base_url.

        Args:
            run: Run file path.
            stop: Ends the run after the requests in flight, while it is set: leave it set until the call returns.
            **options: Resending, stopping, progress and durability; see ``pushsdk.options.RunOptions``.

        Raises:
            RunFileError: The file is not a run, is in use or damaged, or its plan was never finished.
        """
        settings = self._run_settings(run, stop, options)
        from pushsdk._runs import api

        return await api.resume(self._lifetime, settings)

    async def flush(self) -> None:
        """Send lingering calls at once, and wait until every call made so far is complete."""
        if self._lifetime.engine is not None:
            engine = self._lifetime.enter()
            engine.queue.flush()
            await engine.work.idle()

    def _call_of(self, engine: Engine, user_ids: object, timeout: object, retry: object) -> tuple[Call, Options]:
        """Return a call to these users, and its options. Raises PushError if the arguments can't be used."""
        users, ids, duplicates = check_users(user_ids, engine.settings.batching.max_users)
        options = self._options if timeout is None and retry is None else self._options_of(timeout, retry)
        total = options.timeout.total
        deadline = math.inf if total is None else engine.limiter.clock() + total
        call = Call(users, ids, deadline, len(users), duplicates, self._credentials.ask)
        return call, options

    def _content_of(self, message: Any, custom_fields: Any, options: Options) -> Content:
        """Return the encoded content. Raises ValidationError.

        Calls with the same message share it: an object less for the cycle collector, which takes more time than all
        else while 50,000 calls wait.
        """
        if custom_fields is None:
            encoded, fields = wire.encode_message(message), None
        else:
            encoded, fields = wire.encode_content(message, custom_fields)
        content = self._content
        if content.message is not encoded or content.custom_fields is not fields or content.options is not options:
            content = self._content = Content(encoded, fields, options, self._credentials.key)
        return content

    def _run_settings(self, run: AnyPath | None, stop: Any, options: RunOptions) -> RunSettings:
        """Return the settings for a run. Raises TypeError for an option that does not exist."""
        self._lifetime.enter()
        from pushsdk._runs.pipeline import RunSettings

        return RunSettings(run=run, stop=stop, sending=self._options, credentials=self._credentials, **options)

    def _keyed_sends(self) -> KeyedSends:
        if self._keyed is None:
            raise ConfigurationError(
                "idempotency_key needs a claim store: pass claims= to the client, for example 'sqlite:claims.db'"
            )
        return self._keyed

    def _options_of(self, timeout: object, retry: Any, *, keyed: bool = False, urgent: bool | None = None) -> Options:
        own = self._options
        check("retry", retry, RetryPolicy | None)
        limits = check_timeout(timeout, own.timeout)
        is_urgent = own.is_urgent if urgent is None else urgent
        return self._lifetime.options_of(retry or own.policy, limits, keyed=keyed, is_urgent=is_urgent)

    def _change(self, *, timeout: Any, retry: Any, api_key: Any, urgent: bool | None) -> None:
        check("urgent", urgent, bool | None)
        self._options = self._options_of(timeout, retry, urgent=urgent)
        if api_key is not UNSET:
            self._credentials = Credentials.of(api_key)
            self._content = Content(b"", None, self._options)


def _service(base_url: Any, api_key: Any, *, allow_insecure: bool) -> tuple[str, Credentials]:
    """Return the service address and the key: checked, and by default from the environment."""
    url_name, base_url = _from_environment("base_url", base_url)
    key_name, api_key = _from_environment("api_key", api_key)
    absent = [name for name, value in (("base_url", base_url), ("api_key", api_key)) if value is None]
    if absent == ["api_key"]:  # the base_url may be the key
        check_base_url(base_url, allow_insecure=allow_insecure, name=url_name)
    if absent:
        raise missing(*absent)
    credentials = Credentials.of(api_key, key_name)
    url = check_base_url(base_url, allow_insecure=allow_insecure, name=url_name)
    check_host(url_name, url)
    return url, credentials


def _from_environment(name: str, value: Any) -> tuple[str, Any]:
    """Return an argument and its name; if it is None, the variable with that name."""
    if value is not None:
        return name, value
    variable = f"PUSHSDK_{name.upper()}"
    return variable, sealed(os.environ.get(variable))


def _keyed_sends_with(claims: object) -> KeyedSends | None:
    if claims is None:
        return None
    # Not above: a fifteenth of the import time, and most clients have no claim store.
    from pushsdk._runs.keyed import KeyedSends

    return KeyedSends(claims)


def _shows_answers(base_url: str) -> bool:
    """Return True if errors quote the service by default: the service is loopback, or the environment says so."""
    variable = os.environ.get("PUSHSDK_SHOW_ANSWERS", "")
    check("PUSHSDK_SHOW_ANSWERS", variable, Literal["1", "0", ""])
    return variable == "1" or is_loopback(base_url)
