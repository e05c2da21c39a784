"""The contenders, each used as its documentation shows, with one push per call.

All run with their defaults: httpx and the generated SDK keep 20 idle connections, aiohttp 100.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import msgspec

from benchmarks.harness import Contender, Posts, Run, user, with_workers

API_KEY = "benchmark-key"
HEADERS = {"Api-Key": API_KEY, "Content-Type": "application/json"}
TITLE = {"en": "Your order is on its way"}

BARE = "aiohttp, bare"
OURS = "pushsdk"
HTTPX = "httpx"
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


@asynccontextmanager
async def bare(base_url: str) -> AsyncIterator[Send]:
    """Open aiohttp alone: the least that a hand-written client does."""
    url = f"{base_url}/v1/push"
    async with aiohttp.ClientSession(headers=HEADERS) as session:

        async def send(number: int) -> None:
            async with session.post(url, data=encode(push(number))) as response:
                expect(response.status)

        yield send


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
async def aiohttp_retry(base_url: str) -> AsyncIterator[Send]:
    """Open aiohttp-retry's client around a session."""
    from aiohttp_retry import ExponentialRetry, RetryClient

    url = f"{base_url}/v1/push"
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        client = RetryClient(client_session=session, retry_options=ExponentialRetry(attempts=4))

        async def send(number: int) -> None:
            async with client.post(url, data=encode(push(number))) as response:
                expect(response.status)

        yield send


@asynccontextmanager
async def httpx_client(base_url: str) -> AsyncIterator[Send]:
    """Open httpx's AsyncClient."""
    import httpx

    url = f"{base_url}/v1/push"
    async with httpx.AsyncClient(headers=HEADERS) as client:

        async def send(number: int) -> None:
            expect((await client.post(url, content=encode(push(number)))).status_code)

        yield send


@asynccontextmanager
async def generated(base_url: str, *, backend: str) -> AsyncIterator[Send]:
    """Open a generated SDK of another push service (knockapi), with retries; a call notifies one user."""
    from knockapi import AsyncKnock, DefaultAioHttpClient, DefaultAsyncHttpxClient

    transport = DefaultAioHttpClient if backend == "aiohttp" else DefaultAsyncHttpxClient
    async with AsyncKnock(api_key=API_KEY, base_url=base_url, http_client=transport()) as client:

        async def send(number: int) -> None:
            data: dict[str, object] = {"title": TITLE, "body": {"en": f"Hello {number}"}}
            await client.workflows.trigger("push", recipients=[user(number)], data=data)

        yield send


@asynccontextmanager
async def ours(base_url: str, **options: Any) -> AsyncIterator[Send]:
    """Open pushsdk, with its defaults unless options are given."""
    from pushsdk import AsyncPushClient, MobilePush

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
