"""Secrets stay inside: the key everywhere, user ids and texts out of every log, text and repr.

Markers are planted in all of them, every kind of failure is provoked, and all that comes out is searched.
"""

import asyncio
import logging
import pickle
import traceback
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from support import wire_tls
from support.wire_answers import response
from support.wire_faults import Step, always, answering, fin, hold, on_accept, rst, send, step, take, when
from support.wire_network import another, closed_port, detoured
from support.wire_rig import OWN_OR_INJECTED
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    Batching,
    CampaignRequest,
    MobilePush,
    PushError,
    RetryPolicy,
    Segment,
    Timeout,
)

KEY = "KEYMARKER"
USER = "USERMARKER"
TEXT = "TEXTMARKER"
MESSAGE = MobilePush(title={"en": TEXT}, collapse_id=TEXT, key_vals={TEXT: TEXT})
FIELDS = {"first": TEXT, TEXT: TEXT}
CAMPAIGN = CampaignRequest(name=TEXT, external_id=TEXT, segment=Segment(query=TEXT))
ECHO = f'{{"error":"no such user {USER}: {TEXT}, with the key {KEY}"}}'.encode()
PIECES = b"".join(b"1\r\n%c\r\n" % byte for byte in ECHO) + b"0\r\n\r\n"
RETRY = RetryPolicy.safe(max_attempts=2, initial_delay=0.001, throttle_delay=0.001)
TIGHT = Timeout(total=2.0, attempt=0.05, connect=0.05)

FAULTS = {
    "refused": "refused",
    "untrusted certificate": "untrusted",
    "TLS to a plain port": "plain",
    "closed on accept": on_accept(fin),
    "reset after the request": step(take, rst),
    "silence": step(take, hold),
    "garbage": step(take, send(ECHO + b"\r\n\r\n")),
    "truncated": step(take, send(b"HTTP/1.1 204 No Con"), rst),
    "400": answering(response(400, ECHO, **{"X_Echo": f"{USER} {TEXT} {KEY}", f"X_{KEY}": "1"})),
    "400 in pieces": answering(response(400, PIECES, Transfer_Encoding="chunked")),
    "401": answering(response(401, ECHO, WWW_Authenticate=TEXT)),
    "429": answering(response(429, ECHO, Retry_After=TEXT)),
    "500": answering(response(500, ECHO)),
    "redirect": answering(response(302, ECHO, Location=f"http://{KEY}.example/{USER}/{TEXT}")),
    "accepted without a uuid": answering(response(200, ECHO)),
}


class Out:
    """All that a client lets out while it fails."""

    def __init__(self):
        self.errors = []
        self.events = []
        self.values = []

    async def of(self, doing):
        """Wait, and keep what comes of it."""
        try:
            self.values.append(await doing)
        except (PushError, asyncio.CancelledError) as error:
            self.errors.append(error)

    def texts(self):
        """Return what is printed, logged, or shown by a debugger that looks at an error's own fields."""
        for error in self.errors:
            yield from (str(error), repr(error), repr(error.args))
            yield "".join(traceback.format_exception(error))
            yield repr(
                {name: value for name, value in vars(error).items() if name in ("attempts", "outcome", "status")}
            )
        yield from map(repr, [*self.events, *self.values])

    def depths(self):
        """Return what a crash reporter collects: the locals of this package's frames, fields, pickles."""
        for error in self.errors:
            yield repr(vars(error))
            yield from (repr(cause) for cause in (error.__cause__, error.__context__))
            for frame in traceback.TracebackException.from_exception(error, capture_locals=True).stack:
                yield repr(frame.locals)
            if isinstance(error, PushError):
                yield pickle.dumps(error).decode("latin-1")
        for value in [*self.events, *self.values]:
            yield pickle.dumps(value).decode("latin-1")


