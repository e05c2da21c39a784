"""``pushsdk demo``: small runs, their output, and a disagreement of client and service."""

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
COMMAND = [sys.executable, "-m", "pushsdk", "demo"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def output():
    """The JSON that one run prints."""
    command = [*COMMAND, "--users", "5000", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_client_and_service_agree(output):
    names = ("lost", "doubled", "wrong", "campaigns")
    assert [output[name] for name in names] == [0, 0, 0, 1]
    assert output["client"]["ACCEPTED"] == output["service"]["ACCEPTED"]


def test_every_fault_acts(output):
    assert len(output["hits"]) == len(faults_for(5000, "ann"))
    assert all(output["hits"])


def test_one_user_is_rejected_some_are_unknown_and_the_rest_is_accepted(output):
    reported = output["client"]
    assert sum(reported.values()) == 5500
    assert reported["ACCEPTED"] >= 0.9 * 5500
    assert (reported["REJECTED"], "NOT_SENT" in reported) == (1, False)
    assert 0 < output["service"]["UNKNOWN"] < reported["UNKNOWN"]


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_disagreement_exits_with_1(monkeypatch, capsys, as_json):
    monkeypatch.setattr(Emulator, "users", lambda self: {})
    assert await demo(users=5000, json=as_json) == 1
    out = capsys.readouterr().out
    assert json.loads(out)["lost"] > 4500 if as_json else "They disagree: lost=" in out


async def test_the_output_fits_80_columns_and_shows_no_user_and_no_key(monkeypatch, capsys):
    services = []
    monkeypatch.setattr(demo_module, "Emulator", lambda **options: services.append(Emulator(**options)) or services[0])
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


def test_ctrl_c_exits_with_130_without_a_traceback():
    # Many users, so that the demo still runs when the signal comes.
    command = [*COMMAND, "--users", "50000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout.readline().startswith("50,000 concurrent pushes")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
