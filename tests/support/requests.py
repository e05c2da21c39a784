"""Requests for a transport that no client made."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp

from pushsdk import RetryPolicy, Timeout
from pushsdk._core.operations import PUSH, Operation
from pushsdk._core.outcome import Evidence
from pushsdk._core.policy import Options
from pushsdk._core.secret import Secret
from pushsdk._io.request import Claim, ClaimedRequest, Flight, WholePart
from pushsdk._io.transport import AiohttpTransport, TransportSettings

__all__ = ["BODY", "KEY", "post", "request_of", "transport_to"]

KEY = Secret.of("s3cr3t")
BODY = b'{"userIds":["u"],"message":{}}'


def request_of(
    body: bytes,
    evidence: Evidence,
    operation: Operation = PUSH,
    *,
    connect: float | None = None,
    span: Any = None,
    claim: Claim | None = None,
) -> ClaimedRequest:
    """Return a request that fills this evidence. ``claim`` returns the body to send."""

    async def claim_part(part: WholePart) -> tuple[WholePart, bytes | None]:
        return part, await claim()

    request = ClaimedRequest(
        operation,
        body,
        WholePart((), users=1),
        Options(RetryPolicy.none(), Timeout(total=None, attempt=None, connect=connect)),
        deadline=math.inf,
        evidence=evidence,
        claim=None if claim is None else SimpleNamespace(claim=claim_part),
    )
    request.flight = Flight(None, math.inf, span=span)
    return request


@asynccontextmanager
async def transport_to(
    base_url: str, *, injected: bool = False, limit: int = 4, **settings: Any
) -> AsyncIterator[AiohttpTransport]:
    """A transport on its own session or on an injected one, which stays open."""
    async with AsyncExitStack() as stack:
        if injected:
            settings["session"] = await stack.enter_async_context(aiohttp.ClientSession())
        transport = AiohttpTransport(TransportSettings(base_url=base_url, **settings), limit=limit)
        yield transport
        await transport.close()
        assert not (injected and settings["session"].closed)


async def post(transport: AiohttpTransport, body: bytes = BODY, *, key: Secret = KEY, **options: Any) -> Evidence:
    """Send a request by this transport, and return what it left as evidence. ``options`` are those of the request."""
    evidence = Evidence()
    await transport.post(request_of(body, evidence, **options), key)
    return evidence
