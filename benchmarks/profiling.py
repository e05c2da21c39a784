"""A profile of a send: `python -m benchmarks.profiling single|alone|coalesced [--loop uvloop]`.

A timer signal samples the running function and its callers. A tracing profiler would exaggerate small functions. The
CPU time of the whole run converts samples to microseconds per send. Time in C (msgspec, the event loop) counts for the
calling Python function.
"""

import argparse
import asyncio
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import CodeType, FrameType

from benchmarks import coalesced, retries
from benchmarks import contenders as c
from benchmarks.harness import WARM_UP, Contender, Numbers
from benchmarks.sink import pin, sink

INTERVAL = 0.0005
SHOWN = 45


class Samples:
    """Samples per function: of its own code, and with the functions that it called."""

    def __init__(self) -> None:
        self.own: Counter[CodeType] = Counter()
        self.total: Counter[CodeType] = Counter()
        self.count = 0

    def take(self, _signal: int, frame: FrameType | None) -> None:
        self.count += 1
        if frame is not None:
            self.own[frame.f_code] += 1
        seen: set[CodeType] = set()
        while frame is not None:
            seen.add(frame.f_code)
            frame = frame.f_back
        self.total.update(seen)

    def table(self, us_per_unit: float) -> str:
        lines = [f"{'own us':>8}{'total us':>10}  function"]
        scale = us_per_unit / self.count
        for code, own in self.own.most_common(SHOWN):
            path = Path(code.co_filename)
            place = f"{path.parent.name}/{path.name}:{code.co_firstlineno}"
            lines.append(f"{own * scale:8.2f}{self.total[code] * scale:10.2f}  {code.co_qualname:44} {place}")
        by_package = Counter[str]()
        for code, own in self.own.items():
            by_package[package_of(code.co_filename)] += own
        shares = ", ".join(f"{name} {own * scale:.1f}" for name, own in by_package.most_common())
        return "\n".join([*lines, f"own us by package: {shares}"])


def package_of(filename: str) -> str:
    parts = Path(filename).parts
    for name in ("pushsdk", "benchmarks", "aiohttp", "multidict", "yarl", "asyncio", "msgspec"):
        if name in parts:
            return name
    return "other"


def contender(name: str) -> Contender:
    from pushsdk import RetryPolicy

    waves = partial(coalesced.in_waves, tasks=coalesced.TOGETHER)
    return {
        "single": c.singly(c.OURS, c.ours),
        "bare": c.singly(c.BARE, c.bare),
        "alone": c.singly("alone", partial(retries.alone, retry=RetryPolicy.safe()), posts="none"),
        "coalesced": Contender("coalesced", partial(coalesced.ours, drive=waves), posts="merged"),
    }[name]


async def profile(name: str, count: int) -> None:
    chosen, samples, numbers = contender(name), Samples(), Numbers()
    with sink() as server:
        async with chosen.open(server.base_url) as run:
            await run(numbers.take(WARM_UP))
            started = time.process_time()
            await run(numbers.take(count // 4))
            undisturbed = (time.process_time() - started) / (count // 4) * 1e6
            signal.signal(signal.SIGALRM, samples.take)
            signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
            await run(numbers.take(count))
            signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"{name}: {undisturbed:.1f} us of CPU per send, {samples.count:,} samples")
    print(samples.table(undisturbed))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling", description=__doc__)
    parser.add_argument("what", choices=["single", "bare", "alone", "coalesced"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    args = parser.parse_args()
    factory = None
    if args.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    pin(0)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(profile(args.what, args.count))


if __name__ == "__main__":
    main()
