"""Claims in Redis, or what speaks its protocol: for the processes of many machines."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pushsdk._core.endpoint import sealed
from pushsdk._core.errors import ConfigurationError
from pushsdk.claims.store import Claim, ClaimStore, LoopBound

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisClaims"]

SCHEMES = ("redis://", "rediss://", "unix://")
# Commands at a time: a pool of redis-py fails where more connections are asked for than it may have, rather than wait.
AT_A_TIME = 16
# An entry is its token (so many digits), then the record.
TOKEN = 32
# A comparison and a change that nothing comes between.
_SWAP = """
local found = redis.call('GET', KEYS[1])
if not found or string.sub(found, 1, 32) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""


class RedisClaims(ClaimStore):
    """Claims in the Redis at ``server``: a URL, or a ``redis.asyncio.Redis`` of yours, which is used and never closed.

    Needs ``pip install 'pushsdk[redis]'``. Keys are ``prefix`` and 64 hexadecimal digits; expiry is Redis's own.

    A claim is as durable as that Redis: without AOF a crash of the server loses all since the last snapshot, with
    ``appendfsync everysec`` a second; a failover, what had not been replicated; eviction (``allkeys-*``) any. A job
    whose claim is lost is pushed again when it is delivered again.
    """

    at_a_time: int = AT_A_TIME

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
        self._turns = asyncio.Semaphore(AT_A_TIME)
        self._own = isinstance(server, str)
        self._redis: Any = _connected(sealed(server), self.timeout) if isinstance(server, str) else _checked(server)

    def __repr__(self) -> str:
        return f"RedisClaims(prefix={self._prefix!r})"

    async def add(self, key: str, claim: Claim, ttl: float) -> Claim | None:
        self._loop.check()
        name, value = self._prefix + key, _value(claim)
        async with self._turns:
            while True:
                if await self._redis.set(name, value, nx=True, px=int(ttl * 1000)):
                    return None
                found = await self._redis.get(name)
                # None: it has expired in between.
                if found is not None:
                    return _claim(found)

    async def get(self, key: str) -> Claim | None:
        self._loop.check()
        async with self._turns:
            found = await self._redis.get(self._prefix + key)
        return None if found is None else _claim(found)

    async def swap(self, key: str, token: str, claim: Claim, ttl: float) -> bool:
        self._loop.check()
        name = self._prefix + key
        async with self._turns:
            return bool(await self._redis.eval(_SWAP, 1, name, token, _value(claim), int(ttl * 1000)))

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
    is_redis = all(hasattr(server, name) for name in ("set", "get", "eval"))
    # What all commands of redis-py go through: it tells its two kinds apart.
    run = getattr(server, "execute_command", None)
    if not is_redis or not (run is None or inspect.iscoroutinefunction(run)):
        raise ConfigurationError("RedisClaims takes a URL, or a redis.asyncio.Redis")
    return server


def _value(claim: Claim) -> bytes:
    return claim.token.encode() + claim.record


def _claim(found: bytes | str) -> Claim:
    data = found.encode() if isinstance(found, str) else found
    return Claim(data[:TOKEN].decode(), data[TOKEN:])
