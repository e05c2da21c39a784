"""The guide's pages on frameworks: their modules are short, and their tables are true."""

import importlib
import inspect
import os
import re
import shlex
import sys
import tomllib

import pytest
from support.docs import DOCUMENTS, MODULES, ROOT, calm, check_shown, page
from support.programs import run_pytest
from support.servers import free_port
from support.worker_frameworks import installed

from pushsdk import PushError


@pytest.mark.parametrize(("name", "tries"), [("arq_jobs.py", "max_tries"), ("celery_jobs.py", "max_retries")])
def test_a_job_is_retried_for_an_hour(name, tries):
    number = re.search(rf"{tries}\b.*?(\d+)", MODULES[name])
    assert int(number[1]) * inspect.signature(PushError.retry_delay).parameters["default"].default == 3600


@pytest.mark.parametrize(
    "name",
    [
        *("celery_jobs.py", "taskiq_jobs.py", "arq_jobs.py", "faststream_jobs.py"),
        *("aiohttp_service.py", "fastapi_service.py", "flask_service.py", "kubernetes_service.py"),
    ],
)
def test_no_client_is_made_at_import_so_a_process_that_queues_jobs_needs_no_key(name, tmp_path, monkeypatch):
    framework = name.partition("_")[0]
    package = {"taskiq": "taskiq_redis", "kubernetes": "aiohttp"}.get(framework, framework)
    installed(package, framework)
    for variable in [variable for variable in os.environ if variable.startswith("PUSHSDK_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    for file in {name, "aiohttp_service.py"}:
        (tmp_path / file).write_text(MODULES[file])
    monkeypatch.syspath_prepend(tmp_path)
    stem = name.removesuffix(".py")
    names = vars(importlib.import_module(stem))
    for module in {stem, "aiohttp_service"} & sys.modules.keys():
        monkeypatch.delitem(sys.modules, module)
    assert "shipped" in names


def test_the_test_of_the_celery_page_passes_when_it_is_copied(tmp_path):
    installed("celery", "celery")
    for file in "celery_jobs.py", "test_celery_jobs.py":
        (tmp_path / file).write_text(MODULES[file])
    ended = run_pytest(tmp_path, "-q", REDIS_URL="memory://")
    assert "1 passed" in ended.out, ended


def test_an_order_twice_and_one_in_doubt_end_as_shown(tmp_path, monkeypatch, redis_url):
    installed("celery", "celery")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "celery_jobs.py").write_text(calm(MODULES["celery_jobs.py"]))
    check_shown(page("celery").blocks[2:6], {"redis://127.0.0.1": redis_url, "8124": free_port()})


def test_what_a_page_installs_is_what_its_tests_install():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    tested = {re.split(r"[><=]", each)[0] for extra in ("dev", "workers", "workers-arq") for each in extras[extra]}
    pages = [
        each for each in DOCUMENTS if any(re.search("_(service|jobs)", block.module or "") for block in each.blocks)
    ]
    lines = [line for each in pages for line in re.findall(r"^\$ pip install (.+)$", each.text, re.MULTILINE)]
    for _, *theirs in map(shlex.split, lines):
        assert {*theirs} <= tested


def test_every_page_installs_pushsdk_from_a_clone_as_no_package_index_has_it():
    # The reference page has the docstrings, whose readers have installed it.
    texts = {each.name: each.text for each in DOCUMENTS if each.name != "reference.md"}
    assert [name for name, text in texts.items() if re.search("pip install '?pushsdk", text)] == []
    named = {place for text in texts.values() for place in re.findall(r"pip install '?(/[\w/-]+)", text)}
    assert named == {"/path/to/pushsdk-clone"}
