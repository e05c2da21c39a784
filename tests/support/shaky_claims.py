"""A claim store that fails by script, and a look at what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from pushsdk._core.dedupe import Mark, Record, _decode
from pushsdk.claims import Claim, MemoryClaims

__all__ = ["Fault", "Op", "ShakyClaims", "StoppedClaims"]

Op = Literal["add", "get", "swap"]
#: Fails before anything is done; does it, and loses the answer; never ends, nothing done, or done; takes 1 s.
Fault = Literal["down", "lost", "hangs", "hangs, done", "slow"]


class StoreDownError(Exception):
    """As a driver raises it; its text must go nowhere."""


class ShakyClaims(MemoryClaims):
    """Each operation meets the next of its faults, then none."""

    def __init__(self, *, claim_ttl: float = 7 * 86400.0, timeout: float = 5.0, **faults: list[Fault]) -> None:
        super().__init__(claim_ttl=claim_ttl)
        self.timeout = timeout
        self.faults = {"add": [], "get": [], "swap": [], **faults}
        #: The operations, in the order they came.
        self.ops: list[str] = []

    async def add(self, key: str, claim: Claim, ttl: float) -> Claim | None:
        await self._before("add")
        found = await super().add(key, claim, ttl)
        await self._after("add")
        return found

    async def get(self, key: str) -> Claim | None:
        await self._before("get")
        found = await super().get(key)
        await self._after("get")
        return found

    async def swap(self, key: str, token: str, claim: Claim, ttl: float) -> bool:
        await self._before("swap")
        done = await super().swap(key, token, claim, ttl)
        await self._after("swap")
        return done

    def records(self) -> list[Record]:
        """What it holds."""
        return [_decode(claim.record) for claim, _ in self._claims.values()]

    def marks(self) -> list[list[Mark]]:
        """The marks of every delivery that it holds."""
        return [[position.mark for position in record.positions()] for record in self.records()]

    async def _before(self, op: Op) -> None:
        self.ops.append(op)
        # At least one turn of the loop, as any store takes.
        await asyncio.sleep(1.0 if self.faults[op][:1] == ["slow"] else 0.0)
        if self.faults[op][:1] in (["down"], ["hangs"]):
            await self._fail(op)

    async def _after(self, op: Op) -> None:
        if self.faults[op]:
            if self.faults[op][0] == "slow":
                self.faults[op].pop(0)
            else:
                await self._fail(op)

    async def _fail(self, op: Op) -> None:
        if self.faults[op].pop(0).startswith("hangs"):
            await asyncio.get_running_loop().create_future()
        raise StoreDownError("user-1 Hello job-42 fake-key")


class StoppedClaims(ShakyClaims):
    """A server that a signal stops: each request that reached it is done when it continues, also an abandoned one."""

    def __init__(self, *, timeout: float, at_a_time: int = 1000) -> None:
        super().__init__(timeout=timeout)
        self.at_a_time = at_a_time
        self.is_stopped = False
        self._requests: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def add(self, key: str, claim: Claim, ttl: float) -> Claim | None:
        found: Claim | None = await self._serve(lambda: ShakyClaims.add(self, key, claim, ttl))
        return found

    async def swap(self, key: str, token: str, claim: Claim, ttl: float) -> bool:
        return bool(await self._serve(lambda: ShakyClaims.swap(self, key, token, claim, ttl)))

    def go_on(self, step: int) -> None:
        """Continue, with the first request first (``step`` 1) or last (-1): connections are read in any order."""
        self.is_stopped = False
        self._tasks += [asyncio.create_task(serve()) for serve in self._requests[::step]]
        self._requests.clear()

    async def _serve(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            result = await work()
            if not answer.done():
                answer.set_result(result)

        if not self.is_stopped:
            return await work()
        self._requests.append(serve)
        return await answer
