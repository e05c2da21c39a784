"""How the demo looks: its one table on stdout. Knows no client and no service."""

from __future__ import annotations

from rich import box
from rich.table import Table

from pushsdk import Outcome
from pushsdk.cli._demo_books import Result
from pushsdk.cli._demo_plan import Plan

__all__ = ["table"]

_MEANING = {
    Outcome.ACCEPTED: "taken, and said so",
    Outcome.REJECTED: "refused, and said so",
    Outcome.NOT_SENT: "never left this process",
}


def table(plan: Plan, result: Result) -> Table:
    """The whole result as one table, made for 80 columns."""
    grid = Table(title=_title(plan), caption=_verdict(plan, result), box=box.SIMPLE_HEAD, expand=False)
    grid.title_style, grid.title_justify = "bold", "left"
    grid.caption_style, grid.caption_justify = "", "left"
    grid.add_column("Users", no_wrap=True)
    grid.add_column("client\nreports", justify="right", no_wrap=True)
    grid.add_column("service\ntook", justify="right", no_wrap=True)
    grid.add_column("")
    _add_outcomes(grid, result)
    _add_faults(grid, plan, result)
    return grid


def _title(plan: Plan) -> str:
    return (
        f"{len(plan.merged):,} concurrent pushes of one message, {len(plan.single):,} personal ones, one campaign,\n"
        f"to a service inside this command that fails in {len(plan.rules)} ways"
    )


def _add_outcomes(grid: Table, result: Result) -> None:
    reported, taken = result.users.reported, result.users.taken
    in_doubt = taken[Outcome.UNKNOWN]
    unknown = f"no clear answer: {in_doubt:,} taken, {reported[Outcome.UNKNOWN] - in_doubt:,} not"
    for outcome in Outcome:
        grid.add_row(outcome.value, f"{reported[outcome]:,}", f"{taken[outcome]:,}", _MEANING.get(outcome, unknown))
    said, had = sum(reported.values()), result.users.served
    grid.add_row("all users", f"{said:,}", f"{had:,}", f"in {result.pushes:,} requests", style="bold")
    grid.add_row("campaigns", f"{len(result.created):,}", f"{len(result.campaigns):,}", "", end_section=True)


def _add_faults(grid: Table, plan: Plan, result: Result) -> None:
    grid.add_row("Faults", "", "hits", "the service does: the client does", style="bold")
    for rule in plan.rules:
        grid.add_row(rule.name, "", f"{result.faults[rule.name]:,}", rule.words)


def _verdict(plan: Plan, result: Result) -> str:
    rate = f"{result.seconds:.1f} s, {plan.size / result.seconds:,.0f} users a second."
    if not result.complaints:
        return f"[bold green]Nothing lost, nobody doubled.[/] {rate}"
    return f"[bold red]The two sides disagree: {', '.join(result.complaints)}.[/] {rate}"
