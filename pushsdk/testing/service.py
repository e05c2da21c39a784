"""A fake of the first effect, sending a request: the service without a socket, for a real `AsyncPushClient`.

It behaves by script, leaves the client the evidence that a connection would have left, and knows whom it accepted.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, Unpack

import msgspec
from msgspec import Struct
from multidict import CIMultiDict

from pushsdk._core.address import HeaderSecret
from pushsdk._core.outcome import Evidence, Failure
from pushsdk._io.fast_post import Claim
from pushsdk._io.tracing import AttemptSpan
from pushsdk._public import set_public_module
from pushsdk.client import AsyncPushClient
from pushsdk.options import ClientOptions

__all__ = ["FakeRequest", "FakeResponse", "FakeService"]

_BASE_URL = "https://push.example/external/api"  # nobody is asked there
_PUSH, _CAMPAIGNS = "v1/push", "v1/campaigns"


class FakeResponse(Struct, frozen=True, kw_only=True):
    """What becomes of one request, made by one of the methods below, named like those of `pushsdk.emulator.Fault`.

    ``after`` is how many seconds it takes; half of it passes before the service accepts the request.
    """

    code: int | None = None
    usual: bool = False
    """Whether the answer is the one that the interface shows, rather than ``code``."""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    accepted: bool = False
    """Whether the service takes the request, whatever is answered."""
    leaves: Literal["nothing", "part", "all"] = "all"
    """How much of the request leaves the client."""
    failure: Failure | None = None
    """Why no answer comes; without it and a ``code`` nothing happens for ever."""
    after: float = 0.0
    connecting: float = 0.0
    reused: bool = False

    @staticmethod
    def accept(*, after: float = 0.0) -> "FakeResponse":
        """Accept the request: 204 for a push, 200 and a uuid for a campaign (sections 4.1, 4.2)."""
        return FakeResponse(code=204, usual=True, accepted=True, after=after)

    @staticmethod
    def status(
        code: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        accepted: bool | None = None,
        after: float = 0.0,
    ) -> "FakeResponse":
        """Answer with this status; ``accepted`` says whether after accepting (by default a 2xx did, others did not)."""
        return FakeResponse(
            code=code,
            headers=headers or {},
            body=body.encode() if isinstance(body, str) else body,
            accepted=200 <= code < 300 if accepted is None else accepted,
            after=after,
        )

    @staticmethod
    def refused(*, after: float = 0.0) -> "FakeResponse":
        """The connection is refused: nothing was sent, and the client can prove it."""
        return FakeResponse(failure=Failure.REFUSED, leaves="nothing", after=after)

    @staticmethod
    def reset_before(*, after: float = 0.0) -> "FakeResponse":
        """The connection breaks once all was sent, and nothing was accepted. The client can't know that."""
        return FakeResponse(failure=Failure.RESET, after=after)

    @staticmethod
    def reset_after(*, after: float = 0.0) -> "FakeResponse":
        """The request is accepted, then the connection breaks. The client can't know that either."""
        return FakeResponse(failure=Failure.RESET, accepted=True, after=after)

    @staticmethod
    def hang(*, accepted: bool = False) -> "FakeResponse":
        """All was sent, and no answer comes, ever: the client's timeouts end it."""
        return FakeResponse(accepted=accepted)

    @staticmethod
    def unreachable() -> "FakeResponse":
        """Not even a connection comes about: nothing is sent, the client's timeouts end it."""
        return FakeResponse(leaves="nothing")


class FakeRequest:
    """One request as the fake service got it: ``path`` is ``"v1/push"`` or ``"v1/campaigns"``, ``body`` its bytes.

    ``started`` and ``ended`` are times of the event loop, ``accepted`` says whether the service took it; ``headers``
    are those that this request alone had, such as a ``traceparent``.
    """

    def __init__(
        self,
        path: str,
        body: bytes,
        api_key: str,
        *,
        evidence: Evidence,
        read: bool,
        tally: Counter[str],
        headers: Mapping[str, str] | None = None,
        claim: Claim | None = None,
    ) -> None:
        self.path = path
        self.api_key = api_key
        self.headers: Mapping[str, str] = headers or {}
        self._set_body(body)
        self.started: float = asyncio.get_running_loop().time()
        self.ended: float | None = None  # set by the service, however it ends
        self.accepted: bool = False  # set by _take
        self._evidence = evidence
        self._read = read
        self._tally = tally
        self._claim = claim
        # False while the client claims its users, and after a claim that was refused or cut short.
        self._is_sent = True

    def _set_body(self, body: bytes) -> None:
        content = msgspec.json.decode(body)
        self.body: bytes = body
        self.user_ids: tuple[str, ...] = tuple(content.get("userIds", ()))
        self.message: dict[str, Any] = content.get("message", {})
        self.custom_fields: dict[str, Any] | None = content.get("customFields")

    @property
    def content(self) -> bytes:
        """The message and the custom fields, equal for equal content."""
        return msgspec.json.encode((self.message, self.custom_fields), order="deterministic")

    def __repr__(self) -> str:
        return f"FakeRequest({self.path!r}, users={len(self.user_ids)}, accepted={self.accepted})"

    async def _meet(self, answer: FakeResponse) -> None:
        """Do as the answer says."""
        if answer.connecting:
            await asyncio.sleep(answer.connecting)
        if answer.leaves != "nothing":
            if not await self._is_claimed():
                return
            self._write(whole=answer.leaves == "all")
        if answer.failure is None and answer.code is None:
            self._take(answer)
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(answer.after / 2)
        self._take(answer)
        await asyncio.sleep(answer.after / 2)
        if answer.usual and self.path == _CAMPAIGNS:
            self._respond(200, {"Content-Type": "application/json"}, b'{"uuid": "%b"}' % str(uuid.uuid4()).encode())
        elif answer.code is not None:
            self._respond(answer.code, answer.headers, answer.body)
        self._evidence.reused = answer.reused
        self._evidence.failure = answer.failure
        self._evidence.reason = "" if answer.failure is None else "FakeError"

    async def _is_claimed(self) -> bool:
        """Claim the users, as a client does once it has a connection. False if nothing is to be sent."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self._is_sent = False
            body = await claim()
            if body is None:
                self._evidence.failure = Failure.UNCLAIMED
                return False
            self._is_sent = True
            self._set_body(body)
        return True

    def _take(self, answer: FakeResponse) -> None:
        """The truth: whether the service accepts it."""
        if answer.accepted:
            self.accepted = True
            self._tally.update(self.user_ids)

    def _write(self, *, whole: bool = True) -> None:
        """Bytes leave: all of them, or some."""
        self._evidence.started_writing = True
        self._evidence.written = whole

    def _respond(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """The answer's head and body."""
        evidence = self._evidence
        evidence.status = status
        if status != 204 or self._read:
            evidence.headers = CIMultiDict(headers or {})
            evidence.body = body


