"""The contenders, each used as its documentation shows, with one push per call.

All run with their defaults: httpx and the generated SDK keep 20 idle connections, aiohttp 100. `ca` is the PEM of a
CA to trust, for TLS.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from benchmarks.harness import Contender, Posts, Run, user, with_workers

API_KEY = "benchmark-key"
HEADERS = {"Api-Key": API_KEY, "Content-Type": "application/json"}
TITLE = {"en": "Your order is on its way"}

BARE = "aiohttp, bare"
OURS = "pushsdk"
RAW = "raw asyncio protocol"
HTTPX = "httpx"
HTTPX2 = "httpx2"
PYREQWEST = "pyreqwest"
PYQWEST = "pyqwest"
SDK_AIOHTTP = "generated SDK, aiohttp"
SDK_HTTPX = "generated SDK, httpx"
AIOHTTP_RETRY = "aiohttp-retry"
TENACITY = "aiohttp + tenacity"

Send = Callable[[int], Awaitable[None]]
encode = msgspec.json.Encoder().encode


def push(number: int) -> dict[str, Any]:
    """Return the JSON of a push to one user, with a distinct message."""
    message = {"type": "MOBILE_PUSH", "iosEnabled": True, "title": TITLE, "body": {"en": f"Hello {number}"}}
    return {"userIds": [user(number)], "message": message}


class UnexpectedStatusError(Exception):
    """The response has another status than the sink sends."""


def expect(status: int, expected: int = 204) -> None:
    if status != expected:
        raise UnexpectedStatusError(status)


def trusting(ca: str) -> ssl.SSLContext | bool:
    """Return a context that trusts this CA; True, the default of all clients, without one."""
    return ssl.create_default_context(cadata=ca) if ca else True


def aiohttp_session(ca: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers=HEADERS, connector=aiohttp.TCPConnector(ssl=trusting(ca)))


@asynccontextmanager
async def bare(base_url: str, *, ca: str = "") -> AsyncIterator[Send]:
    """Open aiohttp alone: the least that a hand-written client does."""
    url = f"{base_url}/v1/push"
    async with aiohttp_session(ca) as session:

        async def send(number: int) -> None:
            async with session.post(url, data=encode(push(number))) as response:
                expect(response.status)

        yield send


class RawConnection(asyncio.Protocol):
    """One connection with one request at a time, which knows nothing of HTTP but the sink's response."""

    transport: asyncio.Transport
    response: asyncio.Future[bytes]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.response.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.response.done():
            self.response.set_exception(exc or ConnectionResetError())


@asynccontextmanager
async def raw(base_url: str, *, ca: str = "") -> AsyncIterator[Send]:
    """Open connections without an HTTP client: the floor of a request per user on this event loop."""
    loop, url, idle = asyncio.get_running_loop(), urlsplit(base_url), list[RawConnection]()
    lines = [f"{name}: {value}\r\n" for name, value in {"Host": url.netloc, **HEADERS}.items()]
    head = f"POST /v1/push HTTP/1.1\r\n{''.join(lines)}Content-Length: %d\r\n\r\n".encode()
    context = trusting(ca) if ca else None

    async def send(number: int) -> None:
        if idle:
            connection = idle.pop()
        else:
            _, connection = await loop.create_connection(RawConnection, url.hostname, url.port, ssl=context)
        connection.response = loop.create_future()
        body = encode(push(number))
        connection.transport.write(head % len(body) + body)
        response = await connection.response
        expect(int(response[9:12]))
        idle.append(connection)

    yield send
    for connection in idle:
        connection.transport.close()


@asynccontextmanager
async def tenacity(base_url: str) -> AsyncIterator[Send]:
    """Open bare aiohttp in tenacity's loop, a new one per call as its documentation asks."""
    from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

    async with bare(base_url) as post:

        async def send(number: int) -> None:
            retrying = AsyncRetrying(
                stop=stop_after_attempt(4),
                wait=wait_random_exponential(multiplier=0.1, max=5),
                retry=retry_if_exception_type(aiohttp.ClientConnectorError),
                reraise=True,
            )
            await retrying(post, number)

        yield send


