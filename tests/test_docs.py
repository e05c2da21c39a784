"""README and the user guide are true: examples and commands run, links lead somewhere, messages reach a platform."""

import ast
import inspect
import itertools
import json
import os
import re
import shlex
import time
from dataclasses import fields
from pathlib import Path

import duckdb
import pytest
from support.command_line import run_here
from support.docs import DOCUMENTS, GUIDE, MODULES, README, ROOT, calm, check_shown, is_shown, page, run, run_in_shell
from support.patient_loop import PatientLoop
from support.programs import run_pytest
from support.servers import free_port
from support.service_thread import served

import pushsdk
from pushsdk import Outcome, PushClient, RetryPolicy, lint
from pushsdk import docs as guide
from pushsdk._core.judging import TABLE
from pushsdk._core.outcome import Attempt, Failure
from pushsdk._core.policy import RetryOptions
from pushsdk._core.rate_limit import CAPACITY, COST, REFUND, THROTTLED_COST
from pushsdk.claims import SqliteClaims
from pushsdk.cli.app import GROUPS, app
from pushsdk.cli.commands.emulator import kept_profile
from pushsdk.cli.exit import Exit
from pushsdk.cli.options import CallOptions
from pushsdk.cli.settings import DEFAULTS, KEYS, SETTINGS
from pushsdk.docs.search import search

PYTHON = [block for document in DOCUMENTS for block in document.blocks if block.language == "python"]
TESTS = [block for block in PYTHON if "def test_" in block.text and not block.module]
EXAMPLES = [block for block in PYTHON if block not in TESTS and not block.module]
CONSOLES = [document for document in DOCUMENTS if any(block.language == "console" for block in document.blocks)]
PAGES = [document for document in DOCUMENTS if document is not README]
SENDS = re.compile(r"\b(send|send_each|broadcast|create_campaign)\(")
MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "It ships today"}, "iosEnabled": True}


@pytest.fixture
def service(monkeypatch, tmp_path):
    """The embedded service; a folder with the files that examples read; no settings of the developer."""
    for name in [name for name in os.environ if name.startswith("PUSHSDK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    users = [{"user_id": f"user-{i}", "first_name": f"Ann{i}", "country": "SE"} for i in range(9)]
    Path("message.json").write_text(json.dumps(MESSAGE))
    Path("ids.txt").write_text("".join(f"{user['user_id']}\n" for user in users))
    Path("users.txt").write_text(Path("ids.txt").read_text())
    Path("optout.csv").write_text("user_id\nuser-1\nuser-2\n")
    Path("users.jsonl").write_text("".join(json.dumps(user) + "\n" for user in users))
    campaign = {"name": "Spring", "externalId": "spring-2026", "schedule": {"type": "START_NOW"}, "message": MESSAGE}
    campaign["segment"] = {"query": "SELECT id FROM users", "primaryKey": "id"}
    Path("campaign.json").write_text(json.dumps(campaign))
    duckdb.execute("COPY (FROM 'users.jsonl') TO 'users.csv'")
    duckdb.execute("COPY (FROM 'users.jsonl') TO 'users.parquet' (FORMAT parquet)")
    with served(monkeypatch) as service:
        yield service


# -- code -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_every_example_runs(service, block):
    run(block)
    if SENDS.search(block.text) and "Emulator(" not in block.text:
        assert service.requests > 0
    assert {problem.code for push in service.pushes for problem in lint(push.message)} <= {"unknown-field"}


def test_every_message_sets_a_platform():
    calls = [call for block in PYTHON for call in re.findall(r"MobilePush\((?:[^()]|\([^()]*\))*\)", block.text)]
    assert [call for call in calls if not re.search(r"_enabled|\*\*", call)] == []


def test_every_test_example_passes_when_it_is_copied(tmp_path):
    for number, block in enumerate(TESTS):
        (tmp_path / f"test_{number}_{block.document.partition('.')[0]}.py").write_text(block.source)
    settings = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    (tmp_path / "pytest.ini").write_text(settings)
    ended = run_pytest(tmp_path, "-q", plugins=["pytest_asyncio.plugin"])
    passed = re.search(r"^(\d+) passed in", ended.out, re.MULTILINE)
    assert passed, ended
    assert int(passed[1]) >= len(TESTS)


def test_every_module_has_a_name_of_its_own_and_is_run_by_a_dedicated_test():
    names = [block.module.removesuffix(".py") for block in PYTHON if block.module]
    assert sorted(set(names)) == sorted(names)
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name in names if name not in tests] == []


@pytest.mark.parametrize("name", ["quickstart", "tenants"])
def test_a_page_on_a_task_begins_with_a_whole_program_that_prints_what_is_shown(service, name, capsys):
    blocks = page(name).blocks
    program, output = next(pair for pair in itertools.pairwise(blocks) if pair[0].language == "python")
    exec(program.source, {"__name__": "__main__"})
    assert capsys.readouterr().out == output.text


def test_a_burst_at_a_service_that_throttles_is_sent_in_the_end(capsys, monkeypatch):
    monkeypatch.setattr("asyncio.events.new_event_loop", PatientLoop)
    burst = MODULES["burst.py"]
    for usual, faster in {"2000": "200", "rate=20": "rate=50", ".api_key)": ".api_key, timeout=1.0)"}.items():
        burst = burst.replace(usual, faster)
    exec(burst, {"__name__": "__main__"})
    codes, report, totals = capsys.readouterr().out.splitlines()
    assert re.match(r"Counter\(\{'not-sent-throttled': \d", codes)
    assert re.match(r"<BroadcastReport: (\d+) of \1 users accepted", report)
    assert "'users': 200, 'duplicates': 0" in totals


# -- commands ---------------------------------------------------------------------------------------------------------

# Commands of a console block that run. Others (pip, docker, kubectl) are for the reader only. The address and the key
# are always those of the embedded service.
RUN = re.compile(r"(?!export PUSHSDK_(?:BASE_URL|API_KEY)=)(?:[A-Z_]+=\S+ )*(?:pushsdk|export|unset|echo|cat|printf)\b")
# These are parsed, not run: they run until a signal, take seconds, or need a server.
PARSED = re.compile(r"pushsdk (?:emulator|demo)\b|.*(?:redis|postgresql)://")
# These need a shell: a pipe, a redirection. The others run in this process, which takes a tenth of the time.
SHELL = re.compile(r"(?!pushsdk).*|.*[|>]")
# The emulator's address in the guide.
ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|localhost):8080")


