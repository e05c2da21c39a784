"""The pytest plugin in suites that use it, each run by its own pytest."""

import os
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from support.programs import run_pytest

import pushsdk

ROOT = Path(pushsdk.__file__).parents[1]
HEAD = """
import asyncio, os, urllib.request, json
import pytest
from pushsdk import AsyncPushClient
from pushsdk.emulator import Emulator, Fault

MESSAGE = {"title": {"en": "Hello"}, "iosEnabled": True}

async def send(push, *users):
    async with AsyncPushClient(push.base_url, push.api_key) as client:
        await client.send(users, MESSAGE)
"""


@pytest.fixture
def suite(tmp_path):
    """Run these files in a suite of these plugins, and return the output of pytest."""

    def run(*words, plugins=(), code=0, **files):
        for name, source in files.items():
            (tmp_path / f"{name}.py").write_text(source if name == "conftest" else HEAD + source)
        settings = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
        (tmp_path / "pytest.ini").write_text(settings if "pytest_asyncio.plugin" in plugins else settings[:32])
        variables = dict.fromkeys(name for name in os.environ if name.startswith("PUSHSDK_"))
        ended = run_pytest(tmp_path, *words, plugins=plugins, **variables)
        assert ended.code == code, ended
        return ended.out

    return run


SYNC = """
KEYS = set()

def test_a_sync_test_has_an_inbox(push):
    KEYS.add(push.api_key)
    asyncio.run(send(push, "ann"))
    assert push.accepted("ann") == 1
    assert push.wait_for("ann")[0].title == {"en": "Hello"}

def test_every_test_has_its_own_inbox(push, push_emulator):
    push.assert_nothing_sent()
    assert push.emulator is push_emulator
    assert push.api_key not in {*KEYS, push_emulator.api_key}
    asyncio.run(send(push, "ann"))

def test_an_inbox_starts_empty(push):
    push.assert_nothing_sent()

def test_push_env_sets_the_settings(push_env):
    async def greet():
        async with AsyncPushClient() as client:
            await client.send("ann", MESSAGE)
    asyncio.run(greet())
    push_env.assert_sent("ann", count=1)

def test_the_settings_are_restored_afterwards():
    assert "PUSHSDK_API_KEY" not in os.environ

@pytest.fixture
def other_key(monkeypatch):
    monkeypatch.setenv("PUSHSDK_API_KEY_FILE", "elsewhere")

def test_push_env_removes_other_keys(other_key, push_env):
    assert "PUSHSDK_API_KEY_FILE" not in os.environ

def test_an_inbox_has_the_name_of_its_test(push):
    with urllib.request.urlopen(f"{push.url}/_emulator/v1/inboxes") as answer:
        labels = [inbox["label"] for inbox in json.load(answer)]
    assert "test_suite.py::test_an_inbox_has_the_name_of_its_test" in labels
"""


def test_sync_tests_need_no_other_plugin(suite):
    assert "7 passed" in suite("--import-mode=importlib", test_suite=SYNC)


ASYNC = """
@pytest.mark.asyncio
async def test_by_pytest_asyncio(push):
    with push.fault(Fault.status(503, headers={"Retry-After": "0"}, first=1)) as fault:
        await send(push, "ann")
    assert fault.hits == 1
    assert (await push.until("ann"))[0].user_ids == ("ann",)
    push.assert_no_duplicates()

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_by_anyio(push):
    await send(push, "ann")
    assert (await push.until("ann"))[0].user_ids == ("ann",)
"""
WORKERS = """
URLS = set()

@pytest.mark.parametrize("number", range(8))
def test_it(push, number, worker_id):
    for _ in range(3):
        asyncio.run(send(push, "the same user"))
    assert push.accepted("the same user") == 3
    assert push.emulator.totals()["users"] == 1
    URLS.add(push.url)
    assert len(URLS) == 1
    print(worker_id, push.url)

def test_the_emulators_options_can_be_overridden(push):
    assert push.limits.max_users == 7
"""
OPTIONS = """
import pytest
from pushsdk.emulator import ServiceLimits

@pytest.fixture(scope="session")
def push_emulator_options():
    return {"limits": ServiceLimits(max_users=7)}
"""


def test_the_plugin_works_beside_those_for_asyncio_anyio_and_workers_each_with_its_own_service(suite):
    plugins = ["pytest_asyncio.plugin", "anyio.pytest_plugin", "xdist.plugin"]
    # Each worker runs all tests; by load, one may run them all before the other has started.
    words = ("-n", "2", "--dist", "each", "-rP")
    output = suite(*words, plugins=plugins, conftest=OPTIONS, test_async=ASYNC, test_workers=WORKERS)
    assert "22 passed" in output
    services = set(re.findall(r"(gw\d) (http://\S+)", output))
    assert len(services) == len(dict(services)) == len({url for _, url in services}) == 2


