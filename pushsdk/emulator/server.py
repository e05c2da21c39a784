"""The emulator: its HTTP server, its lifetime, and the public views of what was accepted."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import cached_property
from importlib.resources import files
from itertools import islice
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from pushsdk.emulator.campaigns.segment import Tables, segment_available
from pushsdk.emulator.control.handlers import Control
from pushsdk.emulator.control.routes import ROOT
from pushsdk.emulator.faults import Fault, Rules
from pushsdk.emulator.guard import HOST, PREFIX, Guard, Refusal, is_host
from pushsdk.emulator.http_io import PRIVATE, refuse
from pushsdk.emulator.inboxes import Inboxes, InboxState
from pushsdk.emulator.limits import ServiceLimits
from pushsdk.emulator.service import PushService
from pushsdk.emulator.store.queries import InboxRef, Store
from pushsdk.emulator.store.records import Campaign, Delivered, Push, RequestSummary
from pushsdk.emulator.store.search import parse

__all__ = ["Emulator", "Inbox"]

_BACKLOG = 1024  # a client that opens all its connections at once is no fault
_IDLE_SECONDS = 75.0  # for the next head to arrive whole, as usual proxies have it
_GRACE = 0.1  # seconds in which clients can take the last responses at the end
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_NO_FILE = Refusal(404, "no such page; the inbox is at /")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{images}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class _Malformed(logging.Filter):
    """Keeps input that is not HTTP out of the log; aiohttp's 400 to it is enough."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_log = logging.getLogger("pushsdk.emulator")
_log.addFilter(_Malformed())


def bind(host: str, port: int) -> socket.socket:
    """Take the port on this address, any free one for 0. Raises OSError if it is taken, gaierror for no address."""
    socket.getaddrinfo(host, port)  # create_server makes a nameless OSError of this failure
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


class Pages:
    """Answers ``/`` and the files it loads. Pictures of other sites are shown where ``?images=1`` asks for them."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    @cached_property
    def _files(self) -> dict[str, tuple[bytes, str]]:
        """The content and the type of each, by its name. Nothing else is ever read, whatever a path says."""
        folder = files("pushsdk.emulator") / "web"
        return {
            file.name: (file.read_bytes(), _TYPES[suffix])
            for file in folder.iterdir()
            if (suffix := PurePosixPath(file.name).suffix) in _TYPES
        }

    def answer(self, request: web.BaseRequest) -> web.Response | None:
        """What a browser asks for: a file of the page, or a refusal. None where it is no browser's request."""
        if request.method not in {"GET", "HEAD"}:
            return None
        name = request.path.removeprefix("/") or "index.html"
        refusal = self._guard.foreign(request.headers) or (None if name in self._files else _NO_FILE)
        if refusal is not None:
            return refuse(Refusal(refusal.status, refusal.error, PRIVATE))
        body, kind = self._files[name]
        images = " https: http:" if request.query.get("images") == "1" else ""
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY.format(images=images)}
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)


class Server(web.Server):
    """aiohttp's server, which passes each request on by its path and tells the service of lost connections."""

    def __init__(self, service: PushService, control: Control, pages: Pages) -> None:
        super().__init__(
            self._handle,
            access_log=None,
            logger=_log,
            auto_decompress=False,  # Content-Length is then the length of the body, and there are no bombs
            lingering_time=1.0,
            keepalive_timeout=_IDLE_SECONDS,
        )
        self._service = service
        self._control = control
        self._pages = pages
        self._open: dict[RequestHandler, asyncio.Transport] = {}

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith(ROOT):
            return await self._control.handle(request)
        # A request that no browser sends is for the service, which says what paths it has.
        page = None if request.path.startswith(PREFIX) else self._pages.answer(request)
        return await self._service.handle(request) if page is None else page

    async def aclose(self) -> None:
        """End every connection, and wait for no client."""
        self._service.closing.set_result(None)
        self.pre_shutdown()
        await self.shutdown(_GRACE)  # cancels what is still being handled
        for transport in tuple(self._open.values()):
            transport.abort()  # its client reads nothing
        for lost in tuple(self._service.lost.values()):
            await lost

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open[handler] = transport
        self._service.lost[handler] = self._loop.create_future()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        del self._open[handler]
        self._service.lost.pop(handler).set_result(None)


