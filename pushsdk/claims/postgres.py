"""Claims in a PostgreSQL table: for the processes of many machines, as durable as the database."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from pushsdk._core.address import redacted
from pushsdk._core.errors import ConfigurationError
from pushsdk.claims.store import CLOSED, PAGE, SWEEP_INTERVAL, SWEEP_ROWS, WEEK, Claim, ClaimStore, LoopGuard, Put

SCHEMES = ("postgres://", "postgresql://")
TABLE = re.compile(r"[a-z_][a-z0-9_]{0,50}(\.[a-z_][a-z0-9_]{0,50})?")
# A host name, an IP address or the folder of a socket, and a port.
HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(:[0-9]{1,5})?")
# Advisory lock for creating the table: concurrent CREATE TABLE IF NOT EXISTS can fail on PostgreSQL's catalog.
LOCK = 0x70757368
# The default of asyncpg.create_pool.
CONNECTIONS = 10

_SCHEMA = """
CREATE TABLE IF NOT EXISTS {table} (
    key text PRIMARY KEY,
    token text NOT NULL,
    record text NOT NULL,
    expires timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (expires);
"""
# Columns are arrays. Expected tokens are a JSON object by key: sent as text, since a pool may have its own codec for
# jsonb, and parsed once, by a subquery.
_PUT = """INSERT INTO {table} AS stored (key, token, record, expires)
SELECT key, token, record, clock_timestamp() + make_interval(secs => $5)
FROM unnest($1::text[], $2::text[], $3::text[]) AS put(key, token, record)
ON CONFLICT (key) DO UPDATE SET token = excluded.token, record = excluded.record, expires = excluded.expires
WHERE stored.expires <= clock_timestamp() OR stored.token = excluded.token
    OR ((SELECT $4::text::jsonb) -> stored.key) ? stored.token
RETURNING key"""
_FIND = "SELECT key, token, record, expires > clock_timestamp() AS alive FROM {table} WHERE key = ANY($1::text[])"
_PAGE = """SELECT key, token, record FROM {table} WHERE key > $1 AND expires > clock_timestamp()
ORDER BY key LIMIT $2"""
_SWEEP = """DELETE FROM {table} WHERE key IN (
    SELECT key FROM {table} WHERE expires <= clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)"""


class PostgresClaims(ClaimStore):
    """Claims in the PostgreSQL at ``server``: a URL, or your own ``asyncpg.Pool``, which is never closed here.

    Needs ``pip install 'pushsdk[postgres]'``. The table is created on first use; if the role may not create tables, run
    the statements of ``PostgresClaims.schema()``. Claims expire by the server's clock. Every claim is committed before
    its push is sent: hence a pool and not a connection, which may be in a transaction of yours.
    """

    def __init__(
        self,
        server: str | Any,
        *,
        table: str = "pushsdk_claims",
        claim_ttl: float = WEEK,
        timeout: float = 5.0,
    ) -> None:
        """``table`` may name a schema. ``claim_ttl`` and ``timeout`` are in seconds, see ``ClaimStore``."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        self._schema = self.schema(table)
        self._sql = {
            name: sql.format(table=table)
            for name, sql in (("put", _PUT), ("find", _FIND), ("page", _PAGE), ("sweep", _SWEEP))
        }
        self._table = table
        self._url = _checked_url(redacted(server)) if isinstance(server, str) else None
        self._pool: Any = None if isinstance(server, str) else _checked_pool(server)
        self._loop = LoopGuard()
        # Held while the first operation opens the pool and creates the table.
        self._opening = asyncio.Lock()
        self._ready = self._closed = False
        self._swept = time.monotonic()

    def __repr__(self) -> str:
        return f"PostgresClaims(table={self._table!r})"

    @staticmethod
    def schema(table: str = "pushsdk_claims") -> str:
        """Return the SQL statements that create the table. Raises ConfigurationError for an unusable name."""
        if not isinstance(table, str) or not TABLE.fullmatch(table):
            raise ConfigurationError(
                "table must be a name of lowercase letters, digits and _, optionally with a schema, "
                f"for example jobs.claims; got {table!r}"
            )
        return _SCHEMA.format(table=table, index=table.rpartition(".")[2] + "_expires")

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        pool, stored = await self._open(), dict[str, Claim]()
        # All processes lock rows in the same order, which rules out deadlocks.
        pending = sorted(puts, key=lambda put: put.key)
        while pending:
            columns = zip(*((put.key, put.claim.token, put.claim.record.decode()) for put in pending), strict=True)
            expected = msgspec.json.encode({put.key: put.expected for put in pending if put.expected}).decode()
            written = {row["key"] for row in await pool.fetch(self._sql["put"], *columns, expected, ttl)}
            if pending := [put for put in pending if put.key not in written]:
                rows = await pool.fetch(self._sql["find"], [put.key for put in pending])
                stored |= {row["key"]: _claim(row) for row in rows}
                # Try again if the row was deleted after it refused the put.
                pending = [put for put in pending if put.key not in stored]
        await self._sweep(pool)
        return [stored.get(put.key) for put in puts]

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        pool = await self._open()
        stored = {row["key"]: _claim(row) for row in await pool.fetch(self._sql["find"], keys) if row["alive"]}
        return [stored.get(key) for key in keys]

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        pool, last = await self._open(), ""
        while rows := await pool.fetch(self._sql["page"], last, PAGE):
            for row in rows:
                yield row["key"], _claim(row)
            last = rows[-1]["key"]

    async def aclose(self) -> None:
        """Close the connections, unless the pool is yours."""
        self._closed = True
        if self._url is not None and self._pool is not None and not self._loop.is_inherited:
            pool, self._pool = self._pool, None
            await pool.close()

    async def _open(self) -> Any:
        if self._closed:
            raise ConfigurationError(CLOSED)
        self._loop.check()
        if not self._ready:
            async with self._opening:
                await self._prepare()
        return self._pool

    async def _prepare(self) -> None:
        if self._ready:
            return  # by a concurrent call
        if self._pool is None:
            self._pool = await _create_pool(str(self._url), self.timeout)
        async with self._pool.acquire() as connection:
            # CREATE TABLE IF NOT EXISTS needs the right to create tables even if the table exists.
            if await connection.fetchval("SELECT to_regclass($1) IS NULL", self._table):
                async with connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
                    await connection.execute(self._schema)
        self._ready = True

    async def _sweep(self, pool: Any) -> None:
        now = time.monotonic()
        if now >= self._swept + SWEEP_INTERVAL:
            self._swept = now
            await pool.execute(self._sql["sweep"], SWEEP_ROWS)


def _claim(row: Any) -> Claim:
    return Claim(row["token"], row["record"].encode())


def _checked_url(url: str) -> str:
    if not url.startswith(SCHEMES):
        raise ConfigurationError("the URL of a PostgreSQL must begin with postgres:// or postgresql://")
    if not _is_plain(url):
        raise ConfigurationError(
            "the URL of the PostgreSQL can't be parsed: write / ? # [ ] and @ in the password as %2F and so on"
        )
    _asyncpg()
    return url


def _is_plain(url: str) -> bool:
    """Return True if the URL has one reading only. An error of asyncpg about any other URL may quote the password."""
    with suppress(ValueError):
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        return (
            all(HOST.fullmatch(host) for host in hosts)
            and parts.netloc.count("@") <= 1
            and "@" not in parts.path
            and not parts.fragment
            and all(name.replace(".", "_").isidentifier() for name, _ in query)
        )
    return False


def _checked_pool(server: object) -> Any:
    needed = ("acquire", "fetch", "execute")
    if not all(hasattr(server, name) for name in needed) or hasattr(server, "transaction"):
        raise ConfigurationError(f"server must be a URL or an asyncpg.Pool; got {type(server).__name__}")
    return server


def _asyncpg() -> Any:
    try:
        import asyncpg  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigurationError("PostgresClaims needs asyncpg: pip install 'pushsdk[postgres]'") from None
    return asyncpg


async def _create_pool(url: str, timeout: float) -> Any:
    return await _asyncpg().create_pool(
        url, min_size=0, max_size=CONNECTIONS, timeout=timeout, command_timeout=timeout, reset=_skip_reset
    )


async def _skip_reset(connection: object) -> None:
    """Save the round trip of asyncpg's own reset: none of our statements changes the session."""
