"""AsyncPushClient: puts the parts together and owns their lifetime. Start reading here.

A ``send`` becomes a ``Call`` (``_core.batching``), travels with others (``_io.coalescer``) as a request
(``_io.sender``) over aiohttp (``_io.transport``); what its attempts mean is one table (``_core.outcome``).
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import msgspec

from pushsdk._core import wire
from pushsdk._core.batching import Backlog, Call, Content
from pushsdk._core.counters import Counters
from pushsdk._core.endpoint import check_base_url, check_headers, check_proxy, sealed
from pushsdk._core.errors import (
    ClientClosedError,
    ConfigurationError,
    UnexpectedResponseError,
    ValidationError,
)
from pushsdk._core.events import Event
from pushsdk._core.explain import BODY_KEPT, error_for
from pushsdk._core.models import CampaignCreated, CampaignRequest, MobilePush
from pushsdk._core.outcome import Failure, Outcome
from pushsdk._core.pacing import Gate
from pushsdk._core.policy import Batching, Limits, Rate, RetryPolicy, Timeout, check_seconds
from pushsdk._core.results import ClientStats, DrainReport, Receipt
from pushsdk._io.clock import Deadlines, fork_generation
from pushsdk._io.coalescer import Coalescer
from pushsdk._io.credentials import Credentials, KeySource
from pushsdk._io.sender import Job, Sender, emitter
from pushsdk._io.slots import Slots
from pushsdk._io.transport import AiohttpTransport, Transport

if TYPE_CHECKING:
    import ssl as ssl_module

    import aiohttp

__all__ = ["AsyncPushClient", "AsyncPushView"]


class _Settings:
    """What an engine is made from, checked. Never pickled: it knows the key."""

    def __init__(self, **values: Any) -> None:
        self.base_url: str = values["base_url"]
        self.credentials: Credentials = values["credentials"]
        self.batching: Batching = values["batching"]
        self.limits: Limits = values["limits"]
        self.rate: Rate = values["rate"]
        self.session: aiohttp.ClientSession | None = values["session"]
        self.proxy: str | None = values["proxy"]
        self.ssl: Any = values["ssl"]
        self.headers: dict[str, str] = values["headers"]
        self.keepalive: float = values["keepalive"]
        self.on_event: Callable[[Event], Any] | None = values["on_event"]


class _Engine:
    """The parts of one client, put together inside its event loop. Shared by all of its views."""

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        self.closed = False
        self.policies: dict[tuple[RetryPolicy, Timeout], int] = {}
        self.numbers = itertools.count()
        #: Set on first use.
        self.loop: asyncio.AbstractEventLoop | None = None
        self.forks = fork_generation()

    def open(self, loop: asyncio.AbstractEventLoop, transport: Transport | None = None) -> None:
        """Put the parts together. A transport is given by tests only."""
        settings = self.settings
        self.loop = loop
        emit = emitter(settings.on_event)
        self.deadlines = Deadlines(loop)
        self.gate = Gate(settings.rate)
        self.slots = Slots(loop, settings.limits.in_flight, self.gate)
        self.backlog = Backlog(settings.limits)
        self.transport = transport or AiohttpTransport(
            settings.base_url,
            headers=settings.headers,
            key=settings.credentials.fixed,
            session=settings.session,
            limit=settings.limits.in_flight,
            keepalive=settings.keepalive,
            ssl=settings.ssl,
            proxy=settings.proxy,
        )
        self.sender = Sender(
            self.transport,
            settings.credentials,
            loop=loop,
            deadlines=self.deadlines,
            slots=self.slots,
            backlog=self.backlog,
            counters=self.counters,
            pool_size=settings.limits.in_flight,
            emit=emit,
        )
        self.coalescer = Coalescer(
            self.sender,
            loop=loop,
            deadlines=self.deadlines,
            slots=self.slots,
            backlog=self.backlog,
            counters=self.counters,
            batching=settings.batching,
            limits=settings.limits,
            emit=emit,
        )
        #: Campaigns on their way, and who waits until there is nothing on its way.
        self.campaigns: set[object] = set()
        self.watchers: list[tuple[set[object], asyncio.Future[None]]] = []
        self.draining: list[Call] = []
        self.coalescer.when_ended = self.ended
        self.sender.when_paused = self.coalescer.pause

    def enter(self) -> asyncio.AbstractEventLoop:
        """The running loop, if this client may be used in it. Raises ConfigurationError or ClientClosedError."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop or self.forks != fork_generation() or self.closed:
            self._first_use(loop)
        return loop

    def _first_use(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.closed:
            raise ClientClosedError("the client is closed: make a new one")
        if self.forks != fork_generation():
            raise ConfigurationError(
                "the client was made before a fork: make one in each process (its connections would be shared)"
            )
        if self.loop is not None:
            raise ConfigurationError(
                "the client is in use by another event loop: make one in each loop, and one asyncio.run() for it all"
            )
        self.open(loop)

    def ended(self, item: object) -> None:
        """A call or a campaign is through."""
        if isinstance(item, Call) and self.closed:
            self.draining.append(item)
        for items, future in tuple(self.watchers):
            items.discard(item)
            if not items and not future.done():
                future.set_result(None)

    def key_of(self, policy: RetryPolicy, timeout: Timeout) -> int:
        """A number that is equal for equal options: quicker to compare than they are."""
        key = self.policies.get((policy, timeout))
        if key is None:
            if len(self.policies) >= 1024:
                # Numbers are never used again: what came before just does not merge with what comes after.
                self.policies.clear()
            key = self.policies[policy, timeout] = next(self.numbers)
        return key

    async def idle(self, seconds: float | None = None) -> bool:
        """Wait until all that is on its way now has ended; False where that takes longer."""
        assert self.loop is not None  # noqa: S101 - called on an open engine only
        items: set[object] = {*self.coalescer.active, *self.campaigns}
        if not items:
            return True
        future = self.loop.create_future()
        watcher = (items, future)
        self.watchers.append(watcher)
        try:
            done, _ = await asyncio.wait([future], timeout=seconds)
            return bool(done)
        finally:
            self.watchers.remove(watcher)

    async def close(self, drain: float) -> DrainReport:
        if self.closed:
            return DrainReport()
        self.closed = True
        if self.loop is None:
            return DrainReport()
        try:
            self.coalescer.flush()
            await self.idle(drain)
        finally:
            self.sender.closed = True
            self.coalescer.close()
            self.deadlines.end_scopes(Failure.CLOSED)
            await self.idle()
            self.slots.close()
            self.deadlines.close()
            await self.transport.close()
        ended: dict[Outcome, list[str]] = {outcome: [] for outcome in Outcome}
        for call in self.draining:
            if not call.gone:
                for users, verdict in call.parts:
                    ended[verdict.outcome].extend(users)
        return DrainReport(
            accepted=tuple(ended[Outcome.ACCEPTED]),
            rejected=tuple(ended[Outcome.REJECTED]),
            not_sent=tuple(ended[Outcome.NOT_SENT]),
            unknown=tuple(ended[Outcome.UNKNOWN]),
            abandoned=tuple(self.coalescer.abandoned),
        )


class AsyncPushView:
    """A client's sending side with a timeout and a policy of its own: what ``with_options`` returns.

    It shares the client's connections, batches, limits and retry budget, and ends with it.
    """

    _engine: _Engine
    _retry: RetryPolicy
    _timeout: Timeout
    _key: int

    async def send(
        self,
        user_ids: str | Iterable[str],
        message: MobilePush | Mapping[str, Any],
        *,
        custom_fields: Mapping[str, Any] | None = None,
        timeout: Timeout | float | None = None,
        retry: RetryPolicy | None = None,
    ) -> Receipt:
        """Push a message to one user, or to at most ``Batching.max_users`` users (interface, sections 2.9, 4.2).

        Concurrent calls with an equal message are merged into one request. Within one call an id counts once.
        ``timeout`` is a Timeout, or the total in seconds.

        Returns when every user was accepted. Raises ValidationError before anything is sent; NotSentError,
        RejectedError or OutcomeUnknownError when that is what happened to all of the users, PartialError when they
        ended differently. Use ``timeout``, not ``asyncio.timeout``, where you want to know the outcome.
        """
        engine = self._engine
        loop = engine.enter()
        users, ids, repeated = _users(user_ids, engine.settings.batching.max_users)
        encoded = wire.encode_message(message)
        fields = None if custom_fields is None else wire.encode_custom_fields(custom_fields)
        if timeout is None and retry is None:
            policy, patience, options = self._retry, self._timeout, self._key
        else:
            policy, patience = self._options(timeout, retry)
            options = engine.key_of(policy, patience)
        total = patience.total
        call = Call(users, ids, math.inf if total is None else loop.time() + total, len(users))
        content = Content(
            key=(encoded, fields, options),
            message=encoded,
            custom_fields=fields,
            collapsible=policy.unknown == "repeat_if_collapsible" and wire.is_collapsible(message),
            policy=policy,
            timeout=patience,
        )
        return await engine.coalescer.send(call, content, repeated)

    async def create_campaign(
        self,
        request: CampaignRequest | Mapping[str, Any],
        *,
        timeout: Timeout | float | None = None,
        retry: RetryPolicy | None = None,
    ) -> CampaignCreated:
        """Create a push campaign (interface, sections 2.1, 4.1).

        Returns its uuid. Raises as ``send`` does, and UnexpectedResponseError where the campaign was created but its
        uuid can't be read. After an OutcomeUnknownError look its ``external_id`` up before you create it again.
        """
        engine = self._engine
        loop = engine.enter()
        policy, patience = self._options(timeout, retry)
        body = wire.encode_campaign(request)
        external_id = wire.external_id(request)
        job = Job(
            "campaigns",
            body,
            users=0,
            policy=policy,
            timeout=patience,
            deadline=math.inf if patience.total is None else loop.time() + patience.total,
        )
        engine.campaigns.add(job)
        try:
            verdict = await engine.sender.run(job)
        finally:
            engine.campaigns.discard(job)
            engine.ended(job)
        if verdict.outcome is not Outcome.ACCEPTED:
            raise error_for(verdict, external_id=external_id)
        engine.counters.campaigns += 1
        answer = verdict.body or b""
        try:
            return wire.decode_campaign_created(answer)
        except ValueError:
            error = UnexpectedResponseError(
                f"the campaign was created (HTTP {verdict.status}), but its uuid can't be read from the answer",
                attempts=verdict.attempts,
            )
            error.status, error.body, error.external_id = verdict.status or 0, answer[:BODY_KEPT], external_id
        raise error

    def with_options(
        self, *, timeout: Timeout | float | None = None, retry: RetryPolicy | None = None
    ) -> AsyncPushView:
        """This client with another timeout or policy: the same connections, batches, limits and budget."""
        view = AsyncPushView()
        view._engine = self._engine
        view._retry, view._timeout = self._options(timeout, retry)
        view._key = self._engine.key_of(view._retry, view._timeout)
        return view

    async def flush(self) -> None:
        """Send what lingers, and wait until every call made so far has ended."""
        if self._engine.loop is not None:
            self._engine.enter()
            self._engine.coalescer.flush()
            await self._engine.idle()

    def stats(self) -> ClientStats:
        """The client's counters as of now."""
        engine, counters = self._engine, self._engine.counters
        users = counters.users
        told = ClientStats(
            accepted=users[Outcome.ACCEPTED],
            rejected=users[Outcome.REJECTED],
            not_sent=users[Outcome.NOT_SENT],
            unknown=users[Outcome.UNKNOWN],
            **{
                name: getattr(counters, name)
                for name in (
                    "campaigns",
                    "requests",
                    "attempts",
                    "retries",
                    "splits",
                    "stale_connections",
                    "abandoned",
                )
            },
        )
        if engine.loop is None:
            return told
        return msgspec.structs.replace(
            told,
            in_flight=engine.slots.in_flight,
            queued_users=engine.backlog.users,
            queued_bytes=engine.backlog.bytes,
            retry_tokens=engine.sender.budget.tokens,
            paused=max(0.0, engine.gate.paused_until - engine.loop.time()),
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client is not pickled: it holds connections and the Api-Key; make one in each process")

    def _options(self, timeout: object, retry: object) -> tuple[RetryPolicy, Timeout]:
        return _policy(retry, self._retry), _patience(timeout, self._timeout)


class AsyncPushClient(AsyncPushView):
    """The client of the push service: sends pushes, creates campaigns, and says of every user what happened.

    ``async with AsyncPushClient(base_url, api_key) as client:`` closes it at the end; else call ``aclose``. It may be
    constructed anywhere, and is used in one event loop and one process.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | KeySource | None = None,
        *,
        # What is repeated, how long things may take
        retry: RetryPolicy | None = None,
        timeout: Timeout | float | None = None,
        # What is merged, what is held back
        batching: Batching | None = None,
        limits: Limits | None = None,
        rate: Rate | None = None,
        # The connections
        session: aiohttp.ClientSession | None = None,
        proxy: str | None = None,
        ssl: ssl_module.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        keepalive: float = 4.0,
        allow_insecure: bool = False,
        # What is told
        on_event: Callable[[Event], Any] | None = None,
    ) -> None:
        """Nothing is opened yet. Raises ConfigurationError, without quoting the key or the URL.

        ``base_url`` and ``api_key`` default to PUSHSDK_BASE_URL and PUSHSDK_API_KEY. ``api_key`` may be a callable,
        sync or async, that is asked at each attempt. ``base_url`` is https, or http to localhost, 127.0.0.0/8 or ::1,
        or anywhere with ``allow_insecure``. ``timeout`` is a Timeout, or the total in seconds. A ``session`` is used
        and never closed; ``ssl`` is a context with your own certificates; ``headers`` go with every request;
        ``keepalive`` is how long an idle connection is kept, in seconds: keep it below the server's (a connection
        closed by the server is replaced, at the cost of a new one). ``on_event`` is called with each event.
        """
        api_key = sealed(os.environ.get("PUSHSDK_API_KEY") if api_key is None else api_key)
        if api_key is None:
            raise ConfigurationError("no api_key: pass it, or set PUSHSDK_API_KEY")
        base_url = sealed(os.environ.get("PUSHSDK_BASE_URL") if base_url is None else base_url)
        proxy = sealed(proxy)
        if not isinstance(allow_insecure, bool):
            raise ConfigurationError("allow_insecure is True or False")
        checked_url = check_base_url(base_url, allow_insecure=allow_insecure)
        _check_session(session)
        _check_ssl(ssl)
        if on_event is not None and not callable(on_event):
            raise ConfigurationError("on_event is a callable that takes one event")
        self._retry = _policy(retry, RetryPolicy.safe())
        self._timeout = _patience(timeout, Timeout())
        self._engine = _Engine(
            _Settings(
                base_url=checked_url,
                credentials=Credentials(api_key),
                batching=_of(Batching, "batching", batching),
                limits=_of(Limits, "limits", limits),
                rate=_of(Rate, "rate", rate),
                session=session,
                proxy=None
                if proxy is None
                else check_proxy(proxy, base_url=checked_url, allow_insecure=allow_insecure),
                ssl=True if ssl is None else ssl,
                headers=check_headers(headers),
                keepalive=check_seconds("keepalive", keepalive),
                on_event=on_event,
            )
        )
        self._key = self._engine.key_of(self._retry, self._timeout)

    def __repr__(self) -> str:
        engine = getattr(self, "_engine", None)
        if engine is None:
            return "AsyncPushClient(not constructed)"
        return f"AsyncPushClient({engine.settings.base_url!r}, closed={engine.closed})"

    async def __aenter__(self) -> Self:
        self._engine.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self, drain: float = 30.0) -> DrainReport:
        """Take no more calls, wait ``drain`` seconds for those on their way, end the rest, and close.

        What is ended gets its true outcome, NOT_SENT or UNKNOWN. The report says whom that concerns. Closing twice
        does nothing.
        """
        seconds = check_seconds("drain", drain, or_zero=True)
        engine = self._engine
        if engine.loop is not None and not engine.closed:
            engine.enter()
        return await engine.close(seconds)


def _users(user_ids: object, max_users: int) -> tuple[tuple[str, ...], bytes, int]:
    """The distinct ids, the same as JSON without brackets, and how many were repetitions."""
    if isinstance(user_ids, str):
        one = (user_ids,)
        return one, wire.encode_user_ids(one)[1:-1], 0
    if isinstance(user_ids, AsyncIterable):
        raise ValidationError("user_ids is an async iterable: collect the ids of one call into a list")
    if not isinstance(user_ids, Iterable) or isinstance(user_ids, (Mapping, bytes, bytearray, memoryview)):
        raise ValidationError(f"user_ids is a str or an iterable of str, not {type(user_ids).__name__}")
    given = tuple(itertools.islice(user_ids, max_users + 1))
    if not given:
        raise ValidationError("user_ids is empty: name at least one user")
    if len(given) > max_users:
        raise ValidationError(
            f"user_ids has more than {max_users} ids: send them in parts, or raise Batching.max_users"
        )
    encoded = wire.encode_user_ids(given)
    distinct = tuple(dict.fromkeys(given))
    if len(distinct) < len(given):
        encoded = wire.encode_user_ids(distinct)
    return distinct, encoded[1:-1], len(given) - len(distinct)


def _policy(given: object, default: RetryPolicy) -> RetryPolicy:
    if given is None:
        return default
    if not isinstance(given, RetryPolicy):
        raise ConfigurationError("retry is a RetryPolicy, as RetryPolicy.safe() or RetryPolicy.none()")
    return given


def _patience(given: object, default: Timeout) -> Timeout:
    if given is None:
        return default
    if isinstance(given, Timeout):
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return Timeout(total=given, attempt=default.attempt, connect=default.connect)
    raise ConfigurationError("timeout is a Timeout, or the total in seconds")


T = TypeVar("T", Batching, Limits, Rate)


def _of(kind: type[T], name: str, given: object) -> T:
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise ConfigurationError(f"{name} is a {kind.__name__}")
    return given


def _check_session(session: object) -> None:
    import aiohttp

    if session is not None and not isinstance(session, aiohttp.ClientSession):
        raise ConfigurationError("session is an aiohttp.ClientSession")


def _check_ssl(context: object) -> None:
    import ssl as ssl_module

    if context is None:
        return
    # Not a switch: turning the check off would show the key to whoever answers.
    if not isinstance(context, ssl_module.SSLContext):
        raise ConfigurationError("ssl is an ssl.SSLContext")
    if context.verify_mode is not ssl_module.CERT_REQUIRED or not context.check_hostname:
        raise ConfigurationError(
            "ssl: the context does not verify the server's certificate and host name; load your own CA into it instead"
        )
    if context.minimum_version not in (ssl_module.TLSVersion.TLSv1_2, ssl_module.TLSVersion.TLSv1_3):
        raise ConfigurationError("ssl: the context's minimum_version is TLSVersion.TLSv1_2 or later")
