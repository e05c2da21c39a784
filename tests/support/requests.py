"""Requests for a transport that no client made."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from pushsdk import RetryPolicy, Timeout
from pushsdk._core.operations import PUSH, Operation
from pushsdk._core.outcome import Evidence
from pushsdk._io.fast_post import Claim
from pushsdk._io.transport import ApiRequest

__all__ = ["request_of"]


def request_of(
    body: bytes,
    evidence: Evidence,
    operation: Operation = PUSH,
    *,
    connect: float | None = None,
    span: Any = None,
    claim: Claim | None = None,
) -> ApiRequest:
    """Return a request that fills this evidence."""
    return ApiRequest(
        operation=operation,
        body=body,
        users=1,
        policy=RetryPolicy.none(),
        timeout=Timeout(total=None, attempt=None, connect=connect),
        deadline=math.inf,
        evidence=evidence,
        span=span,
        claim=None if claim is None else SimpleNamespace(claim=claim),
    )
