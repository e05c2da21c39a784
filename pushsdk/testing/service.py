"""A fake of sending requests: the push service without a socket, for a real `AsyncPushClient`.

The fake follows a script, leaves the client the same evidence as a connection would, and counts what it accepted.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Annotated, Any, Literal, TypeAlias, Unpack

import msgspec
from msgspec import Meta, Struct
from multidict import CIMultiDict

from pushsdk._core.address import HeaderSecret
from pushsdk._core.checks import NumberOfSeconds, check, check_calls, check_fields, with_retry_after
from pushsdk._core.errors import warn_caller
from pushsdk._core.operations import CREATE_CAMPAIGN, PUSH
from pushsdk._core.outcome import Evidence, Failure
from pushsdk._core.words import count as counted
from pushsdk._io.fast_post import Claim
from pushsdk._io.transport import ApiRequest
from pushsdk.client import AsyncPushClient
from pushsdk.options import ClientOptions

_BASE_URL = "https://push.example/external/api"


@check_calls
class FakeResponse(Struct, frozen=True, kw_only=True):
    """The fate of one request. Make it with the methods below, named like those of `pushsdk.emulator.Fault`.

    ``after`` is the latency in seconds; the service accepts the request after half of it.
    """

    code: Annotated[int, Meta(ge=200, le=999)] | None = None
    usual: bool = False
    """True for the documented response, which is 200 with a uuid for a campaign; else ``code`` is the status."""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    accepted: bool = False
    """True if the service accepts the request, whatever the response."""
    leaves: Literal["nothing", "part", "all"] = "all"
    """The part of the request that leaves the client."""
    failure: Failure | None = None
    """The failure instead of a response. Without a failure and a ``code``, the request hangs."""
    after: NumberOfSeconds = 0.0
    connecting: NumberOfSeconds = 0.0
    """Seconds until the connection is open."""
    reused: bool = False

    def __post_init__(self) -> None:
        __tracebackhide__ = True  # by pytest
        check_fields(self)

    @staticmethod
    def accept(*, after: NumberOfSeconds = 0.0) -> "FakeResponse":
        """Accept the request: 204 for a push, 200 and a uuid for a campaign."""
        return FakeResponse(code=204, usual=True, accepted=True, after=after)

    @staticmethod
    def status(
        code: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        retry_after: int | None = None,
        accepted: bool | None = None,
        after: NumberOfSeconds = 0.0,
    ) -> "FakeResponse":
        """Respond with this status. ``accepted`` says if the service accepts the request (default: if 2xx).

        ``retry_after``, in seconds, is sent as the header Retry-After.
        """
        return FakeResponse(
            code=code,
            headers=with_retry_after(headers, retry_after),
            body=body.encode() if isinstance(body, str) else body,
            accepted=200 <= code < 300 if accepted is None else accepted,
            after=after,
        )

    @staticmethod
    def refused(*, after: NumberOfSeconds = 0.0) -> "FakeResponse":
        """Refuse the connection: nothing was sent, and the client can prove it."""
        return FakeResponse(failure=Failure.REFUSED, leaves="nothing", after=after)

    @staticmethod
    def reset_before(*, after: NumberOfSeconds = 0.0) -> "FakeResponse":
        """Reset the connection before accepting the request. The client can't tell this from ``reset_after``."""
        return FakeResponse(failure=Failure.RESET, after=after)

    @staticmethod
    def reset_after(*, after: NumberOfSeconds = 0.0) -> "FakeResponse":
        """Accept the request, then reset the connection. The client can't tell this from ``reset_before``."""
        return FakeResponse(failure=Failure.RESET, accepted=True, after=after)

    @staticmethod
    def hang(*, accepted: bool = False) -> "FakeResponse":
        """Receive the request and never respond: it ends by the client's timeouts."""
        return FakeResponse(accepted=accepted)

    @staticmethod
    def unreachable() -> "FakeResponse":
        """Never open the connection: nothing is sent, and the request ends by the client's timeouts."""
        return FakeResponse(leaves="nothing")


