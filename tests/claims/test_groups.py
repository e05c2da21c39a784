"""Many calls with idempotency keys: calls during a write share the next write."""

import asyncio

import pytest
from support.shaky_claims import HELLO, ShakyClaims
from support.virtual_time import now, virtual

from pushsdk import Timeout
from pushsdk.testing import FakeService


async def crowd(client, count, total=None):
    """Send this number of jobs concurrently."""
    patience = Timeout(total=total, attempt=None)
    sends = (client.send(f"user-{n}", HELLO, idempotency_key=f"job-{n}", timeout=patience) for n in range(count))
    return await asyncio.gather(*sends, return_exceptions=True)


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
