"""``pushsdk broadcast``, ``resume``, ``status``, ``report`` and ``plan``."""

import asyncio
import contextlib
import io
import json
import re
import shlex
import signal
import subprocess
from datetime import datetime
from time import strftime
from types import SimpleNamespace

import msgspec
import pytest
from support.command_line import run_apart, split, started

from pushsdk import AsyncPushClient, cli, read_report
from pushsdk._runs import stopping
from pushsdk._runs.plan import Chunk, Header
from pushsdk._runs.run_file.file import RunFilePath
from pushsdk._runs.run_file.journal import Journal
from pushsdk.cli.commands import runs
from pushsdk.cli.options import command_line
from pushsdk.emulator import Fault

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}, "iosEnabled": True}
USERS = ["ann", "bob", "cid"]
AWAY = "https://push.invalid/api"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a message and users."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "message.json").write_text(json.dumps(MESSAGE))
    (tmp_path / "ids.txt").write_text("\n".join([*USERS, "ann"]))
    return tmp_path


@pytest.fixture
def broadcast(command, folder):
    """A function that broadcasts the message to a source in the run file spring.run."""

    def run(*words, source="ids.txt", run="spring.run"):
        sources = [source] if source else []
        return command("broadcast --message message.json --progress none --run", run, *sources, *split(*words))

    return run


def begun_plan(path, base_url="http://127.0.0.1:1"):
    """Return the open journal of a run that has one planned user."""
    journal = Journal.open_or_create(path, Header(kind="broadcast", base_url=base_url, max_users=10, max_bytes=1000))
    journal.add([Chunk(1, b'"ann"')])
    return journal


# -- broadcast ----------------------------------------------------------------------------------------------------


def test_each_user_is_pushed_once_and_the_counts_go_to_stdout(broadcast, command, service, folder):
    (folder / strftime("nobody-%Y-%m-%d.csv")).write_text("user_id\n")
    assert "1 duplicate left out, 0 excluded\n" in command("plan ids.txt --title x --exclude nobody-{date}.csv").out
    result = broadcast("--exclude nobody-{date}.csv")
    assert result.code == 0
    assert result.err == ""
    assert [line.split()[-1] for line in result.out.splitlines()[:4]] == ["3", "0", "0", "0"]
    assert re.match(r"users     3  in 0:\d\d, 1 duplicate left out, 0 excluded$", result.out.splitlines()[4])
    assert service.users() == dict.fromkeys(USERS, 1)


def test_without_dedupe_an_id_is_pushed_as_often_as_it_occurs(broadcast, service):
    assert broadcast("--no-dedupe").code == 0
    assert service.users() == {"ann": 2, "bob": 1, "cid": 1}


@pytest.mark.parametrize(
    ("status", "words", "code", "text"),
    [
        (500, "--max-unknown 0.5", 5, "stopped: 100.0 % of the last"),
        (400, "", 5, "another message needs a new run, which pushes to all\n"),
        (500, "--no-stop-policy", 3, ""),
    ],
)
def test_a_run_stopped_by_the_stop_policy_exits_with_5(broadcast, service, folder, status, words, code, text):
    service.set_faults([Fault.status(status)])
    (folder / "ids.txt").write_text("\n".join(map(str, range(40_000))))
    result = broadcast(f"--in-flight 2 {words}")
    assert result.code == code
    assert text in result.err


# -- continued ----------------------------------------------------------------------------------------------------


def test_other_users_for_a_run_are_refused_with_both_numbers_and_the_options(broadcast, service):
    query = "--query", "SELECT unnest(['ann', 'eve']) AS user_id"
    assert broadcast("--limit 1").code == 1
    result = broadcast(*query, source=None)
    assert result.code == 2
    assert result.out == ""
    assert service.users() == {"ann": 1}
    assert "it was planned for 3 users, and this call has 2 users; " in result.err
    told = "; for the present users, name another run: it pushes to all users again, unless you --exclude spring.run; "
    assert told in result.err
    assert broadcast(*query, source=None, run="daily-{date}.run").code == 0
    assert service.users() == {"ann": 2, "eve": 1}


