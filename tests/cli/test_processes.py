"""``--processes``: a folder of run files, sent by child processes."""

import errno
import json
import os
import signal
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command_line import run_apart, started
from support.service_thread import wait_until

from pushsdk import AsyncPushClient, Limits, Progress, Rate, read_report
from pushsdk._runs import api
from pushsdk.cli.commands import runs
from pushsdk.cli.exit import Exit
from pushsdk.cli.processes import send_folder
from pushsdk.emulator import Fault

USERS = [f"user-{number}" for number in range(40)]
FINDS_PROCESSES = pytest.mark.skipif(not Path("/proc/thread-self/children").exists(), reason="needs Linux")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a message and 40 users, of which one occurs twice."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "message.json").write_text(json.dumps({"title": {"en": "Hello"}, "iosEnabled": True}))
    (tmp_path / "users.csv").write_text("user_id,n\n" + "".join(f"{user},1\n" for user in [*USERS, USERS[3]]))
    return tmp_path


WORDS = "broadcast users.csv --message message.json --run spring --personalize custom-fields"


@pytest.fixture
def broadcast(command, folder):
    """A function that broadcasts with two processes, one request for each user."""
    return lambda words="": command(f"{WORDS} --processes 2 {words}")


def test_each_user_is_pushed_once_and_the_report_is_the_sum(broadcast, command, service, folder, monkeypatch):
    result = broadcast("--json --progress json")
    figures = json.loads(result.out)
    assert result.code == 0
    assert service.users() == dict.fromkeys(USERS, 1)
    assert [figures[name] for name in ("accepted_now", "planned", "duplicates")] == [40, 40, 1]
    assert figures["run"] == str(folder / "spring")
    assert figures.keys() == set(read_report("spring").__struct_fields__) - {"file"}
    states = [json.loads(line) for line in result.err.splitlines()]
    assert states[0]["stage"] == "planning"
    assert states[-1]["accepted"] == 40
    assert states[-1]["planned"] == 40
    assert (folder / "spring").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("pushsdk._runs.report.too_late", lambda _: SimpleNamespace(by="not_after", reason="late"))
    again = command(f"{WORDS} --processes 3")
    assert again.code == 0
    assert service.requests == 40
    assert "40 by earlier commands" in again.out
    assert command("status spring").code == 0
    assert command("report spring --json").out.count('"ACCEPTED"') == 40
    rest = command("plan users.csv --message message.json --exclude spring")
    assert "the source has no users beside the 40 excluded" in rest.err


def test_a_limit_is_divided_and_another_number_of_processes_goes_on(broadcast, command, service):
    limited = broadcast(f"--limit 13 --only-users {','.join(USERS[:30])} --in-flight 3 -v")
    assert limited.code == 1
    assert len(service.users()) == 13
    assert "and twice if a later run had them:  pushsdk resume spring --processes 2 " in limited.err
    assert command("resume spring --limit 1").code == 1
    assert len(service.users()) == 14
    assert command("resume spring --processes 1").code == 0
    assert service.users() == dict.fromkeys(USERS, 1)


@pytest.mark.parametrize("change", ["another message", "other users", "the same"])
def test_run_files_without_their_plan_are_not_sent_beside_a_new_plan(broadcast, command, service, folder, change):
    assert broadcast("--limit 10").code == 1
    (folder / "spring" / "plan").unlink()
    if change == "another message":
        (folder / "message.json").write_text(json.dumps({"title": {"en": "Other"}, "iosEnabled": True}))
    elif change == "other users":
        (folder / "users.csv").write_text("user_id,n\nann,1\n")
    for result in (broadcast(), command("resume spring")):
        assert result.code == 2
        assert service.requests == 10
        assert "run files without their plan: resume each of them, and name another folder" in result.err


def test_a_folder_that_others_may_write_is_refused(broadcast, service, folder):
    (folder / "spring").mkdir()
    (folder / "spring").chmod(0o777)
    assert "only its owner may write to it" in broadcast().err
    assert service.requests == 0


def test_a_folder_is_not_resumed_at_another_address(broadcast, command, service):
    assert broadcast("--limit 1").code == 1
    result = command("resume spring --base-url http://127.0.0.1:9/other")
    assert result.code == 2
    assert result.err.count("it was planned for another base_url") == 1
    assert service.requests == 1


def test_a_plan_that_was_not_split_is_split_by_a_resume(broadcast, command, service):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(api, "split", lambda *_, **__: 1 / 0)
        broadcast()
    assert service.requests == 0
    assert command("resume spring").code == 0
    assert service.users() == dict.fromkeys(USERS, 1)


def test_a_limit_holds_for_the_users_that_are_listed(broadcast, service):
    for sent in (1, 2, 2):
        broadcast(f"--limit 1 --only-users {USERS[39]},{USERS[38]}")
        assert len(service.users()) == sent


async def test_the_sum_is_stopping_if_a_process_is_and_has_the_trouble_of_another():
    ours, theirs = Pipe()
    theirs.send(("a", Progress(stage="stopping")))
    theirs.send(("b", Progress(stage="waiting", trouble="HTTP 503")))
    theirs.close()
    children, shown = {ours: SimpleNamespace(join=int, exitcode=0)}, []
    counts = dict.fromkeys(("planned", "accepted", "rejected", "unknown", "not_sent"), 1)
    reports = [SimpleNamespace(file=file, **counts) for file in "ab"]
    settings = {"rate": Rate(), "limits": Limits()}
    await send_folder(children, reports, settings, {"on_unknown": "skip"}, shown.append, bool)
    assert (shown[-1].stage, shown[-1].trouble) == ("stopping", "HTTP 503")