FAILING = """
import unittest

def test_that_expects_another_push(push):
    asyncio.run(send(push, "ann"))
    push.assert_sent("eve")

def test_that_fails_by_itself(push):
    asyncio.run(send(push, "ann"))
    assert 1 == 2

def test_that_sent_nothing(push):
    with push.fault(Fault.hang()):
        pass

def test_by_name(request):
    push = request.getfixturevalue("push")
    asyncio.run(send(push, "ann"))
    assert not push.users()

class TestOfUnittest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def inbox(self, push): self.push = push

    def test_it(self):
        asyncio.run(send(self.push, "ann"))
        self.assertFalse(self.push.users())

@pytest.fixture
def greeted(push):
    asyncio.run(send(push, "ann"))
    assert not push.users()

def test_whose_fixture_fails(greeted): pass

class TestOfAnotherFixture:
    @pytest.fixture
    def push(self): return 7

    def test_it(self, push): assert push == 8

@pytest.fixture
def broken(): raise ZeroDivisionError

def test_that_fails_before_the_inbox_exists(broken, push): pass
"""


def sections_of(output):
    """Return the output of each failed test by its name."""
    failures, _, _ = output.partition("= short test summary info =")
    _, *parts = re.split(r"_{5,} (?:ERROR at setup of )?([\w.]+) _{5,}", failures)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_a_failing_test_shows_the_received_requests_once_however_it_requests_the_fixture(suite):
    output = suite(code=1, test_suite=FAILING)
    sections = sections_of(output)
    row = r'accepted  204  push to "ann"  en "Hello"'
    shown = {name: (section.count(row), "- Push service -" in section) for name, section in sections.items()}
    assert shown == {
        "test_that_expects_another_push": (1, False),
        "test_that_fails_by_itself": (1, True),
        "test_that_sent_nothing": (0, False),
        "test_by_name": (1, True),
        "TestOfUnittest.test_it": (1, True),
        "test_whose_fixture_fails": (1, True),
        "TestOfAnotherFixture.test_it": (0, False),
        "test_that_fails_before_the_inbox_exists": (0, False),
    }
    expected = 'E       AssertionError: Expected a push to "eve", got none.'
    assert expected in sections["test_that_expects_another_push"]
    assert ">       with push.fault(Fault.hang()):\n" in sections["test_that_sent_nothing"]  # 3.13 underlines it
    assert "\nE       AssertionError: This fault never fired" in sections["test_that_sent_nothing"]
    # Each failure points to the test, and not to the plugin.
    assert set(re.findall(r"^(\S+\.py):\d+: ", output, re.MULTILINE)) == {"test_suite.py"}


NEVER_FIRED = """
def test_with_another_error(push):
    with pytest.raises(ZeroDivisionError), push.fault(Fault.status(503, user="eve")):
        asyncio.run(send(push, "ann"))
        1 / 0

def test_without_a_with_block(push):
    push.fault(Fault.status(503, first=2), Fault.hang(), required=False)
    asyncio.run(send(push, "ann"))

@pytest.mark.xfail(strict=True)
def test_that_is_expected_to_fail(push):
    push.faults("outage")

def test_that_expects_the_failure(push):
    with pytest.raises(AssertionError, match="never fired"), push.fault(Fault.hang()):
        pass

def test_with_faults_that_are_not_required(push):
    with pytest.raises(ZeroDivisionError), push.fault(Fault.hang(), required=False):
        1 / 0

def test_that_is_skipped(push):
    with push.fault(Fault.hang()):
        pytest.skip("not today")
"""


def test_a_test_fails_if_its_faults_never_fired(suite):
    output = suite("-rs", code=1, test_suite=NEVER_FIRED)
    assert "2 failed, 2 passed, 1 skipped, 1 xfailed" in output
    first, second = (section.lstrip() for section in sections_of(output).values())
    assert first.startswith("This fault never fired: no request met the conditions.")
    assert "\n  Fault.status(code=503, user='eve')\n\nThe service received 1 request" in first
    assert second.startswith("These faults were never used: write `with push.fault(...):`\n")
    assert "\n  Fault.status(code=503, first=2)\n  Fault.hang(accepted=False)\n" in second
    assert second.count('accepted  204  push to "ann"') == 1


def test_the_package_registers_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    assert module == "pushsdk.testing.plugin"
    assert import_module(module).push
    assert any(requirement.startswith("pytest>=") for requirement in project["optional-dependencies"]["testing"])
    assert any("testing" in requirement for requirement in project["optional-dependencies"]["dev"])
