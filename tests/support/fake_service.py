"""The public fake service, extended for tests of the client's internals.

A behavior is a coroutine function of a ``Request``, or a callable `FakeResponse`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial as partial_of
from typing import Any

from multidict import CIMultiDict

from pushsdk import AsyncPushClient
from pushsdk._core.outcome import Evidence, Failure
from pushsdk.testing import FakeRequest as UsersRequest
from pushsdk.testing import FakeResponse
from pushsdk.testing import FakeService as UsersService

__all__ = [
    "LATENCY",
    "MESSAGE",
    "OTHER",
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
    "titled",
]

# Of an answer, in seconds of virtual time; half of it before the service processes the request.
LATENCY = 0.02
MESSAGE = {"title": {"en": "Hello"}}
OTHER = {"title": {"en": "Other"}}


class Request(UsersRequest):
    """A request with its evidence, to be met by hand."""

    # Set by the service.
    evidence: Evidence
    serve: Callable[[FakeResponse], Awaitable[None]]

    def write(self, *, whole: bool = True) -> None:
        self.evidence.started_writing, self.evidence.written = True, whole

    def respond(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        self.evidence.status = status
        if status != 204:
            self.evidence.headers, self.evidence.body = CIMultiDict(headers or {}), body

    @property
    def key(self) -> str:
        return self.api_key

    @property
    def users(self) -> tuple[str, ...]:
        return self.user_ids

    @property
    def processed(self) -> bool:
        return self.accepted


class _Behaves(FakeResponse, frozen=True):
    """A response that a custom behavior can continue with."""

    async def __call__(self, request: Request) -> None:
        await request.serve(self)


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
    """Read the request and respond; ``processed`` defaults to True for a 2xx."""
    accepted = 200 <= status < 300 if processed is None else processed
    return _Behaves(
        code=status, headers=headers or {}, body=body, accepted=accepted, after=after, connecting=connecting
    )


def lost(*, processed: bool, after: float = LATENCY, failure: Failure = Failure.RESET) -> Behaviour:
    """Break the connection after the request was written, before or after processing."""
    return _Behaves(failure=failure, accepted=processed, after=after)


def hang(*, processed: bool = False, connecting: bool = False) -> Behaviour:
    """Never respond, or never open the connection."""
    return _Behaves(leaves="nothing" if connecting else "all", accepted=processed)


def fails(failure: Failure, *, after: float = 0.0) -> Behaviour:
    """Fail to connect, so that nothing is sent."""
    return _Behaves(failure=failure, leaves="nothing", after=after)


def refused(*, after: float = 0.0) -> Behaviour:
    """The connection is refused."""
    return fails(Failure.REFUSED, after=after)


def partial(*, after: float = LATENCY) -> Behaviour:
    """Break the connection after a part of the request."""
    return _Behaves(failure=Failure.RESET, leaves="part", after=after)


def stale() -> Behaviour:
    """Fail on a pooled connection that was closed before the first byte."""
    return _Behaves(failure=Failure.STALE, leaves="nothing", reused=True)


class FakeService(UsersService):
    """The public fake service with latency, and with behaviors that may be functions."""

    def __init__(self, *script: Behaviour, then: Behaviour | Callable[[Request], Behaviour] | None = None) -> None:
        super().__init__()
        self._responses, self._then = list(script), then or answer()  # type: ignore[assignment]
        self.closed = 0

    @property
    def processed(self) -> Counter[str]:
        """The true number of pushes of each user."""
        return self._tally

    @property
    def written(self) -> list[Request]:
        """The requests of which at least one byte has left the client."""
        return [request for request in self.requests if request.evidence.started_writing]

    @property
    def campaigns(self) -> int:
        """The number of created campaigns."""
        return len(super().campaigns)

    @property
    def sent(self) -> list[tuple[str, ...]]:
        """The users of each request, in order."""
        return [request.user_ids for request in self.requests]

    async def close(self) -> None:
        self.closed += 1

    async def _serve_request(self, request: Any, response: Any, evidence: Evidence, *, read: bool) -> None:
        request.__class__ = Request
        request.evidence = evidence
        request.serve = partial_of(super()._serve_request, request, evidence=evidence, read=read)
        if not isinstance(response, FakeResponse) and not asyncio.iscoroutinefunction(response):
            response = response(request)
        await response(request)


def titled(number: int) -> dict[str, dict[str, str]]:
    return {"title": {"en": f"number {number}"}}


def start(send: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Return the send as a task that logs no unretrieved error."""
    task = asyncio.get_running_loop().create_task(send)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task


async def outcome_of(task: asyncio.Future[Any]) -> Any:
    """Return the receipt, the PushError or the CancelledError of a started send."""
    await asyncio.wait([task])
    return asyncio.CancelledError() if task.cancelled() else task.exception() or task.result()


def client_of(service: FakeService, **options: Any) -> AsyncPushClient:
    """A client of this service, opened in the running loop."""
    options = {"base_url": "https://push.example/api", "api_key": "secret-key", **options}
    client = service.serve(AsyncPushClient(**options))
    client._lifetime.enter()
    return client


def idle(client: AsyncPushClient) -> bool:
    """Return True if the client has nothing queued or in flight."""
    stats = client.stats()
    engine = client._lifetime.engine
    return (stats.in_flight, stats.queued_users, stats.queued_bytes) == (0, 0, 0) and not (
        engine.pending.active or engine.queue._tasks or engine.unfinished or any(engine.timers._buckets.values())
    )
