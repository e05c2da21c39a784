"""Claims in an SQLite file: for the processes of one machine."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pushsdk._core.errors import ConfigurationError
from pushsdk._sqlite import FileFormat, FileRefused, open_database
from pushsdk.claims._blocking import BlockingResource
from pushsdk.claims.store import PAGE, SWEEP_INTERVAL, SWEEP_ROWS, WEEK, Claim, ClaimStore, Put

# IF NOT EXISTS: several processes may create the table at the same time.
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

_FIND = "SELECT token, record FROM claims WHERE key = ? AND expires > ?"
_PUT = "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)"
_PAGE = "SELECT key, token, record FROM claims WHERE key > ? AND expires > ? ORDER BY key LIMIT ?"
_SWEEP = "DELETE FROM claims WHERE key IN (SELECT key FROM claims WHERE expires <= ? LIMIT ?)"


class SqliteClaims(ClaimStore):
    """Claims in the SQLite file at ``path``, created on first use (mode 0600, with a write-ahead log beside it).

    Any number of processes of one machine may share the file; a network file system is not supported. The claims of
    a call share one commit. Claims survive the death of the process; ``durable`` also syncs each commit to disk, for a
    power loss. Claims expire by the system clock.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durable: bool = False,
        claim_ttl: float = WEEK,
        timeout: float = 5.0,
    ) -> None:
        """``claim_ttl`` and ``timeout`` are in seconds, see ``ClaimStore``."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        self._path = Path(path).absolute()
        open_file = functools.partial(_ClaimsFile, self._path, durable=durable, timeout=self.timeout)
        self._file = BlockingResource(open_file, threads=1)

    def __repr__(self) -> str:
        return f"SqliteClaims({str(self._path)!r})"

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        return await self._file.run(lambda file: file.put(puts, ttl))

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        return await self._file.run(lambda file: file.get(keys))

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        last = ""
        while page := await self._file.run(functools.partial(_ClaimsFile.page, last=last)):
            for key, claim in page:
                yield key, claim
            last = key

    async def aclose(self) -> None:
        """Close the file after pending writes; wait for them up to ``timeout`` seconds."""
        await self._file.aclose(self.timeout)


class _ClaimsFile:
    """The open file. Used in one thread."""

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
        """Make all writes in one transaction, see ``ClaimStore.put``."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            now = time.time()
            answers = [self._put(put, ttl, now) for put in puts]
            self._sweep(now)
            self._db.execute("COMMIT")
            return answers
        finally:
            self._db.rollback()  # no effect after COMMIT

    def get(self, keys: Sequence[str]) -> list[Claim | None]:
        now = time.time()
        return [self._find(key, now) for key in keys]

    def page(self, last: str) -> list[tuple[str, Claim]]:
        """Return the next claims in the order of their keys, after the key ``last``."""
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
        if now < self._swept + SWEEP_INTERVAL:
            return
        # A full deletion means that more rows have expired: continue at the next put.
        if self._db.execute(_SWEEP, (now, SWEEP_ROWS)).rowcount < SWEEP_ROWS:
            self._swept = now
