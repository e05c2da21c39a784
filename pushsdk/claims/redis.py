"""Claims in Redis or a compatible server: for processes on many machines."""

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import NonEmpty, check, must_be
from pushsdk._core.secret import Secret, sealed
from pushsdk._texts import text_beside
from pushsdk.claims.store import PAGE, WEEK, Claim, ClaimStore, LoopGuard, Put, Stored

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger: logging.Logger = logging.getLogger("pushsdk")
# Fields of INFO, each with the value that keeps claims.
_RISKS = (
    ("maxmemory_policy", "noeviction", "drops claims when its memory is full (maxmemory-policy {}): set noeviction"),
    ("aof_enabled", "1", "loses the claims since its last snapshot in a crash: set appendonly yes"),
)
_PUT = text_beside(__name__, "put.lua")


class RedisClaims(ClaimStore):
    """Claims in the Redis at ``server``: a URL, or your own ``redis.asyncio.Redis``, which is never closed here.

    Needs redis-py (the extra ``redis``). Keys are ``prefix`` and 64 hexadecimal digits. Redis expires the claims.

    A claim is as durable as the Redis: a server crash loses everything since the last snapshot (without AOF) or
    about a second (``appendfsync everysec``), a failover the claims not replicated yet, eviction (any policy but
    ``noeviction``) any claim. A job whose claim is lost is pushed again if it is delivered again. The first ``put``
    logs the ``risks`` as warnings. Redis Cluster is not supported: one script would write keys on several nodes.
    """

    def __init__(
        self, server: "str | Redis", *, prefix: str = "pushsdk:claim:", claim_ttl: float = WEEK, timeout: float = 5.0
    ) -> None:
        """``claim_ttl`` and ``timeout`` are in seconds, see ``ClaimStore``. Connects on first use."""
        server = target = sealed(server)
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        check("prefix", prefix, NonEmpty)
        self._prefix = prefix
        self._loop = LoopGuard()
        # Held while the first ``put`` asks for the risks. True once they are known, or can't be asked for.
        self._asking = asyncio.Lock()
        self._has_asked = False
        self._is_own = isinstance(target, Secret)
        self._redis: Any = _client(target, self.timeout) if self._is_own else _checked(target)

    def __repr__(self) -> str:
        return f"RedisClaims(prefix={self._prefix!r})"

    async def put(self, puts: Sequence[Put], ttl: float) -> Stored:
        self._loop.check()
        async with self._asking:
            if not self._has_asked:
                # A lost connection must not fail the claim: the next one asks again.
                with suppress(Exception):
                    for risk in await self.risks():
                        logger.warning(risk)
                    self._has_asked = True
        keys = [self._prefix + put.key for put in puts]
        values = list[bytes | str]()
        for put in puts:
            values += put.claim.token.encode() + put.claim.record, ",".join(put.expected)
        return [_claim(value) for value in await self._redis.eval(_PUT, len(keys), *keys, int(ttl * 1000), *values)]

    async def risks(self) -> list[str]:
        """Return one sentence each for eviction and missing persistence; none if INFO is forbidden."""
        from redis.exceptions import ResponseError

        self._loop.check()
        info = dict[str, object]()
        with suppress(ResponseError, AttributeError):  # forbidden, or unknown to a proxy or a custom client
            info = await self._redis.info()
        risks = [text.format(info[field]) for field, safe, text in _RISKS if str(info.get(field, safe)) != safe]
        return [f"the claim store's Redis {risk}, or jobs delivered again may push twice" for risk in risks]

    async def get(self, keys: Sequence[str]) -> Stored:
        self._loop.check()
        return [_claim(value) for value in await self._redis.mget([self._prefix + key for key in keys])]

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        """Iterate over all claims, see ``ClaimStore.scan``; a key may be repeated if Redis resizes its table."""
        self._loop.check()
        # The prefix may contain characters that are special in a pattern.
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", self._prefix) + "*"
        cursor = None
        while cursor != 0:
            cursor, names = await self._redis.scan(cursor or 0, match=pattern, count=PAGE)
            keys = [(name if isinstance(name, str) else name.decode())[len(self._prefix) :] for name in names]
            # MGET without keys is an error.
            for key, claim in zip(keys, await self.get(keys) if keys else (), strict=True):
                if claim is not None:
                    yield key, claim

    async def aclose(self) -> None:
        """Close the connections, unless the Redis client is yours."""
        if self._is_own and not self._loop.is_inherited:
            await self._redis.aclose()


def _client(url: Secret, timeout: float) -> "Redis":
    try:
        from redis.asyncio import Redis
    except ImportError:
        raise ConfigurationError("RedisClaims needs redis-py (the extra 'redis'): pip install redis") from None
    with suppress(Exception):  # its text may quote the password
        client: Redis = Redis.from_url(url.reveal(), socket_timeout=timeout, socket_connect_timeout=timeout)
        return client
    raise ConfigurationError(
        "the URL of a Redis must be like redis://user:password@host:6379/0, rediss://host/0 or unix:///path"
    )


def _checked(server: object) -> Any:
    if hasattr(server, "keyslot"):
        raise ConfigurationError("RedisClaims can't use a Redis Cluster: pass a Redis with a single node")
    is_redis = all(hasattr(server, name) for name in ("eval", "mget", "scan"))
    # Every redis-py command calls execute_command, which is a coroutine function only in redis.asyncio.
    execute = getattr(server, "execute_command", None)
    if not is_redis or not (execute is None or inspect.iscoroutinefunction(execute)):
        raise must_be("server", "a URL or a redis.asyncio.Redis", server)
    return server


def _claim(value: bytes | str | None) -> Claim | None:
    if value is None:
        return None
    data = value.encode() if isinstance(value, str) else value
    return Claim(data[:32].decode(), data[32:])
