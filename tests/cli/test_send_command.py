"""``pushsdk send`` and ``pushsdk campaign create``: requests, output and exit codes."""

import asyncio
import io
import json
import logging
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import wire_tls
from support.command_line import COMMAND, run_apart, split, started
from support.wire_server import WireServer

from pushsdk.emulator import Fault

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}, "iosEnabled": True}
SEGMENT = {"query": "SELECT id FROM users", "primaryKey": "id"}
CAMPAIGN = {"name": "Spring", "externalId": "spring-1", "segment": SEGMENT, "message": MESSAGE}
SEND = "send ann --title Hi --body There"
AWAY = "https://push.invalid/api"


def answers(monkeypatch, line, *, tty=True):
    """Type this line into standard input, which is a terminal if ``tty`` is set."""
    stdin = SimpleNamespace(isatty=lambda: tty, readline=lambda: f"{line}\n", buffer=io.BytesIO(line.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: tty, raising=False)


# -- send ---------------------------------------------------------------------------------------------------------


def test_title_and_body_make_a_message_for_both_platforms(command, service):
    assert command(f"{SEND} --lang de") == (0, "accepted: 1 user\n", "")
    on = {"type": "MOBILE_PUSH", "iosEnabled": True, "androidEnabled": True}
    assert [push.message for push in service.pushes] == [{**on, "title": {"de": "Hi"}, "body": {"de": "There"}}]


def test_a_message_file_is_sent_with_its_unknown_fields(command, service, file, tmp_path):
    content = {**MESSAGE, "addedLater": [1, None]}
    fields = tmp_path / "fields.json"
    fields.write_text('{"a": 1}')
    result = command(f"send ann bob ann --custom-fields @{fields} --message", file(content))
    assert result[:2] == (0, "accepted: 2 users\n")
    (push,) = service.pushes
    assert push.message == {"type": "MOBILE_PUSH", **content}
    assert push.user_ids == ("ann", "bob")
    assert push.custom_fields == {"a": 1}


def test_ids_are_words_files_or_standard_input(command, service, tmp_path, monkeypatch):
    (tmp_path / "ids.txt").write_text("bob\ncid\n")
    answers(monkeypatch, "dan", tty=False)
    # Two at signs for an id that begins with one; after two dashes an id may begin with a dash.
    words = f"send ann @{tmp_path / 'ids.txt'} - @@eve c@d --title - -- -fay -"
    assert command(words) == (0, "accepted: 8 users\n", "")
    assert service.users() == dict.fromkeys(["ann", "bob", "cid", "dan", "@eve", "c@d", "-fay", "-"], 1)
    assert service.pushes[0].message["title"] == {"en": "-"}


def test_a_line_end_as_two_characters_is_told(command, service):
    told = "advice: a text has \\n as two characters; in bash, $'first\\nsecond' has a line end\n"
    assert command("send ann --title 'Hello\\nWorld'") == (0, "accepted: 1 user\n", told)


@pytest.mark.parametrize(
    ("fault", "words", "advice"),
    [
        (Fault.status(429), "--retry none", "set --rate below the service's limit;"),
        (Fault.status(503, retry_after=60), "--timeout 0.5", "for 60 s, and less is left of the total timeout 0.5 s"),
    ],
)
def test_an_error_of_a_request_names_options(command, service, fault, words, advice):
    service.set_faults([fault])
    result = command(f"{SEND} {words}")
    assert advice in result.err
    assert "=" not in result.err.replace(" PUSHSDK_SHOW_ANSWERS=", "")


async def test_a_private_authority_is_trusted_by_the_variable_that_the_error_names(monkeypatch, tmp_path):
    monkeypatch.setenv("PUSHSDK_API_KEY", "key")
    async with WireServer(tls=wire_tls.good()) as server:
        words = f"{SEND} --base-url {server.base_url}"
        result = await asyncio.to_thread(run_apart, words)
        assert result.code == 1
        assert ". For a private CA set SSL_CERT_FILE to a file with its certificate [" in result.err
        wire_tls._authority().cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        result = await asyncio.to_thread(run_apart, words)
    assert result.code == 0
    assert server.processed == {"ann": 1}


def test_the_result_is_printed_as_json(command, service):
    shown = json.loads(command("send ann bob ann --title Hi --json").out)
    assert shown == {"outcome": "ACCEPTED", "users": {"ACCEPTED": 2}, "duplicates": 1, "requests": 1, "status": 204}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({**MESSAGE, "priorty": "HIGH"}, "near-name"),
        ({"title": {"en": "Hi"}}, "no-platform"),
        ({"title": {"en": ""}, "iosEnabled": True}, "no-text"),
        ({**MESSAGE, "title": {"en": "Hi {name}"}}, "malformed-placeholder"),
    ],
)
def test_a_message_that_can_not_be_meant_is_refused_unless_forced(command, service, file, content, problem):
    words = f"send ann --message {file(content)}"
    refused = command(words)
    assert refused.code == 2
    assert refused.out == ""
    assert service.requests == 0
    said = refused.err.removesuffix("pushsdk: nothing was sent: fix the message, or pass --force\n")
    assert said.startswith("advice: $.message")
    assert said.endswith(f" ({problem})\n")
    assert command(f"{words} --force") == (0, "accepted: 1 user\n", said)


