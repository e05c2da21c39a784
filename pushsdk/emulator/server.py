"""The emulator: its HTTP server, its lifetime, and the public views on accepted pushes."""

import asyncio
import logging
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Self

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from pushsdk._core.kinds import CountOrZero, Delay, Port, Rule, check, check_arguments
from pushsdk.emulator.control.handlers import Control
from pushsdk.emulator.control.routes import ROOT
from pushsdk.emulator.faults import Fault, Rules
from pushsdk.emulator.guard import HOST, PREFIX, Guard, Refused
from pushsdk.emulator.http_io import PRIVATE, Connection, abort, connection_of, refuse
from pushsdk.emulator.inboxes import Inboxes, InboxState
from pushsdk.emulator.limits import ServiceLimits
from pushsdk.emulator.service import PushService
from pushsdk.emulator.store.queries import InboxRef, Store
from pushsdk.emulator.store.records import Campaign, Push, RequestSummary
from pushsdk.emulator.store.search import parse
from pushsdk.emulator.web import Pages

Shift = Annotated[float, Rule("a number of seconds", lambda number: -1e9 <= number <= 1e9)]
HeaderText = Annotated[
    str, Rule("1 to 4096 visible ASCII characters, or left out", re.compile("[!-~]{1,4096}").fullmatch)
]
HostName = Annotated[
    str,
    Rule(
        "a name with an optional port, for example push.test:8080",
        re.compile(r"(?a)(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:[0-9]{1,5})?").fullmatch,
    ),
]
_BACKLOG = 1024  # a client may open all its connections at once
_IDLE_SECONDS = 30.0  # until the next head has arrived
_GRACE = 0.1  # seconds for clients to read the last responses when the emulator closes


_log = logging.getLogger("pushsdk.emulator")
# Keeps input that is not HTTP out of the log; aiohttp answers it with 400.
_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))


