"""``pushsdk broadcast``, ``resume``, ``status``, ``report`` and ``plan``: runs from a shell."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.command_line import COMMAND, run_apart

from pushsdk import AsyncPushClient, cli
from pushsdk._audience.chunks import Chunk
from pushsdk._runs.plan import Header
from pushsdk._runs.run_file.journal import Journal
from pushsdk.emulator import Fault

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}, "iosEnabled": True}
USERS = ["ann", "bob", "cid"]
AWAY = "https://push.invalid/api"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a message and some users in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "message.json").write_text(json.dumps(MESSAGE))
    (tmp_path / "ids.txt").write_text("\n".join([*USERS, "ann"]))
    return tmp_path


@pytest.fixture
def broadcast(command, folder):
    """Broadcast the message to a source, in the run file spring.run."""

    def run(*words, source="ids.txt", message="message.json", run="spring.run"):
        return command(
            "broadcast", *([source] if source else []), "--message", message, "--run", run, "--progress", "none", *words
        )

    return run


def unsealed(path, base_url="http://127.0.0.1:1"):
    header = Header(kind="broadcast", base_url=base_url, message=b"{}", max_users=10, max_bytes=1000)
    journal = Journal.create(path, header)
    journal.add([Chunk(1, b'"ann"')])
    journal.close()


def counts(told):
    return {name: told[name] for name in ("accepted", "rejected", "unknown", "not_sent")}


# -- broadcast ----------------------------------------------------------------------------------------------------


def test_everybody_once_and_the_counts_on_stdout(broadcast, service):
    ended = broadcast()
    assert (ended.code, ended.err) == (0, "")
    assert [line.split()[-1] for line in ended.out.splitlines()[:4]] == ["3", "0", "0", "0"]
    assert ended.out.splitlines()[4].startswith("users     3  in 0:00, 1 duplicate left out")
    assert service.users() == dict.fromkeys(USERS, 1)


def test_an_audience_of_nobody_is_done_and_says_so(broadcast, service, folder):
    (folder / "ids.txt").write_text("\n")
    ended = broadcast()
    assert (ended.code, service.requests) == (0, 0)
    assert ended.err == "nothing to send: the source has no users\n"


def test_without_dedupe_an_id_is_pushed_as_often_as_it_comes(broadcast, service):
    assert broadcast("--no-dedupe").code == 0
    assert service.users() == {"ann": 2, "bob": 1, "cid": 1}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("users.csv", "id,age\nann,1\nbob,2\n", ("--primary-key", "id")),
        ("users.jsonl", '{"user_id": "ann"}\n{"user_id": "bob"}\n', ()),
        (None, "SELECT unnest(['ann', 'bob']) AS id", ("--primary-key", "id")),
    ],
)
def test_the_users_may_come_from_a_table(broadcast, service, folder, name, content, words):
    if name is None:
        ended = broadcast("--query", content, *words, source=None)
    else:
        (folder / name).write_text(content)
        ended = broadcast(*words, source=name)
    assert (ended.code, ended.err) == (0, "")
    assert service.users() == {"ann": 1, "bob": 1}


@pytest.mark.parametrize(
    ("personalize", "text", "fields"),
    [
        ("custom-fields", "Hi {{ name | 'there' }}", {"name": "Ann"}),
        ("text", "Hi Ann", None),
        ("both", "Hi Ann", {"name": "Ann"}),
    ],
)
def test_each_user_may_have_a_request_of_his_own(broadcast, service, folder, personalize, text, fields):
    (folder / "message.json").write_text(json.dumps({"title": {"en": "Hi {{ name | 'there' }}"}}))
    (folder / "users.csv").write_text("user_id,name\nann,Ann\nbob,\nann,Again\n")
    ended = broadcast("--personalize", personalize, "--json", source="users.csv")
    assert (ended.code, json.loads(ended.out)["accepted"]) == (0, 2)
    pushes = {push.user_ids: push for push in service.pushes}
    ann, bob = pushes[("ann",)], pushes[("bob",)]
    assert (ann.message["title"]["en"], ann.custom_fields) == (text, fields)
    assert bob.message["title"]["en"] == ("Hi there" if "Ann" in text else text)


def test_the_users_may_come_by_standard_input(service, folder):
    words = ("broadcast", "-", "--message", "message.json", "--run", "a.run", "--json")
    ended = run_apart(*words, stdin="ann\nbob\n")
    assert ended.code == 0
    assert json.loads(ended.out)["accepted"] == 2
    assert ended.err.startswith("planning: ")


@pytest.mark.parametrize(
    ("faults", "code", "expected"),
    [
        ([], 0, {"accepted": 3, "rejected": 0, "unknown": 0, "not_sent": 0}),
        ([Fault.status(422, user="bob")], 1, {"accepted": 2, "rejected": 1, "unknown": 0, "not_sent": 0}),
        ([Fault.status(500)], 3, {"accepted": 0, "rejected": 0, "unknown": 3, "not_sent": 0}),
        ([Fault.status(401)], 4, {"accepted": 0, "rejected": 0, "unknown": 0, "not_sent": 3}),
        ([Fault.status(403)], 4, {"accepted": 0, "rejected": 0, "unknown": 0, "not_sent": 3}),
    ],
)
def test_the_exit_code_tells_the_worst(broadcast, command, service, faults, code, expected):
    service.faults = faults
    ended = broadcast("--json")
    assert ended.code == code
    assert counts(json.loads(ended.out)) == expected
    assert not re.search(r"\b(ann|bob|cid)\b", ended.out + ended.err)
    assert command("status", "spring.run").code == code


def test_the_brake_exits_with_5(broadcast, service, folder):
    service.faults = [Fault.status(500)]
    (folder / "ids.txt").write_text("\n".join(map(str, range(40_000))))
    ended = broadcast("--in-flight", "2", "--max-unknown", "0.5", "--json")
    assert ended.code == 5
    assert "stopped: 100.0 % of the last" in ended.err
    assert json.loads(ended.out)["not_sent"] > 0


def test_without_a_brake_it_goes_on_to_the_end(broadcast, service, folder):
    service.faults = [Fault.status(500)]
    (folder / "ids.txt").write_text("\n".join(map(str, range(40_000))))
    assert broadcast("--no-stop-policy").code == 3


def test_a_limit_is_no_failure_but_somebody_is_left(broadcast, service):
    ended = broadcast("--limit", "2")
    assert ended.code == 1
    assert "stopped: the limit of 2 users is reached: resume for the rest" in ended.err
    assert "to send the rest:  pushsdk resume spring.run\n" in ended.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("broadcast", "ids.txt", "--message", "message.json"), "--run"),
        (("broadcast", "ids.txt", "--run", "a.run"), "--message"),
        (("broadcast", "--message", "message.json", "--run", "a.run"), "pass exactly one source of users"),
        (("broadcast", "ids.txt", "--query", "x", "--message", "message.json", "--run", "a.run"), "pass exactly"),
        (("broadcast", "-", "--message", "-", "--run", "a.run"), "can't be both the users and the message"),
        (("broadcast", "none.txt", "--message", "message.json", "--run", "a.run"), "none.txt"),
        (("broadcast", "ids.doc", "--message", "message.json", "--run", "a.run"), "can't be read"),
        (("broadcast", "--query", "DROP TABLE x", "--message", "message.json", "--run", "a.run"), "SELECT"),
        (("broadcast", "--qery", "x", "--message", "message.json", "--run", "a.run"), "unknown option"),
        (("resume", "none.run"), "none.run"),
        (("status", "none.run"), "none.run"),
        (("report", "none.run"), "none.run"),
        (("report", "ids.txt"), "ids.txt"),
        (("broadcast", "a.csv", "--message", "message.json", "--run", "a.run"), "did you mean --primary-key 'userid'?"),
        (("plan", "b.csv", "--message", "message.json"), "; name one with --primary-key\n"),
        (("status", "a.run", "--format", "csv"), "--format"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(command, service, folder, monkeypatch, words, says):
    stdin = SimpleNamespace(buffer=io.BytesIO(json.dumps(MESSAGE).encode()), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    (folder / "a.csv").write_text("userid,age\nann,1\n")
    (folder / "b.csv").write_text("name,age\nann,1\n")
    ended = command(*words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert service.requests == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--max-rejected", "1.1"),
        ("--max-unknown", "0"),
        ("--max-outage", "nan"),
        ("--limit", "0"),
        ("--rate", "-1"),
        ("--in-flight", "0"),
    ],
)
def test_a_number_that_makes_no_sense_is_a_usage_error(broadcast, service, words):
    ended = broadcast(*words)
    assert (ended.code, service.requests) == (2, 0)
    assert words[0] in ended.err


# -- taken up again -----------------------------------------------------------------------------------------------


def test_the_same_command_again_sends_the_rest_and_nobody_twice(broadcast, service):
    assert broadcast("--limit", "1").code == 1
    ended = broadcast("--json")
    assert ended.code == 0
    assert counts(json.loads(ended.out))["accepted"] == 3
    assert service.users() == dict.fromkeys(USERS, 1)


def test_the_same_command_after_the_end_says_that_it_sent_nothing(broadcast, command, service):
    assert broadcast().err == ""
    for ended in broadcast(), broadcast("--json"), command("resume", "spring.run", "--progress", "none"):
        assert (ended.code, service.requests) == (0, 1)
        assert ended.err == "nothing was sent: an earlier command completed this run; to push again, pass a new --run\n"


def test_what_is_resent_was_sent_now(broadcast, command, service):
    service.faults = [Fault.reset_after(first=1)]
    assert broadcast().code == 3
    assert "nothing was sent: an earlier command" in broadcast().err
    assert "nothing was sent: an earlier command" not in broadcast("--on-unknown", "resend").err


@pytest.mark.skipif(sys.platform == "win32", reason="needs setrlimit")
def test_a_disk_that_is_full_while_it_is_planned_asks_for_a_new_start(service, folder):
    (folder / "ids.txt").write_text("\n".join(map(str, range(100_000))))
    words = shlex.join([*COMMAND, "broadcast", "ids.txt", "--message", "message.json", "--run", "spring.run"])
    limited = f"trap '' XFSZ; ulimit -f 100; {words}"
    ended = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, service.requests) == (2, 0)
    assert "start the broadcast again: its plan is incomplete and nothing was sent" in ended.stderr
    assert "resume" not in ended.stderr


@pytest.mark.parametrize("what", ["message", "source", "base_url"])
def test_another_broadcast_is_refused(broadcast, service, folder, monkeypatch, what):
    assert broadcast("--limit", "1").code == 1
    given = {}
    if what == "message":
        (folder / "other.json").write_text('{"title": {"en": "Other"}}')
        given = {"message": "other.json"}
    elif what == "source":
        (folder / "other.txt").write_text("dan")
        given = {"source": "other.txt"}
    else:
        monkeypatch.setenv("PUSHSDK_BASE_URL", service.base_url.replace("127.0.0.1", "localhost"))
    before = service.requests
    ended = broadcast(**given)
    assert (ended.code, ended.out) == (2, "")
    assert "spring.run" in ended.err
    assert service.requests == before


def test_a_plan_that_was_never_finished_is_planned_anew_but_not_resumed(broadcast, command, service, folder):
    unsealed(folder / "spring.run", service.base_url)
    for name in ("status", "resume", "report"):
        ended = command(name, "spring.run")
        assert (ended.code, ended.out) == (2, "")
        assert "its plan is incomplete and nothing was sent" in ended.err
    assert broadcast().code == 0
    assert service.users() == dict.fromkeys(USERS, 1)


def test_a_resume_needs_neither_source_nor_message(broadcast, command, service, folder):
    assert broadcast("--limit", "1").code == 1
    (folder / "ids.txt").unlink()
    (folder / "message.json").unlink()
    assert command("resume", "spring.run", "--progress", "none").code == 0
    assert service.users() == dict.fromkeys(USERS, 1)


def test_the_unknown_are_held_until_they_are_to_be_sent_again(broadcast, command, service):
    service.faults = [Fault.reset_after(first=1)]
    ended = broadcast()
    assert ended.code == 3
    assert "who may be pushed twice:  pushsdk resume spring.run --on-unknown resend" in ended.err
    assert command("resume", "spring.run", "--progress", "none").code == 3
    assert service.users() == dict.fromkeys(USERS, 1)
    ended = command("resume", "spring.run", "--on-unknown", "resend", "--progress", "none")
    assert ended.code == 0
    assert "3 resent after an unknown outcome" in ended.out
    assert service.users() == dict.fromkeys(USERS, 2)


def test_the_command_that_resumes_is_quoted_and_has_the_options_of_this_one(broadcast, service, folder, monkeypatch):
    monkeypatch.delenv("PUSHSDK_API_KEY")
    (folder / "my key").write_text(service.api_key)
    ended = broadcast(
        "--limit", "1", "--api-key-file", "my key", "--rate", "900", "--base-url", service.base_url, "--allow-insecure",
        run="my run",
    )  # fmt: skip
    assert (
        f"pushsdk resume 'my run' --base-url {service.base_url} --api-key-file 'my key' --allow-insecure --rate 900\n"
        in ended.err
    )


def test_no_password_of_a_proxy_is_in_that_command():
    from pushsdk.cli.commands.runs import resume_command

    assert resume_command("a", {"proxy": "http://me:passw0rd@p.example"}) == "pushsdk resume a"
    assert (
        resume_command("a", {"proxy": "http://p.example", "durable": False})
        == "pushsdk resume a --proxy http://p.example"
    )


def test_the_command_that_resumes_has_the_numbers_that_were_given():
    from pushsdk.cli.commands.runs import resume_command

    assert resume_command("a", {"rate": 1_234_567.0, "timeout": 0.5}) == "pushsdk resume a --rate 1234567 --timeout 0.5"


# -- the question before sending -----------------------------------------------------------------------------------


def test_it_asks_before_sending_elsewhere(broadcast, service, monkeypatch):
    ended = broadcast("--base-url", AWAY)
    assert (ended.code, ended.out) == (2, "")
    assert f"Push to the users of the source at {AWAY}? Can't ask without a terminal: pass --yes." in ended.err


def test_one_user_is_not_many(broadcast, service, folder):
    (folder / "ids.txt").write_text("ann\nbob\n")
    assert "stopped: the limit of 1 user is reached: resume for the rest" in broadcast("--limit", "1").err
    assert "Push to the 1 user left of spring.run at" in broadcast("--base-url", AWAY).err


def test_it_says_how_many_rows_there_are_where_the_file_says_so(broadcast, service, folder):
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql("SELECT range::VARCHAR AS user_id FROM range(1234)").write_parquet("users.parquet")
    assert "Push to at most 1,234 users at" in broadcast("--base-url", AWAY, source="users.parquet").err
    assert broadcast(source="users.parquet").code == 0
    assert len(service.users()) == 1234


def test_a_run_that_is_taken_up_says_how_many_are_left(broadcast, command, service):
    assert broadcast("--limit", "1").code == 1
    assert "Push to the 2 users left of spring.run at" in broadcast("--base-url", AWAY).err
    assert "Push to 2 users at https://push.invalid/api?" in command("resume", "spring.run", "--base-url", AWAY).err


def test_a_run_without_anybody_left_asks_nothing(broadcast, command, service):
    assert broadcast().code == 0
    ended = command("resume", "spring.run")
    assert ended.code == 0


# -- Ctrl-C -------------------------------------------------------------------------------------------------------


CROWD = 60_000


def interrupted(service, folder, signals):
    """Broadcast to a crowd until the service has seen some requests, then send the signals, each when it is heard."""
    (folder / "many.txt").write_text("\n".join(map(str, range(CROWD))))
    words = ["broadcast", "many.txt", "--message", "message.json", "--run", "my run", "--in-flight", "2"]
    with subprocess.Popen(
        [*COMMAND, *words, "--progress", "none"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        service.wait_for(requests=3)
        heard = ""
        for number in signals:
            process.send_signal(number)
            if not heard:
                heard = process.stderr.readline()
        out, err = process.communicate(timeout=60)
    return process.returncode, out, heard + err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_it_waits_for_what_is_on_its_way(service, folder, command, number):
    service.faults = [Fault.delay(0.2)]
    code, out, err = interrupted(service, folder, [number])
    assert code == 130
    assert "Traceback" not in err
    told = json.loads(command("status", "my run", "--json").out)
    assert told["unknown"] == 0
    assert 0 < told["accepted"] < CROWD
    assert told["accepted"] == len(service.users())
    assert f"accepted  {told['accepted']:>6,}" in out
    assert err.startswith("stopping after the requests in flight; press Ctrl-C again to stop at once\n")
    assert err.endswith("to send the rest:  pushsdk resume 'my run' --in-flight 2\n")


def test_twice_it_stops_at_once_and_the_file_knows_the_rest(service, folder, command):
    service.faults = [Fault.hang(every=3)]
    code, out, err = interrupted(service, folder, [signal.SIGINT, signal.SIGINT])
    assert code == 130
    assert "Traceback" not in err
    told = json.loads(command("status", "my run", "--json").out)
    assert 0 < told["unknown"] <= 2000
    assert f"unknown   {told['unknown']:>6,}" in out
    assert "pushsdk resume 'my run' --in-flight 2 --on-unknown resend" in err
    service.faults = []
    assert command("resume", "my run", "--progress", "none").code == 3
    assert set(service.users().values()) == {1}


def test_it_ends_also_where_standard_input_does_not(service, folder):
    words = ["broadcast", "-", "--message", "message.json", "--run", "a.run", "--progress", "none"]
    with subprocess.Popen(
        [*COMMAND, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # More than a pipe holds: this returns once some of it was read.
        process.stdin.write("ann\n" * 100_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        heard = process.stderr.readline()
        # Again, as people do: a signal that comes in the very moment in which the loop falls asleep does not wake it.
        for _ in range(6):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
                break
        assert process.returncode == 130
        said = heard + process.stderr.read()
    assert "ended; to continue, run the same command again, or:  pushsdk resume a.run\n" in said
    assert service.requests == 0


def test_ended_at_once_before_there_is_a_plan_it_is_interrupted_all_the_same(broadcast, service, folder, monkeypatch):
    async def cancelled(*_args, **_kwargs):
        unsealed(folder / "spring.run", service.base_url)
        raise asyncio.CancelledError

    monkeypatch.setattr(AsyncPushClient, "broadcast", cancelled)
    ended = broadcast()
    assert (ended.code, ended.out) == (130, "")
    assert "its plan is incomplete and nothing was sent" in ended.err


# -- status and report --------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(broadcast, service, folder):
    """A run in which everything happened: accepted, rejected, unknown, not sent."""
    (folder / "ids.txt").write_text("\n".join(["=cmd()", "bob", "ann \u00fc", *map(str, range(1001))]))
    service.faults = [Fault.status(422, user="bob"), Fault.status(500, user="1000")]
    broadcast("--limit", "1002")
    service.faults = []


def test_status_of_a_run_that_is_being_sent_gives_no_advice(command, folder):
    journal = Journal.create(folder / "spring.run", Header(kind="broadcast", base_url="", max_users=1, max_bytes=1))
    journal.add([Chunk(1, b'"ann"')])
    journal.seal(duplicates=0)
    ended = command("status", "spring.run")
    journal.close()
    assert ended.err.startswith("another process is sending this run")
    assert "resume" not in ended.err


def test_status_says_how_it_stands_and_sends_nothing(mixed, command, service):
    before = service.requests
    ended = command("status", "spring.run")
    assert ended.code == 1
    assert "rejected      1\n" in ended.out
    assert ended.err.splitlines() == [
        "stopped: the limit of 1,002 users is reached: resume for the rest",
        "to send the rest:  pushsdk resume spring.run  # with the options of the run, for example --rate",
    ]
    assert service.requests == before


def test_a_report_has_one_row_for_each_user(mixed, command):
    rows = [json.loads(line) for line in command("report", "spring.run", "--format", "jsonl").out.splitlines()]
    assert len({row["user_id"] for row in rows}) == len(rows) == 1004
    assert list(rows[0]) == ["user_id", "outcome", "status", "reason"]
    by_user = {row["user_id"]: row for row in rows}
    assert by_user["bob"] == {
        "user_id": "bob",
        "outcome": "REJECTED",
        "status": 422,
        "reason": by_user["bob"]["reason"],
    }
    assert by_user["=cmd()"]["outcome"] == "ACCEPTED"
    assert sum(row["outcome"] == "NOT_SENT" for row in rows) == 2


def test_a_csv_is_safe_in_a_spreadsheet_and_says_what_that_changed(mixed, command):
    ended = command("report", "spring.run", "--format", "csv")
    lines = ended.out.splitlines()
    assert lines[0] == "user_id,outcome,status,reason"
    assert len(lines) == 1005
    assert ended.err == "put a ' before 1 id, so that no spreadsheet runs it as a formula; jsonl is exact\n"
    assert any(line.lstrip('"').startswith("'=cmd()") for line in lines)


def test_a_table_is_aligned_and_may_be_of_one_outcome(mixed, command):
    ended = command("report", "spring.run", "--outcome", "REJECTED")
    head, row = ended.out.splitlines()
    assert head == "user_id  outcome   status  reason"
    assert row.startswith("bob      REJECTED     422  ")
    assert (ended.code, ended.err) == (0, "")
    assert len(command("report", "spring.run").out.splitlines()) == 1005


def test_a_report_can_be_taken_by_whoever_calls_main(mixed):
    with contextlib.redirect_stdout(io.StringIO()) as taken:
        assert cli.main(["report", "spring.run", "--format", "jsonl"]) == 0
    assert len(taken.getvalue().splitlines()) == 1004


def test_a_csv_without_such_ids_says_nothing(mixed, command):
    assert command("report", "spring.run", "--format", "csv", "--outcome", "rejected").err == ""


def test_no_user_id_moves_the_cursor(broadcast, command, service, folder):
    (folder / "ids.jsonl").write_text('{"user_id": "a\\u001b[2Jb"}\n')
    assert broadcast(source="ids.jsonl").code == 0
    assert "\x1b" not in command("report", "spring.run").out
    assert json.loads(command("report", "spring.run", "--format", "jsonl").out)["user_id"] == "a\x1b[2Jb"


# -- plan ---------------------------------------------------------------------------------------------------------


def plan(command, *words):
    return command("plan", "ids.txt", "--message", "message.json", *words)


def test_a_plan_is_what_a_broadcast_would_send(command, service, folder):
    (folder / "ids.txt").write_text("\n".join([*map(str, range(2500)), "7"]))
    told = json.loads(plan(command, "--json", "--custom-fields", '{"a": 1}').out)
    assert service.requests == 0
    assert (told["users"], told["duplicates"], told["requests"], told["seconds"]) == (2500, 1, 3, None)
    sizes = []
    for start in (0, 1000, 2000):
        users = ",".join(f'"{user}"' for user in range(start, min(start + 1000, 2500)))
        body = f'{{"userIds":[{users}],"message":,"customFields":{{"a":1}}}}'
        sizes.append(len(body) + len(json.dumps({"type": "MOBILE_PUSH", **MESSAGE}, separators=(",", ":"))))
    assert told["bytes"] == sum(sizes)
    assert abs(told["largest"] - max(sizes)) <= 200


@pytest.mark.parametrize(
    ("words", "variables", "time"),
    [
        ((), {}, "time      ?  as fast as the service accepts them; pass --rate for an estimate"),
        (("--rate", "2"), {}, "time      0:02  at 2 users per second"),
        ((), {"PUSHSDK_RATE": "0.5"}, "time      0:06  at 0.5 users per second"),
        (("--requests-per-second", "0.01"), {}, "time      1:40  at 0.01 requests per second"),
        (
            ("--rate", "1", "--requests-per-second", "0.0001"),
            {},
            "time      2:46:40  at 1 user per second and 0.0001 requests per second",
        ),
    ],
)
def test_a_plan_tells_the_time_at_a_rate(command, folder, monkeypatch, words, variables, time):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ended = plan(command, *words)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1].split() == time.split()
    assert "1 duplicate left out" in ended.out


def test_a_rate_that_is_none_exits_with_2_and_its_source(command, folder, monkeypatch):
    monkeypatch.setenv("PUSHSDK_RATE", "fast")
    ended = plan(command)
    assert (ended.code, ended.out) == (2, "")
    assert "PUSHSDK_RATE" in ended.err


def test_a_plan_without_repeated_ids_says_nothing_of_them(command, folder):
    assert "duplicate" not in plan(command, "--no-dedupe").out