@pytest.mark.usefixtures("service")
def test_the_error_of_a_process_is_that_of_the_command(broadcast, monkeypatch):
    async def failed(*_):
        return Exit.CANNOT_RUN

    monkeypatch.setattr(runs, "send_folder", failed)
    result = broadcast()
    assert result.code == 4
    assert "a process failed: see its error above" in result.err


def test_more_processes_than_the_system_has_files_for_say_how_many(broadcast, service, monkeypatch):
    def no_files(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("multiprocessing.context.BaseContext.Pipe", no_files)
    result = broadcast()
    assert result.code == 4
    assert service.requests == 0
    assert "2 processes can't start: Too many open files: give fewer --processes" in result.err


def test_a_second_command_that_is_interrupted_reports_what_the_first_did(broadcast, command, service, monkeypatch):
    assert broadcast().code == 0
    planned = read_report("spring/0-of-8.run")

    async def interrupted(client, audience, *_, **options):
        options["stop"].set()
        return planned

    monkeypatch.setattr(AsyncPushClient, "send_each", interrupted)
    assert json.loads(broadcast("--json").out)["accepted"] == 40
    Path("spring").rename("summer")  # so the next command is the first, and has no plan yet
    assert json.loads(broadcast("--json").out)["accepted"] == planned.accepted


@pytest.mark.parametrize(("fault", "words", "code"), [(401, "", 4), (500, "--on-unknown resend", 3)])
def test_the_exit_code_is_the_worst(broadcast, service, fault, words, code):
    service.set_faults([Fault.status(fault)])
    assert broadcast(words).code == code
    # One of the processes resends each request, three times.
    assert service.requests <= 40 if fault == 401 else service.requests == 160


def test_a_process_that_fails_ends_the_others_and_says_why(broadcast, service, folder):
    assert broadcast("--limit 1").code == 1
    with (folder / "spring" / "5-of-8.run").open("r+b") as file:
        file.seek(8192)
        file.write(bytes(4096))
    result = run_apart(f"{WORDS} --processes 2")
    assert result.code == 2
    assert "5-of-8.run: it is damaged" in result.err


@pytest.fixture
def starting(folder, service):
    """A broadcast by two processes."""
    service.set_faults([Fault.delay(1.0)])
    with started(f"{WORDS} --processes 2 --in-flight 3 --progress none") as process:
        yield process
        process.kill()


@pytest.fixture
def sending(starting, service):
    """The same with three requests in flight."""
    service.wait_for(requests=3)
    return starting


def children_of(process):
    return [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def check_stopped(sending, service, command, *, told):
    """Check that it ended after the requests in flight, and can be resumed."""
    _, err = sending.communicate(timeout=60)
    assert sending.returncode == 130
    assert "Traceback" not in err
    assert told in err
    figures = json.loads(command("status spring --json").out)
    assert figures["unknown"] == 0
    assert figures["accepted"] == len(service.users())
    assert 3 <= figures["accepted"] < 40
    service.set_faults([])
    assert command("resume spring --processes 3").code == 0
    assert service.users() == dict.fromkeys(USERS, 1)


def test_one_signal_waits_for_the_requests_in_flight(sending, service, command):
    sending.terminate()
    check_stopped(sending, service, command, told="pushsdk resume spring --processes 2 --in-flight 3\n")


def test_another_terminal_stops_all_processes(sending, service, command, monkeypatch):
    monkeypatch.setenv("LOGNAME", "bob")
    assert command("stop spring").out == "spring stops after the requests in flight\n"
    check_stopped(sending, service, command, told="stopped: bob stopped it\n")


@FINDS_PROCESSES
def test_a_process_that_is_stopped_stops_the_others_and_shows_no_key(sending, service, command):
    children = children_of(sending)
    assert len(children) == 2
    assert all(service.api_key not in Path(f"/proc/{child}/cmdline").read_text() for child in children)
    os.kill(children[0], signal.SIGTERM)
    check_stopped(sending, service, command, told="stopped: Ctrl-C, a signal or stop= ended it\n")


@FINDS_PROCESSES
def test_a_process_that_is_stopped_while_it_starts_stops_the_others(starting, service):
    wait_until(lambda: len(children_of(starting)) == 2)
    os.kill(children_of(starting)[0], signal.SIGTERM)
    assert starting.wait(60) in (1, 130)
    assert len(service.users()) < 40


@FINDS_PROCESSES
def test_processes_end_with_their_parent_and_nobody_is_in_doubt(sending, service):
    children = children_of(sending)
    sending.kill()
    wait_until(lambda: not any(Path(f"/proc/{child}/cmdline").exists() for child in children))
    report = read_report("spring")
    assert report.unknown == 0
    assert not report.in_use
    assert report.accepted == len(service.users())
    assert 3 <= report.accepted < 40
    assert report.stopped == "the end of its command stopped it"


@FINDS_PROCESSES
def test_the_others_send_the_users_of_a_killed_process(sending, service):
    service.set_faults([])
    os.kill(children_of(sending)[0], signal.SIGKILL)
    err = sending.communicate(timeout=60)[1]
    assert "a process was killed by signal 9: the other processes, or the same command again, send its users" in err
    report = read_report("spring")
    assert report.accepted + report.unknown == 40
    assert report.unknown <= 2
    assert set(service.users().values()) == {1}