@asynccontextmanager
async def aiohttp_retry(base_url: str, *, ca: str = "") -> AsyncIterator[Send]:
    """Open aiohttp-retry's client around a session."""
    from aiohttp_retry import ExponentialRetry, RetryClient

    url = f"{base_url}/v1/push"
    async with aiohttp_session(ca) as session:
        client = RetryClient(client_session=session, retry_options=ExponentialRetry(attempts=4))

        async def send(number: int) -> None:
            async with client.post(url, data=encode(push(number))) as response:
                expect(response.status)

        yield send


@asynccontextmanager
async def httpx_client(base_url: str, *, module: str = "httpx", ca: str = "") -> AsyncIterator[Send]:
    """Open the AsyncClient of httpx, or of httpx2, which has the same interface."""
    url = f"{base_url}/v1/push"
    async with import_module(module).AsyncClient(headers=HEADERS, verify=trusting(ca)) as client:

        async def send(number: int) -> None:
            expect((await client.post(url, content=encode(push(number)))).status_code)

        yield send


@asynccontextmanager
async def pyreqwest_client(base_url: str, *, ca: str = "") -> AsyncIterator[Send]:
    """Open pyreqwest's Client, whose network runs in a thread of its own, in Rust."""
    from pyreqwest.client import ClientBuilder

    url, builder = f"{base_url}/v1/push", ClientBuilder().default_headers(HEADERS)
    if ca:
        builder = builder.add_root_certificate_pem(ca.encode())
    async with builder.build() as client:

        async def send(number: int) -> None:
            expect((await client.post(url).body_bytes(encode(push(number))).build().send()).status)

        yield send


@asynccontextmanager
async def pyqwest_client(base_url: str, *, ca: str = "") -> AsyncIterator[Send]:
    """Open pyqwest's Client, whose network runs in threads of its own, in Rust."""
    from pyqwest import Client, HTTPTransport

    url = f"{base_url}/v1/push"
    async with HTTPTransport(tls_ca_cert=ca.encode() or None) as transport:
        client = Client(transport)

        async def send(number: int) -> None:
            expect((await client.post(url, HEADERS, encode(push(number)))).status)

        yield send


@asynccontextmanager
async def generated(base_url: str, *, backend: str, ca: str = "") -> AsyncIterator[Send]:
    """Open a generated SDK of another push service (knockapi), with retries; a call notifies one user."""
    from knockapi import AsyncKnock, DefaultAioHttpClient, DefaultAsyncHttpxClient

    transport = DefaultAioHttpClient if backend == "aiohttp" else DefaultAsyncHttpxClient
    async with AsyncKnock(api_key=API_KEY, base_url=base_url, http_client=transport(verify=trusting(ca))) as client:

        async def send(number: int) -> None:
            data: dict[str, object] = {"title": TITLE, "body": {"en": f"Hello {number}"}}
            await client.workflows.trigger("push", recipients=[user(number)], data=data)

        yield send


@asynccontextmanager
async def ours(base_url: str, *, ca: str = "", **options: Any) -> AsyncIterator[Send]:
    """Open pushsdk, with its defaults unless options are given."""
    from pushsdk import AsyncPushClient, MobilePush

    if ca:
        options["ssl"] = trusting(ca)
    async with AsyncPushClient(base_url, API_KEY, **options) as client:

        async def send(number: int) -> None:
            await client.send(user(number), MobilePush(ios_enabled=True, title=TITLE, body={"en": f"Hello {number}"}))

        yield send


def singly(
    name: str, opener: Callable[[str], AbstractAsyncContextManager[Send]], *, posts: Posts = "each"
) -> Contender:
    """Return a contender that sends one request per user from WORKERS tasks."""

    @asynccontextmanager
    async def opened(base_url: str) -> AsyncIterator[Run]:
        async with opener(base_url) as send:
            yield partial(with_workers, send)

    return Contender(name, opened, posts=posts)
