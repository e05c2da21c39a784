"""A client, a server and a fault between them, put up and taken down together."""

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from pushsdk import AsyncPushClient, Outcome, RetryPolicy, Timeout
from support import wire_tls
from support.wire_case import Connects, Looks, Pooled
from support.wire_faults import Step, when
from support.wire_network import detoured, lookups, spoiled
from support.wire_server import WireServer

OWN_OR_INJECTED = pytest.mark.parametrize("injected", [False, True])
HTTP_OR_HTTPS = pytest.mark.parametrize("tls", [False, True])

#: The safe policy without its waits.
QUICK = RetryPolicy.safe(max_attempts=3, initial_delay=0.001, throttle_delay=0.001)

#: Without a hang, no timeout may expire.
CALM = Timeout(total=9.0, attempt=5.0, connect=5.0)
#: Seconds until a hang times out; concurrent good requests need some time on a busy machine.
ALONE = 0.05
AFTER = 0.1
AMONG = 0.2


@dataclass(frozen=True)
class WireRig:
    """The server, the client and the books of one test."""

    server: WireServer
    client: AsyncPushClient


@asynccontextmanager
async def client_of(server, *, injected=False, host=None, **options):
    """A client of ``server``, on its own session or on an injected one with aiohttp's defaults."""
    base_url = server.base_url.replace(server.host, host or server.host)
    settings = {"retry": QUICK, "timeout": CALM, "ssl": wire_tls.client_context() if server.tls else None}
    async with AsyncExitStack() as stack:
        if injected:
            options["session"] = await stack.enter_async_context(aiohttp.ClientSession())
        client = AsyncPushClient(base_url, "key", **{**settings, **options})
        yield await stack.enter_async_context(client)


@asynccontextmanager
async def meeting(script=None, *, tls=False, **options):
    """A server of this script, and a client of it with these options."""
    async with (
        WireServer(script, tls=wire_tls.good() if tls else None) as server,
        client_of(server, **options) as client,
    ):
        yield server, client


def patient(case, seconds):
    """Return the timeouts of a client: short only for the phase in which the fault hangs."""
    if not case.hangs:
        return CALM
    if case.outcome is Outcome.NOT_SENT:
        return Timeout(total=9.0, attempt=5.0, connect=seconds)
    return Timeout(total=9.0, attempt=seconds, connect=5.0)


@asynccontextmanager
async def rigged(case, bad, *, hang=None, patience=ALONE, **options):
    """The fault of ``case`` happens at the bad times; ``options`` are the client's, and ``injected``.

    ``patience`` is how many seconds a hang is waited for, ``hang`` how many a hung lookup takes: by default somewhat
    longer, so that a repeat finds it answered.
    """
    fault = case.fault
    options = {"timeout": patient(case, patience), **options}
    hang = hang or 1.5 * patience
    script = when(bad, fault) if isinstance(fault, Step) else None
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
        yield WireRig(server, await stack.enter_async_context(client_of(server, **options)))
