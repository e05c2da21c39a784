"""Claims in a table of PostgreSQL: for the processes of many machines, as durable as the database."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from pushsdk._core.address import sealed
from pushsdk._core.errors import ConfigurationError
from pushsdk._public import set_public_module
from pushsdk.claims.store import PAGE, Claim, ClaimStore, LoopBound, Put

__all__ = ["PostgresClaims"]

SCHEMES = ("postgres://", "postgresql://")
TABLE = re.compile(r"[a-z_][a-z0-9_]{0,50}(\.[a-z_][a-z0-9_]{0,50})?")
# A name, an address of either kind or the folder of a socket, and a port.
HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(:[0-9]{1,5})?")
# Processes that make the table at the same time would meet in PostgreSQL's catalogue: one after the other.
LOCK = 0x70757368
# As many as asyncpg opens by itself in a pool of yours.
CONNECTIONS = 10
# Seconds between two looks for what has expired, and rows that go at a time.
SWEEP_EVERY, SWEPT = 60.0, 1000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS {table} (
    key text PRIMARY KEY,
    token text NOT NULL,
    record text NOT NULL,
    expires timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (expires);
"""
# The columns as arrays, and the expected tokens of the keys that have such as a JSON object: as text, since a pool may
# have a codec for jsonb, and parsed once, by a subquery.
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
    """Claims in the PostgreSQL at ``server``: a URL, or an ``asyncpg.Pool`` of yours, which is used and never closed.

    Needs ``pip install 'pushsdk[postgres]'``. The table is made where there is none; where the role may not do that,
    make it with ``PostgresClaims.schema()``. Expiry goes by the clock of the server. A claim is committed when the push
    leaves: hence a pool, not a connection, so that it is in no transaction of yours.
    """

    def __init__(
        self,
        server: str | Any,
        *,
        table: str = "pushsdk_claims",
        claim_ttl: float = 7 * 86400.0,
        timeout: float = 5.0,
    ) -> None:
        """See ``ClaimStore`` for ``claim_ttl`` and ``timeout``; ``table`` may name a schema. Nothing is opened yet."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        self._schema = self.schema(table)
        self._sql = {
            name: sql.format(table=table)
            for name, sql in (("put", _PUT), ("find", _FIND), ("page", _PAGE), ("sweep", _SWEEP))
        }
        self._table = table
        self._url = _checked_url(sealed(server)) if isinstance(server, str) else None
        self._pool: Any = None if isinstance(server, str) else _checked_pool(server)
        self._loop = LoopBound()
        # Held while the first use opens the pool and makes the table.
        self._opening = asyncio.Lock()
        self._ready = self._closed = False
        self._swept = time.monotonic()

    def __repr__(self) -> str:
        return f"PostgresClaims(table={self._table!r})"

    @staticmethod
    def schema(table: str = "pushsdk_claims") -> str:
        """The statements that make the table."""
        if not isinstance(table, str) or not TABLE.fullmatch(table):
            raise ConfigurationError(
                "table is a name of small letters, digits and _, perhaps behind a schema and a dot"
            )
        return _SCHEMA.format(table=table, index=table.rpartition(".")[2] + "_expires")

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        pool, stored = await self._open(), dict[str, Claim]()
        # All processes lock rows in the same order, so none waits for a process that waits for it.
        left = sorted(puts, key=lambda put: put.key)
        while left:
            columns = zip(*((put.key, put.claim.token, put.claim.record.decode()) for put in left), strict=True)
            expected = msgspec.json.encode({put.key: put.expected for put in left if put.expected}).decode()
            made = {row["key"] for row in await pool.fetch(self._sql["put"], *columns, expected, ttl)}
            if left := [put for put in left if put.key not in made]:
                rows = await pool.fetch(self._sql["find"], [put.key for put in left])
                stored |= {row["key"]: _claim(row) for row in rows}
                # A row that was deleted in between refuses nothing.
                left = [put for put in left if put.key not in stored]
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
        """Close the connections, where they are not yours."""
        self._closed = True
        if self._url is not None and self._pool is not None and not self._loop.is_inherited:
            pool, self._pool = self._pool, None
            await pool.close()

    async def _open(self) -> Any:
        if self._closed:
            raise ConfigurationError("the claim store is closed: close the client before it")
        self._loop.check()
        if not self._ready:
            async with self._opening:
                await self._prepare()
        return self._pool

    async def _prepare(self) -> None:
        if self._ready:
            return  # by who was before in the line
        if self._pool is None:
            self._pool = await _pool_of(str(self._url), self.timeout)
        async with self._pool.acquire() as connection:
            # Looked for first: to make what is there takes a right that the role may not have.
            if await connection.fetchval("SELECT to_regclass($1) IS NULL", self._table):
                async with connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
                    await connection.execute(self._schema)
        self._ready = True

    async def _sweep(self, pool: Any) -> None:
        now = time.monotonic()
        if now >= self._swept + SWEEP_EVERY:
            self._swept = now
            await pool.execute(self._sql["sweep"], SWEPT)


def _claim(row: Any) -> Claim:
    return Claim(row["token"], row["record"].encode())


def _checked_url(url: str) -> str:
    if not url.startswith(SCHEMES):
        raise ConfigurationError("the address of a PostgreSQL begins with postgres:// or postgresql://")
    if not _is_plain(url):
        raise ConfigurationError(
            "the address of the PostgreSQL can't be read: is a / ? # [ ] or @ in the password written as %2F and so on?"
        )
    _import()
    return url


def _is_plain(url: str) -> bool:
    """Whether it can be read in one way only: whose words on another asyncpg has may quote the password."""
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
        raise ConfigurationError("PostgresClaims takes a URL, or an asyncpg.Pool")
    return server


def _import() -> Any:
    try:
        import asyncpg  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigurationError("PostgresClaims needs asyncpg: pip install 'pushsdk[postgres]'") from None
    return asyncpg


async def _pool_of(url: str, timeout: float) -> Any:
    return await _import().create_pool(
        url, min_size=0, max_size=CONNECTIONS, timeout=timeout, command_timeout=timeout, reset=_nothing
    )


async def _nothing(connection: object) -> None:
    """In place of asyncpg's reset, which costs a round trip: no connection of ours changes anything of its session."""


set_public_module(__name__, "pushsdk.claims")
