"""Processes to kill: ``python -m support.kill_child`` reads jobs, one JSON line each, and forks a process per job.

A fork takes 20 ms; a new interpreter needs half a second for its imports. Prints,
as JSON lines: ``{"pid": ...}`` after the fork, the result of the job if the process survives, and
``{"status": ...}``. An ended process stays a zombie until the next job, so that its pid is not reused.
"""

import asyncio
import json
import os
import pkgutil
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pushsdk import AsyncPushClient, Batching, Limits, PushError, PushRequest, RetryPolicy, StopPolicy, Timeout
from pushsdk._io import retrying  # noqa: F401 - so that no child has to import it
from support.kill_service import name_of

__all__ = ["KEY", "MESSAGE"]

KEY = "key-of-the-killed-1f3a"
MESSAGE = {"title": {"en": "Spring"}, "body": {"en": "It is here"}, "iosEnabled": True}


def requests(users: int, chunk: int) -> Iterator[PushRequest]:
    """Yield one numbered request per ``chunk`` users."""
    for number, start in enumerate(range(0, users, chunk)):
        names = [name_of(user) for user in range(start, min(start + chunk, users))]
        yield PushRequest(user_ids=names, message=MESSAGE, custom_fields={"number": number})


def ids(users: int) -> Iterator[str]:
    """Ids of all users."""
    return map(name_of, range(users))


def names(count: int) -> list[str]:
    return list(ids(count))


async def work(job: dict[str, Any]) -> dict[str, Any]:
    """Broadcast or resume, and return the counts of the report."""
    users, chunk = job["users"], job["chunk"]
    options = {name: job[name] for name in ("run", "on_unknown", "durable", "limit") if name in job}
    key: Any = KEY
    if "asks" in job:

        async def key() -> str:
            Path(job["asks"]).touch()  # noqa: ASYNC240 - the test waits for it
            await asyncio.Event().wait()
            return KEY

    client = AsyncPushClient(
        job["base_url"],
        key,
        batching=Batching(max_users=chunk),
        limits=Limits(in_flight=job["in_flight"]),
        retry=RetryPolicy.safe(initial_delay=0.005, max_delay=0.02, throttle_delay=0.005),
        timeout=Timeout(attempt=20.0),
    )
    async with client:
        try:
            if job["do"] == "broadcast":
                report = await client.broadcast(ids(users), MESSAGE, stop_policy=StopPolicy.off(), **options)
            elif job["do"] == "each":
                report = await client.send_each(requests(users, chunk), stop_policy=StopPolicy.off(), **options)
            else:
                report = await client.resume(stop_policy=StopPolicy.off(), **options)
        except PushError as error:
            return {"error": type(error).__name__, "told": str(error), "outcome": error.outcome}
    return {"accepted": report.accepted, "planned": report.planned, "stopped": report.stopped}


def live(job: dict[str, Any]) -> None:
    """The whole life of a forked process."""
    # Without its parent and its service the run would go on for ever: it ends after this many seconds of CPU time.
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
    if "file_size" in job:
        # By default Python ignores the signal, and the write fails; as this program does it, it kills.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if job.get("deadly") else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_size"], job["file_size"]))
    if "dies_at" in job:
        # The point at which the process kills itself.
        name, _, method = job["dies_at"].rpartition(".")
        setattr(pkgutil.resolve_name(name), method, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    result = asyncio.run(work(job))
    os.write(1, json.dumps(result).encode() + b"\n")


def main() -> None:
    """Until there are no more jobs."""
    child = None
    for line in sys.stdin:
        if child is not None:
            os.waitpid(child, 0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                live(json.loads(line))
                status = 0
            except BaseException:  # noqa: BLE001 - printed at the end
                traceback.print_exc()
            finally:
                os._exit(status)
        os.write(1, b'{"pid": %d}\n' % child)
        end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert end is not None
        os.write(1, b'{"status": %d}\n' % (end.si_status if end.si_code == os.CLD_EXITED else -end.si_status))


if __name__ == "__main__":
    main()
