"""The sink: a process that accepts and counts every push.

A bare `asyncio.Protocol` (on uvloop if installed) that reads only Content-Length, takes keep-alive, pipelined and
partial requests, and sends constant responses. It counts requests, users, body bytes and an order-independent checksum
of the user ids, which verify each round, and its own CPU time, which shows if the sink was the bottleneck.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import socket
import ssl
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import msgspec

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
THROTTLED = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"


def _ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


CAMPAIGN = _ok(b'{"uuid":"0190e2a4-7b1c-7c3e-9a55-0d6f2b8e4c11"}')
WORKFLOW = _ok(b'{"workflow_run_id":"0190e2a4-7b1c-7c3e-9a55-0d6f2b8e4c11"}')


class _Users(msgspec.Struct):
    """The ids in a body, under this service's name or the generated SDK's."""

    userIds: list[str] = []  # noqa: N815  the name in JSON
    recipients: list[str] = []


_decode = msgspec.json.Decoder(_Users).decode


def checksum(users: Iterator[str] | list[str]) -> int:
    """Return the sum of the CRC-32 of the ids, which any lost or doubled id changes and their order does not."""
    return sum(zlib.crc32(user.encode()) for user in users)


@dataclass(slots=True)
class Counts:
    """Totals of the sink, and its CPU seconds. The difference of two is a round."""

    requests: int = 0
    users: int = 0
    body_bytes: int = 0
    checksum: int = 0
    connections: int = 0
    throttled: int = 0
    cpu: float = 0.0

    def since(self, earlier: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) - getattr(earlier, name) for name in Counts.__slots__))


class SinkProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, counts: Counts, delay: float, throttle: float) -> None:
        self.counts = counts
        self.delay = delay
        self.throttle = throttle
        self.buffer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.counts.connections += 1

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer + data if self.buffer else data
        start, responses = 0, []
        while (end := buffer.find(b"\r\n\r\n", start)) >= 0:
            body = end + 4
            stop = body + content_length(buffer[start:end])
            if len(buffer) < stop:
                break
            responses.append(self.take(buffer[start : start + 32], buffer[body:stop]))
            start = stop
        self.buffer = buffer[start:]
        if responses:
            self.respond(b"".join(responses))

    def take(self, line: bytes, body: bytes) -> bytes:
        counts = self.counts
        if counts.throttled < self.throttle * (counts.requests + counts.throttled):
            counts.throttled += 1
            return THROTTLED
        users = _decode(body)
        ids = users.userIds or users.recipients
        counts.requests += 1
        counts.users += len(ids)
        counts.body_bytes += len(body)
        counts.checksum += checksum(ids)
        if b"/campaigns" in line:
            return CAMPAIGN
        return WORKFLOW if b"/workflows" in line else NO_CONTENT

    def respond(self, data: bytes) -> None:
        if self.delay:
            asyncio.get_running_loop().call_later(self.delay, self.transport.write, data)
        else:
            self.transport.write(data)


def content_length(head: bytes) -> int:
    """Return the Content-Length of a request head, 0 if it has none."""
    at = head.find(b"Content-Length: ")
    if at < 0:
        at = head.lower().find(b"content-length: ")
        if at < 0:
            return 0
    end = head.find(b"\r", at)
    return int(head[at + 16 : end if end >= 0 else len(head)])


def unpin() -> None:
    """Let this process, and the children that it starts from now on, run on any core."""
    if hasattr(os, "sched_setaffinity"):
        # A child inherits the parent's pinned core; the kernel removes cores that this process may not use.
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def pin(core: int) -> None:
    """Pin this process to one core, if the platform can and has several."""
    if hasattr(os, "sched_setaffinity"):
        unpin()
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            os.sched_setaffinity(0, {cores[core % len(cores)]})


def certified() -> tuple[ssl.SSLContext, str]:
    """Return the context of a server with a new certificate, and the PEM of its CA."""
    import trustme

    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, authority.cert_pem.bytes().decode()


def _serve(pipe: Connection, delay: float, throttle: float, tls: bool) -> None:
    pin(1)
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(_main(pipe, delay, throttle, tls))


async def _main(pipe: Connection, delay: float, throttle: float, tls: bool) -> None:
    loop = asyncio.get_running_loop()
    counts, stopped = Counts(), asyncio.Event()
    context, ca = certified() if tls else (None, "")
    server = await loop.create_server(
        lambda: SinkProtocol(counts, delay, throttle), "127.0.0.1", 0, backlog=1024, ssl=context
    )

    def control() -> None:
        """Send the counts for each message of the parent; stop the sink when the pipe ends."""
        try:
            pipe.recv()
        except EOFError:
            loop.remove_reader(pipe.fileno())
            stopped.set()
            return
        counts.cpu = time.process_time()
        pipe.send({name: getattr(counts, name) for name in Counts.__slots__})

    loop.add_reader(pipe.fileno(), control)
    pipe.send((server.sockets[0].getsockname()[1], ca))
    await stopped.wait()
    server.close()


class Sink:
    """The parent's handle: the address of the sink, the PEM of its CA if it speaks TLS, and its counts."""

    def __init__(self, port: int, ca: str, pipe: Connection) -> None:
        self.base_url = f"{'https' if ca else 'http'}://127.0.0.1:{port}"
        self.ca = ca
        self._pipe = pipe

    def counts(self) -> Counts:
        self._pipe.send("counts")
        return Counts(**self._pipe.recv())


@contextlib.contextmanager
def sink(delay: float = 0.0, *, throttle: float = 0.0, tls: bool = False) -> Iterator[Sink]:
    """Run a sink that responds after `delay` seconds, to a share `throttle` with 429 and Retry-After: 0."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, delay, throttle, tls), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Sink(*ours.recv(), ours)
    finally:
        ours.close()
        process.join(5)
        if process.is_alive():
            process.kill()


if __name__ == "__main__":  # a manual check: two pipelined requests, the second in two parts
    with sink() as running:
        port = int(running.base_url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = json.dumps({"userIds": ["a", "b"]}).encode()
            head = b"POST /v1/push HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
            client.sendall(head + body + head + body[:5])
            time.sleep(0.05)
            client.sendall(body[5:])
            time.sleep(0.05)
            print(client.recv(1000), running.counts())
