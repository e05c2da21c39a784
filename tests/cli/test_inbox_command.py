"""``pushsdk emulator requests``, ``tail`` and ``reset``."""

import json
import os
import select
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from support.command_line import started

from pushsdk.cli.commands.emulator import kept_profile
from pushsdk.emulator import Fault

HELLO = 'accepted  204  push to "ann"  en "Hello"\n'


def send(command, user, title):
    return command("send", user, "--title", title).code


def test_requests_are_lines_or_json_with_bodies_and_a_reset_empties_the_inbox(command, service):
    service.set_faults([Fault.reset_after(first=1)])
    assert send(command, "ann", "One") == 3
    assert send(command, "bob", "Two") == 0
    result = command("emulator requests")
    lines = [
        'accepted  no response  push to "ann"  en "One"  (fault "1: reset_after")',
        'accepted  204  push to "bob"  en "Two"',
    ]
    assert [line.split(maxsplit=1)[1] for line in result.out.splitlines()] == lines
    rows = [json.loads(line) for line in command("emulator requests bob --json").out.splitlines()]
    assert [(row["status"], row["body"]["message"]["title"]) for row in rows] == [(204, {"en": "Two"})]
    assert "found no such requests with" in command("emulator requests zzz").err
    netloc = urlsplit(service.base_url).netloc
    assert command("emulator reset") == (0, f"emptied the inbox on {netloc}\n", "")
    assert command("emulator requests") == (
        0,
        "",
        "found no such requests with this Api-Key; the page shows all inboxes\n",
    )


def test_the_settings_name_the_emulator_if_they_are_of_this_machine_and_else_the_one_that_runs(
    command, service, monkeypatch
):
    send(command, "ann", "Hello")
    with kept_profile(service):
        monkeypatch.setenv("PUSHSDK_BASE_URL", "https://push.invalid/api")
        assert command("emulator requests").out.endswith(HELLO)
        monkeypatch.setenv("PUSHSDK_BASE_URL", "http://127.0.0.1:9/api")
        refused = "pushsdk: http://127.0.0.1:9 can't be reached: [Errno 111] Connection refused. Is the emulator up?\n"
        assert [command("emulator", name).err for name in ("requests", "reset")] == [refused] * 2
        monkeypatch.setenv("PUSHSDK_BASE_URL", "http://[::1")
        assert command("emulator requests").out.endswith(HELLO)


def test_a_profile_that_is_passed_is_asked_wherever_its_service_is(command, service, monkeypatch, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("[profiles.staging]\nbase_url = 'https://0.0.0.0:9'\napi_key = 'key'")
    file.chmod(0o600)
    monkeypatch.setenv("PUSHSDK_CONFIG", str(file))
    with kept_profile(service):
        assert "https://0.0.0.0:9 can't be reached" in command("emulator reset --profile staging").err


def test_each_request_is_printed_when_it_comes(command, service):
    for options, last in (((), "ann Hello"), (("--json",), "bob Hello")):
        user, title = last.split()
        with started("emulator tail", *options) as process:
            while not select.select([process.stdout], [], [], 0.1)[0]:
                send(command, user, title)
            line = process.stdout.readline()
            process.kill()
        assert json.loads(line)["first_user"] == user if options else line.endswith(HELLO)


def test_a_reader_that_leaves_is_no_trouble_of_the_emulator(command, service, monkeypatch):
    send(command, "ann", "Hello")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    reader, writer = os.pipe()
    os.close(reader)
    with started("emulator requests --json", stdout=writer) as process:
        os.close(writer)
        assert "is it the emulator" not in process.communicate(timeout=60)[1]


class Other(BaseHTTPRequestHandler):
    """A service that answers each method in another way than the emulator."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def do_POST(self):
        self.send_response(302)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/stolen")
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


def test_a_service_that_is_no_emulator_is_named_and_no_redirect_or_proxy_gets_the_key(command, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        monkeypatch.setenv("PUSHSDK_BASE_URL", address := f"http://127.0.0.1:{other.server_port}")
        monkeypatch.setenv("PUSHSDK_API_KEY", "key")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        texts = {"reset": "answered 302", "requests": "answered something else"}
        for words, text in texts.items():
            result = command("emulator", words)
            assert result == (4, "", f"pushsdk: {address} {text}: is it the emulator?\n")
        other.shutdown()
        thread.join()


def test_the_end_of_the_emulator_ends_the_tail_with_an_error(command):
    with started("emulator --port 0") as service:
        [service.stdout.readline() for _ in range(3)]
        with started("emulator tail") as tail:
            while not select.select([tail.stdout], [], [], 0.1)[0]:
                command("send ann --title Hello --profile emulator")
            service.terminate()
            assert tail.communicate(timeout=60)[1] == "pushsdk: the emulator has ended\n"
            assert tail.returncode == 1