def test_a_plan_that_is_stopped_is_not_resumed(broadcast, service, monkeypatch):
    monkeypatch.setattr(RunFilePath, "stopped_by", lambda _: "bob")
    result = broadcast()
    assert result.err == "stopped: bob stopped it before all its users were read: nothing was sent\n"
    assert result.code == 130
    assert service.users() == {}


@pytest.mark.usefixtures("folder")
def test_only_the_users_of_the_option_get_pushes_and_the_others_are_not_called_the_rest(command, service):
    limited = "pushes are limited to 2 users (only_users): all others are NOT_SENT\n"
    result = run_apart("broadcast ids.txt --title x --run spring.run --progress none --only-users 'bob, eve'")
    assert result.code == 1
    assert service.users() == {"bob": 1}
    assert result.err == f"{limited}2 users left out: --only-users does not name them\n"
    assert "ann      NOT_SENT          not among the users that" in command("report spring.run").out
    assert "to send the rest" in command("status spring.run").err
    result = run_apart("send ann --title x --only-users bob --json")
    assert result.err.endswith(": see --only-users [not-sent-not-listed]\n")
    assert json.loads(result.out)["users"] == {"NOT_SENT": 1}
    assert service.users() == {"bob": 1}


@pytest.mark.usefixtures("service")
def test_a_dry_run_shows_only_who_gets_a_push(broadcast, command):
    words = "--dry-run --only-users bob,eve"
    result = broadcast(words)
    assert "users     1" in result.out
    assert '"userIds":["bob"]' in result.out
    assert result.err.startswith("2 users left out: --only-users does not name them\n")
    assert '"userIds":["bob"]' in command(f"send ann bob --title x {words}").out
    words = "--dry-run --only-users eve"
    assert broadcast(words).err.endswith("--only-users does not name them\npushsdk: no user is left\n")
    assert "no user is left" in command(f"send ann --title x {words}").err
    left = broadcast(f"{words} --exclude ids.txt")
    assert left.err == "pushsdk: the source has no users beside the 3 excluded\n"


def test_unknown_users_are_skipped_unless_they_are_resent(broadcast, command, service):
    service.set_faults([Fault.reset_after(first=1)])
    result = broadcast()
    assert result.code == 3
    assert "who may have the push:  pushsdk report spring.run --outcome unknown\n" in result.err
    assert "only if a second push is better than none:  pushsdk resume spring.run --on-unknown resend" in result.err
    assert "reasons: 3 users: the connection broke" in result.err
    result = broadcast()
    assert result.code == 3
    assert service.users() == dict.fromkeys(USERS, 1)
    assert "nothing was sent: an earlier command completed this run\n" in result.err
    result = command("resume spring.run --on-unknown resend --progress none")
    assert result.code == 0
    assert result.err == ""
    assert "3 resent after an unknown outcome" in result.out
    assert service.users() == dict.fromkeys(USERS, 2)


def test_after_the_end_of_the_time_no_second_push_is_advised(broadcast, command, service, monkeypatch):
    service.set_faults([Fault.reset_after(first=1)])
    broadcast()
    monkeypatch.setattr(stopping, "datetime", SimpleNamespace(now=lambda zone: datetime(2200, 1, 1, tzinfo=zone)))
    result = command("resume spring.run --on-unknown resend --not-after 2126-01-31T18:00+01:00")
    assert result.code == 3
    assert "to push to the rest, --exclude this run and pass another --run: pushsdk docs nightly-job#" in result.err
    assert "--on-unknown" not in result.err


