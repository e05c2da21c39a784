"""One scenario on one event loop: `python -m benchmarks.worker NAME LOOP [--quick]`. Prints the result as JSON."""

import asyncio
import importlib
import json
import sys

from benchmarks.sink import pin


def main() -> None:
    name, loop, *rest = sys.argv[1:]
    pin(0)
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    scenario = importlib.import_module(f"benchmarks.{name}")
    with asyncio.Runner(loop_factory=factory) as runner:
        result = runner.run(scenario.run(quick="--quick" in rest))
    json.dump({**result, "loop": loop if loop != "none" else ""}, sys.stdout)


if __name__ == "__main__":
    main()
