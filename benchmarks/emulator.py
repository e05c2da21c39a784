"""The emulator under load: its CPU time per user, and its memory. It stores and counts a push before it responds.

The load comes from another process on the other core, over 64 kept connections with one request in flight on each.
Every turn has its own inbox, which must count each user once.

- `one user`: a request per user;
- `one user, read and watched`: the same, with 20 reads of the control API per second and an open event stream;
- `1000 users`: requests of 1000 users.

Memory is measured in its own process: `python -m benchmarks.emulator PUSHES`.
"""

import asyncio
import contextlib
import gc
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import WORKERS, Numbers, Plan, Round, Series, Spread, user
from benchmarks.report import Goal, result
from benchmarks.sink import pin

PLAN, QUICK = Plan(8, 1.5), Plan(3, 0.4)
PUSHES, QUICK_PUSHES = 300_000, 40_000
BATCH = 1000
READS = 20  # a second
ROUTES = ("requests?limit=50", "users?limit=50", "inboxes", "requests?search=hello&limit=50", "duplicates")
BODY = '{{"userIds":[{}],"message":{{"title":{{"en":"Hello"}},"body":{{"en":"World"}}}}}}'


class Turn(NamedTuple):
    """The work of one turn: each number once, `batch` users per request."""

    key: str
    first: int
    users: int
    batch: int
    watched: bool


class TurnResult(NamedTuple):
    """The result of one turn."""

    requests: int
    body_bytes: int
    cpu: float
    reads: int
    events: int


