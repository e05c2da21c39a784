"""``retryable`` is true: retrying the call while it says so reaches every reachable user, and no user twice."""

import asyncio

import pytest
from support.shaky_claims import long, singly
from support.virtual_time import virtual

from pushsdk import (
    PartialError,
    PushError,
    RejectedError,
    RetryPolicy,
)
from pushsdk.claims import MemoryClaims
from pushsdk.emulator import Fault

HELLO = {"title": {"en": "Hello"}}
USERS = long("user-1", "user-2", "user-3")
ONCE = RetryPolicy.none()


async def delivered(client, *, key, times=10):
    """The job, delivered until it is through or may not be repeated."""
    results = []
    for _ in range(times):
        try:
            results.append(await client.send(USERS, HELLO, idempotency_key=key))
            break
        except PushError as error:
            results.append(error)
            if not error.retryable:
                break
            await asyncio.sleep(error.retry_after or 0)
    return results


REFUSED, BAD, TOO_EARLY = Fault.refused(), Fault.status(400), Fault.status(425)


@pytest.mark.parametrize(
    ("faults", "key", "kind", "expected"),
    [
        ([None, REFUSED, None], None, PartialError, False),
        ([BAD, REFUSED, BAD], None, RejectedError, True),
        ([BAD, REFUSED, BAD], "job-42", RejectedError, True),
        ([TOO_EARLY, BAD, BAD], None, RejectedError, True),
        ([BAD, BAD, TOO_EARLY], None, RejectedError, True),
        ([BAD, BAD, BAD], None, RejectedError, False),
    ],
)
@virtual
async def test_a_call_is_retryable_for_any_of_its_users_unless_that_pushes_one_twice(faults, key, kind, expected):
    service = singly({f"user-{number}": [fault] for number, fault in enumerate(faults, 1) if fault})
    async with service.client(claims=MemoryClaims(), retry=ONCE) as client:
        (result,) = await delivered(client, key=key, times=1)
    assert type(result) is kind
    assert result.retryable is expected
