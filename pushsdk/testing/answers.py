"""What the fake service does with a request, as values: an answer, or one of the ways in which none comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from pushsdk._core.outcome import Failure

__all__ = ["Answer"]


class Answer(Struct, frozen=True, kw_only=True):
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
    def accept(*, after: float = 0.0) -> Answer:
        """Accept the request: 204 for a push, 200 and a uuid for a campaign (sections 4.1, 4.2)."""
        return Answer(code=204, usual=True, accepted=True, after=after)

    @staticmethod
    def status(
        code: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        accepted: bool | None = None,
        after: float = 0.0,
    ) -> Answer:
        """Answer with this status; ``accepted`` says whether after accepting (by default a 2xx did, others did not)."""
        return Answer(
            code=code,
            headers=headers or {},
            body=body.encode() if isinstance(body, str) else body,
            accepted=200 <= code < 300 if accepted is None else accepted,
            after=after,
        )

    @staticmethod
    def refused(*, after: float = 0.0) -> Answer:
        """The connection is refused: nothing was sent, and the client can prove it."""
        return Answer(failure=Failure.REFUSED, leaves="nothing", after=after)

    @staticmethod
    def reset_before(*, after: float = 0.0) -> Answer:
        """The connection breaks once all was sent, and nothing was accepted. The client can't know that."""
        return Answer(failure=Failure.RESET, after=after)

    @staticmethod
    def reset_after(*, after: float = 0.0) -> Answer:
        """The request is accepted, then the connection breaks. The client can't know that either."""
        return Answer(failure=Failure.RESET, accepted=True, after=after)

    @staticmethod
    def hang(*, accepted: bool = False) -> Answer:
        """All was sent, and no answer comes, ever: the client's timeouts end it."""
        return Answer(accepted=accepted)

    @staticmethod
    def unreachable() -> Answer:
        """Not even a connection comes about: nothing is sent, the client's timeouts end it."""
        return Answer(leaves="nothing")
