"""Claims in Redis, or what speaks its protocol: for the processes of many machines."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pushsdk._core.address import sealed
from pushsdk._core.errors import ConfigurationError
from pushsdk._public import set_public_module
from pushsdk.claims.store import PAGE, Claim, ClaimStore, LoopBound, Put

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisClaims"]

SCHEMES = ("redis://", "rediss://", "unix://")
# An entry is its token (so many digits), then the record.
TOKEN = 32
# The first argument is the ttl in milliseconds; then come, for each key, its new entry and the expected tokens.
_PUT = """
local answers = {}
for i, key in ipairs(KEYS) do
    local entry, expected = ARGV[2 * i], ARGV[2 * i + 1]
    local stored = redis.call('GET', key)
    local token = stored and string.sub(stored, 1, 32)
    if not stored or token == string.sub(entry, 1, 32) or #token == 32 and string.find(expected, token, 1, true) then
        redis.call('SET', key, entry, 'PX', ARGV[1])
        stored = false
    end
    answers[i] = stored
end
return answers
"""


class RedisClaims(ClaimStore):
    """Claims in the Redis at ``server``: a URL, or a ``redis.asyncio.Redis`` of yours, which is used and never closed.

    Needs ``pip install 'pushsdk[redis]'``. Keys are ``prefix`` and 64 hexadecimal digits; expiry is Redis's own.

    A claim is as durable as that Redis: without AOF a crash of the server loses all since the last snapshot, with
    ``appendfsync everysec`` a second; a failover, what had not been replicated; eviction (``allkeys-*``) any. A job
    whose claim is lost is pushed again when it is delivered again. A Redis Cluster can't be used: a script may change
    keys of one node only.
    """

    def __init__(
        self,
        server: str | Redis,
        *,
        prefix: str = "pushsdk:claim:",
        claim_ttl: float = 7 * 86400.0,
        timeout: float = 5.0,
    ) -> None:
        """See ``ClaimStore`` for ``claim_ttl`` and ``timeout``. Nothing is opened yet."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        if not isinstance(prefix, str) or not prefix:
            raise ConfigurationError("prefix is a str that is not empty")
        self._prefix = prefix
        self._loop = LoopBound()
        self._own = isinstance(server, str)
        self._redis: Any = _connected(sealed(server), self.timeout) if isinstance(server, str) else _checked(server)

    def __repr__(self) -> str:
        return f"RedisClaims(prefix={self._prefix!r})"

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        self._loop.check()
        names = [self._prefix + put.key for put in puts]
        values = [value for put in puts for value in (_entry(put.claim), ",".join(put.expected))]
        return [_claim(entry) for entry in await self._redis.eval(_PUT, len(names), *names, int(ttl * 1000), *values)]

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        self._loop.check()
        return [_claim(entry) for entry in await self._redis.mget([self._prefix + key for key in keys])]

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        """See ``ClaimStore.scan``; a key may come twice if Redis resizes its table meanwhile."""
        self._loop.check()
        # The prefix may hold characters of a pattern.
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", self._prefix) + "*"
        cursor = None
        while cursor != 0:
            cursor, names = await self._redis.scan(cursor or 0, match=pattern, count=PAGE)
            keys = [(name if isinstance(name, str) else name.decode())[len(self._prefix) :] for name in names]
            # MGET of no keys is an error.
            for key, claim in zip(keys, await self.get(keys) if keys else (), strict=True):
                if claim is not None:
                    yield key, claim

    async def aclose(self) -> None:
        """Close the connections, where they are not yours."""
        if self._own and not self._loop.is_inherited:
            await self._redis.aclose()


def _connected(url: str, timeout: float) -> Redis:
    if not url.startswith(SCHEMES):
        raise ConfigurationError("the address of a Redis begins with redis://, rediss:// or unix://")
    try:
        from redis.asyncio import Redis
    except ImportError:
        raise ConfigurationError("RedisClaims needs redis-py: pip install 'pushsdk[redis]'") from None
    with suppress(Exception):  # whose words may quote the password
        client: Redis = Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        return client
    raise ConfigurationError("the address of the Redis can't be read")


def _checked(server: object) -> Any:
    if hasattr(server, "keyslot"):
        raise ConfigurationError("RedisClaims can't use a Redis Cluster: give it a Redis that is a single node")
    is_redis = all(hasattr(server, name) for name in ("eval", "mget", "scan"))
    # What all commands of redis-py go through: it tells its two kinds apart.
    run = getattr(server, "execute_command", None)
    if not is_redis or not (run is None or inspect.iscoroutinefunction(run)):
        raise ConfigurationError("RedisClaims takes a URL, or a redis.asyncio.Redis")
    return server


def _entry(claim: Claim) -> bytes:
    return claim.token.encode() + claim.record


def _claim(entry: bytes | str | None) -> Claim | None:
    if entry is None:
        return None
    data = entry.encode() if isinstance(entry, str) else entry
    return Claim(data[:TOKEN].decode(), data[TOKEN:])


set_public_module(__name__, "pushsdk.claims")