def bind(host: str, port: int) -> socket.socket:
    """Bind the port, or any free one for 0. Raises OSError for a port in use, gaierror for an unknown host."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port)  # create_server would raise an OSError that does not say so
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = (error.strerror or "").partition(" (")[0]
        text = f"the emulator can't listen on {host}:{port}: {reason}; use a host of this machine and a free port"
        raise type(error)(error.errno, f"{text}, or port 0 for any free one") from None
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not a host name: use a host of this machine") from None


class Server(web.Server):
    """aiohttp's server, with a router by path and connections that can be counted and waited for."""

    def __init__(self, service: PushService, api_key: str) -> None:
        super().__init__(
            self._handle,
            access_log=None,
            logger=_log,
            auto_decompress=False,  # Content-Length is then the body's size, and a body can't be a bomb
            lingering_time=1.0,
            keepalive_timeout=_IDLE_SECONDS,
        )
        self._service = service
        self._control = Control(service, api_key)
        self._pages = Pages(service.guard)
        self._open: dict[Connection, asyncio.Transport] = {}

    def __call__(self) -> RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection_of(request).begin(request.content)
        try:
            if request.path.startswith(ROOT):
                return await self._control.handle(request)
            # All other requests are for the service, whose 404 lists its paths.
            page = None if request.path.startswith(PREFIX) else self._pages.respond(request)
            return await self._service.handle(request) if page is None else page
        except Refused as refused:
            return refuse(refused, PRIVATE)
        except RequestPayloadError:  # the body is incomplete
            return abort(request)

    async def aclose(self) -> None:
        """Close every connection without waiting for clients."""
        for connection in self._open:
            connection.lost.cancel()
        self.pre_shutdown()
        await self.shutdown(_GRACE)  # cancels the remaining handlers
        while self._open:
            for transport in tuple(self._open.values()):
                transport.abort()  # the client does not read
            await asyncio.sleep(0)

    def connection_made(self, handler: Connection, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(handler, transport)
        handler.guard, handler.lost = self._service.guard, self._loop.create_future()
        self._open[handler] = transport

    def connection_lost(self, handler: Connection, exc: BaseException | None = None) -> None:  # type: ignore[override]
        super().connection_lost(handler, exc)
        handler.begin()
        handler.lost.cancel()
        del self._open[handler]


class Accepted:
    """The requests that were accepted with one Api-Key."""

    __slots__ = ("_inboxes", "_store", "api_key")

    def __init__(self, inboxes: Inboxes, api_key: str) -> None:
        self._store = inboxes.store
        self._inboxes = inboxes
        self.api_key: str = api_key

    @property
    def _ref(self) -> InboxRef:
        return self._store.find(self.api_key)

    @property
    def _state(self) -> InboxState:
        return self._inboxes.of(self.api_key)

    @property
    def pushes(self) -> Sequence[Push]:
        """The stored accepted push send requests, oldest first."""
        return tuple(sent for sent in self._store.sent(self._ref) if isinstance(sent, Push))

    @property
    def campaigns(self) -> Sequence[Campaign]:
        """The stored accepted campaigns, oldest first."""
        return tuple(sent for sent in self._store.sent(self._ref) if isinstance(sent, Campaign))

    def accepted(self, user_id: str) -> int:
        """Count the accepted pushes to this user; an id twice in one request counts twice."""
        check("user_id", user_id, str, ValueError)
        return self._store.accepted(self._ref, user_id)

    def users(self) -> Mapping[str, int]:
        """Return how many pushes to each user were accepted."""
        return {user.user_id: user.accepted for user in self._store.received(self._ref)}

    def duplicates(self) -> Mapping[str, int]:
        """Return the users with the same push accepted more than once, and the highest such count.

        Pushes are the same if message and custom fields are equal, in one request or in several.
        """
        return {user.user_id: user.same for user in self._store.received(self._ref, same=2)}


class Limited(Accepted):
    """An inbox whose limits can be set."""

    __slots__ = ()

    @property
    def limits(self) -> ServiceLimits:
        """The limits for this inbox. Can be set at any time; rate and quota then start again."""
        return self._state.limiter.limits

    @limits.setter
    def limits(self, limits: ServiceLimits) -> None:
        check("limits", limits, ServiceLimits, ValueError)
        self._state.set_limits(limits)


class Inbox(Limited):
    """A live view on the pushes accepted with one Api-Key. Can be used from any thread.

    Each call reads one consistent state. ``faults`` and ``limits`` are the emulator's until they are set here.
    """

    __slots__ = ()

    def requests(self, search: str = "") -> Sequence[RequestSummary]:
        """Return the stored requests that the page's search line finds, refused ones too, oldest first."""
        return self._store.requests(self._ref, parse(search), limit=-1)[::-1]

    @property
    def faults(self) -> Sequence[Fault]:
        """The fault rules for this inbox, in the order they are tried; see `set_faults`."""
        return self._state.rules.faults

    def set_faults(self, faults: Iterable[Fault], *, seed: int = 0) -> None:
        """Give this inbox its own rules for requests decided from now on; counts and draws start again."""
        self._state.set_rules(Rules(faults, seed=seed))

    def hits(self) -> Mapping[str, int]:
        """Return how many requests each rule acted on."""
        return self._state.rules.hits()

    @contextmanager
    def adding(self, faults: Iterable[Fault], *, seed: int = 0) -> Iterator[Callable[[], Mapping[str, int]]]:
        """Try these rules first inside a ``with``; yields a function that returns their hits.

        The other rules keep counting within the ``with`` and afterwards.
        """
        added, inbox = tuple(faults), self._state
        before, own = inbox.rules, inbox.own_rules
        rules = Rules(added, seed=seed, then=before)
        inbox.set_rules(rules)
        try:
            yield lambda: dict(islice(rules.hits().items(), len(added)))
        finally:
            inbox.set_rules(before, own=own)

    def label(self, label: str) -> None:
        """Set the label that the page shows for this inbox."""
        self._store.label(self._store.inbox(self.api_key), label)

    def forget(self) -> None:
        """Empty this inbox. Requests in flight are not stored afterwards."""
        self._inboxes.reset(self._state)


class Emulator(Accepted):
    """The push service on 127.0.0.1, and an oracle for accepted pushes.

    ``async with Emulator() as emulator:`` runs the service; a client needs ``base_url`` and ``api_key``. Any other
    non-empty key has its own `inbox`. A request is recorded before its response is written. The records can still be
    read after the emulator has closed.

    ``port`` 0 is any free one. ``faults`` are tried in order, with draws from ``seed`` (see `Fault`). ``limits`` apply
    to each inbox. A body over ``max_body`` bytes gets a 413. ``store`` is the record file, by default a
    temporary one; each inbox keeps ``keep`` requests, for ``max_age`` seconds. ``api_key`` is by default a random key;
    with a ``store`` it is the same each time, so that the inbox also has the requests to earlier emulators. A ``host``
    other than loopback needs a ``token``, which the page and the control routes then require, and ``hosts``, its names.
    ``log`` is called with a line for each request, which contains a title. ``async with`` raises OSError if the port is
    in use, and `StoreError` if the store can't be used.
    """

    __slots__ = ("_ending", "_host", "_port", "_service")

    def __init__(
        self,
        *,
        port: Port = 0,
        faults: Iterable[Fault] = (),
        seed: int = 0,
        limits: ServiceLimits | None = None,
        api_key: HeaderText | None = None,
        max_body: CountOrZero = 16 * 1024 * 1024,
        store: str | Path | None = None,
        keep: CountOrZero = 100_000,
        max_age: Delay | None = None,
        host: str = HOST,
        hosts: Sequence[HostName] = (),
        token: HeaderText | None = None,
        log: Callable[[str], object] | None = None,
    ) -> None:
        check_arguments(Emulator.__init__, locals(), ValueError)
        if host not in {HOST, "localhost", "::1"} and not token:
            raise ValueError(f"host {host} admits other machines: pass token= for them, in the shell --token-file FILE")
        self._port = port
        self._host = host
        records = Store(None if store is None else Path(store), keep=keep, max_age=max_age)
        inboxes = Inboxes(records, rules=Rules(faults, seed=seed), limits=limits or ServiceLimits())
        # A store's later emulators have the same key, and so count a push that an earlier one got.
        key = f"emulator-{'store' if store else secrets.token_hex(8)}"
        super().__init__(inboxes, api_key or key)
        guard = Guard(max_body=max_body, hosts=(*hosts, _in_url(host)), token=token)
        self._service = PushService(inboxes=inboxes, guard=guard, log=log)
        self._ending = AsyncExitStack()  # set by __aenter__

    async def __aenter__(self) -> Self:
        service, guard = self._service, self._service.guard
        if guard.port is not None:
            raise RuntimeError("an Emulator can be entered only once: create another one")
        async with AsyncExitStack() as stack:
            sock = bind(self._host, self._port)
            stack.callback(sock.close)
            self._store.open()
            stack.callback(self._store.close)
            self._inboxes.of(self.api_key)  # the page shows its rules before the first push
            guard.listen(sock.getsockname()[1])
            server = Server(service, self.api_key)
            stack.push_async_callback(server.aclose)
            listener = await asyncio.get_running_loop().create_server(server, sock=sock, backlog=_BACKLOG)
            stack.callback(listener.close)
            self._ending = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ending.aclose()

    @property
    def base_url(self) -> str:
        """The ``base_url`` for clients, for example ``http://127.0.0.1:49152/external/api``."""
        return f"{self.url}{PREFIX}"

    @property
    def url(self) -> str:
        """The page's address, for example ``http://127.0.0.1:49152``."""
        port = self._service.guard.port
        if port is None:
            raise RuntimeError("the Emulator has no address yet: use it in `async with`")
        return f"http://{_in_url(self._host)}:{port}"

    @property
    def faults(self) -> Sequence[Fault]:
        """The fault rules, in the order they are tried; see `set_faults`."""
        return self._inboxes.rules.faults

    def set_faults(self, faults: Iterable[Fault], *, seed: int | None = None) -> None:
        """Replace the rules in all inboxes without their own, for requests decided from now on.

        Counts and draws start again.
        """
        self._inboxes.set_rules(Rules(faults, seed=self._inboxes.rules.seed if seed is None else seed))

    @property
    def limits(self) -> ServiceLimits:
        """The limits for inboxes that don't have any. Set them for one inbox: ``emulator.inbox().limits = ...``."""
        return self._inboxes.limits

    def hits(self) -> Mapping[str, int]:
        """Return how many requests each rule acted on, by name or ``"<position>: <action>"``."""
        return self._inboxes.hits()

    @property
    def requests(self) -> int:
        """The number of requests on the wire, for any key, refused and failed ones too."""
        return self._inboxes.requests

    def inbox(self, api_key: str | None = None) -> Inbox:
        """Return the inbox for this key, by default for ``emulator.api_key``."""
        return Inbox(self._inboxes, self.api_key if api_key is None else api_key)

    def advance(self, seconds: Shift) -> None:
        """Set the service's clock forward, which expires pushes."""
        check("seconds", seconds, Shift, ValueError)
        self._service.ahead += seconds

    def totals(self) -> Mapping[str, int]:
        """Return the counts ``requests``, and over all keys ``users``, ``duplicates``, ``pushes``, ``campaigns``.

        ``duplicates`` counts users with the same push accepted more than once with one key.
        """
        return {"requests": self.requests, **self._store.totals()}

    def reset(self) -> None:
        """Empty the inbox for ``api_key``, and restart the faults and the request count."""
        self.inbox().forget()
        self.set_faults(self.faults)
        self._inboxes.requests = 0


def _in_url(host: str) -> str:
    """Return the host by which clients on this machine reach the bound address."""
    host = {"localhost": HOST, "0.0.0.0": HOST, "::": "::1"}.get(host, host)  # noqa: S104
    return f"[{host}]" if ":" in host else host