class _Sender(asyncio.Protocol):
    """One connection: a request, its response, the next request."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.requests: Iterator[bytes]
        self.done: asyncio.Future[None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def begin(self, requests: Iterator[bytes]) -> asyncio.Future[None]:
        self.requests, self.done = requests, asyncio.get_running_loop().create_future()
        self.next()
        return self.done

    def next(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.done.set_result(None)
        else:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not (data.startswith(b"HTTP/1.1 204") and data.endswith(b"\r\n\r\n")):
            self.done.set_exception(AssertionError(data))
        else:
            self.next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError())


class Load:
    """The clients, in the load process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.senders: list[_Sender] = []
        self.body_bytes = self.requests = self.reads = self.events = 0

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(WORKERS):
            self.senders.append((await loop.create_connection(_Sender, "127.0.0.1", self.port))[1])

    async def turn(self, turn: Turn) -> TurnResult:
        cpu = time.process_time()
        self.body_bytes = self.requests = self.reads = self.events = 0
        async with self.watching(turn.key) if turn.watched else contextlib.nullcontext():
            shared = self.bodies(turn)
            await asyncio.gather(*(sender.begin(shared) for sender in self.senders))
        return TurnResult(self.requests, self.body_bytes, time.process_time() - cpu, self.reads, self.events)

    def bodies(self, turn: Turn) -> Iterator[bytes]:
        for first in range(turn.first, turn.first + turn.users, turn.batch):
            ids = ",".join(f'"{user(number)}"' for number in range(first, first + turn.batch))
            body = BODY.format(ids).encode()
            self.requests += 1
            self.body_bytes += len(body)
            yield (
                f"POST /external/api/v1/push HTTP/1.1\r\nHost: {self.host}\r\nApi-Key: {turn.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            ).encode() + body

    @contextlib.asynccontextmanager
    async def watching(self, key: str) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(work) for work in (self.read(key), self.watch(key))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def get(self, key: str, route: str) -> AsyncIterator[asyncio.StreamReader]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"GET /_emulator/v1/{route} HTTP/1.1\r\nHost: {self.host}\r\nApi-Key: {key}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        if not (await reader.readline()).startswith(b"HTTP/1.1 200"):
            raise AssertionError(route)
        try:
            yield reader
        finally:
            writer.close()

    async def read(self, key: str) -> None:
        for number in count():
            async with self.get(key, ROUTES[number % len(ROUTES)]) as reader:
                await reader.read()
            self.reads += 1
            await asyncio.sleep(1 / READS)

    async def watch(self, key: str) -> None:
        async with self.get(key, "events") as reader:
            while line := await reader.readline():
                self.events += line.startswith(b"event:")


def _send(pipe: Connection, port: int) -> None:
    pin(1)

    async def main() -> None:
        load = Load(port)
        await load.open()
        while (turn := await asyncio.to_thread(_receive, pipe)) is not None:
            pipe.send(await load.turn(turn))

    asyncio.run(main())


def _receive(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None


@contextlib.contextmanager
def loading(port: int) -> Iterator[Connection]:
    """Yield a pipe to the load process, which gets a `Turn` and returns a `TurnResult`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_send, args=(theirs, port), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(5)
        if process.is_alive():
            process.kill()


class Bench:
    """A running emulator and its load process."""

    def __init__(self, emulator: Any, pipe: Connection) -> None:
        self.emulator = emulator
        self.pipe = pipe
        self.numbers = Numbers()
        self.keys = count()
        self.reads = self.events = 0

    async def send(self, users: int, *, batch: int, watched: bool = False, key: str = "") -> Round:
        """Measure and verify one turn."""
        turn = Turn(key or f"turn-{next(self.keys)}", self.numbers.take(users).start, users, batch, watched)
        wall, cpu = time.perf_counter(), time.process_time()
        self.pipe.send(turn)
        sent = await asyncio.to_thread(self.pipe.recv)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        self.reads += sent.reads
        self.events += sent.events
        if watched and not (sent.reads and sent.events):
            raise AssertionError("no read or no event was counted")
        if not key:
            counted = self.emulator.inbox(turn.key).users()
            if len(counted) != users or set(counted.values()) != {1}:
                raise AssertionError(f"{len(counted)} users of {users}")
        return Round(users, cpu, wall, sent.requests, sent.cpu / wall, sent.body_bytes)


CASES: dict[str, dict[str, Any]] = {
    "one user": {"batch": 1},
    "one user, read and watched": {"batch": 1, "watched": True},
    "1000 users": {"batch": BATCH},
}


async def compare(plan: Plan) -> tuple[dict[str, Series], Bench]:
    from pushsdk.emulator import Emulator

    series, sizes = {name: Series(name) for name in CASES}, {}
    async with Emulator() as emulator:
        with loading(emulator._port) as pipe:
            bench = Bench(emulator, pipe)
            for name, case in CASES.items():
                await bench.send(500 * case["batch"] if case["batch"] == 1 else 64 * BATCH, **case)
                probe = await bench.send(2000 if case["batch"] == 1 else 64 * BATCH, **case)
                sizes[name] = max(1, int(plan.turn / probe.wall * probe.units / case["batch"])) * case["batch"]
            for index in range(plan.rounds):
                for name in CASES if index % 2 else reversed(CASES):
                    gc.collect()
                    series[name].rounds.append(await bench.send(sizes[name], **CASES[name]))
    return series, bench


def rss_mib() -> float:
    """Return the resident memory of this process; 0 if the platform does not report it."""
    status = Path("/proc/self/status")
    return int(status.read_text().partition("VmRSS:")[2].split()[0]) / (1 << 10) if status.exists() else 0.0


async def memory(pushes: int) -> list[float]:
    """Return MiB after the first third of single-user pushes to one inbox, and after each tenth of the rest."""
    from pushsdk.emulator import Emulator

    sizes = []
    async with Emulator() as emulator:
        with loading(emulator._port) as pipe:
            bench = Bench(emulator, pipe)
            await bench.send(pushes // 3, batch=1, key="memory")
            sizes.append(rss_mib())
            for _ in range(10):
                await bench.send(pushes // 15, batch=1, key="memory")
                sizes.append(rss_mib())
    return sizes


def measured(pushes: int) -> list[float]:
    """Return the result of `memory` in a new process."""
    command = [sys.executable, "-m", "benchmarks.emulator", str(pushes)]
    sizes: list[float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return sizes


async def run(*, quick: bool) -> dict[str, Any]:
    plan = QUICK if quick else PLAN
    series, bench = await compare(plan)
    goals = []
    for name, goal in (("one user", 5_000), ("one user, read and watched", 5_000), ("1000 users", 300_000)):
        rounds = series[name].rounds
        goals += [
            Goal(f"users a second, {name}", Spread.of(turn.units / turn.wall for turn in rounds), at_least=goal),
            Goal(f"users a CPU second, {name}", Spread.of(turn.units / turn.cpu for turn in rounds), at_least=goal),
        ]
    pushes = QUICK_PUSHES if quick else PUSHES
    sizes = measured(pushes)
    goals.append(Goal(f"MiB after {pushes:,} pushes", Spread(sizes[-1], sizes[0], max(sizes)), at_most=120))
    if not quick:
        growth = sizes[-1] - sizes[0]
        goals.append(Goal("MiB of these since the first third", Spread.of([growth]), at_most=10))
    notes = [f"{bench.reads} reads and {bench.events} events in the turns that were read and watched"]
    return {**result("emulator", "user", list(series.values()), goals), "notes": notes}


if __name__ == "__main__":
    pin(0)
    json.dump(asyncio.run(memory(int(sys.argv[1]))), sys.stdout)
