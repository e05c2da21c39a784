"""Run benchmark scenarios, print a table, and write a plot and a JSON file."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.plot import distribution, gains, plot

RESULTS = Path(__file__).parent / "results"
# Scenario: the number of event loops it runs on. None if no loop affects it; one for long turns.
SCENARIOS = {
    "single": 2,
    "single_tls": 2,
    "instructions": 2,
    "coalesced": 2,
    "retries": 2,
    "imports": 0,
    "memory": 0,
    "broadcast": 2,
    "processes": 0,
    "throttled": 0,
    "concurrency": 1,
    "overload": 1,
    "hangs": 1,
    "strays": 1,
    "tenants": 1,
    "urgent": 1,
    "drawn": 2,
    "simulated": 0,
    "emulator": 2,
    "sync": 2,
    "otel": 2,
    "claims": 0,
    "arrow": 0,
    "spark": 0,
}
# What `--only` of the first name runs.
GROUPS = {"concurrency": ["concurrency", "overload", "hangs", "strays", "tenants", "urgent", "drawn", "simulated"]}
# Run only if named: these need more than `.[bench]`, Spark and valgrind.
NAMED_ONLY = {"instructions", "spark"}
# Packages whose versions are recorded.
PACKAGES = [
    "aiohttp",
    "aiohttp-retry",
    "httpx",
    "httpx-aiohttp",
    "httpx2",
    "knockapi",
    "msgspec",
    "pyarrow",
    "pyqwest",
    "pyreqwest",
    "pyspark",
    "tenacity",
    "uvloop",
]
LIMIT = 900.0  # seconds after which a scenario is stopped


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run short turns and few rounds, in some minutes")
    parser.add_argument(
        "--only", action="append", choices=list(SCENARIOS), metavar="NAME", help=f"run only {', '.join(SCENARIOS)}"
    )
    parser.add_argument("--loop", choices=["asyncio", "uvloop", "both"], default="both", help="use this loop (both)")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="compare with the JSON file of an earlier run")
    return parser.parse_args()


def chosen(only: list[str] | None) -> list[str]:
    """Return the scenarios to run, groups resolved."""
    if not only:
        return [name for name in SCENARIOS if name not in NAMED_ONLY]
    return [name for first in only for name in GROUPS.get(first, [first])]


def shares(results: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the shares of random services in all results, by kind and event loop."""
    return {
        f"{kind}, {result['loop']}" if result["loop"] else kind: values
        for result in results
        for kind, values in result.get("shares", {}).items()
    }


class Work(NamedTuple):
    """Seconds, of any start: of the wall clock, that all cores worked, that our processes did, that the host took."""

    wall: float
    cores: float
    ours: float
    host: float

    @classmethod
    def so_far(cls) -> "Work":
        """Return the sums up to now, without ``cores`` and ``host`` where there is no /proc."""
        usage, ticks = resource.getrusage(resource.RUSAGE_CHILDREN), [0.0] * 8
        with suppress(OSError):
            line = Path("/proc/stat").read_text().partition("\n")[0]
            ticks = [int(number) / os.sysconf("SC_CLK_TCK") for number in line.split()[1:9]]
        user, nice, system, _, _, irq, softirq, steal = ticks
        cores = user + nice + system + irq + softirq
        return cls(time.monotonic(), cores, usage.ru_utime + usage.ru_stime, steal)

    def others_since(self, before: "Work") -> str:
        """Return the shares of the machine that others took, in words."""
        wall, cores, ours, host = (now - then for now, then in zip(self, before, strict=True))
        share = 1 / (wall * (os.cpu_count() or 1))
        return f"other processes took {max(0.0, cores - ours) * share:.0%} of the machine, the host {host * share:.0%}"


def run(name: str, loop: str, *, quick: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.worker", name, loop, *(["--quick"] if quick else [])]
    before = Work.so_far()
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    result["notes"] = [*result.get("notes", []), Work.so_far().others_since(before)]
    return result


def load() -> float:
    """Return the load average of the last five minutes; 0 if the platform does not report it."""
    return os.getloadavg()[1] if hasattr(os, "getloadavg") else 0.0


def versions() -> Iterator[tuple[str, str]]:
    """Yield the versions of the installed packages; no scenario needs all packages."""
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
    for name in chosen(args.only):
        for loop in loops[: SCENARIOS[name]] or ["none"]:
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
    for one in (each for each in results if each["scenario"] == "processes"):
        gains(one, path.with_suffix(".processes.png"))
    if services := shares(results):
        distribution(services, path.with_suffix(".services.png"))
    if args.compare:
        print(report.compared(results, report.load(args.compare)))
    plotted = " and .png" if path.with_suffix(".png").exists() else ""
    print(f"\n{time.monotonic() - started:.0f} s; spreads are quartiles over rounds; {path}{plotted}")
    if load() > (os.cpu_count() or 1):
        print(f"The machine was busy (load {load():.1f}), which raises even CPU time: run again when it is idle.")
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
