"""Claims in an SQLite file: for processes on one machine."""

import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import check
from pushsdk._io.file_names import AnyPath, check_path
from pushsdk._io.files import folder_objection
from pushsdk._sqlite import FileFormat, FileRefused, open_database
from pushsdk._texts import text_beside
from pushsdk.claims._blocking import StoreThreads
from pushsdk.claims.store import PAGE, WEEK, Claim, ClaimStore, Put, Stored

# IF NOT EXISTS: several processes may create the table at the same time.
FORMAT = FileFormat(
    name="claim store",
    application_id=0x70636C61,  # "pcla"
    version=1,
    schema=text_beside(__name__, "sqlite.sql"),
)

_FIND = "SELECT token, record FROM claims WHERE key = ? AND expires > ?"
_PUT = "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)"
_PAGE = "SELECT key, token, record FROM claims WHERE key > ? AND expires > ? ORDER BY key LIMIT ?"
# With twice as many rows as the puts add, expired rows never pile up, and no commit takes long.
_SWEEP = "DELETE FROM claims WHERE key IN (SELECT key FROM claims WHERE expires <= ? LIMIT ?)"


class SqliteClaims(ClaimStore):
    """Claims in the SQLite file at ``path``, created on first use (mode 0600, with a write-ahead log beside it).

    Any number of processes on one machine may share the file; a network file system is not supported. The claims of
    a call share one commit. Claims survive a killed process; ``durable`` also syncs each commit to disk, for a
    power loss. Claims expire by the system clock.
    """

    def __init__(self, path: AnyPath, *, durable: bool = False, claim_ttl: float = WEEK, timeout: float = 5.0) -> None:
        """``claim_ttl`` and ``timeout`` are in seconds, see ``ClaimStore``."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        if (name := check_path("path", path, "claims.db")).startswith(("sqlite:", ":memory:")):
            raise ConfigurationError("path must be that of a file: claims= takes 'sqlite:PATH', for tests 'memory:'")
        self._path = Path(name).absolute()
        check("durable", durable, bool)
        self._durable = durable
        # One, which opens the file at the first operation.
        self._thread = StoreThreads(1)
        self._db: sqlite3.Connection | None = None

    def __repr__(self) -> str:
        return f"SqliteClaims({str(self._path)!r})"

    async def put(self, puts: Sequence[Put], ttl: float) -> Stored:
        return await self._thread.run(lambda: self._put(puts, ttl))

    async def get(self, keys: Sequence[str]) -> Stored:
        return await self._thread.run(lambda: [_find(self._opened(), key, time.time()) for key in keys])

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        key = ""
        while rows := await self._thread.run(
            partial(lambda last: self._opened().execute(_PAGE, (last, time.time(), PAGE)).fetchall(), key)
        ):
            for key, token, record in rows:
                yield key, Claim(token, record)

    async def risks(self) -> list[str]:
        """Return none. Opens the file if there is one. Raises ConfigurationError if file or folder can't be used."""
        await self._thread.run(self._opened if self._path.exists() else self._check_folder)
        return []

    async def aclose(self) -> None:
        """Close the file after pending writes; wait for them up to ``timeout`` seconds."""
        await self._thread.aclose(self.timeout, self._close)

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._check_folder()
            try:
                db = open_database(self._path, FORMAT, timeout=self.timeout)
            except FileRefused as error:
                raise ConfigurationError(f"the file of the claim store can't be used: {error}") from None
            db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            self._db = db
        return self._db

    def _check_folder(self) -> None:
        if why := folder_objection(self._path.parent):
            raise ConfigurationError(f"the folder of the claim store can't be used, make another: {why}")

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _put(self, puts: Sequence[Put], ttl: float) -> Stored:
        answers = Stored()
        with self._opened() as db:  # commits, or rolls back after an error
            db.execute("BEGIN IMMEDIATE")
            now = time.time()
            for put in puts:
                stored = _find(db, put.key, now)
                if put.may_replace(stored):
                    db.execute(_PUT, (put.key, put.claim.token, put.claim.record, now + ttl))
                    stored = None
                answers.append(stored)
            db.execute(_SWEEP, (now, 2 * len(puts)))
        return answers


def _find(db: sqlite3.Connection, key: str, now: float) -> Claim | None:
    row = db.execute(_FIND, (key, now)).fetchone()
    return None if row is None else Claim(*row)
