"""The command: runs the scenarios one after the other, prints the table, writes plot and JSON."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.plot import plot

RESULTS = Path(__file__).parent / "results"
# Scenario: does the event loop matter to it?
SCENARIOS = {
    "single": True,
    "coalesced": True,
    "retries": True,
    "imports": False,
    "memory": False,
    "broadcast": True,
    "throttled": False,
    "emulator": True,
    "sync": True,
    "otel": True,
    "claims": False,
    "arrow": False,
    "spark": False,
}
# Only where they are asked for: they need more than `.[bench]`.
ASKED_FOR = {"spark"}
# Whose versions are noted.
PACKAGES = [
    "aiohttp",
    "aiohttp-retry",
    "httpx",
    "httpx-aiohttp",
    "knockapi",
    "msgspec",
    "pyarrow",
    "pyspark",
    "tenacity",
    "uvloop",
]
LIMIT = 300.0  # seconds one scenario may take before it is stopped


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short turns, few rounds: under a minute")
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--loop", choices=["asyncio", "uvloop", "both"], default="both")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="an earlier run's file")
    return parser.parse_args()


def run(name: str, loop: str, *, quick: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.worker", name, loop, *(["--quick"] if quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def load() -> float:
    """Runnable processes, on average over the last five minutes; 0 where the platform does not tell."""
    return os.getloadavg()[1] if hasattr(os, "getloadavg") else 0.0


def versions() -> Iterator[tuple[str, str]]:
    """Of those packages that are here: no scenario needs all of them."""
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def meta(*, quick: bool, seconds: float) -> dict[str, Any]:
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": load(),
        "packages": dict(versions()),
        "quick": quick,
        "seconds": round(seconds, 1),
    }


def main() -> int:
    args = arguments()
    loops = ["asyncio", "uvloop"] if args.loop == "both" else [args.loop]
    started, results, failed = time.monotonic(), [], []
    for name in args.only or [name for name in SCENARIOS if name not in ASKED_FOR]:
        for loop in loops if SCENARIOS[name] else ["none"]:
            print(f"{name} {loop if SCENARIOS[name] else ''}...", file=sys.stderr)
            try:
                results.append(run(name, loop, quick=args.quick))
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                failed.append(f"{name} {loop}: {error}")
                continue
            print(report.table(results[-1:]), flush=True)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    path = RESULTS / f"{stamp}.json"
    report.save(results, meta(quick=args.quick, seconds=time.monotonic() - started), path)
    plot(results, path.with_suffix(".png"))
    if args.compare:
        print(report.compared(results, report.load(args.compare)))
    plotted = " and .png" if path.with_suffix(".png").exists() else ""
    print(f"\n{time.monotonic() - started:.0f} s; spreads are quartiles over rounds; {path}{plotted}")
    if load() > (os.cpu_count() or 1):
        print(f"The machine was busy (load {load():.1f}): even CPU time is dearer then. Run again when it is quiet.")
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
