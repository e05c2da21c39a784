"""``pushsdk demo``: small runs of it, the comparison of the books, and how it is shown."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from pushsdk import Outcome, Progress, cli
from pushsdk.cli import demo as demo_module
from pushsdk.cli.demo import Plan, Result, demo, run, table
from pushsdk.emulator import Emulator

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pushsdk.cli", "demo"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
RULES = {
    "too_large",
    "poisonous_user",
    "throttled",
    "answer_lost",
    "batch_answer_lost",
    "request_lost",
    "unavailable",
}


def result_of(reported, pushes, campaigns=1):
    reported = {user: Outcome(outcome) for user, outcome in reported.items()}
    faults = dict.fromkeys(RULES, 1)
    return Result(reported=reported, pushes=pushes, campaigns=campaigns, requests=1, faults=faults, seconds=0.5)


@pytest.fixture(scope="module", params=[(600, 60), (500, 50)])
def ran(request):
    """One run: its plan, its result, and what was told of its progress."""
    users, personalized = request.param
    plan = Plan(users=users, personalized=personalized, seed=7)
    progress: list[Progress] = []
    return plan, asyncio.run(run(plan, progress.append)), progress


def test_the_two_sides_agree(ran):
    _, result, _ = ran
    assert (result.disagreements, result.lost, result.doubled, result.campaigns) == ([], 0, 0, 1)


def test_every_rule_acts(ran):
    _, result, _ = ran
    assert result.faults.keys() == RULES
    assert all(result.faults.values())


def test_nine_of_ten_are_accepted_one_is_rejected_and_some_are_unknown(ran):
    plan, result, _ = ran
    reported = result.client
    assert sum(reported.values()) == plan.size
    assert reported[Outcome.ACCEPTED] >= 0.9 * plan.size
    assert (reported[Outcome.REJECTED], reported[Outcome.NOT_SENT]) == (1, 0)
    assert 0 < result.service[Outcome.UNKNOWN] < reported[Outcome.UNKNOWN]


def test_the_progress_ends_with_all(ran):
    plan, _, progress = ran
    left = [each.not_sent for each in progress]
    assert left == sorted(left, reverse=True)
    assert (left[0], left[-1], progress[-1].planned) == (plan.size, 0, plan.size)


def test_the_same_seed_makes_the_same_plan_and_another_one_another():
    one, same, other = (Plan(users=500, personalized=50, seed=seed) for seed in (1, 1, 2))
    assert (one.merged, one.single, one.faults) == (same.merged, same.single, same.faults)
    assert set(one.merged).isdisjoint(other.merged)
    assert len({*one.merged, *one.single}) == one.size


def test_no_two_personal_messages_are_equal():
    messages = [message for _, message in Plan(users=500, personalized=50, seed=0).messages()]
    assert len(set(map(msgspec.json.encode, messages))) == 51


@pytest.mark.parametrize(
    ("reported", "pushes", "expected"),
    [
        ({"a": "ACCEPTED", "b": "REJECTED", "c": "NOT_SENT", "d": "UNKNOWN", "e": "UNKNOWN"}, {"a": 1, "d": 1}, []),
        ({"a": "ACCEPTED"}, {}, ["1 lost"]),
        ({"a": "ACCEPTED"}, {"a": 2}, ["1 doubled"]),
        ({"a": "UNKNOWN"}, {"a": 3}, ["1 doubled"]),
        ({"a": "REJECTED"}, {"a": 1}, ["1 accepted, but reported REJECTED or NOT_SENT"]),
        ({"a": "NOT_SENT"}, {"a": 1}, ["1 accepted, but reported REJECTED or NOT_SENT"]),
        ({}, {"a": 1}, ["1 accepted, but never reported"]),
        ({"a": "ACCEPTED", "b": "REJECTED"}, {"b": 2}, ["1 lost", "1 doubled", "1 accepted, but reported REJECTED or"]),
    ],
)
def test_the_two_sides_are_compared_user_by_user(reported, pushes, expected):
    found = result_of(reported, pushes).disagreements
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_where_they_agree_the_service_has_the_accepted_and_the_unknown_it_took(ran):
    _, result, _ = ran
    assert len(result.pushes) == result.client[Outcome.ACCEPTED] + result.service[Outcome.UNKNOWN]


@pytest.mark.parametrize("campaigns", [0, 2])
def test_another_number_of_campaigns_than_the_one_created_is_a_disagreement(campaigns):
    assert result_of({}, {}, campaigns).disagreements == ["1 too many or too few campaigns"]


@pytest.mark.parametrize("as_json", [False, True])
async def test_an_oracle_that_says_otherwise_gives_exit_code_1(monkeypatch, capsys, as_json):
    truth = Emulator.users

    def twisted(self, *, api_key=None):
        users = dict(truth(self, api_key=api_key))
        users.popitem()
        return users

    monkeypatch.setattr(Emulator, "users", twisted)
    assert await demo(users=500, personalized=50, json=as_json) == 1
    out = capsys.readouterr().out
    assert json.loads(out)["lost"] == 1 if as_json else "The two sides disagree: 1 lost." in out


async def test_the_table_fits_80_columns_and_shows_nobody(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    keys = []
    monkeypatch.setattr(demo_module, "Emulator", lambda **given: keys.append(Emulator(**given)) or keys[0])
    assert await demo(users=600, personalized=60) == 0
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "Nothing lost, nobody doubled." in out
    assert all(rule in out for rule in RULES)
    assert all(user not in out + err for user in keys[0].users())
    assert keys[0].api_key not in out + err


def test_no_row_of_the_largest_table_is_broken_in_two():
    plan = Plan(users=100_000, personalized=10_000, seed=0)
    result = result_of(dict.fromkeys(map(str, range(110_000)), "ACCEPTED"), {"0": 1})
    console = Console(file=io.StringIO(), width=80)
    console.print(table(plan, result))
    rows = re.findall(r"^  \w.*", console.file.getvalue(), re.MULTILINE)
    # The heading, the outcomes, the two sums, the heading of the faults, the faults.
    assert len(rows) == 1 + 4 + 2 + 1 + len(RULES)


@pytest.mark.parametrize(
    "bad",
    [["--users", "499"], ["--users", "x"], ["--personalized", "49"], ["--personalized", "10001"], ["--seed", "x"]],
)
def test_bad_values_are_usage_errors(capsys, bad):
    assert cli.main(["demo", *bad]) == 2
    assert bad[0] in capsys.readouterr().err


def test_as_a_command_it_prints_one_json_object_and_nothing_else():
    arguments = ["--users", "600", "--personalized", "60", "--json"]
    ended = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    result = json.loads(ended.stdout)
    assert ended.returncode == 0
    assert list(result) == ["client", "service", "faults", "lost", "doubled", "seconds"]
    assert list(result["client"]) == ["ACCEPTED", "REJECTED", "NOT_SENT", "UNKNOWN"]
    assert list(result["service"]) == ["users", "pushes", "campaigns"]
    assert result["faults"].keys() == RULES
    assert (result["lost"], result["doubled"], sum(result["client"].values())) == (0, 0, 660)
    assert ended.stderr.splitlines()[-1].split(",")[0] == "sending: 660 of 660 users"


def test_ctrl_c_ends_it_with_130_and_no_traceback():
    # So many that it takes some seconds: it must not be over before the signal comes.
    command = [*COMMAND, "--users", "20000", "--personalized", "2000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        while process.stderr.readline() not in ("sending: 0 of 22,000 users, 0 accepted\n", ""):
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
