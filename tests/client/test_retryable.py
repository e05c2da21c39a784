"""``retryable`` is true: retrying the call while it says so reaches every reachable user, and no user twice."""

import pytest
from support.shaky_claims import long, singly
from support.virtual_time import virtual

from pushsdk import PartialError, RejectedError, RetryPolicy
from pushsdk.claims import MemoryClaims
from pushsdk.emulator import Fault

HELLO = {"title": {"en": "Hello"}}
USERS = long("user-1", "user-2", "user-3")
ONCE = RetryPolicy.none()


REFUSED = Fault.refused()
BAD = Fault.status(400)
TOO_EARLY = Fault.status(425)


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
        with pytest.raises(kind) as caught:
            await client.send(USERS, HELLO, idempotency_key=key)
    assert caught.value.retryable is expected
