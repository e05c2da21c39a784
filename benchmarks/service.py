"""The service of the load scenarios: a process with workers, a queue and a delay.

It may refuse by rate, by number or by chance, hang, lose answers, slow down and change. On request it records every
push that it gets: this record, not what the client says, is the truth. A simulation runs the pool on a virtual clock.
"""

import asyncio
import contextlib
import math
import multiprocessing
import os
import random
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import msgspec

from benchmarks.harness import Round
from benchmarks.sink import NO_CONTENT, certified, content_length, pin

REFUSED = b"HTTP/1.1 %d Refused\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n"
UNBOUND = 10**6
# Each push that the service got: how often, by Api-Key and user.
Pushes = Counter[tuple[str, str]]


class Stall(NamedTuple):
    """Stop for ``length`` seconds, every so many seconds."""

    every: float
    length: float


class Rules(NamedTuple):
    """The behavior of the service. ``most``: requests at once, ``rate``: per second; more are refused."""

    delay: float
    """Mean seconds of work."""
    workers: int = UNBOUND
    most: int = UNBOUND
    rate: float = 0.0
    retry_after: int = 0
    stray: float = 0.0
    """Share of the requests that get a 429 for no reason, with `Retry-After: 0`."""
    sigma: float = 0.0
    """Sigma of the lognormal distribution of the work; 0 is 5 % around the mean."""
    outliers: float = 0.0
    """Share of the requests whose work takes ten times as long."""
    pause: Stall | None = None
    hangs: bool = False
    """Nothing is answered until this changes."""
    lost: float = 0.0
    """Share of the requests that push and are never answered."""

    @property
    def capacity(self) -> float:
        """Requests per second that the service can do, 0 if it has no bound."""
        at_once = min(self.workers, self.most)
        if at_once == UNBOUND:
            return self.rate
        most = at_once / self.delay * (1.0 - self.pause.length / self.pause.every if self.pause else 1.0)
        return min(most, self.rate or most)

    def seconds(self, chance: random.Random) -> float:
        """Draw the work of one request."""
        mean = self.delay / (1.0 + 9.0 * self.outliers)
        if self.sigma:
            seconds = chance.lognormvariate(math.log(mean) - self.sigma**2 / 2, self.sigma)
        else:
            seconds = mean * chance.uniform(0.95, 1.05)
        return seconds * 10 if chance.random() < self.outliers else seconds