class Inbox:
    """What was accepted with one Api-Key. A view: it is always up to date, and may be used from any thread.

    It tells what is true of one moment; ``faults`` and ``limits`` are its own once they are set, and those of the
    emulator until then.
    """

    def __init__(self, store: Store, inboxes: Inboxes, api_key: str) -> None:
        self._store = store
        self._inboxes = inboxes
        self._api_key = api_key

    @property
    def _ref(self) -> InboxRef:
        return self._store.find(self._api_key)

    @property
    def _state(self) -> InboxState:
        return self._inboxes.of(self._api_key)

    @property
    def pushes(self) -> Sequence[Push]:
        """The accepted push send requests that are kept, oldest first."""
        return self._store.pushes(self._ref)

    @property
    def campaigns(self) -> Sequence[Campaign]:
        """The accepted campaigns that are kept, oldest first."""
        return self._store.campaigns(self._ref)

    def requests(self, search: str = "") -> Sequence[RequestSummary]:
        """The requests that are kept, refused ones too, oldest first: those that a search line of the page finds."""
        return self._store.requests(self._ref, parse(search), limit=-1, forward=True)

    def delivered(self, user_id: str) -> Sequence[Delivered]:
        """The newest thousand of what this user got and is kept, campaigns too, oldest first."""
        return self._store.delivered(self._ref, user_id)[1]

    @property
    def changes(self) -> int:
        """A count of what happened in this inbox; see `changed`."""
        return self._state.events.mark

    async def changed(self, changes: int) -> None:
        """Wait until `changes` is more than this. In the loop that the emulator runs in."""
        await self._state.events.changed(changes)

    def accepted(self, user_id: str) -> int:
        """How many pushes to this user were accepted; an id twice in one request counts twice."""
        return self._store.accepted(self._ref, user_id)

    def users(self) -> Mapping[str, int]:
        """Every user with an accepted push, and how many."""
        return self._store.users(self._ref)

    def duplicates(self) -> Mapping[str, int]:
        """Return the users to whom the same push was accepted more than once, and how often at most.

        The same is a push with equal content, the message and the custom fields, whatever request it is in.
        """
        return self._store.duplicates(self._ref)

    @property
    def faults(self) -> Sequence[Fault]:
        """The fault rules of this inbox, in the order they are tried; set them at any time."""
        return self._state.rules.faults

    @faults.setter
    def faults(self, faults: Iterable[Fault]) -> None:
        self.set_faults(faults)

    def set_faults(self, faults: Iterable[Fault], *, seed: int = 0) -> None:
        """Give this inbox rules of its own: counts and draws start anew, for requests decided from now on."""
        self._state.set_rules(Rules(faults, seed=seed))

    def hits(self) -> Mapping[str, int]:
        """How many times each rule acted."""
        return self._state.rules.hits()

    @contextmanager
    def adding(self, faults: Iterable[Fault], *, seed: int = 0) -> Iterator[Callable[[], Mapping[str, int]]]:
        """Have these rules tried first, for the time of a ``with``; it gives the counts of those, as `hits` does.

        The rules that are there already go on counting, within it and after it.
        """
        added, inbox = tuple(faults), self._state
        before, own = inbox.rules, inbox.own_rules
        rules = Rules(added, seed=seed, behind=before)
        inbox.set_rules(rules)
        try:
            yield lambda: dict(islice(rules.hits().items(), len(added)))
        finally:
            inbox.set_rules(before, own=own)

    @property
    def limits(self) -> ServiceLimits:
        """What this inbox takes; set it at any time, the rate and the quota start anew."""
        return self._state.limiter.limits

    @limits.setter
    def limits(self, limits: ServiceLimits) -> None:
        self._state.set_limits(limits)

    def label(self, label: str) -> None:
        """Name this inbox on the page."""
        self._store.label(self._store.inbox(self._api_key), label)

    def forget(self) -> None:
        """Drop all that was accepted with this key. What is on its way is not in what comes after."""
        self._inboxes.reset(self._state)


