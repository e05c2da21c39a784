"""Concurrency: how much of what a service can take a client uses by itself, and how many requests it keeps in flight.

The service is a process with a pool of workers, a queue and a delay; it may refuse by rate, by number or by chance.
Nothing is configured. Distinct messages are sent for some seconds, of which the first part, in which the limit is
found, does not count. A service that is faster than this client is compared with the best of some fixed limits.
"""

import asyncio
import contextlib
import json
import multiprocessing
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks import contenders as c
from benchmarks.harness import Round, Series, Spread, user
from benchmarks.report import Goal, result
from benchmarks.sink import NO_CONTENT, content_length, pin

SECONDS, WARM_UP = 20.0, 10.0
QUICK_SECONDS, QUICK_WARM_UP = 8.0, 4.0
FIXED = (16, 64, 256, 512, 1024)
SENDERS = 2000  # tasks that send one message after another: more than any limit that is found
REFUSED = b"HTTP/1.1 %d Refused\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n"


class Rules(NamedTuple):
    """The behavior of the service. ``most``: requests at once, ``rate``: per second; more are refused."""

    delay: float
    workers: int = 10**6
    most: int = 10**6
    rate: float = 0.0
    retry_after: int = 0
    stray: float = 0.0


class Service(asyncio.Protocol):
    """One connection of the service."""

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.buffer = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end >= 0 and len(self.buffer) >= end + 4 + content_length(self.buffer[:end]):
            self.buffer = b""
            self.pool.take(self.transport)


class Pool:
    """The workers of the service and its counts."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.loop = rules, asyncio.get_running_loop()
        self.queue: deque[asyncio.Transport] = deque()
        self.busy = self.accepted = self.refused = 0
        self.area, self.at = 0.0, self.loop.time()
        self.tokens, self.filled = rules.rate / 10, self.at

    def take(self, transport: asyncio.Transport) -> None:
        rules, now = self.rules, self.loop.time()
        self.tokens = min(rules.rate / 10, self.tokens + (now - self.filled) * rules.rate)
        self.filled = now
        if (rules.rate and self.tokens < 1) or random.random() < rules.stray:
            self.refuse(transport, 429)
        elif self.busy + len(self.queue) >= rules.most:
            self.refuse(transport, 503)
        else:
            self.tokens -= 1
            self.count()
            self.queue.append(transport)
            self.work()

    def refuse(self, transport: asyncio.Transport, status: int) -> None:
        self.refused += 1
        transport.write(REFUSED % (status, self.rules.retry_after))

    def work(self) -> None:
        while self.queue and self.busy < self.rules.workers:
            self.busy += 1
            delay = self.rules.delay * random.uniform(0.95, 1.05)
            self.loop.call_later(delay, self.finish, self.queue.popleft())

    def finish(self, transport: asyncio.Transport) -> None:
        self.count()
        self.busy -= 1
        self.accepted += 1
        transport.write(NO_CONTENT)
        self.work()

    def count(self) -> None:
        now = self.loop.time()
        self.area += (self.busy + len(self.queue)) * (now - self.at)
        self.at = now


def _serve(pipe: Connection, rules: Rules) -> None:
    pin(1)
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(_main(pipe, rules))


async def _main(pipe: Connection, rules: Rules) -> None:
    loop, stopped, pool = asyncio.get_running_loop(), asyncio.Event(), Pool(rules)
    server = await loop.create_server(lambda: Service(pool), "127.0.0.1", 0, backlog=4096)

    def control() -> None:
        try:
            pipe.recv()
        except EOFError:
            loop.remove_reader(pipe.fileno())
            stopped.set()
            return
        pool.count()
        pipe.send((pool.accepted, pool.refused, pool.area, time.process_time()))

    loop.add_reader(pipe.fileno(), control)
    pipe.send(server.sockets[0].getsockname()[1])
    await stopped.wait()
    server.close()


class Reading(NamedTuple):
    """Counts of the service between two readings."""

    accepted: int
    refused: int
    area: float
    cpu: float


class Running:
    """The parent's handle of a service."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.base_url = f"http://127.0.0.1:{pipe.recv()}"

    def read(self) -> Reading:
        self._pipe.send("read")
        return Reading(*self._pipe.recv())


@contextlib.contextmanager
def service(rules: Rules) -> Iterator[Running]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, rules), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Running(ours)
    finally:
        ours.close()
        process.join(5)
        if process.is_alive():
            process.kill()


