"""The plot: one panel per scenario and loop that compares contenders, a bar for each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import OURS
from benchmarks.report import key

OURS_COLOUR, OTHER_COLOUR = "#c2410c", "#94a3b8"


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Units per CPU second, by contender; whiskers are the quartiles over rounds."""
    panels = [each for each in results if each["rows"]]
    if not panels:
        return
    # Here, not above: scenarios without contenders run where it is missing.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    tall = max(len(each["rows"]) for each in panels)
    columns = 2 if len(panels) > 1 else 1
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(7 * columns, lines * (0.9 + 0.38 * tall)), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, each in zip(axes.flat, panels, strict=False):
        _panel(axis, each)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axis: Any, each: dict[str, Any]) -> None:
    rows = sorted(each["rows"], key=lambda row: row["per_cpu_second"])
    rates = [row["per_cpu_second"] for row in rows]
    whiskers = [_quartile_distances(row) for row in rows]
    colours = [OURS_COLOUR if row["contender"].startswith(OURS) else OTHER_COLOUR for row in rows]
    bars = axis.barh(
        [row["contender"] for row in rows],
        rates,
        color=colours,
        xerr=list(zip(*whiskers, strict=True)),
        error_kw={"elinewidth": 1},
    )
    axis.bar_label(bars, labels=[f" {rate:,.0f}" for rate in rates], padding=4, fontsize=8)
    axis.set_xlim(0, max(rates) * 1.2)
    axis.set_title(f"{key(each)}: {each['unit']}s per CPU second", fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)


def _quartile_distances(row: dict[str, Any]) -> tuple[float, float]:
    rates = sorted(turn["units"] / turn["cpu"] for turn in row["rounds"])
    low, high = rates[len(rates) // 4], rates[(3 * len(rates)) // 4]
    middle = row["per_cpu_second"]
    return max(0.0, middle - low), max(0.0, high - middle)