class Emulator:
    """The push service on 127.0.0.1, and the oracle of what it accepted.

    ``async with Emulator() as emulator:`` runs it; ``base_url`` and ``api_key`` are what a client needs. Any other
    key that is not empty works too and has an inbox of its own, `inbox`. An acceptance is recorded before its answer
    is written. What was recorded can be read after the end too.

    ``port`` 0 takes any free one; ``faults`` are tried in order, their draws come from ``seed`` (see `Fault`);
    ``limits`` are what each inbox takes; a body over ``max_body`` bytes is answered with 413. ``store`` is the file
    that keeps what came, by default a temporary one; of each inbox ``keep`` requests are kept, for ``max_age`` seconds.
    ``audience`` is a folder of tables on which the segments of campaigns are run (CSV, Parquet, JSON lines).
    Another ``host`` than loopback needs a ``token``, which the control routes then ask for, and ``hosts``, the names
    it is called by. Opening raises OSError where the port is taken, and `StoreError` where the store can't be used.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        faults: Iterable[Fault] = (),
        seed: int = 0,
        limits: ServiceLimits | None = None,
        api_key: str | None = None,
        max_body: int = 16 * 1024 * 1024,
        # What it keeps
        store: str | Path | None = None,
        keep: int = 100_000,
        max_age: float | None = None,
        # Whom campaigns reach
        audience: str | Path | None = None,
        # Who may reach it
        host: str = HOST,
        hosts: Sequence[str] = (),
        token: str | None = None,
    ) -> None:
        if api_key == "":
            raise ValueError("the api_key must not be empty")
        if host not in {HOST, "localhost", "::1"} and not token:
            raise ValueError("a host that others can reach needs a token")
        if not all(map(is_host, hosts)):
            raise ValueError("hosts are names, as push.test or push.test:8080")
        self.api_key: str = api_key or f"emulator-{secrets.token_hex(8)}"
        self._port = port  # the one asked for, then the one bound
        self._host = host
        self._hosts = tuple(hosts)
        self._token = token
        self._seed = seed
        self._max_body = max_body
        self._store = Store(None if store is None else Path(store), keep=keep, max_age=max_age)
        self._tables = None if audience is None or not segment_available() else Tables(audience)
        self._inboxes = Inboxes(self._store, rules=Rules(faults, seed=seed), limits=limits or ServiceLimits())
        self._own = Inbox(self._store, self._inboxes, self.api_key)
        self._service: PushService | None = None  # set by __aenter__, kept for its counts after the end
        self._ending = AsyncExitStack()  # what the end has to do, set by __aenter__

    async def __aenter__(self) -> Self:
        if self._service is not None:
            raise RuntimeError("an Emulator runs once: make another")
        async with AsyncExitStack() as stack:
            sock = bind(self._host, self._port)
            stack.callback(sock.close)
            self._store.open()
            stack.callback(self._store.close)
            port = sock.getsockname()[1]
            hosts = (*self._hosts, _in_url(self._host))
            guard = Guard(port=port, max_body=self._max_body, hosts=hosts, token=self._token)
            service = PushService(
                store=self._store, tables=self._tables, inboxes=self._inboxes, guard=guard, seed=self._seed
            )
            stack.push_async_callback(service.campaigns.aclose)
            server = Server(service, Control(service, self._store, guard), Pages(guard))
            stack.push_async_callback(server.aclose)
            listener = await asyncio.get_running_loop().create_server(server, sock=sock, backlog=_BACKLOG)
            stack.callback(listener.close)
            service.campaigns.resume()
            self._service, self._port = service, port
            self._ending = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._ending.aclose()

    @property
    def base_url(self) -> str:
        """Where clients send to, as ``http://127.0.0.1:49152/external/api``."""
        return f"{self.url}{PREFIX}"

    @property
    def url(self) -> str:
        """Where the inbox page is, as ``http://127.0.0.1:49152``."""
        if self._service is None:
            raise RuntimeError("the Emulator has no address yet: use it in `async with`")
        return f"http://{_in_url(self._host)}:{self._port}"

    @property
    def faults(self) -> Sequence[Fault]:
        """The fault rules, in the order they are tried; set them at any time, see `set_faults`."""
        return self._inboxes.rules.faults

    @faults.setter
    def faults(self, faults: Iterable[Fault]) -> None:
        self.set_faults(faults)

    def set_faults(self, faults: Iterable[Fault], *, seed: int | None = None) -> None:
        """Replace the rules: all counts and draws start anew, for requests decided from now on.

        They hold for every inbox that was not given rules of its own.
        """
        self._seed = self._seed if seed is None else seed
        self._inboxes.rules = Rules(faults, seed=self._seed)

    def hits(self) -> Mapping[str, int]:
        """How many times each rule acted, by its name, or ``"<position>: <action>"`` where it has none."""
        return self._inboxes.hits()

    @property
    def requests(self) -> int:
        """Every request seen on the wire, whatever its key, refused and failed ones too."""
        return 0 if self._service is None else self._service.requests

    @property
    def pushes(self) -> Sequence[Push]:
        """The push send requests accepted with ``emulator.api_key``, oldest first."""
        return self._own.pushes

    @property
    def campaigns(self) -> Sequence[Campaign]:
        """The campaigns accepted with ``emulator.api_key``, oldest first."""
        return self._own.campaigns

    def inbox(self, api_key: str | None = None) -> Inbox:
        """What was accepted with this key, by default ``emulator.api_key``."""
        return self._own if api_key is None else Inbox(self._store, self._inboxes, api_key)

    def accepted(self, user_id: str, *, api_key: str | None = None) -> int:
        """How many pushes to this user were accepted."""
        return self.inbox(api_key).accepted(user_id)

    def users(self, *, api_key: str | None = None) -> Mapping[str, int]:
        """Every user with an accepted push, and how many."""
        return self.inbox(api_key).users()

    def duplicates(self, *, api_key: str | None = None) -> Mapping[str, int]:
        """Return the users to whom the same push was accepted more than once: see `Inbox.duplicates`."""
        return self.inbox(api_key).duplicates()

    def advance(self, seconds: float) -> None:
        """Set the service's clock forward: campaigns start, pushes expire."""
        if self._service is None:
            raise RuntimeError("the Emulator's clock runs with it: use it in `async with`")
        self._service.advance(seconds)

    def totals(self) -> Mapping[str, int]:
        """The counts of ``requests``, and over all keys of ``users``, ``duplicates``, ``pushes`` and ``campaigns``.

        A duplicate is a user to whom the same push was accepted more than once under one key.
        """
        return {"requests": self.requests, **self._store.totals()}

    def reset(self, *, api_key: str | None = None) -> None:
        """Forget what was accepted; without a key also start the faults and the count of requests anew."""
        self.inbox(api_key).forget()
        if api_key is None:
            self.set_faults(self.faults)
            if self._service is not None:
                self._service.requests = 0


def _in_url(host: str) -> str:
    """By what name clients on this machine reach an address that was bound, all of them too."""
    host = {"localhost": HOST, "0.0.0.0": HOST, "::": "::1"}.get(host, host)  # noqa: S104
    return f"[{host}]" if ":" in host else host
