"""The output of a run: a table, and a JSON file to compare later runs with.

Scenarios run in their own processes and return plain data, whose keys this module defines.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import Series, Spread, ratio

SINK_SHARE_LIMIT = 0.70


class Goal(NamedTuple):
    """A figure, its spread and its bound; without a bound it is only stated."""

    name: str
    spread: Spread
    at_least: float | None = None
    at_most: float | None = None

    def data(self) -> dict[str, Any]:
        met = None
        if self.at_least is not None:
            met = self.spread.median >= self.at_least
        elif self.at_most is not None:
            met = self.spread.median <= self.at_most
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        return {"name": self.name, **self.spread._asdict(), **bounds, "met": met}


def result(
    scenario: str, unit: str, series: Sequence[Series], goals: Iterable[Goal], *, baseline: Series | None = None
) -> dict[str, Any]:
    """Return the result of one scenario as plain data."""
    rows = []
    for contender in series:
        row = contender.summary()
        if baseline is not None:
            row["ratio"] = ratio(contender, baseline)._asdict()
        rows.append(row)
    return {
        "scenario": scenario,
        "unit": unit,
        "baseline": baseline.name if baseline else None,
        "rows": rows,
        "goals": [goal.data() for goal in goals],
    }


def key(result: dict[str, Any]) -> str:
    """Return the name of a scenario, and of its event loop."""
    return f"{result['scenario']} on {result['loop']}" if result["loop"] else str(result["scenario"])


def _rows(result: dict[str, Any]) -> Iterable[str]:
    unit, baseline = result["unit"], result["baseline"]
    width = max(26, *(len(row["contender"]) for row in result["rows"]))
    times = f"x {baseline}" if baseline else ""
    yield f"{'':{width + 2}}{unit + 's/CPU s':>16}{'us CPU':>9}{unit + 's/s':>14}{times:>24}{'sink':>7}"
    for row in result["rows"]:
        times = ""
        if row.get("ratio"):
            spread = row["ratio"]
            times = f"{spread['median']:.2f} [{spread['low']:.2f}, {spread['high']:.2f}]"
        busy = "!" if row["sink_share"] > SINK_SHARE_LIMIT else ""
        yield (
            f"  {row['contender']:{width}}{row['per_cpu_second']:16,.0f}{row['cpu_us']:9.1f}{row['per_second']:14,.0f}"
            f"{times:>24}{row['sink_share']:6.0%}{busy}"
        )
    worst = max((row["sink_share"] for row in result["rows"]), default=0.0)
    if worst > SINK_SHARE_LIMIT:
        yield f"  ! the sink was busy for {worst:.0%} of a turn: figures per second of wall time are bounded by it"


def _goals(result: dict[str, Any]) -> Iterable[str]:
    width = max((len(goal["name"]) for goal in result["goals"]), default=0)
    yield f"  {'':{width}} {'figure':32} asked"
    for goal in result["goals"]:
        bound = ""
        if goal["at_least"] is not None:
            bound = f">= {goal['at_least']:g}"
        elif goal["at_most"] is not None:
            bound = f"<= {goal['at_most']:g}"
        verdict = {True: "met", False: "MISSED", None: ""}[goal["met"]]
        figure = f"{goal['median']:,.2f} [{goal['low']:,.2f}, {goal['high']:,.2f}]"
        yield f"  {goal['name']:{width}} {figure:32} {bound:10} {verdict}".rstrip()


def table(results: Iterable[dict[str, Any]]) -> str:
    """Return all results as text; spreads are quartiles over rounds."""
    lines: list[str] = []
    for result in results:
        lines += ["", f"== {key(result)} =="]
        if result["rows"]:
            lines += _rows(result)
        lines += _goals(result)
        lines += [f"  {note}" for note in result.get("notes", ())]
    return "\n".join(lines)


def compared(new: Sequence[dict[str, Any]], old: Sequence[dict[str, Any]]) -> str:
    """Return the goal figures beside an earlier run. Ratios survive another machine; microseconds and MiB do not."""
    before = {(key(result), goal["name"]): goal["median"] for result in old for goal in result["goals"]}
    lines = ["", "== compared with the earlier run ==", f"  {'':70}{'earlier':>12}{'now':>12}{'change':>9}"]
    for result in new:
        for goal in result["goals"]:
            earlier = before.get((key(result), goal["name"]))
            if earlier:
                change = goal["median"] / earlier - 1
                name = f"{key(result)}: {goal['name']}"
                lines.append(f"  {name:70}{earlier:12,.2f}{goal['median']:12,.2f}{change:9.1%}")
    return "\n".join(lines)


def save(results: Sequence[dict[str, Any]], meta: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"meta": meta, "results": results}, indent=1))


def load(path: Path) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    return loaded