class FakeRequest:
    """A request that the fake service received: ``path`` is ``"v1/push"`` or ``"v1/campaigns"``, ``body`` its bytes.

    ``started`` and ``ended`` are times of the event loop, ``accepted`` says if the service accepted the request.
    ``headers`` are those of this request alone, such as ``traceparent``.
    """

    def __init__(
        self, path: str, body: bytes, api_key: str, headers: Mapping[str, str] | None, claim: Claim | None
    ) -> None:
        self.path = path
        self.api_key = api_key
        self.headers: Mapping[str, str] = headers or {}
        self._set_body(body)
        self.started: float = asyncio.get_running_loop().time()
        self.ended: float | None = None  # set by the service, even if the request fails
        self.accepted: bool = False  # set by the service
        self._claim = claim
        # False while the client claims the users, and after a claim that was refused or cancelled.
        self._is_sent = True

    def _set_body(self, body: bytes) -> None:
        content = msgspec.json.decode(body)
        self.body: bytes = body
        self.user_ids: tuple[str, ...] = tuple(content.get("userIds", ()))
        self.message: dict[str, Any] = content.get("message", {})
        self.custom_fields: dict[str, Any] | None = content.get("customFields")

    @property
    def content(self) -> bytes:
        """The message and the custom fields as canonical JSON."""
        return msgspec.json.encode((self.message, self.custom_fields), order="deterministic")

    def __repr__(self) -> str:
        return f"FakeRequest({self.path!r}, users={len(self.user_ids)}, accepted={self.accepted})"

    async def _claim_users(self, evidence: Evidence) -> bool:
        """Claim the users, as a client does once it is connected. Return False if no user is left to send to."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self._is_sent = False
            body = await claim()
            if body is None:
                evidence.failure = Failure.UNCLAIMED
                return False
            self._is_sent = True
            if body is not self.body:
                self._set_body(body)
        return True


_Then: TypeAlias = FakeResponse | Callable[[FakeRequest], FakeResponse]


@check_calls
class FakeService:
    """The push service without a socket. ``client()`` returns a real client that sends to this service.

    The first requests get the ``responses`` in turn, all others get ``then``: a `FakeResponse`, or a function of the
    request that returns one. What that raises, such as a failed assertion, is raised again when the client is closed.
    In a test under `virtual_time`, latencies and the client's delays take no time.
    """

    __slots__ = ("_error", "_responses", "_tally", "_then", "in_flight", "most_in_flight", "requests")

    def __init__(
        self, *responses: FakeResponse, then: FakeResponse | Callable[[FakeRequest], FakeResponse] | None = None
    ) -> None:
        self._responses = list(responses)
        self._then: _Then = then or FakeResponse.accept()
        #: All requests, oldest first.
        self.requests: list[FakeRequest] = []
        self.in_flight: int = 0
        self.most_in_flight: int = 0
        self._tally: Counter[str] = Counter()
        self._error: Exception | None = None

    def client(
        self, *, base_url: str = _BASE_URL, api_key: str = "fake-key", **options: Unpack[ClientOptions]
    ) -> AsyncPushClient:
        """Return a client of this service, for ``async with``. The options are those of AsyncPushClient."""
        return self.serve(AsyncPushClient(base_url, api_key, **options))

    def serve(self, client: AsyncPushClient) -> AsyncPushClient:
        """Connect a client to this service, whatever its base_url. Raises ConfigurationError after its first call."""
        client._lifetime.serve(self, offload=_run_inline)
        return client

    def accepted(self, user_id: str) -> int:
        """Return the number of accepted pushes to this user."""
        return self._tally[user_id]

    def users(self) -> Mapping[str, int]:
        """Return the number of accepted pushes of each user that has any."""
        return dict(self._tally)

    def duplicates(self) -> Mapping[str, int]:
        """Return the users to whom the same push was accepted more than once, and the highest count of each."""
        same: Counter[str] = Counter()
        for (user, _), count in Counter((user, push.content) for push in self.pushes for user in push.user_ids).items():
            same[user] = max(same[user], count)
        return {user: count for user, count in same.items() if count > 1}

    @property
    def pushes(self) -> Sequence[FakeRequest]:
        """The accepted pushes, oldest first."""
        return [request for request in self.requests if request.accepted and request.path == PUSH.path]

    @property
    def campaigns(self) -> Sequence[FakeRequest]:
        """The accepted campaigns, oldest first."""
        return [request for request in self.requests if request.accepted and request.path == CREATE_CAMPAIGN.path]

    async def post(self, sent: ApiRequest, key: HeaderSecret) -> None:
        """Receive a request; called by the client."""
        operation, evidence, span = sent.operation, sent.evidence, sent.span
        evidence.touched = True
        headers = None if span is None else span.headers
        request = FakeRequest(operation.path, sent.body, str(key), headers, sent.prepare)
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        scripted = self._responses.pop(0) if self._responses else None
        try:
            with nullcontext() if span is None else span.current():
                await self._serve_request(request, scripted or self._then, evidence, read=operation.returns_body)
        finally:
            if not request._is_sent:
                # No byte left the client, so the service never saw the request.
                self.requests.remove(request)
                self._responses[:0] = filter(None, [scripted])
            request.ended = asyncio.get_running_loop().time()
            self.in_flight -= 1

    async def close(self) -> None:
        """Raise what ``then`` raised first: the code under test may have handled its outcome. Called by the client."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        if unused := len(self._responses):
            shown = ", ".join(str(response.code or "no status") for response in self._responses)
            warn_caller(f"{counted(unused, 'response')} of the FakeService got no request: {shown}")

    async def _serve_request(self, request: FakeRequest, response: _Then, evidence: Evidence, *, read: bool) -> None:
        """Let the request meet its fate. Without ``read`` the client does not read the body of a 204."""
        if not isinstance(response, FakeResponse):
            # Claimed first, since the function is to see the users that are sent to.
            if not await request._claim_users(evidence):
                return
            try:
                response = response(request)
                check("the response of then", response, FakeResponse)
            except Exception as error:  # noqa: BLE001 - what a test's function raises is shown to the test
                evidence.started_writing, evidence.failure, evidence.error = True, Failure.OTHER, error
                evidence.reason = f"then raised {type(error).__name__}: {error}".partition("\n")[0]
                self._error = self._error or error
                return
        if response.connecting:
            await asyncio.sleep(response.connecting)
        if response.leaves != "nothing":
            if not await request._claim_users(evidence):
                return
            evidence.started_writing = True
            evidence.written = response.leaves == "all"
        await asyncio.sleep(response.after / 2)
        if response.accepted:
            request.accepted = True
            self._tally.update(request.user_ids)
        if response.failure is None and response.code is None:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(response.after / 2)
        _record(request, response, evidence, read=read)


def _record(request: FakeRequest, response: FakeResponse, evidence: Evidence, *, read: bool) -> None:
    """Record what the client observes of the response."""
    status, headers, body = response.code, response.headers, response.body
    if response.usual and request.path == CREATE_CAMPAIGN.path:
        status, headers = 200, {"Content-Type": "application/json"}
        body = b'{"uuid": "%b"}' % str(uuid.uuid4()).encode()
    evidence.status = status
    if status is not None and 200 <= status < 300:
        evidence.latency = response.after
    if status is not None and (status != 204 or read):
        evidence.headers, evidence.body = CIMultiDict(headers), body
    evidence.reused = response.reused
    evidence.failure = response.failure
    evidence.reason = "" if response.failure is None else "FakeError"


async def _run_inline(work: Callable[[], Any]) -> Any:
    """Run blocking work in the event loop: virtual time has no threads."""
    return work()
