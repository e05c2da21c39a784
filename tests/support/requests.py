"""Requests for a transport that no client made."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from pushsdk import RetryPolicy, Timeout
from pushsdk._core.operations import PUSH, Operation
from pushsdk._core.outcome import Evidence
from pushsdk._core.policy import Options
from pushsdk._io.request import Claim, ClaimedRequest, Flight, WholePart

__all__ = ["request_of"]


def request_of(
    body: bytes,
    evidence: Evidence,
    operation: Operation = PUSH,
    *,
    connect: float | None = None,
    span: Any = None,
    claim: Claim | None = None,
) -> ClaimedRequest:
    """Return a request that fills this evidence. ``claim`` returns the body to send."""

    async def claim_part(part: WholePart) -> tuple[WholePart, bytes | None]:
        return part, await claim()

    request = ClaimedRequest(
        operation,
        body,
        WholePart((), users=1),
        Options(RetryPolicy.none(), Timeout(total=None, attempt=None, connect=connect)),
        deadline=math.inf,
        evidence=evidence,
        claim=None if claim is None else SimpleNamespace(claim=claim_part),
    )
    request.flight = Flight(None, math.inf, span=span)
    return request
