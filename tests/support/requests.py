"""Requests for a transport that no client made."""

import math
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp

from pushsdk import RetryPolicy, Timeout
from pushsdk._core.operations import PUSH
from pushsdk._core.outcome import Evidence
from pushsdk._core.policy import Options
from pushsdk._core.secret import Secret
from pushsdk._io.request import ApiRequest, Flight, WholePart
from pushsdk._io.transport import AiohttpTransport, TransportSettings


class Shouted(str):
    """A text whose ``str()`` is another, as that of an Enum member is."""

    __str__ = str.upper


KEY = Secret.of(Shouted("s3cr3t"))
BODY = b'{"userIds":["u"],"message":{}}'


class ClaimedRequest(ApiRequest):
    """A request whose claim is any coroutine function."""

    prepare: object = None


def request_of(body, evidence, operation=PUSH, *, key=KEY, connect=None, span=None, claim=None):
    """Return a request that fills this evidence. ``claim`` returns the body to send."""

    async def whole():
        return body

    request = ClaimedRequest(
        operation,
        body,
        WholePart((), users=1),
        Options(RetryPolicy.none(), Timeout(total=None, attempt=None, connect=connect)),
        deadline=math.inf,
        key=key,
        evidence=evidence,
        prepare=claim or whole,
    )
    request.flight = Flight(None, math.inf, span=span)
    return request


@asynccontextmanager
async def transport_to(base_url, *, injected=False, limit=4, headers=(), **settings):
    """A transport on its own session or on an injected one, which stays open."""
    async with AsyncExitStack() as stack:
        if injected:
            settings["session"] = await stack.enter_async_context(aiohttp.ClientSession())
        transport = AiohttpTransport(
            TransportSettings(base_url=base_url, headers=Secret.of(dict(headers)), **settings), limit=limit
        )
        yield transport
        await transport.close()
        assert not (injected and settings["session"].closed)


async def post(transport, body=BODY, **options):
    """Send a request by this transport, and return what it left as evidence. ``options`` are those of the request."""
    evidence = Evidence()
    await transport.post(request_of(body, evidence, **options))
    return evidence
