"""Scenario 4: what the import of the client costs over `import aiohttp`, in fresh processes that take turns."""

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
# `import pushsdk` alone loads next to nothing: the client comes when it is asked for.
STATEMENTS = {"pushsdk": "from pushsdk import AsyncPushClient"}


def seconds(module: str) -> tuple[float, float]:
    """Of wall time and of CPU time: the first is what people wait for, the second is steady on a busy machine."""
    code = TIMED.format(STATEMENTS.get(module, f"import {module}"))
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)


async def run(*, quick: bool) -> dict[str, Any]:
    modules = ("aiohttp", "pushsdk") if quick else ("aiohttp", "pushsdk", "httpx", "knockapi")
    for module in modules:
        seconds(module)  # compiles what is not compiled yet
    rounds = [{module: seconds(module) for module in modules} for _ in range(QUICK_ROUNDS if quick else ROUNDS)]

    def over(kind: int) -> Spread:
        return Spread.of((each["pushsdk"][kind] - each["aiohttp"][kind]) * 1e3 for each in rounds)

    goals = [
        Goal("ms over `import aiohttp`", over(0), at_most=60),
        Goal("ms of CPU over `import aiohttp`", over(1)),
        *(
            Goal(f"ms, {STATEMENTS.get(m, f'import {m}')}", Spread.of(each[m][0] * 1e3 for each in rounds))
            for m in modules
        ),
    ]
    return {
        **result("imports", "import", [], goals),
        "notes": [f"{len(rounds)} rounds of fresh processes"],
    }
