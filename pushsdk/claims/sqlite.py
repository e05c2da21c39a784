"""Claims in a file of SQLite: for the processes of one machine."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pushsdk._core.errors import ConfigurationError
from pushsdk._public import set_public_module
from pushsdk._sqlite import FileFormat, FileRefused, open_database
from pushsdk.claims._blocking import Blocking
from pushsdk.claims.store import PAGE, Claim, ClaimStore, Put

__all__ = ["SqliteClaims"]

# Several processes may make the table at the same time.
FORMAT = FileFormat(
    name="claim store",
    application_id=0x70636C61,  # "pcla"
    version=1,
    schema="""
CREATE TABLE IF NOT EXISTS claims(
    key TEXT PRIMARY KEY,
    token TEXT NOT NULL,
    record BLOB NOT NULL,
    expires REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claims_by_expiry ON claims(expires);
""",
)
# Seconds between two looks for what has expired, and rows that go at a time: so many hold nobody up.
SWEEP_EVERY, SWEPT = 60.0, 1000

_FIND = "SELECT token, record FROM claims WHERE key = ? AND expires > ?"
_PUT = "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)"
_PAGE = "SELECT key, token, record FROM claims WHERE key > ? AND expires > ? ORDER BY key LIMIT ?"
_SWEEP = "DELETE FROM claims WHERE key IN (SELECT key FROM claims WHERE expires <= ? LIMIT ?)"


class SqliteClaims(ClaimStore):
    """Claims in the file at ``path``, made where there is none (mode 0600, with a write-ahead log beside it).

    Any number of processes of one machine may share the file; not over a network's file system. The claims of a call
    share a commit. A claim survives the death of the process; ``durable`` syncs it to the disk as well, for a loss of
    power. Expiry goes by the clock of the system. Nothing is opened before the first use.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durable: bool = False,
        claim_ttl: float = 7 * 86400.0,
        timeout: float = 5.0,
    ) -> None:
        """See ``ClaimStore`` for ``claim_ttl`` and ``timeout``."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        self._path = Path(path).absolute()
        make = functools.partial(_File, self._path, durable=durable, timeout=self.timeout)
        self._blocking = Blocking(make, most=1)

    def __repr__(self) -> str:
        return f"SqliteClaims({str(self._path)!r})"

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        return await self._blocking.do(lambda file: file.put(puts, ttl))

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        return await self._blocking.do(lambda file: file.get(keys))

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        last = ""
        while rows := await self._blocking.do(functools.partial(_File.page, last=last)):
            for key, claim in rows:
                yield key, claim
            last = key

    async def aclose(self) -> None:
        """Close the file, after what is being written; wait for that no longer than ``timeout`` seconds."""
        await self._blocking.aclose(self.timeout)


class _File:
    """The open file."""

    def __init__(self, path: Path, *, durable: bool, timeout: float) -> None:
        self._swept = 0.0
        try:
            self._db = open_database(path, FORMAT, timeout=timeout)
        except FileRefused as error:
            raise ConfigurationError(f"the file of the claim store can't be used: {error}") from None
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")

    def close(self) -> None:
        self._db.close()

    def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        """See ``ClaimStore.put``; all in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            now = time.time()
            answers = [self._put(put, ttl, now) for put in puts]
            self._sweep(now)
            self._db.execute("COMMIT")
            return answers
        finally:
            self._db.rollback()  # what was not committed

    def get(self, keys: Sequence[str]) -> list[Claim | None]:
        """See ``ClaimStore.get``."""
        now = time.time()
        return [self._find(key, now) for key in keys]

    def page(self, last: str) -> list[tuple[str, Claim]]:
        """Return the next claims by key, after this one."""
        rows = self._db.execute(_PAGE, (last, time.time(), PAGE)).fetchall()
        return [(key, Claim(token, record)) for key, token, record in rows]

    def _put(self, put: Put, ttl: float, now: float) -> Claim | None:
        stored = self._find(put.key, now)
        if stored is not None and not put.may_replace(stored):
            return stored
        self._db.execute(_PUT, (put.key, put.claim.token, put.claim.record, now + ttl))
        return None

    def _find(self, key: str, now: float) -> Claim | None:
        row = self._db.execute(_FIND, (key, now)).fetchone()
        return None if row is None else Claim(*row)

    def _sweep(self, now: float) -> None:
        if now >= self._swept + SWEEP_EVERY and self._db.execute(_SWEEP, (now, SWEPT)).rowcount < SWEPT:
            self._swept = now


set_public_module(__name__, "pushsdk.claims")
