"""The pytest plugin in suites that use it, each run by its own pytest."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from support.programs import run_program

import pushsdk

ROOT = Path(pushsdk.__file__).parents[1]
PLUGIN = "pushsdk.testing.plugin"
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
    """Run a suite with this source and these plugins, and return the output of pytest."""

    def run(source, *words, plugins=(), code=0, conftest=""):
        (tmp_path / "test_suite.py").write_text(HEAD + source)
        (tmp_path / "conftest.py").write_text(conftest)
        settings = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
        (tmp_path / "pytest.ini").write_text(settings if "pytest_asyncio.plugin" in plugins else settings[:32])
        process = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *words],
            cwd=tmp_path,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("PUSHSDK_")},
                "PYTHONPATH": str(ROOT),
                # No other installed plugins, in the workers of xdist too.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTEST_PLUGINS": ",".join((PLUGIN, *plugins)),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert process.returncode == code, process.stdout + process.stderr
        return process.stdout

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


@pytest.mark.parametrize("words", [[], ["--import-mode=importlib"], ["--import-mode=append"]], ids=str)
def test_sync_tests_need_no_other_plugin(suite, words):
    assert "7 passed" in suite(SYNC, *words)


def test_the_plugin_works_with_pytest_asyncio(suite):
    source = """
async def test_it(push):
    with push.fault(Fault.status(503, headers={"Retry-After": "0"}, first=1)) as fault:
        await send(push, "ann")
    assert fault.hits == 1
    assert (await push.until("ann"))[0].user_ids == ("ann",)
    push.assert_no_duplicates()
"""
    assert "1 passed" in suite(source, "-o", "asyncio_mode=auto", plugins=["pytest_asyncio.plugin"])


def test_the_plugin_works_with_anyio(suite):
    pytest.importorskip("anyio")
    source = """
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def test_it(push):
    await send(push, "ann")
    assert (await push.until("ann"))[0].user_ids == ("ann",)
"""
    assert "1 passed" in suite(source, plugins=["anyio.pytest_plugin"])


def test_workers_of_xdist_have_separate_services(suite):
    pytest.importorskip("xdist")
    source = """
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
"""
    output = suite(source, "-n", "2", "-rP", plugins=["xdist.plugin"])
    assert "8 passed" in output
    services = set(re.findall(r"(gw\d) (http://\S+)", output))
    assert len(services) == len(dict(services)) == len({url for _, url in services}) == 2


def test_the_emulators_options_can_be_overridden(suite):
    conftest = """
import pytest
from pushsdk.emulator import ServiceLimits

@pytest.fixture(scope="session")
def push_emulator_options():
    return {"limits": ServiceLimits(max_users=1)}
"""
    assert "1 passed" in suite("def test_it(push): assert push.limits.max_users == 1", conftest=conftest)


FAILING = """
def test_that_expects_another_push(push):
    asyncio.run(send(push, "ann"))
    push.assert_sent("eve")

def test_that_fails_by_itself(push):
    asyncio.run(send(push, "ann"))
    assert 1 == 2

def test_that_sent_nothing(push):
    with push.fault(Fault.hang()):
        pass
"""


def test_a_failing_test_shows_the_received_requests_once(suite):
    output = suite(FAILING, code=1)
    first, second, third = re.split(r"_{5,} test_that_\w+ _{5,}", output)[1:]
    row = r'accepted  204  push to "ann"  en "Hello"'
    assert 'E       AssertionError: Expected a push to "eve", got none.' in first
    assert (first.count(row), second.count(row)) == (1, 1)
    assert "- Push service -" in second
    assert "- Push service -" not in first + third
    assert ">       with push.fault(Fault.hang()):\n" in third  # 3.13 underlines it
    assert "\nE       AssertionError: This fault never fired" in third


def test_a_failure_points_to_the_test_not_to_the_plugin(suite):
    output = suite(FAILING, code=1)
    assert re.findall(r"^(\S+\.py):\d+: ", output, re.MULTILINE) == ["test_suite.py"] * 3


NEVER_FIRED = """
def test_with_another_error(push):
    with pytest.raises(ZeroDivisionError), push.fault(Fault.status(503, user="eve")):
        asyncio.run(send(push, "ann"))
        1 / 0

def test_without_a_with_block(push):
    push.fault(Fault.status(503, first=2), Fault.hang())
    asyncio.run(send(push, "ann"))

@pytest.mark.xfail(strict=True)
def test_that_is_expected_to_fail(push):
    push.faults("outage")

def test_that_expects_the_failure(push):
    with pytest.raises(AssertionError, match="never fired"), push.fault(Fault.hang()):
        pass

def test_with_faults_that_are_not_required(push):
    push.fault(Fault.hang(), required=False)
    with pytest.raises(ZeroDivisionError), push.fault(Fault.hang(), required=False):
        1 / 0

def test_that_is_skipped(push):
    with push.fault(Fault.hang()):
        pytest.skip("not today")
"""


def test_a_test_fails_if_its_faults_never_fired(suite):
    output = suite(NEVER_FIRED, "-rs", code=1)
    assert "2 failed, 2 passed, 1 skipped, 1 xfailed" in output
    first, second = re.split(r"_{5,} test_\w+ _{5,}", output)[1:]
    assert first.lstrip().startswith("This fault never fired: no request met the conditions.")
    assert "\n  Fault.status(code=503, user='eve')\n\nThe service received 1 request" in first
    assert second.lstrip().startswith("These faults were never used: write `with push.fault(...):`\n")
    assert "\n  Fault.status(code=503, first=2)\n  Fault.hang(accepted=False)\n" in second
    assert second.count('accepted  204  push to "ann"') == 1
    assert re.search(r"^SKIPPED .*: not today$", output, re.MULTILINE)


def test_the_received_requests_are_shown_however_the_fixture_is_requested(suite):
    source = """
import unittest

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
"""
    assert suite(source, code=1).count('accepted  204  push to "ann"') == 3


def test_another_fixture_named_push_is_left_alone(suite):
    conftest = "import pytest\n@pytest.fixture\ndef push(): return 7\n"
    output = suite("def test_it(push): assert push == 8", code=1, conftest=conftest)
    assert "1 failed" in output
    assert "Push service" not in output


def test_a_failure_before_the_inbox_exists_is_left_alone(suite):
    source = """
@pytest.fixture
def broken(): raise ZeroDivisionError

def test_it(broken, push): pass

def test_other(): assert False
"""
    output = suite(source, code=1)
    assert "1 failed, 1 error" in output
    assert "Push service" not in output


def test_loading_the_plugin_imports_nothing_heavy():
    loaded = run_program(f"import sys, {PLUGIN}; print(*sys.modules)")
    assert loaded.code == 0
    assert {"aiohttp", "msgspec", "pushsdk.client", "pushsdk.emulator"}.isdisjoint(loaded.out.split())


def test_the_package_registers_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    assert module == PLUGIN
    assert import_module(module).push
    assert any(requirement.startswith("pytest>=") for requirement in project["optional-dependencies"]["testing"])
    assert any("testing" in requirement for requirement in project["optional-dependencies"]["dev"])
