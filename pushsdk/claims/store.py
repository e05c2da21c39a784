"""The interface of every claim store: named entries that are put, read and listed. Knows no pushes."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.policy import check_seconds
from pushsdk._io.forks import ProcessGuard
from pushsdk._public import set_public_module

__all__ = ["PAGE", "Claim", "ClaimStore", "LoopBound", "Put"]

WEEK = 7 * 86400.0
# Below a minute a claim could expire under a send; above a year it is a mistake.
SHORTEST, LONGEST = 60.0, 366 * 86400.0
# Claims that ``scan`` reads at a time.
PAGE = 1000


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Stored under a key: the ``token`` of whoever wrote it last, and its ``record``: JSON, which no store reads."""

    token: str
    record: bytes

    def __repr__(self) -> str:
        return f"Claim(record bytes={len(self.record)})"


class Put(msgspec.Struct, frozen=True, gc=False):
    """Store ``claim`` under ``key`` if no claim is there, or one whose token is the same or among the ``expected``."""

    key: str
    claim: Claim
    expected: tuple[str, ...] = ()

    def may_replace(self, stored: Claim) -> bool:
        """Return True if the token of the stored claim is the same or an expected one."""
        return stored.token == self.claim.token or stored.token in self.expected

    def __repr__(self) -> str:
        return f"Put({self.claim!r})"


class ClaimStore(ABC):
    """The place of the claims, so that a job that is delivered twice does not push twice.

    A store of your own implements ``put``, ``get`` and, for operators, ``scan``. Keys and tokens are hexadecimal digits
    (64 and 32). An error of the store becomes the cause of a ClaimStoreError. An expired claim counts as none.

    ``claim_ttl`` is how long a claim is kept after its last change, in seconds (7 days; a minute to a year): longer
    than a job may be redelivered. It belongs to the store, for all who share one have to agree on it. ``timeout`` is
    how long the store may take before a send, and for one write after it, in seconds.

    ``at_once`` is how many changes a client makes by one call, at most 1,000: fewer for a slow store, as all of them
    have to be made within ``timeout``.
    """

    at_once: int = 1000

    def __init__(self, *, claim_ttl: float = WEEK, timeout: float = 5.0) -> None:
        """Raises ConfigurationError for a number that makes no sense."""
        self.claim_ttl: float = check_seconds("claim_ttl", claim_ttl)
        if not SHORTEST <= self.claim_ttl <= LONGEST:
            raise ConfigurationError("claim_ttl is a number of seconds from 60 (a minute) to 31622400 (a year)")
        self.timeout: float = check_seconds("timeout", timeout)

    @abstractmethod
    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        """Make up to 1,000 changes of different keys. For each, return None if it was made, else the stored claim.

        A change is made if no claim is stored, if the stored one has expired, or if its token is that of the new claim
        or an expected one. The new claim expires after ``ttl`` seconds. Each change is atomic among all who share the
        store, and durable when this returns. That the same token is as good as an expected one makes repetition
        harmless: a client of a server that asks again after a lost answer meets its own claim.
        """

    @abstractmethod
    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        """Return the stored claim of each of up to 1,000 keys, None if there is none."""

    def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        """Iterate over all keys and claims, read in pages; for operators.

        A claim that is put meanwhile may be missing. Raises ConfigurationError if the store has no way to list them.
        """
        raise ConfigurationError(f"{type(self).__name__} can't list its claims: it does not implement scan()")

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
        self._guard: ProcessGuard | None = None

    @property
    def is_inherited(self) -> bool:
        """Return True if the connections are those of the process that this one was forked from."""
        return self._guard is not None and self._guard.is_inherited

    def check(self) -> None:
        """Raises ConfigurationError in another loop than that of the first use, or on the other side of a fork."""
        loop = asyncio.get_running_loop()
        if self._guard is None:
            self._loop, self._guard = loop, ProcessGuard()
        self._guard.check("the claim store was used")
        if self._loop is not loop:
            raise ConfigurationError("the claim store is in use by another event loop: make one for each client")


set_public_module(__name__, "pushsdk.claims")
