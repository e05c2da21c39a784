"""kill -9 before the first byte of a request: its users are PENDING, because nothing was sent."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.kill_nursery import Nursery, ProcessLife
from support.kill_service import CALM, KillService
from support.wire_network import black_hole

from pushsdk import BroadcastReport, RunFileError, read_report

pytestmark = pytest.mark.skipif("not hasattr(__import__('os'), 'fork')", reason="its processes are forked")

USERS, IN_FLIGHT = 200, 4
SYN_SENT = " 02 "


def job_of(path: Path, base_url: str, **options: Any) -> dict[str, Any]:
    return {
        "do": "broadcast",
        "run": str(path),
        "users": USERS,
        "chunk": 10,
        "in_flight": IN_FLIGHT,
        "base_url": base_url,
        **options,
    }


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition of another process is true."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event of another process
            await asyncio.sleep(0.01)


async def killed(life: ProcessLife, path: Path) -> BroadcastReport:
    life.kill()
    assert (await life.end()).killed
    return read_report(path)


def planned(path: Path) -> bool:
    try:
        return read_report(path).planned == USERS
    except RunFileError:
        return False


@asynccontextmanager
async def silent_server(connections: list[object]) -> AsyncIterator[int]:
    """A server that accepts connections and never answers, so TLS handshakes hang."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("durable", [False, True])
async def test_users_are_pending_after_a_kill_during_a_handshake(
    durable: bool, nursery: Nursery, tmp_path: Path
) -> None:
    path, connections = tmp_path / "run", list[object]()
    async with silent_server(connections) as port:
        life = await nursery.start(job_of(path, f"https://127.0.0.1:{port}", durable=durable))
        await until(lambda: len(connections) >= IN_FLIGHT)
        report = await killed(life, path)
    assert (report.not_sent, report.unknown) == (USERS, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for dropped SYNs in /proc")
async def test_users_are_pending_after_a_kill_during_a_connect(nursery: Nursery, tmp_path: Path) -> None:
    path = tmp_path / "run"
    async with black_hole() as (host, port):
        life = await nursery.start(job_of(path, f"http://{host}:{port}"))
        await until(lambda: is_connecting(life.pid, port))
        report = await killed(life, path)
    assert (report.not_sent, report.unknown) == (USERS, 0)


def is_connecting(pid: int, port: int) -> bool:
    """Return True if a socket of this process is connecting to the port."""
    sockets = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            sockets.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return any(f":{port:04X}{SYN_SENT}" in line and f"socket:[{line.split()[9]}]" in sockets for line in lines)


async def test_users_are_pending_after_a_kill_during_the_key_callable(nursery: Nursery, tmp_path: Path) -> None:
    path, marker = tmp_path / "run", tmp_path / "asked"
    async with KillService(USERS, seed=1, faults=CALM) as service:
        life = await nursery.start(job_of(path, service.base_url, asks=str(marker)))
        await until(marker.exists)
        report = await killed(life, path)
    assert (report.not_sent, report.unknown, service.seen) == (USERS, 0, 0)


async def test_users_are_pending_after_a_kill_during_a_pause(nursery: Nursery, tmp_path: Path) -> None:
    path, statuses = tmp_path / "run", list[int]()

    async def throttle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"]")
        writer.write(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n")
        statuses.append(1)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(throttle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        life = await nursery.start(job_of(path, f"http://127.0.0.1:{port}"))
        await until(lambda: planned(path) and "HTTP 429" in reasons(path) and not read_report(path).unknown)
        report = await killed(life, path)
    assert (report.not_sent, report.unknown) == (USERS, 0)
    assert 1 <= len(statuses) <= IN_FLIGHT


def reasons(path: Path) -> set[str]:
    return {row.reason for row in read_report(path).rows()}


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    ("place", "unknown"),
    [
        # Connected, and nothing claimed yet.
        ("pushsdk._runs.log.RunFileLog.claim", 0),
        # Claimed users may have been sent to, as far as the next process can know.
        ("pushsdk._io.fast_post.HttpConnection.write", 10),
    ],
)
async def test_a_claim_is_made_between_the_connection_and_the_first_byte(
    place: str, unknown: int, durable: bool, nursery: Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    async with KillService(USERS, seed=1, faults=CALM) as service:
        job = job_of(path, service.base_url, dies_at=place, in_flight=1, durable=durable)
        end = await (await nursery.start(job)).end()
        assert end.killed
        report = read_report(path)
        assert (report.unknown, report.not_sent, service.seen) == (unknown, USERS - unknown, 0)
        del job["dies_at"]
        end = await (await nursery.start({**job, "do": "resume"})).end()
    assert end.told is not None
    assert end.told["accepted"] == USERS - unknown
    assert os.listdir(tmp_path) == ["run"]