@asynccontextmanager
async def failing(fault, out, *, injected, show_answers):
    """A client for which every request fails in this way."""
    tls = fault in ("untrusted", "plain")
    async with AsyncExitStack() as stack:
        script = when(always, fault) if isinstance(fault, Step) else None
        context = (wire_tls.untrusted if fault == "untrusted" else wire_tls.good)() if tls else None
        server = await stack.enter_async_context(WireServer(script, tls=context))
        if fault == "refused":
            stack.enter_context(detoured(server, await stack.enter_async_context(closed_port())))
        elif fault == "plain":
            stack.enter_context(detoured(server, await stack.enter_async_context(another()())))
        session = await stack.enter_async_context(aiohttp.ClientSession()) if injected else None
        client = AsyncPushClient(
            server.base_url,
            KEY,
            session=session,
            retry=RETRY,
            timeout=TIGHT,
            ssl=wire_tls.client_context() if tls else None,
            on_event=out.events.append,
            batching=Batching(linger=0.005),
            show_answers=show_answers,
        )
        yield await stack.enter_async_context(client)


async def use(client, out):
    """Each way to send, shared and alone, and callers that leave."""
    users = [f"{USER}-{number}" for number in range(3)]
    leaving = asyncio.create_task(client.send(f"{USER}-gone", MESSAGE, custom_fields=FIELDS))
    shared = [out.of(client.send([user, f"{user}-b"], MESSAGE, custom_fields=FIELDS)) for user in users]
    alone = out.of(client.send(f"{USER}-alone", {"title": {"en": TEXT}}))
    hurried = out.of(client.send(f"{USER}-hurried", MESSAGE, custom_fields=FIELDS, timeout=0.02))
    # This one leaves while the batch still lingers, the other perhaps while its request is on its way.
    hasty = asyncio.create_task(client.send(f"{USER}-hasty", MESSAGE, custom_fields=FIELDS))
    asyncio.get_running_loop().call_later(0.001, hasty.cancel)
    asyncio.get_running_loop().call_later(0.01, leaving.cancel)
    await asyncio.gather(
        *shared, alone, hurried, out.of(hasty), out.of(leaving), out.of(client.create_campaign(CAMPAIGN))
    )
    await out.of(client.aclose())
    await out.of(client.send(f"{USER}-late", MESSAGE))
    out.values.append(client.stats())


@OWN_OR_INJECTED
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_the_key_is_nowhere_and_user_ids_and_texts_are_in_no_text(fault, injected, caplog):
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    asyncio.get_running_loop().slow_callback_duration = 0.0
    out = Out()
    # On loopback an error's text quotes the answer, unless that is switched off.
    async with failing(fault, out, injected=injected, show_answers=injected) as client:
        await use(client, out)
        fields = [repr(client), repr(vars(client))]
    assert len(out.errors) >= 3
    assert out.events
    texts = [*out.texts(), caplog.text]
    assert [text for text in (*texts, *out.depths(), *fields) if KEY in text] == []
    assert injected or [text for text in texts if USER in text or TEXT in text] == []


async def test_what_was_refused_before_it_was_sent_is_not_quoted(caplog):
    caplog.set_level(logging.DEBUG)
    out = Out()
    bad = [f"{USER}\ud800", float("nan"), USER.encode(), {f"{TEXT} {USER}": float("inf")}, {USER}]
    async with WireServer() as server, AsyncPushClient(server.base_url, KEY) as client:
        for value in bad:
            await out.of(client.send([value], MESSAGE))
            await out.of(client.send(USER, {"title": {"en": value, TEXT: TEXT}}))
            await out.of(client.send(USER, MESSAGE, custom_fields={f"{TEXT} {USER}": value}))
            await out.of(client.create_campaign({"name": value}))
        await out.of(client.send([USER] * 2000, MESSAGE))
    assert server.connections == 0
    assert len(out.errors) == 4 * len(bad) + 1
    assert out.values == []
    assert [text for text in (*out.texts(), caplog.text) if USER in text or f"{TEXT} " in text or KEY in text] == []
