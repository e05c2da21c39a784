"""Import time of the client over `import aiohttp`, in fresh processes that take turns."""

import os
import subprocess
import sys
from typing import Any

from benchmarks.harness import Spread
from benchmarks.report import Goal, result

ROUNDS, QUICK_ROUNDS = 21, 7
TIMED = (
    "import time; wall, cpu = time.perf_counter(), time.process_time(); {0}; "
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)
# `import pushsdk` alone loads almost nothing: the client is imported on first use.
STATEMENTS = {"pushsdk": "from pushsdk import AsyncPushClient"}


def seconds(module: str) -> tuple[float, float]:
    """Return wall-clock and CPU time of an import. CPU time hardly depends on other processes."""
    code = TIMED.format(STATEMENTS.get(module, f"import {module}"))
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True, env=environ)
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)


async def run(*, quick: bool) -> dict[str, Any]:
    modules = ("aiohttp", "pushsdk") if quick else ("aiohttp", "pushsdk", "httpx", "knockapi")
    for module in modules:
        seconds(module)  # compiles the bytecode
    rounds = [{module: seconds(module) for module in modules} for _ in range(QUICK_ROUNDS if quick else ROUNDS)]

    def over(kind: int) -> Spread:
        return Spread.of((times["pushsdk"][kind] - times["aiohttp"][kind]) * 1e3 for times in rounds)

    goals = [
        Goal("ms over `import aiohttp`", over(0), at_most=25),
        Goal("ms of CPU over `import aiohttp`", over(1)),
        *(
            Goal(f"ms, {STATEMENTS.get(m, f'import {m}')}", Spread.of(times[m][0] * 1e3 for times in rounds))
            for m in modules
        ),
    ]
    return {
        **result("imports", "import", [], goals),
        "notes": [f"{len(rounds)} rounds of fresh processes"],
    }