def test_a_dry_run_prints_the_request_and_sends_nothing(command, service, monkeypatch):
    monkeypatch.delenv("PUSHSDK_API_KEY")
    result = command('send ann "it\'s" ann --title \u202eHi --dry-run')
    assert result.code == 0
    assert result.err == ""
    assert service.requests == 0
    assert service.api_key not in result.out
    *head, body = shlex.split(result.out.replace("\\\n", ""))
    headers = "-H 'Api-Key: $PUSHSDK_API_KEY' -H 'Content-Type: application/json'"
    assert head == shlex.split(f"curl -X POST {service.base_url}/v1/push {headers} --data-raw")
    request = json.loads(body)
    assert request["userIds"] == ["ann", "it's"]
    assert request["message"]["title"] == {"en": "\u202eHi"}


def test_a_dry_run_of_a_campaign_as_json_is_the_request_without_the_key(command, service, file):
    result = command("campaign create --dry-run --json", file(CAMPAIGN))
    assert result.code == 0
    assert result.err == ""
    assert service.requests == 0
    request = json.loads(result.out)
    assert request["method"] == "POST"
    assert request["url"] == f"{service.base_url}/v1/campaigns"
    assert request["headers"] == {"Content-Type": "application/json"}
    assert request["body"]["name"] == "Spring"


@pytest.mark.parametrize(("option", "level"), [("-v", "INFO"), ("-vv", "DEBUG")])
def test_verbose_commands_log(command, service, option, level):
    logger = logging.getLogger("pushsdk")
    logger.setLevel(logging.NOTSET)
    assert command(SEND, option).code == 0
    assert logging.getLevelName(logger.level) == level


@pytest.mark.parametrize(
    ("fault", "code", "expected"),
    [
        (Fault.status(429, retry_after=60), 1, ["REJECTED", {"REJECTED": 1}, True, 60.0]),
        (Fault.status(401), 4, ["REJECTED", {"REJECTED": 1}, False, None]),
        (Fault.reset_after(), 3, ["UNKNOWN", {"UNKNOWN": 1}, False, None]),
    ],
)
def test_a_failed_send_exits_by_its_outcome_and_its_json_says_if_it_may_be_retried(
    command, service, fault, code, expected
):
    service.set_faults([fault])
    result = command(f"{SEND} --json --timeout 0.5")
    content = json.loads(result.out)
    assert [content[name] for name in ("outcome", "users", "retryable", "retry_after")] == expected
    assert result.code == code
    assert "ann" not in result.out + result.err


def test_an_option_that_sends_despite_a_problem_or_without_a_question_is_never_a_guess(command):
    for wrong in ("--forse", "--yse", "--force=x", "--yes=x", "--apikey=s3cret"):
        assert not re.search("--force[?]|--yes[?]|s3cret", command(SEND, wrong).err)
    assert command(f"{SEND} --titel x").err == "pushsdk: Unknown option: --titel. Did you mean --title?\n"


def test_the_words_of_the_service_are_printed_as_they_are(command, service):
    service.set_faults([Fault.status(422, body='{"error":"ttl: expected a list, got str"}')])
    assert '{"error":"ttl: expected a list, got str"}' in command(SEND).err


