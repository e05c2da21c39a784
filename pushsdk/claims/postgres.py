"""Claims in a PostgreSQL table: for processes on many machines, as durable as the database."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import Rule, check, must_be
from pushsdk._core.secret import Secret, sealed
from pushsdk._texts import text_beside
from pushsdk.claims.store import CLOSED, PAGE, WEEK, Claim, ClaimStore, LoopGuard, Put, Stored

TableName = Annotated[
    str,
    Rule(
        "a name of lowercase letters, digits and _, optionally with a schema, for example jobs.claims",
        re.compile(r"[a-z_][a-z0-9_]{0,50}(\.[a-z_][a-z0-9_]{0,50})?").fullmatch,
    ),
]
# URLs with one reading only. An asyncpg error about any other URL may quote the password.
SERVER = r"(\[[0-9A-Fa-f:.%]+\]|[^][:/?#@,]*)(:[0-9]{1,5})?"
SETTING = r"[\w.]+=[^&#]*"
URL = re.compile(rf"postgres(ql)?://([^][/?#@]*@)?{SERVER}(,{SERVER})*(/[^?#@]*)?(\?{SETTING}(&{SETTING})*)?")
# Advisory lock for creating the table: concurrent CREATE TABLE IF NOT EXISTS can fail on PostgreSQL's catalog.
LOCK = 0x70757368
# Settings of the server that lose claims.
_RISKS = {
    "fsync=off": "loses claims in a crash of its machine: set fsync to on",
    "full_page_writes=off": "may lose claims in a crash of its machine: set full_page_writes to on",
    "transaction_read_only=on": "takes no claims, as it is read-only: is it a standby?",
}
# Seconds between two deletions of expired rows, and rows per deletion: so few never hold up other writers.
SWEEP_INTERVAL, SWEEP_ROWS = 60.0, 1000

_SCHEMA = text_beside(__name__, "postgres.sql")
# Columns are arrays. Expected tokens are a JSON object by key: sent as text, since a pool may have a codec for
# jsonb, and parsed once, by a subquery. Never committed asynchronously: a crash would lose claims.
_PUT = text_beside(__name__, "postgres_put.sql")
_FIND = "SELECT key, token, record FROM {table} WHERE key = ANY($1::text[]) AND expires > clock_timestamp()"
_PAGE = """SELECT key, token, record FROM {table} WHERE key > $1 AND expires > clock_timestamp()
ORDER BY key LIMIT $2"""
_SWEEP = """DELETE FROM {table} WHERE key IN (
    SELECT key FROM {table} WHERE expires <= clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)"""


class PostgresClaims(ClaimStore):
    """Claims in the PostgreSQL at ``server``: a URL, or your own ``asyncpg.Pool``, which is never closed here.

    Needs asyncpg (the extra ``postgres``). The table is created on first use; if the role may not create tables, run
    the statements of ``PostgresClaims.schema()``. Claims expire by the server's clock. Every claim is committed before
    its push is sent: hence a pool and not a connection, which may be in your transaction.
    """

    def __init__(
        self, server: str | Any, *, table: str = "pushsdk_claims", claim_ttl: float = WEEK, timeout: float = 5.0
    ) -> None:
        """``table`` may name a schema. ``claim_ttl`` and ``timeout`` are in seconds, see ``ClaimStore``."""
        server = target = sealed(server)
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        self._schema = self.schema(table)
        self._table = table
        # None for a pool from the caller.
        self._create_pool: Any = None
        self._pool: Any = target
        if isinstance(target, Secret):
            self._create_pool, self._pool = _pool_factory(target, self.timeout), None
        elif not (hasattr(target, "acquire") and hasattr(target, "fetch")):
            raise must_be("server", "a URL or an asyncpg.Pool", server)
        self._loop = LoopGuard()
        # Held while the first operation opens the pool and creates the table.
        self._opening = asyncio.Lock()
        self._has_table = self._closed = False
        self._swept = time.monotonic()

    def __repr__(self) -> str:
        return f"PostgresClaims(table={self._table!r})"

    @staticmethod
    def schema(table: str = "pushsdk_claims") -> str:
        """Return the SQL statements that create the table. Raises ConfigurationError for an unusable name."""
        check("table", table, TableName)
        return _SCHEMA.format(table=table, index=table.rpartition(".")[2] + "_expires")

    async def put(self, puts: Sequence[Put], ttl: float) -> Stored:
        stored = dict[str, Claim]()
        # All processes lock rows in the same order, which rules out deadlocks.
        pending = sorted(puts, key=lambda put: put.key)
        while pending and (pending := await self._refused(pending, ttl)):
            stored |= await self._find([put.key for put in pending])
            # Try again if the row was deleted after it refused the put.
            pending = [put for put in pending if put.key not in stored]
        if time.monotonic() >= self._swept + SWEEP_INTERVAL:
            self._swept = time.monotonic()
            await self._fetch(_SWEEP, SWEEP_ROWS)
        return [stored.get(put.key) for put in puts]

    async def _refused(self, puts: Sequence[Put], ttl: float) -> list[Put]:
        """Make the writes that are not refused, and return the others."""
        columns = zip(*((put.key, put.claim.token, put.claim.record.decode()) for put in puts), strict=True)
        expected = msgspec.json.encode({put.key: put.expected for put in puts if put.expected}).decode()
        written = {row["key"] for row in await self._fetch(_PUT, *columns, expected, ttl)}
        return [put for put in puts if put.key not in written]

    async def get(self, keys: Sequence[str]) -> Stored:
        stored = await self._find(keys)
        return [stored.get(key) for key in keys]

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        last = ""
        while rows := await self._fetch(_PAGE, last, PAGE):
            for last, token, record in rows:
                yield last, Claim(token, record.encode())

    async def risks(self) -> list[str]:
        """Return one sentence for each setting that loses claims: fsync, full_page_writes, transaction_read_only."""
        pool = await self._opened()
        found = await pool.fetchval("SELECT array_agg(name || '=' || setting) FROM pg_settings")
        return [f"the claim store's PostgreSQL {text}" for setting, text in _RISKS.items() if setting in found]

    async def aclose(self) -> None:
        """Close the connections, unless the pool is yours."""
        self._closed = True
        if self._create_pool and self._pool and not self._loop.is_inherited:
            await self._pool.close()

    async def _find(self, keys: Sequence[str]) -> dict[str, Claim]:
        return {key: Claim(token, record.encode()) for key, token, record in await self._fetch(_FIND, keys)}

    async def _fetch(self, sql: str, *values: object) -> Any:
        """Return the rows for a statement on the table, which the first statement creates."""
        pool = await self._opened()
        if not self._has_table:
            async with self._opening, pool.acquire() as connection:
                # CREATE TABLE IF NOT EXISTS needs the right to create tables even if the table exists.
                if await connection.fetchval("SELECT to_regclass($1) IS NULL", self._table):
                    # Without arguments, so all statements are one transaction.
                    await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK}); {self._schema}")
            self._has_table = True
        from asyncpg import SerializationError  # type: ignore[import-untyped]

        while True:
            # Where transactions are REPEATABLE READ or SERIALIZABLE by default, one of two at once is rolled back.
            with suppress(SerializationError):
                return await pool.fetch(sql.format(table=self._table), *values)

    async def _opened(self) -> Any:
        """Return the pool. Raises ConfigurationError if the store is closed, or in use by another loop."""
        if self._closed:
            raise ConfigurationError(CLOSED)
        self._loop.check()
        async with self._opening:
            if self._pool is None:
                self._pool = await self._create_pool()
            return self._pool


def _pool_factory(url: Secret, timeout: float) -> Callable[[], Any]:
    if not URL.fullmatch(str(url.reveal())):
        raise ConfigurationError(
            "the URL of a PostgreSQL must be like postgresql://user:password@host:5432/database, with / ? # [ ] and @ "
            "in the password written as %2F and so on"
        )
    try:
        import asyncpg
    except ImportError:
        raise ConfigurationError("PostgresClaims needs asyncpg (the extra 'postgres'): pip install asyncpg") from None
    return lambda: asyncpg.create_pool(
        url.reveal(), min_size=0, timeout=timeout, command_timeout=timeout, reset=_no_reset
    )


async def _no_reset(connection: object) -> None:
    """Save the round trip for the reset in asyncpg: our statements never change the session."""
