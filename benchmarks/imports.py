"""Scenario 4: what `import pushsdk` costs over `import aiohttp`, in fresh processes that take turns."""

import statistics
import subprocess
import sys
from typing import Any

from benchmarks.harness import Spread
from benchmarks.report import Goal, result

ROUNDS, QUICK_ROUNDS = 21, 15
TIMED = "import time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t)"


def seconds(module: str) -> float:
    done = subprocess.run([sys.executable, "-c", TIMED.format(module)], stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout)


async def run(*, quick: bool) -> dict[str, Any]:
    modules = ("aiohttp", "pushsdk", "aiohttp, msgspec", "httpx", "knockapi")
    for module in modules:
        seconds(module)  # compiles what is not compiled yet
    rounds = [{module: seconds(module) for module in modules} for _ in range(QUICK_ROUNDS if quick else ROUNDS)]
    over = Spread.of((each["pushsdk"] - each["aiohttp"]) * 1e3 for each in rounds)
    goals = [Goal("ms over `import aiohttp`", over, at_most=60)]
    goals += [Goal(f"ms, import {m}", Spread.of(each[m] * 1e3 for each in rounds)) for m in modules]
    median = statistics.median(each["aiohttp"] for each in rounds)
    return {
        **result("imports", "import", [], goals),
        "notes": [f"{len(rounds)} rounds of fresh processes; aiohttp alone {median * 1e3:.0f} ms"],
    }
