"""The interface for every claim store: claims are put, read and listed by key. Knows nothing of pushes."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, NoReturn, Self

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import Rule, check_seconds
from pushsdk._core.outcome import GuardedValue
from pushsdk._io.forks import ProcessGuard

logger: logging.Logger = logging.getLogger("pushsdk")

WEEK = 7 * 86400.0
# A claim under a minute could expire during its send; over a year is a mistake.
MIN_CLAIM_TTL, MAX_CLAIM_TTL = 60.0, 366 * 86400.0
ClaimTtl = Annotated[
    float,
    Rule(
        "60 (a minute) to 31622400 (a year) seconds, for example 604800",
        lambda seconds: MIN_CLAIM_TTL <= seconds <= MAX_CLAIM_TTL,
    ),
]
# Claims that ``scan`` reads at a time.
PAGE = 1000
CLOSED = "the claim store is closed: close the client first, then the store"


class Claim(GuardedValue, frozen=True, gc=False):
    """A stored claim: the ``token`` of its last writer, and its ``record``, JSON that no store reads."""

    token: str
    record: bytes


Stored = list[Claim | None]
"""The stored claim for each key, None if there is none."""


class Put(GuardedValue, frozen=True, gc=False):
    """A conditional write: store ``claim`` unless ``key`` has a claim whose token is neither equal nor ``expected``."""

    key: str
    claim: Claim
    expected: tuple[str, ...] = ()

    def may_replace(self, stored: Claim | None) -> bool:
        """Return True if nothing is stored, or if the stored token belongs to the new claim or is an expected one."""
        return stored is None or stored.token in (self.claim.token, *self.expected)


class ObjectStoreError(Exception):
    """A store failure. The text names cause and fix and is shown to callers, so it holds no address."""


class ClaimStore(ABC):
    """A claim store, shared by all processes that send, so that a job delivered twice is pushed once.

    Your own store implements ``put``, ``get`` and, for operators, ``scan``. Keys and tokens are hexadecimal digits
    (64 and 32). Any store exception becomes the cause of a ClaimStoreError. An expired claim counts as absent.

    ``claim_ttl`` is how long a claim is kept after its last change, in seconds (default 7 days; a minute to a year):
    longer than a job may be redelivered, and equal in all processes that share the store. ``timeout`` limits each
    operation, in seconds (default 5).

    ``at_once`` is the number of puts per call, at most 1,000. Lower it for a slow store: all puts in a call must
    complete within ``timeout``.
    """

    at_once: int = 1000

    def __init__(self, *, claim_ttl: float = WEEK, timeout: float = 5.0) -> None:
        """Raise ConfigurationError for values out of range."""
        self.claim_ttl: float = check_seconds("claim_ttl", claim_ttl, ClaimTtl)
        self.timeout: float = check_seconds("timeout", timeout)

    @abstractmethod
    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        """Make up to 1,000 writes of different keys. For each, return None if it was made, else the stored claim.

        A write is made if ``Put.may_replace`` is true for the stored claim; one that has expired counts as none. The
        new claim expires after ``ttl`` seconds. Each write is atomic across processes, and durable when this returns.
        Accepting the same token again makes retries harmless: a server client that retries after a lost response finds
        its own claim.
        """

    @abstractmethod
    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        """Return the stored claim of each of up to 1,000 keys, None if there is none."""

    def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        """Iterate over all keys and claims, in pages; for operators.

        Claims that are put during the scan may be missing. Raises ConfigurationError if the store cannot list claims.
        """
        raise ConfigurationError(f"{type(self).__name__} can't list its claims: implement scan()")

    async def risks(self) -> list[str]:
        """Open the store, and return one sentence for each of its settings that can lose claims. Makes no claim."""
        return []

    async def aclose(self) -> None:  # noqa: B027 - not every store has something to close
        """Close everything that the store opened. Call it after the client is closed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a claim store can't be pickled, as it holds connections: make one in each process")


Store = Annotated[ClaimStore, Rule("a claim store, for example pushsdk.claims.SqliteClaims(path)")]


async def close_store(store: ClaimStore) -> None:
    """Close a store. A failure is logged: a store's text may hold its address."""
    try:
        async with asyncio.timeout(store.timeout):
            await store.aclose()
    except Exception as error:  # noqa: BLE001 - nothing is left to do with the store
        logger.warning("the claim store could not be closed (%s)", type(error).__name__)


class LoopGuard:
    """The event loop and process in which a store's connections were opened; no other may use them."""

    def __init__(self) -> None:
        # Set by the first check.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._guard: ProcessGuard | None = None

    @property
    def is_inherited(self) -> bool:
        """Return True if a parent process opened the connections."""
        return self._guard is not None and self._guard.is_inherited

    def check(self) -> None:
        """Raise ConfigurationError in another loop than at the first check, or in a forked child."""
        loop = asyncio.get_running_loop()
        if self._guard is None:
            self._loop, self._guard = loop, ProcessGuard()
        self._guard.check("the claim store was used")
        if self._loop is not loop:
            raise ConfigurationError("the claim store is in use by another event loop: make one for each client")