def test_a_file_that_is_too_large_is_refused(command, service, file, monkeypatch):
    monkeypatch.setattr("pushsdk.cli.files._MAX_BYTES", 10)
    assert "must not be larger than" in command("send ann --message", file(MESSAGE)).err


# -- the question before sending -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        f"{SEND} --base-url {AWAY}",
        f"campaign create - --base-url {AWAY}",
        f"{SEND} --proxy http://proxy.invalid:3128 --allow-insecure",
    ],
)
def test_without_a_terminal_sending_to_another_machine_needs_yes(command, service, monkeypatch, words):
    answers(monkeypatch, json.dumps(CAMPAIGN), tty=False)
    result = command(words)
    assert result.code == 2
    assert result.out == ""
    assert service.requests == 0
    assert "Can't ask without a terminal: pass --yes. Nothing was sent." in result.err


@pytest.mark.parametrize(("answer", "meant"), [("y", True), (" YES ", True), ("yess", False)])
def test_on_a_terminal_a_request_is_sent_only_on_yes(command, service, monkeypatch, answer, meant):
    answers(monkeypatch, answer)
    result = command(f"{SEND} --base-url {AWAY} --retry none --timeout 5")
    assert result.code == 1
    assert result.err.startswith(f'Push "Hi" to 1 user at {AWAY}? [y/N] ')
    assert ("not sent: the host name could not be resolved" in result.err) is meant
    assert ("nothing was sent" in result.err) is not meant


def test_ctrl_c_at_the_question_exits_with_130(monkeypatch):
    leader, follower = pty.openpty()
    monkeypatch.setenv("PUSHSDK_API_KEY", "k")
    terminal = dict.fromkeys(("stdin", "stdout", "stderr"), follower)
    with started(f"{SEND} --base-url {AWAY}", **terminal, start_new_session=True) as process:
        os.close(follower)
        output = b""
        while b"[y/N]" not in output:
            output += os.read(leader, 1000)
        # Python acts on a signal that comes just before a read only after it. Asleep, it reads.
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] != "S":
            assert process.poll() is None, "it has ended"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    os.close(leader)
    assert b"Traceback" not in output


# -- interrupted --------------------------------------------------------------------------------------------------


def test_ctrl_c_prints_the_outcome_and_exits_with_130(service):
    service.set_faults([Fault.hang()])
    with started(SEND) as process:
        service.wait_for(requests=1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted: 1 user UNKNOWN\n"


@pytest.mark.parametrize("words", [SEND, "--help"])
def test_a_closed_pipe_exits_with_141_without_a_traceback(service, words):
    reader, writer = os.pipe()
    os.close(reader)
    process = started(words, stdout=writer)
    os.close(writer)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 141


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_failure(service, closed):
    shell = ["sh", "-c", f'"$@" {closed}', "sh"]
    assert subprocess.run([*shell, *COMMAND, *split(SEND)], timeout=60, check=False).returncode == 0
    assert service.accepted("ann") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(("words", "code"), [(SEND, 3), ("config", 4)])
def test_a_full_disk_of_the_output_is_an_error_without_a_traceback(service, words, code):
    with open("/dev/full", "w") as full, started(words, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    message = "pushsdk: can't write the output: the disk is full (a run file keeps its results)\n"
    assert process.returncode == code
    assert err == message


def test_other_os_errors_are_raised(monkeypatch):
    from pushsdk import cli

    def fails(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(cli, "_run", fails)
    with pytest.raises(OSError, match="Input/output"):
        cli.main([])


# -- campaign create ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "printed"), [("", "{}\n"), ("--json", '{{"uuid":"{}"}}\n')])
def test_a_campaign_is_created_and_its_uuid_printed(command, service, file, words, printed):
    result = command(f"campaign create {words}", file(CAMPAIGN))
    assert result == (0, printed.format(service.campaigns[0].uuid), "")


@pytest.mark.parametrize(("fault", "code"), [(Fault.status(422), 1), (Fault.truncated(), 3)])
def test_the_exit_code_of_a_campaign_is_3_if_it_may_exist(command, service, file, fault, code):
    service.set_faults([fault])
    result = command("campaign create", file(CAMPAIGN))
    assert result.code == code
    assert result.out == ""
