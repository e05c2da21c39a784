"""One claim at a time, put into a store and read from it."""

from pushsdk.claims import Claim, Put

KEY = "0f" * 32
WEEK = 7 * 86400.0
ONE, TWO, THREE = (Claim(f"{number}" * 32, b'{"v":%d}' % number) for number in (1, 2, 3))


def key_of(number):
    """A key."""
    return f"{number:064x}"


async def put(store, claim, *expected, key=KEY, ttl=WEEK):
    """Return None if the claim was stored, else the one that is there."""
    (answer,) = await store.put([Put(key, claim, tuple(token.token for token in expected))], ttl)
    return answer


async def get(store, key=KEY):
    """Return the claim that is there."""
    (answer,) = await store.get([key])
    return answer
