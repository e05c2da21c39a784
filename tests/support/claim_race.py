"""Two processes that make the same claims at an object store's location."""

import asyncio
import json

from support.programs import run_program

PROGRAM = """
    import asyncio, json, random, sys
    from pushsdk.claims import Claim, ObjectClaims, Put

    async def race(location, count, number):
        keys = random.Random(number).sample(range(int(count)), int(count))
        async with ObjectClaims(location, timeout=60.0) as store:
            puts = [Put(f"{key:064x}", Claim(number * 32, b"{}")) for key in keys]
            answers = await store.put(puts, 3600.0)
            settled = [Put(put.key, Claim(f"{number}f" * 16, b"[1]"), (put.claim.token,)) for put in puts]
            changed = await store.put(settled, 3600.0)
        won, done = ([key for key, answer in zip(keys, found) if answer is None] for found in (answers, changed))
        assert won == done
        print(json.dumps(won))

    asyncio.run(race(*sys.argv[1:]))
"""


async def race(location, count):
    """Return the keys whose claims the processes made, and settled, in order."""
    runs = (asyncio.to_thread(run_program, PROGRAM, location, str(count), number) for number in "12")
    results = await asyncio.gather(*runs)
    assert [result.err for result in results] == ["", ""]
    return sorted(key for result in results for key in json.loads(result.out))
