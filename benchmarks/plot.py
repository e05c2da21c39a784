"""The plot: a panel per scenario and loop, with a bar per contender."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import OURS
from benchmarks.report import key

OURS_COLOR, OTHER_COLOR = "#c2410c", "#94a3b8"


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw units per CPU second by contender; whiskers are the quartiles over rounds."""
    panels = [result for result in results if result["rows"]]
    if not panels:
        return
    # Imported late: scenarios without contenders run without matplotlib.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    tall = max(len(panel["rows"]) for panel in panels)
    columns = 2 if len(panels) > 1 else 1
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(7 * columns, lines * (0.9 + 0.38 * tall)), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        _draw(axis, panel)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw(axis: Any, panel: dict[str, Any]) -> None:
    rows = sorted(panel["rows"], key=lambda row: row["per_cpu_second"])
    rates = [row["per_cpu_second"] for row in rows]
    whiskers = [_quartile_distances(row) for row in rows]
    colors = [OURS_COLOR if row["contender"].startswith(OURS) else OTHER_COLOR for row in rows]
    bars = axis.barh(
        [row["contender"] for row in rows],
        rates,
        color=colors,
        xerr=list(zip(*whiskers, strict=True)),
        error_kw={"elinewidth": 1},
    )
    axis.bar_label(bars, labels=[f" {rate:,.0f}" for rate in rates], padding=4, fontsize=8)
    axis.set_xlim(0, max(rates) * 1.2)
    axis.set_title(f"{key(panel)}: {panel['unit']}s per CPU second", fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)


def _quartile_distances(row: dict[str, Any]) -> tuple[float, float]:
    rates = sorted(turn["units"] / turn["cpu"] for turn in row["rounds"])
    low, high = rates[len(rates) // 4], rates[(3 * len(rates)) // 4]
    middle = row["per_cpu_second"]
    return max(0.0, middle - low), max(0.0, high - middle)
