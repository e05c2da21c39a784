"""The README is true: its examples run, its commands exist, its tables match the code."""

import importlib
import inspect
import os
import re
import socket
import tomllib
from contextlib import nullcontext

import pytest
from support.docs import README, ROOT, page, run

import pushsdk
import pushsdk.emulator
import pushsdk.testing
from pushsdk import NotSentError, PushClient, RejectedError, RetryPolicy
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

TEXT = README.text
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PYTHON = [block for block in README.blocks if block.language == "python"]
EXAMPLES = [block for block in PYTHON if not block.module and "def test_" not in block.text]


def test_the_readme_is_short_and_begins_with_the_two_commands():
    assert len(TEXT.splitlines()) <= 220
    assert len(TEXT.split()) <= 1400
    assert TEXT.index("```bash") < TEXT.index("## Quick start")


def test_the_first_example_is_short_and_prints_what_it_says(service, capsys):
    run(EXAMPLES[0])
    output = re.search(r"print\(.*#\s*(.*)", EXAMPLES[0].text)
    assert capsys.readouterr().out.strip() == output[1]
    assert len([line for line in EXAMPLES[0].text.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize(
    ("fault", "accepted", "printed"),
    [
        (Fault.reset_after(first=1), 1, "may have been pushed: outcome unknown: "),
        (Fault.status(429, first=4), 1, ""),
        (Fault.status(400), 0, ""),
    ],
)
def test_the_example_of_errors_runs_through_each_of_its_branches(fault, accepted, printed, capsys):
    (example,) = (block for block in EXAMPLES if "except PushError" in block.text)
    service = FakeService(fault)
    with nullcontext() if accepted else pytest.raises(RejectedError):
        run(example, service)
    assert service.accepted("user-1") == accepted
    assert capsys.readouterr().out.startswith(printed)


def test_a_text_of_an_error_is_that_of_the_package(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as refused:
        address = f"http://127.0.0.1:{refused.getsockname()[1]}/external/api"
    with PushClient(address, "any-key", retry=RetryPolicy.none()) as client, pytest.raises(NotSentError) as caught:
        client.send("user-1", {"iosEnabled": True})
    text = str(caught.value).replace(address.split("/")[2], "127.0.0.1:8080")
    assert text in " ".join(TEXT.split())


def test_every_command_exists():
    from pushsdk.cli.app import app

    lines = [line for block in README.blocks if block.language == "bash" for line in block.text.splitlines()]
    assert lines == ["pip install '.[cli]' && pushsdk demo", "pip install -e '.[dev]' && pytest"]
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert {extra for line in lines for extra in re.findall(r"\.\[(\w+)\]", line)} <= extras.keys()
    module, _, function = PYPROJECT["project"]["scripts"]["pushsdk"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    for command in re.findall(r"\bpushsdk ([a-z]+)\b", "\n".join(lines) + " ".join(re.findall(r"`[^`\n]+`", TEXT))):
        assert command in app


def test_the_demo_is_as_it_is_said_to_be():
    from pushsdk.cli.commands.demo import demo, faults_for

    users = inspect.signature(demo).parameters["users"].default
    assert f"pushes to {users + users // 10:,} users" in TEXT
    assert len(faults_for(users, "ann")) == 7
    assert "fails in seven ways" in TEXT


def test_the_pythons_are_those_of_the_metadata():
    assert PYPROJECT["project"]["requires-python"] == ">=3.11"
    assert "with Python 3.11 or later" in TEXT


def test_the_faults_are_all_named():
    actions = {name for name, each in vars(Fault).items() if isinstance(each, staticmethod)}
    assert actions == set(re.findall(r"Fault\.(\w+)\(", page("testing").text))


# -- the changelog --------------------------------------------------------------------------------------------------


def described(name):
    """The changelog's lines that begin with the name, alone or beside others."""
    return [line for line in CHANGELOG.splitlines() if re.match(rf"- (`[^`]+`, )*`{re.escape(name)}`[^:]*: \S", line)]


def test_every_public_name_and_command_has_one_line_in_the_changelog():
    from pushsdk.cli.app import app

    names = [name for name in pushsdk.__all__ if name != "__version__"]
    names += [f"pushsdk.emulator.{name}" for name in pushsdk.emulator.__all__]
    names += [f"pushsdk.testing.{name}" for name in pushsdk.testing.__all__]
    names += ["push", "push_env", "push_emulator"]
    names += [f"pushsdk {name}" for name in app if not name.startswith("-") and app[name].show]
    assert [name for name in names if len(described(name)) != 1] == []


def test_the_changelog_begins_with_what_is_not_released():
    assert re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)[0] == "Unreleased"
    assert os.fspath(ROOT) not in CHANGELOG + TEXT
