"""A claim store that fails by script, and access to its claims."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState
from pushsdk.claims import Claim, MemoryClaims, Put

__all__ = ["Op", "ShakyClaims", "StoppedClaims", "StoreFault"]

#: A put that expects nothing, a read, a put that expects a token.
Op = Literal["add", "get", "swap"]
#: Fails before anything is done; does it, and loses the answer; never ends, nothing done, or done; takes 1 s.
StoreFault = Literal["down", "lost", "hangs", "hangs, done", "slow"]


class StoreDownError(Exception):
    """As a driver raises it; its text must go nowhere."""


class ShakyClaims(MemoryClaims):
    """Each operation meets the next of its faults, then none."""

    def __init__(self, *, claim_ttl: float = 7 * 86400.0, timeout: float = 5.0, **faults: list[StoreFault]) -> None:
        super().__init__(claim_ttl=claim_ttl)
        self.timeout = timeout
        self.faults = {"add": [], "get": [], "swap": [], **faults}
        #: The operations, in the order they came.
        self.ops: list[str] = []

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        op: Op = "swap" if puts[0].expected else "add"
        await self._before(op)
        answers = await super().put(puts, ttl)
        await self._after(op)
        return answers

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        await self._before("get")
        answers = await super().get(keys)
        await self._after("get")
        return answers

    def records(self) -> list[ClaimRecord]:
        """Return the stored records."""
        return [ClaimRecord.decode(claim.record) for claim, _ in self._claims.values()]

    def states(self) -> list[list[UserState]]:
        """The states of the users of every entry that it holds."""
        return [
            [status.state for start, stop, status in record.states().runs() for _ in range(start, stop)]
            for record in self.records()
        ]

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

    def __init__(self, *, timeout: float) -> None:
        super().__init__(timeout=timeout)
        self.is_stopped = False
        self._requests: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        answers: list[Claim | None] = await self._serve(lambda: ShakyClaims.put(self, puts, ttl))
        return answers

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