class FakeService:
    """The push service without a socket: its ``client()`` is a real client that sends to it.

    The first requests meet the ``answers`` in turn, all others ``then``, a `FakeResponse` or a function of the request
    that gives one. In a test under `virtual_time` its waits, and the client's, take no time.
    """

    _request: type[FakeRequest] = FakeRequest

    def __init__(
        self, *answers: FakeResponse, then: FakeResponse | Callable[[FakeRequest], FakeResponse] | None = None
    ) -> None:
        self._answers = list(answers)
        self._then: FakeResponse | Callable[[FakeRequest], FakeResponse] = then or FakeResponse.accept()
        #: Every request, in the order they came.
        self.requests: list[FakeRequest] = []
        self.in_flight: int = 0
        self.most_in_flight: int = 0
        self._tally: Counter[str] = Counter()

    def client(
        self, *, base_url: str = _BASE_URL, api_key: str = "fake-key", **options: Unpack[ClientOptions]
    ) -> AsyncPushClient:
        """Return a client of this service, for ``async with``. Its options are AsyncPushClient's."""
        return self.serve(AsyncPushClient(base_url, api_key, **options))

    def serve(self, client: AsyncPushClient) -> AsyncPushClient:
        """Have a client send to this service, whatever its address; before it is used for the first time."""
        client._engine.serve(self, offload=_at_once)
        return client

    def accepted(self, user_id: str) -> int:
        """How many pushes to this user were accepted."""
        return self._tally[user_id]

    def users(self) -> Mapping[str, int]:
        """Every user with an accepted push, and how many."""
        return dict(self._tally)

    def duplicates(self) -> Mapping[str, int]:
        """Return the users to whom the same push was accepted more than once, and how often at most."""
        same: Counter[str] = Counter()
        for (user, _), count in Counter((user, push.content) for push in self.pushes for user in push.user_ids).items():
            same[user] = max(same[user], count)
        return {user: count for user, count in same.items() if count > 1}

    @property
    def pushes(self) -> Sequence[FakeRequest]:
        """The accepted pushes, in the order they came."""
        return [request for request in self.requests if request.accepted and request.path == _PUSH]

    @property
    def campaigns(self) -> Sequence[FakeRequest]:
        """The accepted campaigns, in the order they came."""
        return [request for request in self.requests if request.accepted and request.path == _CAMPAIGNS]

    async def post(
        self,
        path: str,
        body: bytes,
        key: HeaderSecret,
        evidence: Evidence,
        *,
        connect: float | None,
        read: bool,
        watched: AttemptSpan | None = None,
        claim: Claim | None = None,
    ) -> None:
        """Take a request; for the client."""
        evidence.touched = True
        headers = None if watched is None else watched.headers
        request = self._request(
            path, body, str(key), evidence=evidence, read=read, tally=self._tally, headers=headers, claim=claim
        )
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            with nullcontext() if watched is None else watched.current():
                await self._answer(request)
        finally:
            if not request._is_sent:
                # Nothing of it left the client: it never came.
                self.requests.remove(request)
            request.ended = asyncio.get_running_loop().time()
            self.in_flight -= 1

    async def close(self) -> None:
        """Nothing is open; for the client."""

    async def _answer(self, request: FakeRequest) -> None:
        scripted = self._answers.pop(0) if self._answers else None
        answer = scripted or self._then
        try:
            if isinstance(answer, FakeResponse):
                await request._meet(answer)
            elif await request._is_claimed():
                # It is asked about the users who are sent to, so they are claimed before.
                await request._meet(answer(request))
        finally:
            if not request._is_sent and scripted is not None:
                self._answers.insert(0, scripted)


async def _at_once(work: Callable[[], Any]) -> Any:
    """Blocking work without a thread: there is none on virtual time."""
    return work()


set_public_module(__name__, "pushsdk.testing")
