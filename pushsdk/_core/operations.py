"""The operations of the push service, as data. Other modules of the client take methods and paths from here."""

from __future__ import annotations

from typing import Literal

import msgspec

Endpoint = Literal["push", "campaigns"]


class Operation(msgspec.Struct, frozen=True, eq=False):
    """One operation: the name it has in events, its method, and its path below the base URL."""

    name: Endpoint
    method: str
    path: str
    returns_body: bool = False
    """True if the caller needs the body of a 2xx response."""


PUSH = Operation("push", "POST", "v1/push")
CREATE_CAMPAIGN = Operation("campaigns", "POST", "v1/campaigns", returns_body=True)
OPERATIONS: dict[Endpoint, Operation] = {operation.name: operation for operation in (PUSH, CREATE_CAMPAIGN)}
