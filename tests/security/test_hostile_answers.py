"""Hostile answers: they cost little, settle nothing wrongly, and reach no terminal."""

import asyncio
import functools
import logging
import time
import tracemalloc
import zlib
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import pytest
from support.wire_answers import UNREADABLE, response
from support.wire_faults import always, endless, read_request, send, step, take, when
from support.wire_judge import HELLO
from support.wire_rig import OWN_OR_INJECTED
from support.wire_server import WireServer

from pushsdk import (
    AsyncPushClient,
    CampaignRequest,
    Outcome,
    OutcomeUnknownError,
    PushError,
    RejectedError,
    RetryPolicy,
    Timeout,
)

CAMPAIGN = CampaignRequest(name="c", external_id="e-1")
MEGABYTE = 1 << 20


@asynccontextmanager
async def answered_by(*acts, injected=False):
    """Yield a client of a server that answers each request by ``acts``."""
    async with WireServer(when(always, step(*acts))) as server, aiohttp.ClientSession() as session:
        timeout = Timeout(total=5.0, attempt=3.0)
        options = {"retry": RetryPolicy.none(), "timeout": timeout, "session": session if injected else None}
        options["show_answers"] = False
        async with AsyncPushClient(server.base_url, "key", **options) as client:
            yield client


@contextmanager
def at_most(megabytes, seconds):
    """The block allocates no more than that, and neither works nor waits for longer."""
    clock = asyncio.get_running_loop().time
    tracemalloc.start()
    start = time.process_time()
    started = clock()
    try:
        yield
        worked = time.process_time() - start
        waited = clock() - started
        (_, peak) = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < megabytes * MEGABYTE
    assert worked < seconds
    assert waited < seconds


@functools.cache
def bomb(megabytes=64):
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(MEGABYTE)) for _ in range(megabytes)) + packer.flush()


# --- size ---


@OWN_OR_INJECTED
@pytest.mark.parametrize(
    ("status", "encoding", "outcome", "body"),
    [
        (200, "gzip", Outcome.ACCEPTED, bytes(4096)),
        (400, "br", Outcome.REJECTED, b"(not readable here, Content-Encoding: br)"),
        (500, "deflate", Outcome.UNKNOWN, bytes(4096)),
    ],
)
async def test_a_compressed_body_is_decompressed_to_a_bound(status, encoding, outcome, body, injected):
    answer = response(status, bomb(), Content_Encoding=encoding, Content_Type="application/json")
    async with answered_by(take, send(answer), injected=injected) as client:
        with at_most(megabytes=5, seconds=2.0), pytest.raises(PushError) as excinfo:
            await client.create_campaign(CAMPAIGN)
    assert excinfo.value.outcome is outcome
    assert excinfo.value.body == body


ENDLESS = {
    "chunks": ({"Transfer_Encoding": "chunked"}, b"10000\r\n%b\r\n" % (b"x" * 65536)),
    "ten gigabytes": ({"Content_Length": 10**10}, b"x" * 65536),
    "no length": ({"Connection": "close", "Content_Length": ""}, b"x" * 65536),
}


@OWN_OR_INJECTED
@pytest.mark.parametrize("framing", ENDLESS)
async def test_an_endless_body_is_read_to_a_bound_and_no_further(framing, injected):
    fields, piece = ENDLESS[framing]
    head = response(400, **fields, Content_Type="application/json").replace(b"Content-Length: \r\n", b"")
    async with answered_by(take, send(head), endless(piece), injected=injected) as client:
        with at_most(megabytes=5, seconds=2.0), pytest.raises(RejectedError) as excinfo:
            await client.create_campaign(CAMPAIGN)
    assert excinfo.value.body == b"x" * 4096


@OWN_OR_INJECTED
@pytest.mark.parametrize("end", [b"", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"])
async def test_headers_and_trailers_are_read_to_a_bound_and_no_further(end, injected):
    begun = send(b"HTTP/1.1 400 Bad\r\nX-Short: 7\r\n" + end)
    line = b"X-Long: %b\r\n" % (b"v" * 60_000)
    async with answered_by(take, begun, endless(line), injected=injected) as client:
        with at_most(megabytes=20, seconds=9.0):
            calls = [client.send(f"u{number}", HELLO, timeout=9.0) for number in range(80)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {(type(error), error.headers["X-Short"]) for error in errors} == {(RejectedError, "7")}
    assert all(sum(map(len, error.headers.values())) < 16_384 for error in errors)


async def test_endless_interim_answers_end_at_the_attempts_timeout():
    async with answered_by(take, endless(b"HTTP/1.1 102 Processing\r\n\r\n", gap=0.001)) as client:
        with at_most(megabytes=5, seconds=2.0), pytest.raises(OutcomeUnknownError):
            await client.send("u", HELLO, timeout=Timeout(attempt=0.1))


# --- text ---

ANSI = b"\x1b[31mred\x1b]0;title\x07\x9b31m\x08\x7f marker"
SAYING = {
    "in the reason": b"HTTP/1.1 400 marker\xc2\x9b31m\xe2\x80\xae\r\nContent-Length: 0\r\n\r\n",
    "in the body": response(400, ANSI),
    "in Location's path": response(302, Location="http://h.example/marker%1b[31m"),
    "in Location's host": b"HTTP/1.1 302 No\r\nLocation: http://marker\xc2\x9b.example/\r\nContent-Length: 0\r\n\r\n",
    "in Retry-After": response(429, Retry_After="marker"),
    "in a campaign's answer": response(200, b'{"marker":"' + ANSI + b'"}'),
    "raw in the reason": b"HTTP/1.1 400 " + ANSI + b"\r\nContent-Length: 0\r\n\r\n",
    "raw in Location's host": b"HTTP/1.1 302 No\r\nLocation: http://" + ANSI + b"/\r\nContent-Length: 0\r\n\r\n",
    "instead of an answer": ANSI + b"\r\n\r\n",
    **{f"as {name}": data.replace(b"garbage", ANSI) for name, data in UNREADABLE.items()},
}


@pytest.mark.parametrize("answer", SAYING.values(), ids=SAYING)
async def test_no_text_of_the_server_is_in_an_errors_text(answer, caplog):
    caplog.set_level(logging.DEBUG)
    async with answered_by(read_request, send(answer)) as client:
        with pytest.raises(PushError) as excinfo:
            await client.create_campaign(CAMPAIGN, timeout=0.2)
    text = f"{excinfo.value} {excinfo.value!r} {excinfo.value.attempts} {caplog.text}"
    assert "marker" not in text
    assert text.replace("\n", "").isprintable()
    assert len(str(excinfo.value)) < 350