class Clock(Protocol):
    """The part of an event loop that the pool needs."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> object: ...


class Caller(Protocol):
    """The part of a connection that the pool needs."""

    def is_closing(self) -> bool: ...

    def write(self, data: bytes) -> None: ...


class Pool:
    """The workers of the service and its counts."""

    def __init__(self, rules: Rules, clock: Clock, seed: int | None = None) -> None:
        self.rules, self.clock, self.chance = rules, clock, random.Random(seed)
        self.queue: deque[Caller] = deque()
        # What has been done during a stop, to be answered at its end.
        self.held: list[tuple[Caller, float]] = []
        self.is_paused = False
        self.busy = self.accepted = self.refused = 0
        # Seconds of requests in the service, and of work that was done.
        self.area = self.work_seconds = 0.0
        self.at = clock.time()
        self.tokens, self.filled = rules.rate / 10, self.at
        if rules.pause:
            clock.call_later(rules.pause.every, self._pause, rules.pause)

    @property
    def flight(self) -> int:
        """Number of requests in the service."""
        return self.busy + len(self.queue)

    def take(self, caller: Caller) -> bool:
        """Take or refuse a request. Return True if it will push."""
        rules, now = self.rules, self.clock.time()
        self.tokens = min(max(1.0, rules.rate / 10), self.tokens + (now - self.filled) * rules.rate)
        self.filled = now
        if rules.rate and self.tokens < 1:
            return self.refuse(caller, 429, rules.retry_after)
        if self.flight >= rules.most:
            return self.refuse(caller, 503, rules.retry_after)
        if self.chance.random() < rules.stray:
            return self.refuse(caller, 429, 0)
        self.tokens -= 1
        self.count()
        self.queue.append(caller)
        self.work()
        return True

    def refuse(self, caller: Caller, status: int, retry_after: int) -> bool:
        self.refused += 1
        caller.write(REFUSED % (status, retry_after))
        return False

    def change(self, rules: Rules) -> None:
        self.count()
        self.rules = rules
        self.work()
        self._answer_held()

    def work(self) -> None:
        while self.queue and self.busy < self.rules.workers:
            self.busy += 1
            seconds = self.rules.seconds(self.chance)
            self.clock.call_later(seconds, self.finish, self.queue.popleft(), self.clock.time())

    def finish(self, caller: Caller, began: float) -> None:
        if self.rules.hangs or self.is_paused:
            self.held.append((caller, began))
            return
        self.count()
        self.busy -= 1
        self.accepted += 1
        self.work_seconds += self.clock.time() - began
        self.work()
        if not caller.is_closing() and self.chance.random() >= self.rules.lost:
            caller.write(NO_CONTENT)

    def count(self) -> None:
        now = self.clock.time()
        self.area += self.flight * (now - self.at)
        self.at = now

    def _pause(self, pause: Stall) -> None:
        self.is_paused = True
        self.clock.call_later(pause.length, self._resume)
        self.clock.call_later(pause.every, self._pause, pause)

    def _resume(self) -> None:
        self.is_paused = False
        self._answer_held()

    def _answer_held(self) -> None:
        held, self.held = self.held, []
        for caller, began in held:
            self.finish(caller, began)


class _Users(msgspec.Struct):
    userIds: list[str]  # noqa: N815  the name in JSON


_decode = msgspec.json.Decoder(_Users).decode


class Service(asyncio.Protocol):
    """One connection of the service. ``pushes`` is None if nothing is recorded."""

    def __init__(self, pool: Pool, pushes: Pushes | None) -> None:
        self.pool, self.pushes = pool, pushes
        self.buffer = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0 or len(self.buffer) < end + 4 + content_length(self.buffer[:end]):
            return
        request, self.buffer = self.buffer, b""
        if self.pool.take(self.transport) and self.pushes is not None:
            key = request.partition(b"Api-Key: ")[2].partition(b"\r")[0].decode()
            self.pushes.update((key, user) for user in _decode(request[end + 4 :]).userIds)


class Reading(NamedTuple):
    """Counts of the service, its seconds of CPU and of wall time, and the CPU seconds of this process."""

    accepted: int
    refused: int
    work: float
    """Seconds that the workers took for the accepted requests, by the clock."""
    area: float
    cpu: float
    wall: float
    client_cpu: float

    def __sub__(self, earlier: "Reading") -> "Reading":
        return Reading._make(late - early for late, early in zip(self, earlier, strict=True))

    @property
    def rate(self) -> float:
        return max(1, self.accepted) / self.wall

    @property
    def flight(self) -> float:
        """Mean number of requests in the service."""
        return self.area / self.wall

    def round(self) -> Round:
        done = max(1, self.accepted)
        return Round(done, self.client_cpu, self.wall, done, self.cpu / self.wall, 0)


def _serve(pipe: Connection, rules: Rules, options: dict[str, Any]) -> None:
    pin(1)
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(_main(pipe, rules, **options))


async def _main(pipe: Connection, rules: Rules, *, records: bool, tls: bool, seed: int | None) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    pool, pushes = Pool(rules, loop, seed), Pushes() if records else None
    context, ca = certified() if tls else (None, "")
    server = await loop.create_server(lambda: Service(pool, pushes), "127.0.0.1", 0, backlog=4096, ssl=context)

    def control() -> None:
        """Change to the new rules, or answer the question: the pushes, the requests in the service, else the counts."""
        try:
            question = pipe.recv()
        except EOFError:
            loop.remove_reader(pipe.fileno())
            stopped.set()
            return
        if isinstance(question, Rules):
            pool.change(question)
        pool.count()
        counts = (pool.accepted, pool.refused, pool.work_seconds, pool.area, time.process_time(), pool.at)
        os.set_blocking(pipe.fileno(), True)  # uvloop's reader has changed that, and the record is long
        pipe.send({"pushes": pushes, "flight": pool.flight}.get(question, counts))

    loop.add_reader(pipe.fileno(), control)
    pipe.send((server.sockets[0].getsockname()[1], ca))
    await stopped.wait()
    server.close()


class Running:
    """The parent's handle of a service."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        port, self._ca = pipe.recv()
        self.base_url = f"{'https' if self._ca else 'http'}://127.0.0.1:{port}"

    @property
    def context(self) -> ssl.SSLContext | None:
        """Context for the option `ssl` of a client that trusts this service."""
        return ssl.create_default_context(cadata=self._ca) if self._ca else None

    def _ask(self, question: object) -> Any:
        self._pipe.send(question)
        return self._pipe.recv()

    def read(self, rules: Rules | None = None) -> Reading:
        """Return the counts since the start, after a change to ``rules`` if given."""
        return Reading._make([*self._ask(rules), time.process_time()])

    def flight(self) -> int:
        """Return the number of requests in the service."""
        return int(self._ask("flight"))

    def pushes(self) -> Pushes:
        """Return each push that the service got, from a service that records them."""
        pushes: Pushes = self._ask("pushes")
        return pushes

    async def period(self, seconds: float) -> Reading:
        """Return the counts of the next seconds."""
        before = self.read()
        await asyncio.sleep(seconds)
        return self.read() - before


@contextlib.contextmanager
def service(rules: Rules, *, records: bool = False, tls: bool = False, seed: int | None = None) -> Iterator[Running]:
    """Run a service in a process of its own. With a seed, the same requests take the same time."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    options = {"records": records, "tls": tls, "seed": seed}
    process = context.Process(target=_serve, args=(theirs, rules, options), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Running(ours)
    finally:
        ours.close()
        process.join(5)
        if process.is_alive():
            process.kill()
