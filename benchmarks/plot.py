"""The plots: a panel per scenario and loop, with a bar per contender; a row of dots per kind of service."""

import statistics
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


def gains(result: dict[str, Any], path: Path) -> None:
    """Draw users per second, by the clock and per CPU second, with a bar for each number of processes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = result["rows"][::-1]
    figure, axes = plt.subplots(1, 2, figsize=(9, 0.9 + 0.38 * len(rows)), sharey=True, layout="constrained")
    for axis, rate, title in zip(axes, ("per_second", "per_cpu_second"), ("second", "CPU second"), strict=True):
        # Relative to one process, which is the row below.
        base = {row["contender"].partition(",")[0]: row[rate] for row in rows if row["contender"].endswith("1 process")}
        values = [row[rate] / base[row["contender"].partition(",")[0]] for row in rows]
        bars = axis.barh([row["contender"] for row in rows], values, color=OURS_COLOR)
        labels = [f" {row[rate]:,.0f}, {value:.2f}x" for row, value in zip(rows, values, strict=True)]
        axis.bar_label(bars, labels=labels, padding=4, fontsize=8)
        axis.set_xlim(0, max(values) * 1.45)
        axis.set_title(f"users per {title}", fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


MOST = 1.2  # a larger share is drawn there


def distribution(shares: dict[str, list[float]], path: Path) -> None:
    """Draw a dot for each service at its share of the best fixed limit, in a row for each kind of service."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = list(shares.items())
    figure, axis = plt.subplots(figsize=(9, 1.3 + 0.75 * len(rows)), layout="constrained")
    for level, (_, values) in enumerate(rows):
        ordered = sorted(values)
        # Neighbors are drawn one above the other, so that each dot can be seen.
        heights = [level + (index % 5 - 2) * 0.09 for index in range(len(ordered))]
        axis.scatter([min(share, MOST) for share in ordered], heights, s=16, color=OURS_COLOR, alpha=0.55, linewidths=0)
        median, tenth = statistics.median(ordered), ordered[len(ordered) // 10]
        axis.vlines([median, tenth], level - 0.32, level + 0.32, colors=["black", OTHER_COLOR], linewidth=2)
        _in_columns(axis, level, f"{median:.2f}", f"{tenth:.2f}", f"{ordered[0]:.2f}")
    _in_columns(axis, -0.65, "median\n(black)", "10th pct.\n(gray)", "worst\n")
    axis.axvline(1.0, color=OTHER_COLOR, linestyle="--", linewidth=1, zorder=0)
    axis.set_yticks(range(len(rows)), [f"{kind}\n{len(values)} services" for kind, values in rows], fontsize=10)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, MOST + 0.05)
    axis.set_xlabel(
        f"each dot is a service: throughput as a share of the best fixed limit ({MOST:g} and more: at {MOST:g})",
        fontsize=10,
    )
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def _in_columns(axis: Any, level: float, *texts: str) -> None:
    for index, text in enumerate(texts):
        at = 1.06 + 0.12 * index
        axis.text(at, level, text, transform=axis.get_yaxis_transform(), ha="center", va="center", fontsize=10)