def commands(document):
    """Yield each command of a document's console blocks, and the output shown below it."""
    for block in document.blocks:
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, output = re.split(r"(?<!\\)\n", part, maxsplit=1)
                yield command.replace("\\\n", " "), [line.strip() for line in output.splitlines() if line.strip()]


@pytest.mark.filterwarnings("ignore::pushsdk.MessageWarning")
@pytest.mark.parametrize("document", CONSOLES, ids=str)
def test_every_command_runs_and_prints_what_is_shown(service, document, monkeypatch, capsys):
    """The commands of a page run in order; without output shown, each must exit with 0."""
    for name, value in {"HOME": os.getcwd(), "COLUMNS": "120", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    for name, text in re.findall(r"`([\w-]+\.json)`[^`\n]*:\n\n```json\n(.*?)^```", document.text, re.M | re.S):
        Path(name).write_text(text)
    with PushClient(claims=SqliteClaims("claims.db")) as client:
        client.send("user-1", MESSAGE, idempotency_key="job-1")
    service_root = service.base_url.removesuffix("/external/api")
    with kept_profile(service):
        for command, shown in commands(document):
            words = shlex.split(command.rstrip("& "))
            if PARSED.match(command):
                app.parse_args([*words[1 : words.index("--")], "--", "true"] if "--" in words else words[1:])
            elif RUN.match(command):
                command = ADDRESS.sub(service_root, command)
                if words[0] == "export":
                    monkeypatch.setenv(*words[1].split("=", 1))
                    continue
                if SHELL.match(command):
                    code, output = run_in_shell(command)
                else:
                    code, *streams = run_here(capsys, command.removeprefix("pushsdk"))
                    output = "".join(streams)
                address_of_the_guide = output.replace(service_root, "http://127.0.0.1:8080")
                for line in shown:
                    assert is_shown(line, address_of_the_guide), f"$ {command}\n{output}\nis without the line: {line}"
                assert shown or code == 0, f"$ {command}\n{output}\nexit code {code}"


def test_the_commands_in_scripts_schedules_and_manifests_are_commands(monkeypatch):
    monkeypatch.setenv("PUSHSDK_CLAIMS", "sqlite:claims.db")  # as the blocks export it
    texts = [
        block.text for document in DOCUMENTS for block in document.blocks if block.language in ("bash", "cron", "yaml")
    ]
    lists = [line.replace(",", "") for text in texts for line in re.findall(r"command: \[pushsdk, (.*)\]", text)]
    lines = [line for text in texts for line in re.findall(r"(?m:^|&& |; |\()pushsdk (.*?)(?m: &|;| 2?>|$)", text)]
    assert lists
    assert lines
    for line in lists + lines:
        words = shlex.split(re.sub(r"\$\(\w+\)", "value", line))  # as Kubernetes fills $(NAME)
        app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "file", "first", "last"), [("nightly-job", "night.sh", 0, 7), ("idempotency", "orders.py", 2, 7)]
)
def test_what_a_page_says_to_try_ends_as_shown(monkeypatch, tmp_path, name, file, first, last):
    monkeypatch.chdir(tmp_path)
    program, *shown = page(name).blocks[first:last]
    Path(file).write_text(calm(program.text))
    # Noon, as a night ends at midnight. An answer may be late on a busy machine.
    variables = f"export TZ=XXX{time.gmtime().tm_hour - 12} PUSHSDK_ATTEMPT_TIMEOUT=100\n(echo"
    check_shown(
        shown,
        {"(echo": variables, "sleep 30": "", "20 seconds": "50 seconds", "--yes": "--yes --force", "8124": free_port()},
    )