@contextlib.asynccontextmanager
async def busy(base_url: str, fixed: int | None) -> AsyncIterator[Any]:
    """Send distinct messages without an end."""
    from pushsdk import AsyncPushClient, Limits, RetryPolicy, Timeout

    class Fixed:
        """Keeps the limit where it is."""

        limit, in_flight, gap = fixed or 0, 0, 0.0

        def started(self, now: float) -> None:
            self.in_flight += 1

        def ended(self, *_: object, **__: object) -> None:
            self.in_flight -= 1

        def refused(self, *_: object, **__: object) -> None: ...

    policy = RetryPolicy.safe(max_attempts=10**6)
    timeout = Timeout(total=None, attempt=None)
    async with AsyncPushClient(base_url, c.API_KEY, limits=Limits(), retry=policy, timeout=timeout) as client:
        client._engine.enter()
        client._engine.sender.budget.tokens = 10**12
        if fixed:
            client._engine.limiter._adaptive = Fixed()

        async def sender(number: int) -> None:
            step = number
            while True:
                step += SENDERS
                await client.send(user(step), {"title": {"en": f"number {step}"}, "iosEnabled": True})

        tasks = [asyncio.create_task(sender(number)) for number in range(SENDERS)]
        yield client
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(rules: Rules, warm_up: float, seconds: float, fixed: int | None = None) -> tuple[Round, Reading]:
    with service(rules) as running:
        async with busy(running.base_url, fixed):
            await asyncio.sleep(warm_up)
            before, wall, cpu = running.read(), time.perf_counter(), time.process_time()
            await asyncio.sleep(seconds)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            after = running.read()
    done = Reading(*(late - early for late, early in zip(after, before, strict=True)))
    return Round(max(1, done.accepted), cpu, wall, done.accepted, done.cpu / wall, 0), done


# The name, the service, and what it can take per second: 0 if this client is slower than the service.
CASES: list[tuple[str, Rules, float]] = [
    ("1 ms", Rules(0.001), 0),
    ("20 ms", Rules(0.02), 0),
    ("50 ms", Rules(0.05), 0),
    ("200 ms", Rules(0.2), 0),
    ("4 workers, 50 ms", Rules(0.05, workers=4), 80),
    ("32 workers, 50 ms", Rules(0.05, workers=32), 640),
    ("429 above 500/s", Rules(0.05, rate=500), 500),
    ("429 above 500/s, Retry-After", Rules(0.05, rate=500, retry_after=1), 500),
    ("429 above 100/s", Rules(0.005, rate=100), 100),
    ("0.5 % stray, 32 workers", Rules(0.05, workers=32, stray=0.005), 640),
    ("4 % stray, 32 workers", Rules(0.05, workers=32, stray=0.04), 640),
    ("503 beyond 64", Rules(0.1, most=64), 640),
]


async def run(*, quick: bool) -> dict[str, Any]:
    warm_up, seconds = (QUICK_WARM_UP, QUICK_SECONDS) if quick else (WARM_UP, SECONDS)
    series, goals = [], []
    for name, rules, capacity in CASES:
        round_, done = await measure(rules, warm_up, seconds)
        series.append(Series(name, [round_]))
        best = capacity
        if not capacity:
            fixed = FIXED[1::2] if quick else FIXED
            rates = [(await measure(rules, 2.0, seconds / 4, limit))[0] for limit in fixed]
            best = max(turn.units / turn.wall for turn in rates)
        share = Spread.of([done.accepted / round_.wall / best])
        goals.append(Goal(f"{name}: share of what it can do", share, at_least=0.92 if rules.workers < 10**6 else 0.9))
        load = done.area / round_.wall / (done.accepted / round_.wall * rules.delay)
        bound = 2.5 if rules.workers < 10**6 else None
        goals.append(Goal(f"{name}: in flight / (rate x delay)", Spread.of([load]), at_most=bound))
        if rules.rate or rules.most < 10**6:
            refused = done.refused / max(1, done.refused + done.accepted)
            goals.append(Goal(f"{name}: refused", Spread.of([refused]), at_most=0.05))
    return result("concurrency", "request", series, goals)


if __name__ == "__main__":  # a manual check of one case
    print(json.dumps(asyncio.run(run(quick=True)), indent=1))