def test_an_unfinished_plan_is_planned_again_but_not_resumed(broadcast, command, service, folder):
    begun_plan(folder / "spring.run", service.base_url).close()
    for name in ("status", "resume", "report"):
        result = command(name, "spring.run")
        assert result.code == 2
        assert result.out == ""
        assert "its plan is incomplete and nothing was sent" in result.err
    assert broadcast().code == 0
    assert service.users() == dict.fromkeys(USERS, 1)


def test_the_resume_command_is_quoted_and_has_the_given_options(broadcast, service, folder, monkeypatch):
    monkeypatch.delenv("PUSHSDK_API_KEY")
    (folder / "my key").write_text(service.api_key)
    options = f"--base-url {service.base_url} --api-key-file 'my key' --allow-insecure --rate 900"
    assert f"pushsdk resume 'my run' {options}\n" in broadcast(f"--limit 1 {options}", run="my run").err


def test_the_resume_command_has_numbers_as_given_and_no_password():
    secret = {"proxy": "http://me:passw0rd@p.example", "claims": "postgresql://db/shop?password=s3cret"}
    command = command_line(["resume", "a"], {"rate": 1_234_567.0, **secret, "timeout": 0.5})
    assert command == "pushsdk resume a --rate 1234567 --timeout 0.5"


# -- the question before sending -----------------------------------------------------------------------------------


def test_a_missing_setting_is_reported_before_the_source_is_read(broadcast, monkeypatch):
    result = broadcast(source="none.txt")
    assert result.code == 4
    assert result.out == ""
    assert "no Api-Key: set PUSHSDK_API_KEY" in result.err
    assert "no base URL: set PUSHSDK_BASE_URL" in result.err
    assert "none.txt" not in result.err


def test_a_dry_run_prints_the_counts_the_first_text_and_the_first_request(broadcast, service, folder):
    (folder / "message.json").write_text(json.dumps({**MESSAGE, "title": {"en": "Hi {{ city | 'you' }}"}}))
    result = broadcast("--dry-run")
    assert result.code == 0
    assert result.err == "nothing was sent: this is the first request, with 3 of its 3 users\n"
    figures = "users     3  1 duplicate left out\nrequests  1\n"
    assert result.out.startswith(f"{figures}[en] iOS\nHi you\nWorld\ncurl -X POST {service.base_url}/v1/push \\\n")
    assert sorted(json.loads(shlex.split(result.out)[-1])["userIds"]) == USERS
    (folder / "ids.txt").write_text("dan\nann\nann")
    (folder / "users.csv").write_text("user_id,city\nann,Rom\nbob,Bonn\nbob,Ulm\neve,\n")
    for into in "text", "custom-fields":
        words = f"--dry-run --json --personalize {into} --exclude ids.txt --force"
        shown = json.loads(broadcast(words, source="users.csv").out)
        totals = [shown[name] for name in ("users", "requests", "duplicates", "excluded")]
        assert totals == [2, 2, 1, 1]
        assert shown["texts"][0]["title"] == "Hi Bonn"
        assert shown["body"]["userIds"] == ["bob"]
    assert service.requests == 0
    assert not (folder / "spring.run").exists()


def test_likely_mistakes_are_told_once_before_anything_is_sent(folder, service, monkeypatch):
    monkeypatch.setenv("PUSHSDK_RETRY", "none")
    (folder / "ids.txt").write_text("ann,Ann\n")
    result = run_apart("broadcast ids.txt --message message.json --run spring.run --yes --force")
    assert result.code == 0
    assert service.requests == 1
    unused, several = [line for line in result.err.splitlines() if line.startswith("advice")]
    assert unused.startswith("advice: a run does not use the setting retry: it retries throttled and unsent requests")
    assert several.startswith(f"advice: a user id ({folder / 'ids.txt'}, line 1) looks like several")
    assert several.endswith(". Such ids are used as they are")


