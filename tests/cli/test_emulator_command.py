"""``pushsdk emulator`` and ``pushsdk emulator exec``, and the entry point of the command line."""

import asyncio
import builtins
import json
import os
import pty
import signal
import socket
import sys
import threading
import urllib.request
from contextlib import ExitStack, nullcontext, suppress

import pytest
from support.command_line import COMMAND, run_apart, split, started
from support.servers import free_port

from pushsdk import cli
from pushsdk.cli.commands import emulator as emulator_module
from pushsdk.cli.commands.emulator import _run_command, emulator, execute
from pushsdk.emulator import Emulator


async def run_until(number, **arguments):
    """Run the command in this loop, and send the signal after the command has installed its handlers."""
    before = signal.getsignal(number)
    command = asyncio.ensure_future(emulator(**{"port": 0, **arguments}))
    async with asyncio.timeout(60):
        while signal.getsignal(number) is before and not command.done():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)
        signal.raise_signal(number)
        code = await command
    assert signal.getsignal(number) is before
    return code


def push(base_url, api_key, *users):
    """Send a push without the SDK and return the status."""
    request = urllib.request.Request(
        f"{base_url}/v1/push",
        data=json.dumps({"userIds": users, "message": {}}).encode(),
        headers={"Api-Key": api_key, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return answer.status


# -- pushsdk emulator -----------------------------------------------------------------------------------------------


async def test_the_token_of_a_public_host_is_never_printed(tmp_path, capsys):
    (tmp_path / "token").write_text("s3cret\n")
    assert await run_until(signal.SIGINT, host="0.0.0.0", token_file=tmp_path / "token") == 0
    out = capsys.readouterr().out
    assert "(add #token= and the token)" in out
    assert "s3cret" not in out


async def test_a_request_is_a_line_of_the_terminal_unless_quiet(capsys, monkeypatch):
    for quiet in (False, True):
        monkeypatch.setattr(Emulator, "__aenter__", entering_with_a_push)
        await run_until(signal.SIGINT, quiet=quiet)
        lines = [line for line in capsys.readouterr().out.splitlines() if "/v1/push 204 1 user" in line]
        assert len(lines) == (not quiet)
        assert "\x1b" not in "".join(lines)


async def test_a_pipe_that_nobody_reads_does_not_stop_the_service(monkeypatch):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    late = threading.Timer(20, os.close, [reader])  # a blocked write then ends with an error
    late.start()
    monkeypatch.setattr(Emulator, "__aenter__", entering_with_a_push)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert await run_until(signal.SIGINT) == 0
    late.cancel()
    os.close(reader)


ENTER = Emulator.__aenter__


async def entering_with_a_push(self):
    service = await ENTER(self)
    await asyncio.to_thread(push, service.base_url, service.api_key, "ann")
    return service


async def test_open_opens_the_page(capsys, monkeypatch):
    urls = []
    monkeypatch.setattr(emulator_module.webbrowser, "open", urls.append)
    await run_until(signal.SIGINT, open_page=True)
    assert urls[0] + "/" == capsys.readouterr().out.splitlines()[1].removeprefix("# Inbox page at ")


@pytest.mark.parametrize("in_use", [False, True])
async def test_without_a_port_the_default_or_a_free_one_is_taken(monkeypatch, capsys, in_use):
    port = free_port()
    monkeypatch.setattr(emulator_module, "DEFAULT_PORT", port)
    with socket.create_server(("127.0.0.1", port)) if in_use else nullcontext():
        assert await run_until(signal.SIGINT, port=None) == 0
    output = capsys.readouterr()
    assert (f"page at http://127.0.0.1:{port}/" in output.out) is not in_use
    assert (f"port {port} can't be used" in output.err) is in_use


@pytest.fixture
def options_given(monkeypatch):
    """The arguments of the emulator that a command makes."""
    arguments = {}

    class RecordingEmulator(Emulator):
        def __init__(self, **options):
            arguments.update(options)
            super().__init__(**options)

    monkeypatch.setattr(emulator_module, "Emulator", RecordingEmulator)
    return arguments


def test_every_option_reaches_the_emulator(options_given, tmp_path, command):
    files = {name: tmp_path / name for name in ("limits", "faults", "token", "store")}
    files["limits"].write_text('{"max_users": 7}')
    files["faults"].write_text('\ufeff[{"fault": "hang", "first": 1}]')
    files["token"].write_text("\ufeffs3cret")
    named = " ".join(f"--{name} {file}" for name, file in files.items()).replace("--token", "--token-file")
    words = f"{named} --strict --seed 3 --keep 5 --max-age 1.5 --allow-host push.test --allow-host push.test:80"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = command(f"emulator {words} --port", port := listener.getsockname()[1])
    reason = f"can't listen on 127.0.0.1:{port}: Address already in use; use a host of this machine and a free port"
    assert result.code == 4
    assert reason in result.err
    assert options_given["limits"].max_users == 7
    assert options_given["limits"].strict
    assert [fault.first for fault in options_given["faults"]] == [1]
    assert options_given == {
        **options_given,
        "seed": 3,
        "keep": 5,
        "max_age": 1.5,
        "store": files["store"],
        "token": "s3cret",
        "hosts": ["push.test", "push.test:80"],
    }


# -- pushsdk emulator exec ------------------------------------------------------------------------------------------


def run_exec(*words, **options):
    return run_apart("emulator exec --port 0", *split(*words), **options)


def test_a_command_reaches_the_service_and_the_verdict_on_all_in_the_store_goes_to_stderr(tmp_path):
    words = "--store", tmp_path / "kept", "--", *COMMAND, *split("send ann --title Hello --profile emulator")
    run_exec(*words)
    result = run_exec(*words)
    assert result.out == "accepted: 1 user\n"
    assert result.err.startswith("pushsdk emulator: the page is at http://127.0.0.1:")
    assert result.err.endswith("accepted 2 pushes to 1 user and 0 campaigns; 1 user got more than one push\n")


async def test_each_command_finds_the_service_at_the_same_address_to_which_claims_are_bound(monkeypatch, capfd):
    monkeypatch.setattr(emulator_module, "EXEC_PORT", port := free_port())
    for _ in range(2):
        assert await execute("sh", "-c", "echo $PUSHSDK_BASE_URL") == 0
    assert capfd.readouterr().out == f"http://127.0.0.1:{port}/external/api\n" * 2


def test_arguments_streams_and_exit_code_are_those_of_the_command_which_has_no_other_key_or_profile(monkeypatch):
    monkeypatch.setenv("PUSHSDK_API_KEY_FILE", "elsewhere")
    monkeypatch.setenv("PUSHSDK_PROFILE", "elsewhere")
    code = """
import os, sys
print(sys.stdin.read().upper(), *sys.argv[1:], os.getenv("PUSHSDK_API_KEY_FILE"), os.getenv("PUSHSDK_PROFILE"))
print("err", file=sys.stderr)
os.kill(os.getpid(), 9) if "kill" in sys.argv else sys.exit(7)
"""
    result = run_exec("--", sys.executable, "-c", code, "--port", "x", "--", "--help", stdin="in")
    assert result.code == 7
    assert result.out == "IN --port x -- --help None None\n"
    assert "\nerr\npushsdk emulator: 0 requests" in result.err
    assert run_exec("--", sys.executable, "-c", code, "kill").code == 128 + signal.SIGKILL  # as in a shell


def test_a_preset_has_a_name():
    assert "accepted 0 pushes" in run_exec("--faults poison-user --", *COMMAND, *split("send poison --title Hi")).err


def test_the_exit_code_is_that_of_a_command_that_removes_the_store(tmp_path):
    result = run_exec("--store", store := tmp_path / "kept", "--", "sh", "-c", f"rm {store}; exit 7")
    assert "can't be read: unable to open" in result.err
    assert result.code == 7


async def test_a_signal_that_is_ignored_stays_ignored_in_the_command():
    code = "import signal, sys; sys.exit(signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)"
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert await _run_command([sys.executable, "-c", code], {}) == 0
    finally:
        signal.signal(signal.SIGHUP, former)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_forwarded_to_the_command(number):
    code = f"""
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [{number}])
print("ready", flush=True)
signal.sigwait([{number}])
sys.exit(9)
"""
    with started("emulator exec --port 0 --", sys.executable, "-c", code, start_new_session=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 9


def test_a_ctrl_c_at_the_terminal_reaches_the_command_once():
    code = """
import signal, sys
words = {signal.SIGINT: "interrupted", signal.SIGUSR1: "all handed on", signal.SIGTERM: "terminated"}
signal.pthread_sigmask(signal.SIG_BLOCK, words)
print("ready", flush=True)
number = None
while number != signal.SIGTERM:
    number = signal.sigwait(words)
    print(words[number], flush=True)
"""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover - runs as the command
        os.execv(sys.executable, [*COMMAND, *split("emulator exec --", sys.executable, "-c", code)])
    output = b""
    with open(terminal, "r+b", buffering=0) as keys:

        def until(word, times=1):
            nonlocal output
            while output.count(word) < times:
                output += keys.read(100)

        until(b"ready")
        for times in (1, 2, 3):
            keys.write(b"\x03")
            until(b"interrupted", times)
            # Signals are forwarded in order: a forwarded SIGINT would arrive before this.
            os.kill(child, signal.SIGUSR1)
            until(b"all handed on", times)
        os.kill(child, signal.SIGTERM)
        until(b"requests")
        os.waitpid(child, 0)
    assert output.count(b"interrupted") == 3
    assert b"terminated" in output


async def test_a_signal_that_comes_before_the_command_runs_is_not_lost(monkeypatch):
    create = asyncio.create_subprocess_exec

    async def interrupted(*words, **options):
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        return await create(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", interrupted)
    async with asyncio.timeout(60):
        assert await _run_command([sys.executable, "-c", "import signal; signal.pause()"], {}) == -signal.SIGTERM


# -- entry point ----------------------------------------------------------------------------------------------------


def test_a_missing_extra_is_an_error_with_the_pip_command(monkeypatch, capsys):
    without(monkeypatch, "rich")
    assert cli.main() == 4
    text = "the command line needs rich (the extra 'cli'): pip install cyclopts rich"
    assert capsys.readouterr().err == f"pushsdk: {text}\n"


def test_another_missing_module_is_not_reported_as_the_extra(monkeypatch):
    without(monkeypatch, "elsewhere")
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        cli.main()


def without(monkeypatch, missing):
    """Make the import of the app fail because this module is missing."""
    real = builtins.__import__

    def importing(name, *args, **kwargs):
        if name == "pushsdk.cli.app":
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)


@pytest.fixture
def start():
    """A function that starts an emulator in a process, and returns it with the lines that it prints first."""
    with ExitStack() as stack:

        def run():
            process = stack.enter_context(started("emulator --port 0 --quiet"))
            stack.callback(process.kill)
            return process, [process.stdout.readline() for _ in range(5)]

        yield run


def test_a_signal_stops_an_emulator_that_answers_slow_requests(start):
    process, lines = start()
    address = lines[1].split("/")[2]
    with ExitStack() as stack:
        for path in ("events", "wait?timeout=600"):
            sock = stack.enter_context(socket.create_connection(tuple(address.split(":"))))
            sock.sendall(f"GET /_emulator/v1/{path} HTTP/1.1\r\nHost: {address}\r\nApi-Key: k\r\n\r\n".encode())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


async def test_without_a_home_there_is_no_profile(capsys, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "")
    assert await run_until(signal.SIGINT) == 0
    assert "--profile" not in capsys.readouterr().out


def test_each_emulator_has_a_profile_and_the_only_one_that_runs_a_short_name_for_it(command, start):
    def config(profile):
        return command("config --profile", profile)

    assert "must name one running emulator, and names none: start pushsdk emulator" in config("emulator").err
    (first, _), (second, ended), (_, last) = emulators = [start() for _ in range(3)]
    killed, *both = [lines[2].split()[-1] for _, lines in emulators]
    first.kill()
    first.wait(60)
    os.mkfifo(f"{os.environ['XDG_CONFIG_HOME']}/pushsdk/emulator-1.toml")  # not a profile, and never read
    for profile in ("emulator", killed):
        told = f" names {2 if profile == 'emulator' else 'none'}: pass --profile {' or '.join(sorted(both))}, or"
        assert told in config(profile).err
    assert ended[0].split()[3] in config(both[0]).out
    second.terminate()
    second.wait(60)
    assert last[0].split()[3] in config("emulator").out


def test_the_emulator_runs_as_a_process(start):
    process, (emulator, page, terminal, *lines) = start()
    assert emulator.startswith("# Emulator at http://127.0.0.1:")
    assert page.startswith("# Inbox page at http://127.0.0.1:")
    assert terminal.endswith(f" --profile emulator-{page.split(':')[2][:-2]}\n")
    address, key = [line.removeprefix("export ").strip().partition("=")[2] for line in lines]
    assert push(address, key, "ann", "bob") == 204
    process.send_signal(signal.SIGINT)
    told = "1 request; accepted 1 push to 2 users and 0 campaigns; 0 users got more than one push\n"
    assert (*process.communicate(timeout=60), process.returncode) == (told, "", 0)
