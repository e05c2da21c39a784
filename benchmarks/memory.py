"""Memory: a million sends to a slow service, within the default limits of one client.

Each case runs in its own process (`python -m benchmarks.memory CASE SENDS`), whose peak memory is read at its end:

- `singles`: one user per send, from 50,000 tasks that send repeatedly;
- `groups`: 20 users per send, from as many tasks, which exceeds `Limits.queued_users`, so calls wait;
- `floor`: the same tasks, each waiting for a future: the memory of the program without a client.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Spread, user
from benchmarks.report import Goal, result
from benchmarks.sink import checksum, pin, sink

SENDS, QUICK_SENDS = 1_000_000, 100_000
TASKS = 50_000
GROUP = 20
SINK_DELAY = 0.5  # seconds: with 64 requests of 1000 users in flight, at most 128,000 users per second
SAMPLE_EVERY = 50  # sends


def peak_mib() -> float:
    """Return the peak resident memory of this process. ``ru_maxrss`` is the fallback: it includes the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / (1 << 10)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / (1 << 10)


async def floor(tasks: int) -> dict[str, Any]:
    import pushsdk  # noqa: F401  imported modules count too

    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[None]] = []

    async def wait() -> None:
        futures.append(loop.create_future())
        await futures[-1]

    waiting = [asyncio.create_task(wait()) for _ in range(tasks)]
    await asyncio.sleep(0)
    for future in futures:
        future.set_result(None)
    await asyncio.gather(*waiting)
    return {"peak_mib": peak_mib()}


async def offer(sends: int, group: int) -> dict[str, Any]:
    """Send `sends` calls of `group` users each, and sample the queue of the client."""
    from pushsdk import AsyncPushClient, MobilePush

    message = MobilePush(ios_enabled=True, title=c.TITLE, body={"en": "Hello"})
    queued_users = queued_bytes = samples = 0
    numbers = iter(range(sends))

    def sample() -> None:
        nonlocal queued_users, queued_bytes, samples
        stats = client.stats()
        samples += 1
        queued_users = max(queued_users, stats.queued_users)
        queued_bytes = max(queued_bytes, stats.queued_bytes)

    async def worker() -> None:
        for number in numbers:
            first = number * group
            users = user(first) if group == 1 else [user(index) for index in range(first, first + group)]
            await client.send(users, message, timeout=120)
            if number % SAMPLE_EVERY == 0:
                sample()

    async def watch() -> None:
        while True:
            sample()
            await asyncio.sleep(0.005)

    with sink(SINK_DELAY) as server:
        started = time.perf_counter()
        async with AsyncPushClient(server.base_url, c.API_KEY) as client:
            before = peak_mib()
            watcher = asyncio.create_task(watch())
            await asyncio.gather(*(worker() for _ in range(min(TASKS, sends))))
            watcher.cancel()
            accepted = client.stats().accepted
        seconds = time.perf_counter() - started
        counts = server.counts()
    peak = peak_mib()
    expected = checksum(user(number) for number in range(sends * group))
    if (counts.users, counts.checksum, accepted) != (sends * group, expected, sends * group):
        raise AssertionError(f"{counts}, {accepted} accepted, for {sends * group} users")
    return {
        "peak_mib": peak,
        "before_mib": before,
        "queued_users": queued_users,
        "queued_bytes": queued_bytes,
        "samples": samples,
        "seconds": seconds,
        "requests": counts.requests,
    }


def measure(case: str, sends: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", case, str(sends)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


async def run(*, quick: bool) -> dict[str, Any]:
    from pushsdk import Limits

    sends = QUICK_SENDS if quick else SENDS
    limits = Limits()
    goals: list[Goal] = []
    notes = [f"a service that responds after {SINK_DELAY} s; single measurements"]
    for name, count in (("singles", sends), ("groups", sends // GROUP)):
        tasks = min(TASKS, count)
        floor_peak, figures = measure("floor", tasks)["peak_mib"], measure(name, count)
        over = (figures["peak_mib"] - floor_peak) * 1024 / tasks
        goals += [
            Goal(f"MiB peak, {name}", Spread.of([figures["peak_mib"]])),
            Goal(f"MiB peak, floor of {name}: its tasks alone", Spread.of([floor_peak])),
            Goal(f"KiB over the floor per waiting send, {name}", Spread.of([over])),
            # At most one call exceeds the limits.
            Goal(
                f"queued users at most, {name}",
                Spread.of([figures["queued_users"]]),
                at_most=limits.queued_users + GROUP,
            ),
            Goal(
                f"queued bytes at most, {name}",
                Spread.of([figures["queued_bytes"]]),
                at_most=limits.queued_bytes + 1024,
            ),
        ]
        notes.append(
            f"{name}: {count:,} sends from {tasks:,} tasks in {figures['seconds']:.1f} s "
            f"and {figures['requests']:,} requests, {figures['samples']:,} readings of stats()"
        )
    return {**result("memory", "send", [], goals), "notes": notes}


def main() -> None:
    case, count = sys.argv[1], int(sys.argv[2])
    pin(0)
    work = {"floor": lambda: floor(count), "singles": lambda: offer(count, 1), "groups": lambda: offer(count, GROUP)}
    json.dump(asyncio.run(work[case]()), sys.stdout)


if __name__ == "__main__":
    main()
