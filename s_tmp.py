import asyncio, sys, time
import benchmarks.concurrency as b
from benchmarks import contenders as c
from benchmarks.harness import user


async def once(rules, n):
    with b.service(rules) as running:
        async with b.opened(running.base_url) as client:
            sem = asyncio.Semaphore(2000)

            async def one(i):
                async with sem:
                    await client.send(user(i), {"title": {"en": f"number {i}"}, "iosEnabled": True})

            t = time.perf_counter()
            await asyncio.gather(*(one(i) for i in range(n)))
            s = time.perf_counter() - t
            return n / s, client.stats().limit


if __name__ == "__main__":
    if sys.argv[1] == "uvloop":
        import uvloop

        uvloop.install()
    for rnd in range(2):
        out = []
        for stray in (0, 0.005, 0.04):
            r, l = asyncio.run(once(b.Rules(0.01, workers=32, stray=stray), 12000))
            out.append((round(r), l))
        print(sys.argv[1], out, [round(o[0] / out[0][0], 2) for o in out], flush=True)
