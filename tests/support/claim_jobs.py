"""Deliveries of jobs in separate processes, some of which are killed: ``python -m support.claim_jobs`` reads jobs.

A line of JSON each on stdin: a store's kind and arguments, an address, keys to deliver at the same time, and a place to
die or to hang (``"slow_key"``: when asked for the Api-Key; ``"slow_store"``: when the claims are to be written;
``"connecting"``: by itself, so it only says when it connects). On stdout comes a line for each delivery that ended: its
key and what the caller was told.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pushsdk import AsyncPushClient, Batching, PushError, Receipt, RetryPolicy, Timeout
from pushsdk.claims import Claim, ClaimStore, PostgresClaims, Put, RedisClaims, SqliteClaims
from pushsdk.spark import DirectoryClaims

if TYPE_CHECKING:  # it doubles the start of a process
    import pytest

__all__ = ["SHARED", "arguments_of", "deliver", "store_of"]

numbers = itertools.count()

SHARED = ["sqlite", "directory", "redis", "postgres"]
KINDS: dict[str, Any] = {
    "sqlite": SqliteClaims,
    "directory": DirectoryClaims,
    "redis": RedisClaims,
    "postgres": PostgresClaims,
}
MESSAGE = {"title": {"en": "Spring"}, "iosEnabled": True}


def arguments_of(kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of a store at a new place of this kind, usable in any process."""
    if kind == "redis":
        return {"server": request.getfixturevalue("redis_url"), "prefix": f"test-{next(numbers)}:"}
    if kind == "postgres":
        return {"server": request.getfixturevalue("postgres_url"), "table": f"test_{next(numbers)}"}
    folder: Path = request.getfixturevalue("tmp_path")
    return {"path": str(folder / f"{next(numbers)}.claims")}


def store_of(kind: str, arguments: dict[str, Any]) -> ClaimStore:
    """A store of that kind and place."""
    store: ClaimStore = KINDS[kind](**arguments)
    return store


async def deliver(client: AsyncPushClient, key: str) -> str:
    """Deliver a job, and return the outcome."""
    try:
        receipt: Receipt = await client.send(f"user of {key}", MESSAGE, idempotency_key=key)
    except PushError as error:
        return str(error.outcome)
    return "ALREADY_ACCEPTED" if receipt.already_accepted else str(receipt.outcome)


def die() -> None:
    """As kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _prepare(store: ClaimStore, end: str | None) -> None:
    """Have this process die after its claim was written, or after the answer came and before that is written."""
    put = store.put

    async def dying(puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        if end == "answered" and puts[0].expected:
            die()
        answers = await put(puts, ttl)
        if end == "claimed" and None in answers:
            die()
        return answers

    store.put = dying  # type: ignore[method-assign]


async def _hang(reason: str) -> Any:
    """Say so, and go no further."""
    os.write(1, json.dumps([reason, "HANGS"]).encode() + b"\n")
    await asyncio.get_running_loop().create_future()


async def _work(job: dict[str, Any]) -> None:
    store = store_of(job["kind"], job["arguments"])
    _prepare(store, job.get("end"))
    hangs = job.get("hangs")
    if hangs == "connecting":
        loop = asyncio.get_running_loop()
        connect = loop.sock_connect

        async def sock_connect(sock: socket.socket, address: Any) -> None:
            os.write(1, json.dumps([hangs, "HANGS"]).encode() + b"\n")
            await connect(sock, address)

        loop.sock_connect = sock_connect  # type: ignore[method-assign]
    if hangs == "slow_store":
        store.put = lambda puts, ttl: _hang(hangs)  # type: ignore[method-assign]
    # Some answers never come: the faults of the service.
    patience = Timeout(total=job.get("patience", 20.0), attempt=job.get("attempt", 5.0))
    retry = RetryPolicy.safe(initial_delay=0.005, max_delay=0.02, throttle_delay=0.005)
    small = Batching(max_users=3)
    async with (
        store,
        AsyncPushClient(
            job["base_url"],
            (lambda: _hang(hangs)) if hangs == "slow_key" else job["key"],
            claims=store,
            timeout=patience,
            retry=retry,
            batching=small,
        ) as client,
    ):

        async def one(key: str) -> None:
            outcome = await deliver(client, key)
            os.write(1, json.dumps([key, outcome]).encode() + b"\n")

        await asyncio.gather(*map(one, job["keys"]))


if __name__ == "__main__":
    for line in sys.stdin:
        asyncio.run(_work(json.loads(line)))
