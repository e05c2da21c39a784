"""A client, a server and a fault between them, put up and taken down together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp

from pushsdk import AsyncPushClient, RetryPolicy, Timeout
from support import wire_tls
from support.wire_case import Case, Connects, Looks, Pooled
from support.wire_faults import Step, When, when
from support.wire_network import detoured, lookups, spoiled
from support.wire_server import Script, WireServer

__all__ = ["BRISK", "CALM", "HASTY", "QUICK", "WARY", "Rig", "client_of", "rigged"]

#: The safe policy without its waits.
QUICK = RetryPolicy.safe(attempts=3, base=0.001, throttle_base=0.001)

#: Where nothing hangs, time must not decide; where something hangs, what is good beside or after it needs some, the
#: more of it there is the more; and what hangs alone needs none.
CALM = Timeout(total=5.0, attempt=2.0, connect=1.0)
WARY = Timeout(total=5.0, attempt=0.2, connect=0.1)
BRISK = Timeout(total=5.0, attempt=0.1, connect=0.05)
HASTY = Timeout(total=2.0, attempt=0.05, connect=0.03)


@dataclass(frozen=True)
class Rig:
    """What a test holds in its hands."""

    server: WireServer
    client: AsyncPushClient


@asynccontextmanager
async def client_of(
    server: WireServer, *, injected: bool = False, host: str | None = None, **options: object
) -> AsyncIterator[AsyncPushClient]:
    """A client of ``server``, on its own session or on an injected one with aiohttp's defaults."""
    base_url = server.base_url.replace(server.host, host or server.host)
    settings = {"retry": QUICK, "timeout": CALM, "ssl": wire_tls.client_context() if server.tls else None}
    async with AsyncExitStack() as stack:
        if injected:
            options["session"] = await stack.enter_async_context(aiohttp.ClientSession())
        client = AsyncPushClient(base_url, "key", **{**settings, **options})
        yield await stack.enter_async_context(client)


@asynccontextmanager
async def rigged(
    case: Case, bad: When, *, hang: float | None = None, hanging: Timeout = HASTY, **options: object
) -> AsyncIterator[Rig]:
    """The fault of ``case`` happens at the bad times; ``options`` are the client's, and ``injected``.

    ``hanging`` is the client's patience where the fault is one that hangs, ``hang`` the time that a hung lookup
    takes: by default somewhat longer than the connect timeout, so that a repeat finds it answered.
    """
    fault = case.fault
    options = {"timeout": hanging if case.hangs else CALM, **options}
    hang = hang or 1.5 * hanging.connect
    script: Script | None = when(bad, fault) if isinstance(fault, Step) else None
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(WireServer(script, tls=wire_tls.good() if case.tls else None))
        match fault:
            case Looks(how):
                stack.enter_context(lookups(how, bad, hang=hang))
                options["host"] = "localhost"
            case Connects(place):
                address = await stack.enter_async_context(place())
                stack.enter_context(detoured(server, address, bad))
            case Pooled(spoil):
                stack.enter_context(spoiled(server, spoil, bad))
        yield Rig(server, await stack.enter_async_context(client_of(server, **options)))
