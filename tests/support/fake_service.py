"""The public fake service, extended for tests of the client's internals.

A behavior is a coroutine function of a ``Request``. The first requests get the behaviors of the script in turn.
"""

import asyncio
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from multidict import CIMultiDict

from pushsdk import AsyncPushClient
from pushsdk._core.outcome import Failure
from pushsdk.testing import FakeRequest as UsersRequest
from pushsdk.testing import FakeService as UsersService

# Of an answer, in seconds of virtual time; half of it before the service accepts the request.
LATENCY = 0.02
MESSAGE = {"title": {"en": "Hello"}}
OTHER = {"title": {"en": "Other"}}


class Request(UsersRequest):
    """A request to be met by hand. The service sets its ``evidence``, ``service`` and ``returns_body``."""

    def write(self, *, whole=True):
        self.evidence.started_writing = True
        self.evidence.written = whole

    def respond(self, status, headers=None, body=b""):
        self.evidence.status = status
        if status != 204 or self.returns_body:
            self.evidence.headers = CIMultiDict(headers or {})
            self.evidence.body = body

    @property
    def users(self):
        return self.user_ids


@dataclass(frozen=True, kw_only=True)
class _Behavior:
    """Connect, receive a part of the request or all of it, accept the request at half of the latency, respond."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    accepted: bool = False
    receives: Literal["nothing", "claimed", "part", "all"] = "all"
    failure: Failure | None = None
    after: float = 0.0
    connecting: float = 0.0
    reused: bool = False

    async def __call__(self, request):
        evidence = request.evidence
        if self.connecting:
            await asyncio.sleep(self.connecting)
        loop = asyncio.get_running_loop()
        opened = loop.time()
        if self.receives != "nothing":
            if not await request._claim_users(evidence):
                return
            if self.receives != "claimed":
                request.write(whole=self.receives == "all")
        await asyncio.sleep(self.after / 2)
        if self.accepted:
            request.service._accept(request)
        if self.failure is None and self.status is None:
            await loop.create_future()
        await asyncio.sleep(self.after / 2)
        evidence.reused = self.reused
        evidence.failure = self.failure
        evidence.reason = "" if self.failure is None else "FakeError"
        if self.status is not None:
            request.respond(self.status, self.headers, self.body)
            if 200 <= self.status < 300:
                evidence.latency = loop.time() - opened


def answer(status=204, headers=None, body=b"", *, after=LATENCY, connecting=0.0, accepted=None):
    """Read the request and respond; ``accepted`` defaults to True for a 2xx."""
    accepts = 200 <= status < 300 if accepted is None else accepted
    return _Behavior(
        status=status, headers=headers or {}, body=body, accepted=accepts, after=after, connecting=connecting
    )


def fails(failure, *, after=0.0):
    """Fail to connect, so that nothing is sent."""
    return _Behavior(failure=failure, receives="nothing", after=after)


#: Break the connection after the request was written, before accepting the request.
reset_before = functools.partial(_Behavior, failure=Failure.RESET, after=LATENCY)
#: Break the connection after accepting the request.
reset_after = functools.partial(_Behavior, failure=Failure.RESET, accepted=True, after=LATENCY)
#: Break the connection after a part of the request.
partial = functools.partial(_Behavior, failure=Failure.RESET, receives="part", after=LATENCY)
#: Never respond.
hang = _Behavior
#: Never open the connection.
unreachable = functools.partial(_Behavior, receives="nothing")
#: The connection is refused.
refused = functools.partial(_Behavior, failure=Failure.REFUSED, receives="nothing")
#: Fail on a pooled connection that was closed before the first byte. With ``receives="claimed"``, after the claim.
stale = functools.partial(_Behavior, failure=Failure.STALE, receives="nothing", reused=True)


class FakeService(UsersService):
    """The public fake service with latency, and with behaviors that may be functions."""

    def __init__(self, *script, then=None):
        super().__init__()
        self.script = list(script)
        self.then = then or answer()
        self.closed = 0

    @property
    def written(self):
        """The requests of which at least one byte has left the client."""
        return [request for request in self.requests if request.evidence.started_writing]

    @property
    def sent(self):
        """The users of each request, in order."""
        return [request.user_ids for request in self.requests]

    async def close(self):
        self.closed += 1

    async def _serve_request(self, request, evidence, *, read):
        request.__class__ = Request
        request.evidence = evidence
        request.service = self
        request.returns_body = read
        scripted = [self.script.pop(0)] if self.script else []
        behavior = scripted[0] if scripted else self.then
        if not isinstance(behavior, _Behavior) and not asyncio.iscoroutinefunction(behavior):
            behavior = behavior(request)
        try:
            await behavior(request)
        finally:
            if not request._is_sent:
                self.script[:0] = scripted


def titled(number):
    return {"title": {"en": f"number {number}"}}


def start(send):
    """Return the send as a task that logs no unretrieved error."""
    task = asyncio.get_running_loop().create_task(send)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task


async def outcome_of(send):
    """Return the receipt, the PushError or the CancelledError of a send, started or not."""
    task = asyncio.ensure_future(send)
    await asyncio.wait([task])
    return asyncio.CancelledError() if task.cancelled() else task.exception() or task.result()


def client_of(service, *, retry_tokens=None, **options):
    """A client of this service, opened in the running loop, with this retry budget."""
    options = {"base_url": "https://push.example/api", "api_key": "secret-key", **options}
    client = service.serve(AsyncPushClient(**options))
    engine = client._lifetime.enter()
    if retry_tokens is not None:
        engine.sender.budget.tokens = retry_tokens
    return client


def idle(client):
    """Return True if the client has nothing queued or in flight."""
    stats = client.stats()
    engine = client._lifetime.engine
    return (stats.in_flight, stats.queued_users, stats.queued_bytes) == (0, 0, 0) and not (
        engine.work.calls or engine.work.others or any(engine.timers._buckets.values())
    )