# -- links ------------------------------------------------------------------------------------------------------------


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


def links(document):
    text = re.sub(r"^```.*?^```", "", document.text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


def leads_somewhere(document, link):
    path, _, fragment = link.partition("#")
    target = (document.path.parent / path).resolve() if path else document.path
    headings = [map(anchor, each.headings) for each in DOCUMENTS if each.path == target]
    return target.is_file() and (not fragment or fragment in headings[0])


def test_every_link_leads_somewhere():
    inside = [(document, link) for document in DOCUMENTS for link in links(document) if not re.match("https?:", link)]
    assert [f"{document}: {link}" for document, link in inside if not leads_somewhere(document, link)] == []


def test_every_page_is_in_the_index():
    linked = re.findall(r"\((\S+)\.md\)", page("index").text)
    assert {document.path.stem for document in PAGES} - {"index"} <= {*linked}


def test_every_page_begins_with_its_title_and_one_sentence():
    start = re.compile(r"# \S.*\n\n[A-Z`]")
    assert [str(document) for document in PAGES if not start.match(document.text)] == []


def test_every_page_that_a_text_of_the_package_names_exists():
    texts = "".join(path.read_text() for path in GUIDE.parent.rglob("*.py"))
    named = {re.sub("#|$", ".md#", name, count=1) for name in re.findall(r"pushsdk docs ([a-z][\w#-]*)", texts)}
    assert named
    assert [link for link in named if not leads_somewhere(PAGES[0], link)] == []


# -- tables and numbers -----------------------------------------------------------------------------------------------


def test_the_outcome_tables_are_that_of_the_code():
    rows = [[rule.answer, rule.outcome, "yes" if rule.retryable else "no", rule.meaning] for rule in TABLE]
    assert page("outcomes").table("answer") == README.table("answer") == rows


def test_the_policies_retry_what_their_table_says():
    *rows, none, _ = page("retries").table("policy")
    assert none == ["`RetryPolicy.none()`", "never", "never"]
    assert len(rows) == 3
    not_sent = Attempt(outcome=Outcome.NOT_SENT, retryable=True)
    in_doubt = Attempt(outcome=Outcome.UNKNOWN)
    for name, unsent, unknown in rows:
        policy = getattr(RetryPolicy, re.match(r"`RetryPolicy\.(\w+)\(", name)[1])()
        assert policy.should_retry(not_sent, collapsible=False) == unsent.startswith("retried")
        assert policy.should_retry(in_doubt, collapsible=False) == unknown.startswith("retried")
        assert policy.should_retry(in_doubt, collapsible=True) == (unknown != "never")


def test_the_defaults_of_the_retry_policy_are_those_of_the_code():
    rows = {
        name.strip("`"): ast.literal_eval(default.strip("`")) for name, default, _ in page("retries").table("argument")
    }
    assert rows == {name: getattr(RetryPolicy(), name) for name in RetryOptions.__annotations__}


def test_the_retry_budget_is_that_of_the_code():
    text = " ".join(page("retries").text.split())
    assert f"costs {COST} tokens of the client's {CAPACITY}, or {THROTTLED_COST} after a throttled attempt" in text
    assert f"on its first try gives {REFUND} back" in text


def test_the_defaults_of_a_client_are_those_of_the_code():
    rows = re.findall(r"^\| `([A-Z]\w+)\.(\w+)` \| (.*?) \|", page("timeouts-and-limits").text, re.MULTILINE)
    assert {kind for kind, _, _ in rows} == {"Timeout", "Limits", "Batching"}
    for kind, name, shown in rows:
        number = re.match(r"([\d,]+)( MiB)?", shown)
        value = int(number[1].replace(",", "")) * (2**20 if number[2] else 1) if number else shown.strip('`"')
        value = None if shown == "none" else value
        assert getattr(getattr(pushsdk, kind)(), name) == value


@pytest.mark.parametrize(
    ("query", "page", "heading"),
    [
        ("double push", "idempotency", "Idempotency"),
        ("quiet hours", "faq", "How do I send later, or every night?"),
        ("fastapi idempotency test", "fastapi", "Let your callers repeat a call"),
        ("idempotent", "idempotency", "Idempotency"),
    ],
)
def test_a_search_finds_the_words_that_people_type(query, page, heading):
    assert search(query)[0][:2] == (page, heading)


def test_every_exit_code_has_a_row():
    assert [int(code) for code, _ in page("cli").table("exit code")] == sorted(Exit)


def test_the_page_on_the_command_line_lists_all_settings():
    rows = [[cell.strip("`") for cell in row] for row in page("cli").table("option")]
    settings = {key for _, _, key, _ in rows if key}
    assert settings == {*SETTINGS, *KEYS}
    assert {variable for _, variable, _, _ in rows} == {
        f"PUSHSDK_{name.upper()}" for name in (*settings, "config", "profile")
    }
    options = {name.replace("_", "-") for name in (field.name for field in fields(CallOptions)) if name != "verbose"}
    assert {option for option, *_ in rows if option} == {f"--{option}" for option in options}
    defaults = {key: default.split()[0].strip("`") for _, _, key, default in rows if key in DEFAULTS}
    assert defaults == {
        name: f"{value:g}" if isinstance(value, float) else f"{value}".lower() for name, value in DEFAULTS.items()
    }


def test_every_help_has_an_example_that_parses_and_a_page_that_exists():
    for name, command in (item for group in GROUPS.values() for item in group.items()):
        assert command.page in guide.names(), name
        arguments = command.example.partition(" > ")[0]
        app.parse_args(shlex.split(f"{name} {arguments}"), exit_on_error=False, print_error=False)


def test_every_command_has_a_row():
    rows = " ".join(row[0] for row in page("cli").table("command"))
    shown = [name for name in app if not name.startswith("-") and app[name].show]
    assert [name for name in shown if f"`pushsdk {name}" not in rows] == []


def test_every_failure_that_decides_has_its_code_as_a_heading_on_the_page_of_errors():
    headings = set(re.findall(r"^### (?:not-sent|outcome-unknown)-([a-z-]+)$", page("errors").text, re.MULTILINE))
    # After an attempt, whose cause is the code; or inside the client.
    others = {Failure.TOO_LONG, Failure.TOO_LATE, Failure.BUDGET, Failure.REKEYED}
    assert headings == {failure.name.lower().replace("_", "-") for failure in set(Failure) - others}


def test_every_error_has_a_heading_on_the_page_of_errors_and_is_said_to_be_what_it_is():
    for name in {name for name in pushsdk.__all__ if name.endswith("Error")} - {"PushError"}:
        base = re.match(r"\s*A `(\w+)`: ", page("errors").section(name))
        assert getattr(pushsdk, name).__base__.__name__ == (base[1] if base else "PushError")
        assert name in page("errors").headings
    assert all(f".{name}`" in page("errors").text for name in inspect.get_annotations(pushsdk.PushError))
