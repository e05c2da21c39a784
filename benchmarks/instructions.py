"""Instructions of a single send, counted by valgrind's callgrind. They do not depend on what else the machine does.

Each contender sends some pushes in a process, and three times as many in another: the difference is what sends cost,
without imports and connections. Eight are in flight: no send of pushsdk waits for a slot then.
"""

import asyncio
import os
import re
import subprocess
import sys
from typing import Any

from benchmarks import contenders as c
from benchmarks.harness import Numbers, Spread, with_workers
from benchmarks.report import Goal, result
from benchmarks.sink import sink

FEW, MANY, WORKERS = 1_000, 3_000, 8
OPENERS = {c.BARE: c.bare, c.OURS: c.ours, c.RAW: c.raw}


def counted(name: str, loop: str, sends: int, base_url: str) -> int:
    """Return the instructions of a process that sends so often."""
    valgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
    command = [*valgrind, sys.executable, "-m", "benchmarks.instructions", name, loop, str(sends), base_url]
    environ = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True, env=environ)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise RuntimeError(done.stderr)
    return int(found[1])


async def run(*, quick: bool) -> dict[str, Any]:
    loop = "uvloop" if type(asyncio.get_running_loop()).__module__.startswith("uvloop") else "asyncio"
    with sink() as server:
        sums = {name: [counted(name, loop, sends, server.base_url) for sends in (FEW, MANY)] for name in OPENERS}
    each = {name: (more - less) / (MANY - FEW) for name, (less, more) in sums.items()}
    goals = [Goal(f"thousand instructions a send, {name}", Spread.of([number / 1000])) for name, number in each.items()]
    goals.append(Goal(f"x {c.BARE}", Spread.of([each[c.BARE] / each[c.OURS]])))
    return result("instructions", "request", [], goals)


def main() -> None:
    name, loop, sends, base_url = sys.argv[1:]

    async def send_all() -> None:
        async with OPENERS[name](base_url) as send:
            await with_workers(send, Numbers().take(int(sends)), WORKERS)

    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(send_all())


if __name__ == "__main__":
    main()
