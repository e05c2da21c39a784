"""``pushsdk demo``: small runs of it, what it prints, and what it says if both sides disagree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pushsdk import cli
from pushsdk.cli.commands import demo as demo_module
from pushsdk.cli.commands.demo import demo, faults_for
from pushsdk.emulator import Emulator

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pushsdk.cli", "demo"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def printed():
    """The JSON of one run, as a command."""
    command = [*COMMAND, "--users", "5000", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_the_two_sides_agree(printed):
    names = ("lost", "doubled", "wrong", "campaigns")
    assert [printed[name] for name in names] == [0, 0, 0, 1]
    assert printed["client"]["ACCEPTED"] == printed["service"]["ACCEPTED"]


def test_every_fault_acts(printed):
    assert len(printed["hits"]) == len(faults_for(5000, "ann"))
    assert all(printed["hits"])


def test_nine_of_ten_are_accepted_one_is_rejected_and_some_are_unknown(printed):
    reported = printed["client"]
    assert sum(reported.values()) == 5500
    assert reported["ACCEPTED"] >= 0.9 * 5500
    assert (reported["REJECTED"], "NOT_SENT" in reported) == (1, False)
    assert 0 < printed["service"]["UNKNOWN"] < reported["UNKNOWN"]


@pytest.mark.parametrize("as_json", [False, True])
async def test_an_oracle_that_says_otherwise_gives_exit_code_1(monkeypatch, capsys, as_json):
    monkeypatch.setattr(Emulator, "users", lambda self: {})
    assert await demo(users=5000, json=as_json) == 1
    out = capsys.readouterr().out
    assert json.loads(out)["lost"] > 4500 if as_json else "They disagree: lost=" in out


async def test_the_output_fits_80_columns_and_shows_no_user_and_no_key(monkeypatch, capsys):
    services = []
    monkeypatch.setattr(demo_module, "Emulator", lambda **given: services.append(Emulator(**given)) or services[0])
    assert await demo(users=5000) == 0
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "No push lost or doubled." in out
    assert all(words in out for _, words in faults_for(5000, "ann"))
    assert all(user not in out + err for user in services[0].users())
    assert services[0].api_key not in out + err


@pytest.mark.parametrize("bad", ["4999", "50001", "x"])
def test_bad_values_are_usage_errors(capsys, bad):
    assert cli.main(["demo", "--users", bad]) == 2
    assert "--users" in capsys.readouterr().err


def test_ctrl_c_ends_it_with_130_and_no_traceback():
    # So many that it takes some seconds: it must not be over before the signal comes.
    command = [*COMMAND, "--users", "50000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout.readline().startswith("50,000 concurrent pushes")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
