"""The push service's operations, as data. The client's other modules take methods and paths from here."""

from typing import Literal

import msgspec

Endpoint = Literal["push", "campaigns"]


class Operation(msgspec.Struct, frozen=True):
    """One operation: the name it has in events, its method, and its path below the base URL."""

    name: Endpoint
    method: str
    path: str
    returns_body: bool = False
    """True if the caller needs the body of a 2xx response."""
    in_doubt: str = "it may have been enqueued{times}, so sending it again may push {again}"
    """The risk of calling again after an unknown outcome, for error texts."""


class Target(msgspec.Struct, frozen=True):
    """The goal of one client's operation, for error texts."""

    operation: Operation
    base_url: str
    shows_answers: bool = False
    """True if the texts quote the service's answer, which may name users."""

    def __str__(self) -> str:
        return f"{self.operation.method} {self.base_url}/{self.operation.path}"


PUSH = Operation("push", "POST", "v1/push")
CREATE_CAMPAIGN = Operation(
    "campaigns",
    "POST",
    "v1/campaigns",
    returns_body=True,
    in_doubt="it may have been created{times}: look it up, by its externalId if it has one, before you create it again",
)