@pytest.mark.parametrize("words", ["", "--dry-run", "--personalize both", "--dry-run --personalize both", "plan"])
@pytest.mark.parametrize(
    ("source", "content", "sign"),
    [
        ("ids.txt", "user_id,name\nu0,Name0\n", "line 1) looks like several"),
        ("ids.txt", "userId\nu0\n", "line 1) is the name of a column"),
        ("ids.csv", "user_id\nann\n1.2E+11\n", "line 3, user_id) is a number"),
        ("-", "user_id,name\nu0,Name0\n", "a user id (standard input) looks like several"),
        ("-", "ann\n\ufeffbob\n", "(standard input) has an invisible character"),
    ],
)
def test_damaged_ids_are_refused(broadcast, command, service, folder, monkeypatch, words, source, content, sign):
    (folder / source).write_text(content, encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    is_plan = words == "plan"
    result = command("plan --message message.json", source) if is_plan else broadcast(words, source=source)
    assert result.code == 2
    assert result.out == ""
    assert service.requests == 0
    assert sign in result.err
    assert result.err.endswith("Nothing was sent: fix it, or pass --force\n")
    assert "1.2E+11" not in result.err


def test_status_watches_a_run_until_it_ends(broadcast, command, service, monkeypatch):
    assert broadcast().code == 0
    reports = [msgspec.structs.replace(read_report("spring.run"), in_use=in_use) for in_use in (True, True, False)]
    monkeypatch.setattr(runs, "read_report", lambda run: reports.pop(0))
    monkeypatch.setattr(runs, "_WATCH_INTERVAL", 0.0)
    assert "accepted  3\n" in command("status spring.run --watch").out
    assert reports == []


@pytest.mark.parametrize(
    ("words", "source", "counts"),
    [
        ("", "users.csv", "1,234 users in 2 requests"),
        ("--personalize both", "users.csv", "1,234 users in 1,234 requests"),
        ("", "-", "the users on standard input"),
    ],
)
def test_the_question_has_the_users_and_the_requests(broadcast, service, folder, words, source, counts):
    (folder / "users.csv").write_text("\n".join(["user_id", "7", *map(str, range(1234))]))
    assert f'Push "Hello" to {counts} at {AWAY}?' in broadcast(f"--base-url {AWAY} {words}", source=source).err


def test_the_question_of_a_resume_has_the_users_left(broadcast, command, service):
    assert broadcast("--limit 1").code == 1
    for result in (broadcast("--base-url", AWAY), command("resume spring.run --base-url", AWAY)):
        assert f'Push "Hello" to 2 more users of spring.run in 1 request at {AWAY}?' in result.err
    assert "to 1 more user of" in command("resume spring.run --limit 1 --base-url", AWAY).err


# -- Ctrl-C -------------------------------------------------------------------------------------------------------


CROWD = 60_000
BROADCAST = "broadcast many.txt --message message.json --run 'my run' --in-flight 2 --progress none"


@pytest.fixture
def sending(service, folder):
    """A function that broadcasts to a crowd in a process, until the service has three requests."""

    def start(fault):
        service.set_faults([fault])
        (folder / "many.txt").write_text("\n".join(map(str, range(CROWD))))
        process = started(BROADCAST)
        service.wait_for(requests=3)
        return process

    return start


def status_of_run(command):
    return json.loads(command("status 'my run' --json").out)


def test_a_command_for_a_run_that_another_sends_has_an_exit_code_for_this(sending, command):
    with sending(Fault.hang()) as process:
        second = command(f"{BROADCAST} --yes")
        assert (second.code, second.out) == (6, "")
        assert "it is in use by another call or process" in second.err
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_one_signal_waits_for_the_requests_in_flight(sending, service, command, number):
    with sending(Fault.delay(0.2)) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    figures = status_of_run(command)
    assert process.returncode == 130
    assert figures["unknown"] == 0
    assert figures["accepted"] == len(service.users())
    assert 0 < figures["accepted"] < CROWD
    assert f"accepted  {figures['accepted']:>6,}" in out
    assert err.startswith("stopping after the requests in flight; press Ctrl-C again to stop at once\n")
    assert err.endswith("and twice if a later run had them:  pushsdk resume 'my run' --in-flight 2\n")
    assert "Traceback" not in err


def test_another_terminal_stops_a_run_like_a_signal(sending, service, command, monkeypatch):
    monkeypatch.setenv("LOGNAME", "bob")
    with sending(Fault.delay(0.2)) as process:
        assert command("stop 'my run'").out == "my run stops after the requests in flight\n"
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert err.partition("\n")[0] == "stopped: bob stopped it"
    assert command("status 'my run'").code == 130
    figures = status_of_run(command)
    assert figures["unknown"] == 0
    assert figures["accepted"] == len(service.users())
    assert command("stop 'my run'").err.endswith("my run: no process is sending it\n")


def test_two_signals_stop_at_once_and_the_run_file_has_the_outcomes(sending, service, command):
    with sending(Fault.hang(every=3)) as process:
        process.send_signal(signal.SIGINT)
        process.stderr.readline()  # the notice of the first
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    figures = status_of_run(command)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert 0 < figures["unknown"] <= 2000
    assert f"unknown   {figures['unknown']:>6,}" in out
    assert "pushsdk resume 'my run' --in-flight 2 --on-unknown resend" in err
    service.set_faults([])
    assert command("resume 'my run' --progress none").code == 3
    assert set(service.users().values()) == {1}


def test_signals_end_a_run_that_waits_for_standard_input(service, folder):
    words = "broadcast - --message message.json --run a.run --progress none"
    with started(words, stdin=subprocess.PIPE) as process:
        # More than a pipe holds, so this returns after the command has begun to read.
        process.stdin.write("ann\n" * 100_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        notice = process.stderr.readline()
        # Repeated: a signal at the moment when the loop goes to sleep does not wake the loop.
        for _ in range(6):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
                break
        assert process.returncode == 130
        output = notice + process.stderr.read()
    assert "ended; to continue, run the same command again, or:  pushsdk resume a.run\n" in output
    assert service.requests == 0


def test_a_run_cancelled_during_planning_exits_as_interrupted(broadcast, service, folder, monkeypatch):
    async def cancelled(*_args, **_kwargs):
        begun_plan(folder / "spring.run", service.base_url).close()
        raise asyncio.CancelledError

    monkeypatch.setattr(AsyncPushClient, "broadcast", cancelled)
    result = broadcast()
    assert result.code == 130
    assert result.out == ""
    assert "its plan is incomplete and nothing was sent" in result.err


@pytest.mark.usefixtures("service")
def test_a_run_cancelled_while_its_client_closes_reports_its_file(broadcast, monkeypatch):
    close = AsyncPushClient.aclose

    async def cancelled(client, *, drain):
        await close(client, drain=drain)
        raise asyncio.CancelledError

    monkeypatch.setattr(AsyncPushClient, "aclose", cancelled)
    result = broadcast()
    assert result.code == 130
    assert result.out.splitlines()[0] == "accepted  3"


# -- status and report --------------------------------------------------------------------------------------------


def test_status_of_a_run_that_is_being_sent_gives_no_advice(command, folder):
    journal = begun_plan(folder / "spring.run")
    journal.seal(duplicates=0)
    result = command("status spring.run")
    journal.close()
    assert result.err.startswith("another process is sending this run")
    assert "resume" not in result.err


def test_status_and_report_show_a_run_with_every_outcome_and_send_nothing(broadcast, command, service, folder):
    (folder / "ids.txt").write_text("\n".join(["@cmd()", "bob", "ann \u00fc", *map(str, range(1001))]))
    service.set_faults([Fault.status(422, user="bob"), Fault.status(500, user="1000")])
    broadcast("--limit 1002 --force")
    before = service.requests
    answers = "answers: 9 x 422"
    result = command("status spring.run")
    assert result.code == 1
    assert "rejected      1\n" in result.out
    assert re.match(
        rf"title     Hello\naddress   {service.base_url}\nsource    .*ids.txt.*\n"
        r"begun     20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\nended     20",
        result.out,
    )
    rest = (
        f"to send the rest, also if they opted out, and twice if a later run had them:  pushsdk resume"
        f" spring.run --base-url {service.base_url}"
    )
    assert result.err.splitlines() == [
        "stopped: the limit is reached: resume for the rest",
        answers,
        f"{rest}  # with the options of the run, for example --rate",
    ]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert cli.main(split("report spring.run --json")) == 0
    rows = [json.loads(line) for line in output.getvalue().splitlines()]
    by_user = {row["user_id"]: (row["outcome"], row["status"]) for row in rows}
    assert len(by_user) == 1004
    assert len(rows) == 1004
    assert list(rows[0]) == ["user_id", "outcome", "status", "reason"]
    assert by_user["bob"] == ("REJECTED", 422)
    assert by_user["@cmd()"][0] == "ACCEPTED"
    assert sum(outcome == "NOT_SENT" for outcome, _ in by_user.values()) == 2
    result = command("report spring.run --format csv")
    told = "put a ' before 1 id, so that no spreadsheet runs it as a formula; --json is exact\n"
    assert len(result.out.splitlines()) == 1005
    assert result.err == f"{answers}\n{told}"
    assert re.search(r"""^"?'@cmd\(\)""", result.out, re.MULTILINE)
    result = command("report spring.run --outcome REJECTED")
    head, row = result.out.splitlines()
    assert result.code == 0
    assert result.err == f"{answers}\n"
    assert head == "user_id  outcome   status  reason"
    assert row.startswith("bob      REJECTED     422  ")
    for form, head in (("--format csv", 1), ("--json", 0), ("--format json", 0), ("", 1)):
        result = command(f"report spring.run {form} --user bob --user @cmd() --user - --outcome rejected")
        assert ["bob" in row for row in result.out.splitlines()[head:]] == [True]
        assert result.code == 1
        assert result.err == "'-' is not in this run\n"
    assert command("report spring.run --user bob").code == 0
    assert command("report spring.run --user ''") == (2, "", "pushsdk: --user[0]: the user id is empty\n")
    assert len(command("report spring.run --outcome rejected --outcome NOT_SENT").out.splitlines()) == 4
    assert command("report spring.run --format csv --json") == (2, "", "pushsdk: pass either --format csv or --json\n")
    assert "json" in command("report spring.run --format jsonl").err
    assert service.requests == before


# -- plan ---------------------------------------------------------------------------------------------------------

PLAN = "plan ids.txt --message message.json"


def test_a_plan_is_what_a_broadcast_would_send(command, service, folder):
    (folder / "ids.txt").write_text("\n".join([*map(str, range(2500)), "7"]))
    figures = json.loads(command(PLAN, "--json", "--custom-fields", '{"a": 1}').out)
    assert [figures[name] for name in ("users", "duplicates", "requests", "seconds")] == [2500, 1, 3, None]
    assert service.requests == 0
    assert 0 < figures["largest"] < figures["bytes"]


@pytest.mark.parametrize(
    ("words", "rate", "time"),
    [
        ("", "0.5", "time 0:06 at 0.5 users per second"),
        (
            "--rate 1 --requests-per-second 0.0001",
            "7",
            "time 2:46:40 at 1 user per second and 0.0001 requests per second",
        ),
    ],
)
def test_a_plan_estimates_the_time_at_a_rate(command, folder, monkeypatch, words, rate, time):
    monkeypatch.setenv("PUSHSDK_RATE", rate)
    result = command(f"{PLAN} {words}")
    assert result.code == 0
    assert result.err == ""
    assert " ".join(result.out.splitlines()[-1].split()) == time
    assert "1 duplicate left out" in result.out
