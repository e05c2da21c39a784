"""The interface of every claim store: three operations on named entries, each of them atomic. Knows no pushes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.policy import check_seconds
from pushsdk._io.clock import fork_generation

__all__ = ["Claim", "ClaimStore", "LoopBound"]

WEEK = 7 * 86400.0
# Below a minute a claim could expire under a send; above a year it is a mistake.
SHORTEST, LONGEST = 60.0, 366 * 86400.0


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Stored under a key: the ``token`` of whoever wrote it last, and its ``record``: JSON, which no store reads."""

    token: str
    record: bytes

    def __repr__(self) -> str:
        return f"Claim(record bytes={len(self.record)})"


class ClaimStore(ABC):
    """Where claims are kept, so that a job that is delivered twice does not push twice.

    A store of your own implements ``add``, ``get`` and ``swap``: atomic among all who share it, and what
    they write is written before they return. Keys and tokens are hexadecimal digits (64 and 32). What they raise
    becomes the cause of a ClaimStoreError. A claim past its time is as good as none.

    ``claim_ttl`` is how long a claim is kept after its last change, in seconds (7 days; a minute to a year): longer
    than a job may be redelivered. It belongs to the store, for all who share one have to agree on it. ``timeout`` is
    how long the store may take before a send, and for one write after it, in seconds. ``at_a_time`` is how much a
    client asks of it at the same time (1000: as many users as fill a request); set it where there are fewer
    connections. What waits for that is not on the store's time, but on the call's.
    """

    at_a_time: int = 1000

    def __init__(self, *, claim_ttl: float = WEEK, timeout: float = 5.0) -> None:
        """Raises ConfigurationError for a number that makes no sense."""
        self.claim_ttl: float = check_seconds("claim_ttl", claim_ttl)
        if not SHORTEST <= self.claim_ttl <= LONGEST:
            raise ConfigurationError("claim_ttl is a number of seconds from 60 (a minute) to 31622400 (a year)")
        self.timeout: float = check_seconds("timeout", timeout)

    @abstractmethod
    async def add(self, key: str, claim: Claim, ttl: float) -> Claim | None:
        """Store the claim for ``ttl`` seconds if there is none, and return None; else return the one that is there."""

    @abstractmethod
    async def get(self, key: str) -> Claim | None:
        """The claim that is there, or None."""

    @abstractmethod
    async def swap(self, key: str, token: str, claim: Claim, ttl: float) -> bool:
        """Put the claim in place of the one with this token, for ``ttl`` seconds from now; False where that is gone."""

    async def aclose(self) -> None:  # noqa: B027 - not every store has something to close
        """Close what the store opened itself. Call it after the client was closed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class LoopBound:
    """The one event loop, of one process, that connections were opened in."""

    def __init__(self) -> None:
        # Set at the first use.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forks = 0

    @property
    def is_inherited(self) -> bool:
        """Whether the connections are those of the process that this one was forked from: not to be touched."""
        return self._loop is not None and self._forks != fork_generation()

    def check(self) -> None:
        """Raises ConfigurationError in another loop than that of the first use, or on the other side of a fork."""
        loop = asyncio.get_running_loop()
        if self.is_inherited:
            raise ConfigurationError("the claim store was used before a fork: make one in each process")
        if self._loop is None:
            self._loop, self._forks = loop, fork_generation()
        elif self._loop is not loop:
            raise ConfigurationError("the claim store is in use by another event loop: make one for each client")
