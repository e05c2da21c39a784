"""The service as a ``Transport``: it behaves by script, fills the evidence truly, and knows whom it processed.

A behaviour is a coroutine function of one ``Request``; those below are what a real server, network or pool can do.
The first requests get the scripted ones in turn, all others ``then`` (a behaviour, or a function of the request).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from multidict import CIMultiDict

from pushsdk import AsyncPushClient
from pushsdk._core.outcome import Evidence, Failure

__all__ = [
    "LATENCY",
    "MESSAGE",
    "Behaviour",
    "FakeService",
    "Request",
    "answer",
    "client_of",
    "fails",
    "hang",
    "idle",
    "lost",
    "outcome_of",
    "partial",
    "refused",
    "stale",
    "start",
]

# Of an answer, in seconds of virtual time; half of it before the service processes the request.
LATENCY = 0.02
MESSAGE = {"title": {"en": "Hello"}}


class Request:
    """One POST as it came to the transport, and what became of it there."""

    def __init__(self, service: FakeService, path: str, body: bytes, key: str, evidence: Evidence) -> None:
        content = json.loads(body)
        self.service = service
        self.path = path
        self.body = body
        self.key = str(key)
        self.evidence = evidence
        self.users: tuple[str, ...] = tuple(content.get("userIds", ()))
        self.message: Any = content.get("message")
        self.started = asyncio.get_running_loop().time()
        self.ended: float | None = None
        self.processed = False
        self.read = False

    def write(self, *, whole: bool = True) -> None:
        """Bytes leave: all of them, or some."""
        self.evidence.started_writing = True
        self.evidence.written = whole

    def process(self) -> None:
        """The truth: the service takes it."""
        self.processed = True
        self.service.processed.update(self.users)
        if not self.users:
            self.service.campaigns += 1

    def respond(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """The answer's head, and its body where the real transport would read it."""
        self.evidence.status = status
        if status != 204 or self.read:
            self.evidence.headers = CIMultiDict(headers or {})
            if self.read or not 200 <= status < 300:
                self.evidence.body = body

    def fail(self, failure: Failure) -> None:
        """No answer."""
        self.evidence.failure, self.evidence.reason = failure, "FakeError"


Behaviour = Callable[[Request], Awaitable[None]]


def answer(
    status: int = 204,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    after: float = LATENCY,
    connecting: float = 0.0,
    processed: bool | None = None,
) -> Behaviour:
    """Read the request and answer; processed where the status is a 2xx, or as told."""
    process = 200 <= status < 300 if processed is None else processed

    async def behave(request: Request) -> None:
        if connecting:
            await asyncio.sleep(connecting)
        request.write()
        await asyncio.sleep(after / 2)
        if process:
            request.process()
        await asyncio.sleep(after / 2)
        request.respond(status, headers, body)

    return behave


def lost(*, processed: bool, after: float = LATENCY, failure: Failure = Failure.RESET) -> Behaviour:
    """The connection breaks after the request was written: before or after it was processed."""

    async def behave(request: Request) -> None:
        request.write()
        await asyncio.sleep(after)
        if processed:
            request.process()
        request.fail(failure)

    return behave


def hang(*, processed: bool = False, connecting: bool = False) -> Behaviour:
    """Nothing comes back, ever; or not even the connection comes about."""

    async def behave(request: Request) -> None:
        if not connecting:
            request.write()
            if processed:
                request.process()
        await asyncio.get_running_loop().create_future()

    return behave


def fails(failure: Failure, *, after: float = 0.0) -> Behaviour:
    """No connection is had: nothing leaves."""

    async def behave(request: Request) -> None:
        await asyncio.sleep(after)
        request.fail(failure)

    return behave


def refused(*, after: float = 0.0) -> Behaviour:
    """The connection is refused."""
    return fails(Failure.REFUSED, after=after)


def partial(*, after: float = LATENCY) -> Behaviour:
    """Some of the request is written, then the connection breaks."""

    async def behave(request: Request) -> None:
        request.write(whole=False)
        await asyncio.sleep(after)
        request.fail(Failure.RESET)

    return behave


def stale() -> Behaviour:
    """The pooled connection turns out dead before the first byte."""

    async def behave(request: Request) -> None:
        request.evidence.reused = True
        request.fail(Failure.STALE)

    return behave


class FakeService:
    """A ``Transport`` whose other end is here."""

    def __init__(self, *script: Behaviour, then: Behaviour | Callable[[Request], Behaviour] | None = None) -> None:
        self._script = list(script)
        self._then = then or answer()
        #: The truth: how often each user was pushed to, and how many campaigns were created.
        self.processed: Counter[str] = Counter()
        self.campaigns = 0
        #: Every request that reached the transport, in order.
        self.requests: list[Request] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.closed = 0

    async def post(
        self, path: str, body: bytes, key: str, evidence: Evidence, *, connect: float | None, read: bool
    ) -> None:
        """See ``Transport.post``."""
        evidence.touched = True
        request = Request(self, path, body, key, evidence)
        request.read = read
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self._behaviour(request)(request)
        finally:
            request.ended = asyncio.get_running_loop().time()
            self.in_flight -= 1

    async def close(self) -> None:
        """See ``Transport.close``."""
        self.closed += 1

    @property
    def sent(self) -> list[tuple[str, ...]]:
        """The users of each request, in order."""
        return [request.users for request in self.requests]

    def _behaviour(self, request: Request) -> Behaviour:
        if self._script:
            return self._script.pop(0)
        chosen = self._then
        if asyncio.iscoroutinefunction(chosen):
            return chosen
        return chosen(request)  # type: ignore[return-value]


def start(send: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """The send as a task whose error may go unseen."""
    task = asyncio.get_running_loop().create_task(send)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task


async def outcome_of(task: asyncio.Task[Any]) -> Any:
    """The receipt of a started send, its PushError, or CancelledError, as a value."""
    await asyncio.wait([task])
    return asyncio.CancelledError() if task.cancelled() else task.exception() or task.result()


async def at_once(work: Callable[[], Any]) -> Any:
    """Blocking work without a thread: there is none on virtual time."""
    return work()


def client_of(service: FakeService, **options: Any) -> AsyncPushClient:
    """A client of this service, opened in the running loop."""
    options = {"base_url": "https://push.example/api", "api_key": "secret-key", **options}
    client = AsyncPushClient(**options)
    client._engine.offload = at_once
    client._engine.open(asyncio.get_running_loop(), transport=service)
    return client


def idle(client: AsyncPushClient) -> bool:
    """Whether nothing of the client is held, queued or on its way."""
    stats = client.stats()
    engine = client._engine
    return (stats.in_flight, stats.queued_users, stats.queued_bytes) == (0, 0, 0) and not (
        engine.coalescer.ledger.active
        or engine.coalescer._tasks
        or engine.campaigns
        or any(engine.deadlines._buckets.values())
    )
