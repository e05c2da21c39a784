"""``pushsdk emulator``, and the way in to the command line it needs."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from pushsdk import cli
from pushsdk._version import __version__
from pushsdk.cli.emulator import emulator

ROOT = Path(__file__).parents[2]


async def ended_by(number, **arguments):
    """Run the command in this loop until it has installed its handlers, then send the signal."""
    before = signal.getsignal(number)
    command = asyncio.ensure_future(emulator(port=0, **arguments))
    async with asyncio.timeout(60):
        while signal.getsignal(number) is before and not command.done():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)
        signal.raise_signal(number)
        code = await command
    assert signal.getsignal(number) is before
    return code


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["pushsdk", *arguments])
    return cli.main()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_with_success(number, capsys):
    assert await ended_by(number) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 requests, 0 users, 0 pushes, 0 campaigns"


async def test_faults_are_read_from_a_file(tmp_path, capsys):
    file = tmp_path / "faults.json"
    file.write_text('[{"fault": "hang", "first": 1}]')
    assert await ended_by(signal.SIGINT, faults=file) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ('[{"fault": "hang", "probability": 2}]', "$[0].probability"),
        ('[{"fault": "hang", "name": "x"}, {"fault": "hang", "name": "x"}]', "same name"),
    ],
)
async def test_a_bad_file_of_faults_is_said_and_exits_with_2(tmp_path, capsys, text, reason):
    file = tmp_path / "faults.json"
    if text is not None:
        file.write_text(text)
    assert await emulator(port=0, faults=file) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert reason in error


async def test_a_taken_port_is_said_and_exits_with_4(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert await emulator(port=port) == 4
    assert capsys.readouterr().err == f"pushsdk emulator: cannot listen on port {port}: Address already in use\n"


def test_main_returns_the_exit_code_of_its_command(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, "emulator", "--port", "0", "--faults", str(tmp_path / "none")) == 2


def test_the_version_is_the_packages(monkeypatch, capsys):
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == __version__


def test_the_help_names_the_commands_and_loads_none(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "pushsdk.cli.emulator")
    assert run(monkeypatch, "--help") == 0
    assert "emulator" in capsys.readouterr().out
    assert "pushsdk.cli.emulator" not in sys.modules


def test_a_port_that_cannot_be_is_a_usage_error(monkeypatch, capsys):
    assert run(monkeypatch, "emulator", "--port", "65536") == 2
    assert "--port" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys, missing):
    without(monkeypatch, missing)
    assert cli.main() == 4
    assert capsys.readouterr().err == f"The command line needs {missing}: pip install 'pushsdk[cli]'\n"


def test_another_missing_module_is_not_taken_for_the_extra(monkeypatch):
    without(monkeypatch, "elsewhere")
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        cli.main()


def without(monkeypatch, missing):
    """Make the import of the app fail for want of this module."""
    real = builtins.__import__

    def importing(name, *args, **kwargs):
        if name == "pushsdk.cli.app":
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_the_package_of_commands_runs_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pushsdk", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("pushsdk.cli", run_name="__main__")
    assert ended.value.code == 0


def test_a_user_can_start_it_push_to_it_and_stop_it():
    command = [sys.executable, "-m", "pushsdk.cli", "emulator", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline().startswith("# Emulator at http://127.0.0.1:")
        lines = [process.stdout.readline().removeprefix("export ").strip().partition("=") for _ in range(2)]
        given = {name: value for name, _, value in lines}
        request = urllib.request.Request(
            f"{given['PUSHSDK_BASE_URL']}/v1/push",
            data=json.dumps({"userIds": ["ann", "bob"], "message": {}}).encode(),
            headers={"Api-Key": given["PUSHSDK_API_KEY"], "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 204
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("1 requests, 2 users, 1 pushes, 0 campaigns\n", "", 0)
