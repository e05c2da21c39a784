"""A fake for sending requests: the push service without a socket, for a real `AsyncPushClient`.

The fake has the emulator's faults, leaves the client the same evidence as a connection would, and counts what it
accepted.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Unpack

import msgspec
from multidict import CIMultiDict

from pushsdk._core.errors import warn_caller
from pushsdk._core.kinds import check
from pushsdk._core.operations import CREATE_CAMPAIGN, PUSH
from pushsdk._core.outcome import Evidence, Failure
from pushsdk._core.words import count as counted
from pushsdk._io.request import ApiRequest, Claim
from pushsdk._io.threads import inline
from pushsdk.client import AsyncPushClient
from pushsdk.emulator.faults import UNCONNECTED, Fault, FaultDecision, Rules, headers_of
from pushsdk.options import ClientOptions

_BASE_URL = "https://push.example/external/api"
_ENDLESS = {"hang", "unreachable"}
_FAILURES = {
    "refused": Failure.REFUSED,
    "reset_before": Failure.RESET,
    "reset_after": Failure.RESET,
    "truncated": Failure.DISCONNECTED,
}


class FakeRequest:
    """A request that the fake service received: ``path`` is ``"v1/push"`` or ``"v1/campaigns"``, ``body`` its bytes.

    ``started`` and ``ended`` are event loop times, ``accepted`` says if the service accepted the request.
    ``headers`` are the headers for this request alone, such as ``traceparent``.
    """

    def __init__(self, path: str, body: bytes, api_key: str, headers: Mapping[str, str] | None, claim: Claim) -> None:
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
    def traits(self) -> tuple[str, tuple[str, ...], int]:
        """The endpoint, the users and the size, which the fault conditions look at."""
        return self.path.removeprefix("v1/"), self.user_ids, len(self.body)

    @property
    def content(self) -> bytes:
        """The message and the custom fields as canonical JSON."""
        return msgspec.json.encode((self.message, self.custom_fields), order="deterministic")

    def __repr__(self) -> str:
        return f"FakeRequest({self.path!r}, users={len(self.user_ids)}, accepted={self.accepted})"

    async def _claim_users(self, evidence: Evidence) -> bool:
        """Claim the users, as a client does once it is connected. Return False if no user is left to send to."""
        self._is_sent = False
        body = await self._claim()
        if body is None:
            evidence.failure = Failure.UNCLAIMED
            return False
        self._is_sent = True
        if body is not self.body:
            self._set_body(body)
        return True


_Then = Callable[[FakeRequest], Fault | None]


class FakeService:
    """The push service without a socket. ``client()`` returns a real client that sends to this service.

    The faults are tried in order, with draws from ``seed``, as the emulator tries them (see `Fault`). A request that
    none of them ends is accepted, or has the fault that ``then`` returns, a function of the request. If ``then``
    raises, for example by a failed assertion, closing the client raises that again. In a test under `virtual_time`,
    delays take no time.
    """

    __slots__ = ("_error", "_rules", "_tally", "_then", "in_flight", "most_in_flight", "requests")

    def __init__(
        self, *faults: Fault, then: Callable[[FakeRequest], Fault | None] | None = None, seed: int = 0
    ) -> None:
        check("then", then, _Then | None, ValueError)
        self._rules = Rules(faults, seed=seed, connected=False)
        self._then: _Then | None = then
        #: All requests, oldest first.
        self.requests: list[FakeRequest] = []
        self.in_flight: int = 0
        self.most_in_flight: int = 0
        self._tally: Counter[str] = Counter()
        self._error: Exception | None = None

    def client(
        self, *, base_url: str = _BASE_URL, api_key: str = "fake-key", **options: Unpack[ClientOptions]
    ) -> AsyncPushClient:
        """Return a client for this service, for ``async with``. The options are the same as AsyncPushClient's."""
        return self.serve(AsyncPushClient(base_url, api_key, **options))

    def serve(self, client: AsyncPushClient) -> AsyncPushClient:
        """Connect a client to this service, whatever its base_url. Raises ConfigurationError after its first call."""
        client._lifetime.serve(self, offload=inline)  # virtual time has no threads
        return client

    def accepted(self, user_id: str) -> int:
        """Return how many pushes to this user were accepted."""
        return self._tally[user_id]

    def users(self) -> Mapping[str, int]:
        """Return how many pushes to each user were accepted, for those with any."""
        return dict(self._tally)

    def duplicates(self) -> Mapping[str, int]:
        """Return the users to whom the same push was accepted more than once, and the highest count for each."""
        same = Counter((user, push.content) for push in self.pushes for user in push.user_ids)
        # The rarest first, so that the highest count of a user stays.
        return {user: count for (user, _), count in reversed(same.most_common()) if count > 1}

    @property
    def pushes(self) -> Sequence[FakeRequest]:
        """The accepted pushes, oldest first."""
        return [request for request in self.requests if request.accepted and request.path == PUSH.path]

    @property
    def campaigns(self) -> Sequence[FakeRequest]:
        """The accepted campaigns, oldest first."""
        return [request for request in self.requests if request.accepted and request.path == CREATE_CAMPAIGN.path]

    fast = None

    async def post(self, sent: ApiRequest) -> None:
        """Receive a request; called by the client."""
        operation, evidence, span = sent.operation, sent.evidence, sent.flight.span
        evidence.touched = True
        headers = None if span is None else span.headers
        request = FakeRequest(operation.path, sent.body, sent.key.reveal(), headers, sent.prepare)
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            with nullcontext() if span is None else span.current():
                await self._serve_request(request, evidence, read=operation.returns_body)
        finally:
            if not request._is_sent:
                # No byte left the client, so the service never saw the request.
                self.requests.remove(request)
            request.ended = asyncio.get_running_loop().time()
            self.in_flight -= 1

    async def close(self) -> None:
        """Raise what ``then`` raised first, and warn about faults that never fired. Called by the client.

        The code under test may have handled such a request's outcome. A fault with a probability may not fire.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        rules = self._rules.rules.values()
        idle = [str(rule.fault) for rule in rules if not rule.hits and rule.fault.probability is None]
        if idle:
            warn_caller(f"{counted(len(idle), 'fault')} of the FakeService never fired: {', '.join(idle)}")

    async def _serve_request(self, request: FakeRequest, evidence: Evidence, *, read: bool) -> None:
        """Let the request meet its fault. Without ``read`` the client does not read a 204's body."""
        loop = asyncio.get_running_loop()
        decision, opened = self._rules.decide(*request.traits, connecting=True), loop.time()  # before it claims users
        if decision.fault is None:
            received = await self._receive(request, evidence)
            if received is None:
                return
            decision = received
        fault, delay = decision.fault, decision.delay
        evidence.started_writing = evidence.written = fault is None or fault.fault not in UNCONNECTED
        if fault is None or fault.accepts:
            self._accept(request, delay)
        await asyncio.sleep(delay)
        await _observe(request, fault, evidence, read=read)
        if evidence.status is not None and 200 <= evidence.status < 300:
            evidence.latency = loop.time() - opened

    async def _receive(self, request: FakeRequest, evidence: Evidence) -> FaultDecision | None:
        """Return the fate of a request over an open connection, None if it has no users left or ``then`` raised."""
        if not await request._claim_users(evidence):
            return None
        decision = self._rules.decide(*request.traits)
        if decision.fault is not None or self._then is None:
            return decision
        try:
            fault = self._then(request)
            check("the fault of then", fault, Fault | None, ValueError)
        except Exception as error:  # noqa: BLE001 - any error from a test's function is shown to the test
            evidence.started_writing, evidence.failure, evidence.error = True, Failure.OTHER, error
            evidence.reason = f"then raised {type(error).__name__}: {error}".partition("\n")[0]
            self._error = self._error or error
            return None
        if fault is not None and fault.seconds is not None:
            return FaultDecision(decision.delay + fault.seconds)
        return FaultDecision(decision.delay, fault)

    def _accept(self, request: FakeRequest, delay: float = 0.0) -> None:
        """Accept the request now or later, even if the client gives up before."""
        if delay:
            asyncio.get_running_loop().call_later(delay, self._accept, request)
            return
        request.accepted = True
        self._tally.update(request.user_ids)


async def _observe(request: FakeRequest, fault: Fault | None, evidence: Evidence, *, read: bool) -> None:
    """Record the evidence that the client observes."""
    if fault is not None and fault.fault in _ENDLESS:
        await asyncio.get_running_loop().create_future()
    if fault is not None and fault.fault in _FAILURES and fault.at != "body":
        evidence.failure, evidence.reason = _FAILURES[fault.fault], "FakeError"
        return
    evidence.status, headers, body = _answer(request, fault)
    if evidence.status != 204 or read:
        evidence.headers, evidence.body = headers, body


def _answer(request: FakeRequest, fault: Fault | None) -> tuple[int, CIMultiDict[str], bytes]:
    if fault is not None:
        return fault.code or 200, headers_of(fault), fault.body.encode()
    if request.path == PUSH.path:
        return 204, CIMultiDict(), b""
    body = b'{"uuid": "%b"}' % str(uuid.uuid4()).encode()
    return 200, CIMultiDict({"Content-Type": "application/json"}), body
