"""The README is true: its examples run, its commands exist, its tables match the code."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.service_thread import Service, served

import pushsdk
import pushsdk.emulator
from pushsdk import AsyncPushClient, MobilePush, Outcome, PushError, RetryPolicy, Timeout
from pushsdk._core.outcome import TABLE, Attempt
from pushsdk._core.rate_limit import CAPACITY, COST, REFUND
from pushsdk.emulator import Fault

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def blocks(language: str) -> list[str]:
    """The code blocks in that language, each after as many line ends as put its errors on the README's lines."""
    return [
        "\n" * README[: match.start(1)].count("\n") + match[1]
        for match in re.finditer(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    ]


def line_of(block: str) -> str:
    return f"line {len(block) - len(block.lstrip()) + 1}"


def tables() -> dict[str, list[list[str]]]:
    """The rows of every table, by the first cell of its head."""
    found = {}
    for match in re.finditer(r"(?:^\|.*\|\n)+", README, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in match[0].splitlines())
        found[head[0]] = rows
    return found


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


PYTHON = blocks("python")
TESTS = [block for block in PYTHON if "def test_" in block]
# Those that begin with a file name are run by tests/workers, with the frameworks they are for.
MODULES = [block for block in PYTHON if re.match(r"# \w+\.py\n", block.lstrip())]
EXAMPLES = [block for block in PYTHON if block not in TESTS + MODULES]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The embedded service that the variables point to."""
    with served(monkeypatch) as service:
        yield service


def run(source: str) -> dict[str, Any]:
    """Run an example. If it awaits at top level, it gets a ``client`` and a ``message``."""
    names: dict[str, Any] = {"__name__": "__main__", "message": MobilePush(title={"en": "Hello"})}
    code = compile(source, str(ROOT / "README.md"), "exec", flags=TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return names

    async def awaited() -> None:
        async with AsyncPushClient() as names["client"]:
            example: Coroutine[Any, Any, None] = eval(code, names)
            await example

    asyncio.run(awaited())
    return names


@pytest.mark.parametrize("source", EXAMPLES, ids=line_of)
def test_every_example_runs(service: Service, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    duckdb.execute("COPY (SELECT 'user-' || i AS user_id FROM range(9) t(i)) TO 'users.parquet' (FORMAT parquet)")
    run(source)
    if "send(" in source or "create_campaign(" in source or "broadcast(" in source:
        assert service.requests > 0
        assert service.users() or service.campaigns


def test_the_first_example_is_short_and_prints_what_it_says(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    run(EXAMPLES[0])
    said = re.search(r"print\(.*#\s*(.*)", EXAMPLES[0])
    assert said
    assert capsys.readouterr().out.strip() == said[1]
    assert len([line for line in EXAMPLES[0].splitlines() if line.strip()]) <= 10


def test_the_example_of_errors_runs_through_each_of_its_branches(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = (block for block in EXAMPLES if "except PartialError" in block)
    service.faults = [Fault.reset_after(first=1)]
    run(example)
    assert capsys.readouterr().out.startswith("may have been pushed: 2 users, the connection")


@pytest.mark.parametrize("source", TESTS, ids=line_of)
def test_every_test_example_passes_when_it_is_copied(tmp_path: Path, source: str) -> None:
    (tmp_path / "test_example.py").write_text(source)
    settings = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    (tmp_path / "pytest.ini").write_text(settings)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(pushsdk.__file__).parents[1]),
            # As if the package were installed.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pushsdk.testing.plugin,pytest_asyncio.plugin",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == 0


def test_every_command_exists() -> None:
    from pushsdk.cli.app import app

    lines = [line for block in blocks("bash") for line in block.split("\n") if line]
    assert lines == ["pip install '.[cli]' && pushsdk demo", "pip install -e '.[dev]' && pytest"]
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert {extra for line in lines for extra in re.findall(r"\.\[(\w+)\]", line)} <= extras.keys()
    assert any(requirement.startswith("pytest>") for requirement in extras["dev"])
    assert PYPROJECT["project"]["scripts"]["pushsdk"] == "pushsdk.cli:main"
    for command in re.findall(r"\bpushsdk ([a-z]+)\b", "\n".join(lines) + " ".join(re.findall(r"`[^`\n]+`", README))):
        assert command in app


def test_what_services_and_workers_need_is_what_their_tests_install() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    tested = {re.split(r"[><=]", each)[0] for extra in ("workers", "workers-arq") for each in extras[extra]}
    results = re.findall(
        r"<summary>.*<code>pip install (.*?)</code>, <code>(.*_(?:service|jobs).*?)</code></summary>", README
    )
    run = [re.findall(r"\w+_(?:service|jobs)", command) for _, command in results]
    written = [found for block in MODULES if (found := re.findall(r"^# (\w+_(?:service|jobs))\.py$", block, re.M))]
    assert run == written
    assert len(run) == 6
    for packages, _ in results:
        ours, *theirs = shlex.split(packages)
        assert ours in {"pushsdk", "pushsdk[redis]"}
        assert set(theirs) <= tested


def test_a_recipe_that_reads_a_parquet_file_names_the_extras_for_it() -> None:
    for recipe, package in (("ray_broadcast", "ray"), ("dask_broadcast", "distributed")):
        (install,) = re.findall(rf"<code>pip install (.*?)</code>, <code>python {recipe}.py</code>", README)
        assert shlex.split(install) == ["pushsdk[arrow,audience]", package]


def test_the_spark_extra_brings_the_pandas_that_pyspark_works_with() -> None:
    assert "pandas>=2.2,<3" in PYPROJECT["project"]["optional-dependencies"]["spark"]


def test_nothing_is_said_about_a_license() -> None:
    assert not {"license", "license-files"} & PYPROJECT["project"].keys()


def test_jobs_come_again_as_often_as_their_table_says() -> None:
    results = {row[0]: row[-1] for row in tables()["run by"]}
    for row, name, tries in (("arq", "arq_jobs.py", "max_tries"), ("Celery", "celery_jobs.py", "max_retries")):
        (source,) = (block for block in MODULES if f"# {name}" in block)
        seconds, times = re.search(r"retry_after or (\d+)", source), re.search(rf"{tries} ?= ?(\d+)", source)
        assert seconds
        assert times
        assert int(seconds[1]) * int(times[1]) == 3600
        assert results[row] == f"every {seconds[1]} s, for an hour"
    assert "retry_after or 10, 60))" in README
    assert results["taskiq"].startswith("every 10 s")
    assert "min_idle_time=120_000" in README
    assert results["FastStream"].startswith("every 2 min")


def test_the_demo_is_as_it_is_said_to_be() -> None:
    from pushsdk.cli.commands.demo import demo, faults_for

    users = inspect.signature(demo).parameters["users"].default
    assert f"pushes to {users + users // 10:,} users" in README
    assert len(faults_for(users, "ann")) == 7
    assert "fails in seven ways" in README


def test_the_pythons_are_those_of_the_metadata() -> None:
    assert PYPROJECT["project"]["requires-python"] == ">=3.11"
    assert "need Python 3.11 or later" in README


# -- the tables ---------------------------------------------------------------------------------------------------


def test_the_outcome_table_is_that_of_the_code() -> None:
    rows = [[rule.answer, rule.outcome, "yes" if rule.retryable else "no", rule.meaning] for rule in TABLE]
    assert tables()["answer"] == rows


UNSENT = Attempt(outcome=Outcome.NOT_SENT, retryable=True)
UNKNOWN = Attempt(outcome=Outcome.UNKNOWN)


@pytest.mark.parametrize(
    ("name", "unsent", "unknown", "collapsible"),
    [
        ("safe", True, False, False),
        ("collapsible", True, False, True),
        ("at_least_once", True, True, True),
    ],
)
def test_the_policies_retry_what_their_table_says(name: str, unsent: bool, unknown: bool, collapsible: bool) -> None:
    results = {row[0].partition("(")[0].removeprefix("`RetryPolicy."): row[1:] for row in tables()["policy"]}
    policy: RetryPolicy = getattr(RetryPolicy, name)()
    assert policy.max_attempts > 1
    assert policy.should_retry(UNSENT, collapsible=False) is unsent is results[name][0].startswith("retried")
    assert policy.should_retry(UNKNOWN, collapsible=False) is unknown is results[name][1].startswith("retried")
    assert policy.should_retry(UNKNOWN, collapsible=True) is collapsible is (results[name][1] != "never")
    assert results["none"] == ["never", "never"]
    assert RetryPolicy.none().max_attempts == 1
    assert len(results) == 5


def test_the_numbers_are_those_of_the_code() -> None:
    policy, timeout, batching = RetryPolicy(), Timeout(), pushsdk.Batching()
    text = " ".join(README.split())
    for said in (
        (
            f"There are {policy.max_attempts} attempts, "
            f"with random waits of up to {policy.initial_delay} s, {policy.initial_delay * 2} s"
        ),
        f"at most {policy.max_delay:.0f} s",
        f"for at most {policy.max_retry_after:.0f} s",
        f"costs {COST} tokens of the client's {CAPACITY}",
        f"on its first try gives {REFUND} back",
        f"`total` ({timeout.total:.0f} s)",
        f"`attempt` ({timeout.attempt:.0f} s)",
        f"`connect` ({timeout.connect:.0f} s)",
        f"of up to {batching.max_users} users and {batching.max_bytes // 2**20} MiB",
        f"while {pushsdk.Limits().in_flight} requests are out",
        "408, 425 and 429",
    ):
        assert said in text
    assert policy.retry_on == {408, 425, 429}
    assert batching.split_on == {400, 413, 422}
    assert batching.linger == 0


def test_every_error_has_a_row_that_says_what_to_do() -> None:
    errors = {name for name in pushsdk.__all__ if name.endswith("Error")} - {"PushError"}
    rows = {row[0].strip("`"): row[1:] for row in tables()["error"]}
    assert rows.keys() == errors
    for name, (happened, _) in rows.items():
        kind = getattr(pushsdk, name)
        assert issubclass(kind, PushError)
        base = re.match(r"a `(\w+)`:", happened)
        assert kind.__base__.__name__ == (base[1] if base else "PushError")
    assert all(f".{name}`" in README for name in inspect.get_annotations(PushError))


def test_the_faults_are_all_named() -> None:
    actions = {name for name, each in vars(Fault).items() if isinstance(each, staticmethod)}
    assert actions == {
        name for name in actions if re.search(rf"`{name}`|Fault\.{name}\(", section("Testing your own code"))
    }


# -- the changelog --------------------------------------------------------------------------------------------------


def described(name: str) -> list[str]:
    """The changelog's lines that begin with the name, alone or beside others."""
    return [line for line in CHANGELOG.splitlines() if re.match(rf"- (`[^`]+`, )*`{re.escape(name)}`[^:]*: \S", line)]


@pytest.mark.parametrize("name", [name for name in pushsdk.__all__ if name != "__version__"])
def test_every_public_name_has_one_line_in_the_changelog(name: str) -> None:
    assert len(described(name)) == 1


@pytest.mark.parametrize("name", pushsdk.emulator.__all__)
def test_every_name_of_the_emulator_has_one_line_in_the_changelog(name: str) -> None:
    assert len(described(f"pushsdk.emulator.{name}")) == 1


def test_every_command_has_one_line_in_the_changelog() -> None:
    from pushsdk.cli.app import app

    commands = [name for name in app if not name.startswith("-")]
    assert commands
    assert [name for name in commands if len(described(f"pushsdk {name}")) != 1] == []


def test_the_changelog_begins_with_what_is_not_released() -> None:
    assert re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)[0] == "Unreleased"
    assert os.fspath(ROOT) not in CHANGELOG + README
