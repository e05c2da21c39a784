"""Many calls with idempotency keys: calls during a write share the next write."""

import asyncio

import pytest
from support.shaky_claims import HELLO, ShakyClaims
from support.virtual_time import now, virtual

from pushsdk import Receipt, Timeout
from pushsdk.testing import FakeService


class Narrow(ShakyClaims):
    """A store with one operation at a time, each of which takes a second."""

    def __init__(self):
        super().__init__()
        self._line = asyncio.Lock()
        self.sizes = []

    async def put(self, puts, ttl):
        async with self._line:
            self.sizes.append(len(puts))
            await asyncio.sleep(1.0)
            return await super().put(puts, ttl)


async def crowd(client, count, total=None):
    """Send this number of jobs concurrently."""
    patience = Timeout(total=total, attempt=None)
    sends = (client.send(f"user-{n}", HELLO, idempotency_key=f"job-{n}", timeout=patience) for n in range(count))
    return await asyncio.gather(*sends, return_exceptions=True)


@pytest.mark.parametrize(("at_once", "sizes"), [(1000, [1000]), (400, [400, 400, 200])])
@virtual
async def test_the_claims_of_a_batch_share_a_write_and_so_do_its_outcomes(at_once, sizes):
    service, claims = FakeService(), Narrow()
    claims.at_once = at_once
    async with service.client(claims=claims) as client:
        assert {type(outcome) for outcome in await crowd(client, 1000)} == {Receipt}
    assert (claims.sizes, len(service.requests)) == (sizes * 2, 1)


@virtual
async def test_calls_to_a_silent_store_fail_with_the_pending_write():
    service, claims = FakeService(), ShakyClaims(add=["hangs"] * 999, swap=["hangs"] * 999)
    client = service.client(claims=claims)
    started = now()
    first = asyncio.create_task(crowd(client, 100))
    await asyncio.sleep(2.0)
    later = await asyncio.gather(
        *(client.send("eve", HELLO, idempotency_key=f"eve-{n}") for n in range(3)), return_exceptions=True
    )
    results = [*await first, *later]
    assert now() - started == pytest.approx(5.0, abs=0.01)
    assert {str(result) for result in results} == {"not sent: the claim store failed (TimeoutError)"}
    assert claims.ops.count("add") == 1, "the others were never put"
    await client.aclose(drain=10.0)
    assert now() - started < 30.0
    assert service.requests == []
