"""Progress of a broadcast, signals, exit codes, and the start of the command line."""

import asyncio
import fcntl
import io
import itertools
import json
import os
import pty
import shlex
import signal
import struct
import sys
import termios
from contextlib import suppress

import msgspec
import pyte
import pytest
from rich.console import Console
from support.command_line import COMMAND, run_apart, split, started
from support.programs import run_python

from pushsdk import AsyncPushClient, BroadcastReport, ConfigurationError, Outcome, PartialError, RunFileError
from pushsdk._runs.progress import Progress
from pushsdk.cli import interrupt, output
from pushsdk.cli.app import GROUPS
from pushsdk.cli.commands import runs
from pushsdk.cli.exit import CommandError, Exit, command_error
from pushsdk.cli.interrupt import interruptible
from pushsdk.cli.output import progress
from pushsdk.emulator import Fault

PLANNING = Progress(stage="planning", planned=20_000, not_sent=20_000, seconds=3.0)
SENDING = Progress(
    stage="sending",
    planned=20_000,
    accepted=9000,
    rejected=1,
    unknown=999,
    not_sent=10_000,
    rate=2000.4,
    eta=4.9,
    requests=48,
    limit=52,
)
WAITING = Progress(stage="waiting", planned=20_000, accepted=10_000, not_sent=10_000, paused=61.0)
COUNTS = "10,000 of 20,000 users, 9,000 accepted, 1 rejected, 999 unknown"
WORDS = f"sending: {COUNTS}, 2,000/s, 0:05 left"


# -- progress -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "is_dumb"), [("auto", False), ("auto", True), ("plain", False)])
def test_without_a_terminal_or_on_a_dumb_one_progress_is_lines_on_stderr(capsys, monkeypatch, mode, is_dumb):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_dumb)
    clock = itertools.chain([0.0, 0.0, 1.0, 1.0, 1.5, 2.0, 2.0, 2.5, 7.0, 7.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with progress(mode) as tell:
        for state in (PLANNING, SENDING, SENDING, WAITING, SENDING, WAITING):
            tell(state)
    waiting = "waiting: 10,000 of 20,000 users, 10,000 accepted, throttled for 1:01"
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["planning: 20,000 users", WORDS, waiting, waiting]


def shown(width, *output):
    """Return the lines that a terminal of this width shows after the output, without the empty ones."""
    screen = pyte.Screen(width, 24)
    stream = pyte.ByteStream(screen)
    for part in output:
        stream.feed(part)
    return [line.rstrip() for line in screen.display if line.strip()]


@pytest.fixture
def drawn(monkeypatch):
    """Return a function that tells a display of some width these states, and returns its screen then and afterwards."""

    def draw(width, *states):
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, color_system=None, width=width)
        monkeypatch.setattr(output, "Console", lambda **_: console)
        with progress("auto") as tell:
            for state in states:
                tell(state)
            before = file.getvalue()
        return [shown(width, text.replace("\n", "\r\n").encode()) for text in (before, file.getvalue())]

    return draw


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("factor", [1, 1000])
def test_the_display_is_a_bar_to_the_full_width_and_one_line_of_figures(drawn, width, factor):
    sizes = ("planned", "accepted", "rejected", "unknown", "not_sent")
    for state in (PLANNING, SENDING, WAITING, Progress(stage="sending")):
        large = msgspec.structs.replace(state, **{name: factor * getattr(state, name) for name in sizes})
        (bar, *figures), after = drawn(width, SENDING, large)
        assert len(bar) == width
        assert len(figures) == (state is not PLANNING)
        assert after == []
        assert bar.startswith(f"{state.stage} \N{BOX DRAWINGS HEAVY HORIZONTAL}" if state.planned else state.stage)
        assert ("%" in bar) == (state is not PLANNING)
        assert all(len(line) <= width for line in figures)


@pytest.mark.parametrize("stage", ["sending", "waiting"])
def test_the_last_failure_is_shown_whole_until_a_request_is_accepted(drawn, capsys, stage):
    trouble = "the connection could not be opened: 127.0.0.1:8080, Connection refused"
    state = msgspec.structs.replace(SENDING, stage=stage, trouble=trouble)
    _, _, *lines = drawn(60, state)[0]
    assert " ".join(lines) == trouble
    with progress("plain") as tell:
        tell(state)
    assert capsys.readouterr().err == f"{stage}: {COUNTS}, 2,000/s, 0:05 left, {trouble}\n"


def test_ctrl_c_leaves_whole_lines_and_no_bar(service, tmp_path):
    service.set_faults([Fault.delay(0.2)])
    (tmp_path / "many.txt").write_text("".join(f"user-{number}\n" for number in range(20_000)))
    # Narrow, so that the figures fill their line: a ^C after them would wrap.
    words = split(f"broadcast {tmp_path}/many.txt --run {tmp_path}/many.run --title x --in-flight 1 -v --yes")
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover - runs as the command
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        os.environ.pop("COLUMNS")
        os.execv(sys.executable, [*COMMAND, *words])
    seen = b""
    with open(terminal, "r+b", buffering=0) as keys, suppress(OSError):  # which a closed terminal raises
        while b",000 accepted" not in seen:
            seen += keys.read(1000)
        keys.write(b"\x03")
        while part := keys.read(1000):
            seen += part
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    lines = shown(40, seen)
    assert "stopping after the requests in flight;" in lines
    assert not any("\N{BOX DRAWINGS HEAVY HORIZONTAL}" in line for line in lines)
    assert all(line.index("INFO") == 24 for line in lines if "INFO" in line)


# -- signals ------------------------------------------------------------------------------------------------------


async def test_under_nohup_a_hangup_does_not_stop_a_run():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible("last words") as stop:
            signal.raise_signal(signal.SIGHUP)
            await asyncio.sleep(0)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_run_interrupted_at_its_end_counts_as_interrupted():
    whole = BroadcastReport(planned=1, accepted=1)

    async def start(client, options):
        signal.raise_signal(signal.SIGINT)
        await asyncio.wait_for(options["stop"].wait(), 5)
        return whole

    client = AsyncPushClient("http://127.0.0.1:1", "key")
    assert await runs._send(client, start, {}, "none", "resume") == (whole, True)


async def test_a_task_that_survives_its_cancellation_ends_with_the_process(capsys, monkeypatch):
    codes = []
    monkeypatch.setattr(interrupt.os, "_exit", codes.append)
    monkeypatch.setattr(interrupt, "_GRACE", 0.01)

    async def work():
        with interruptible("last words"):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(5)
            while not codes:  # noqa: ASYNC110 - stands for a thread that waits for a line
                await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.ensure_future(work()), 5)
    assert codes == [130]
    assert capsys.readouterr().err.endswith("\nlast words\n")


# -- exit codes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ({"stopped_by": "asked", "unknown": 1}, 130),
        ({"stopped_by": "refused", "unknown": 1}, 4),
        ({"stopped_by": "failure"}, 4),
        ({"stopped_by": "stop_policy", "unknown": 1, "rejected": 1}, 5),
        ({"unknown": 1, "rejected": 1}, 3),
        ({"rejected": 1, "stopped_by": "limit"}, 1),
        ({}, 0),
        ({"planned": 0}, 2),
    ],
)
def test_the_first_condition_that_applies_sets_the_exit_code(result, code):
    assert runs._exit_code(BroadcastReport(**{"planned": 9, **result})) == code


@pytest.mark.parametrize(
    ("kind", "outcome", "code"),
    [
        (RunFileError, Outcome.NOT_SENT, Exit.USAGE),
        (RunFileError, Outcome.UNKNOWN, Exit.UNKNOWN),
        (ConfigurationError, Outcome.NOT_SENT, Exit.CANNOT_RUN),
        (PartialError, Outcome.UNKNOWN, Exit.UNKNOWN),
        (PartialError, Outcome.REJECTED, Exit.INCOMPLETE),
    ],
)
def test_every_error_has_its_exit_code_and_keeps_its_text(kind, outcome, code):
    replaced = command_error(kind("text", outcome=outcome))
    assert type(replaced) is CommandError
    assert str(replaced) == "text"
    assert replaced.code == code


# -- the start ----------------------------------------------------------------------------------------------------


def test_the_help_lists_every_command_and_loads_no_large_module():
    code = "import sys; from pushsdk import cli; cli.main(['--help']); print(*sys.modules, file=sys.stderr)"
    result = run_python("-c", code)
    for name in ("send", "campaign", "broadcast", "plan", "resume", "status", "report", "message", "doctor", "demo"):
        assert f"│ {name} " in result.out
    assert {"aiohttp", "msgspec", "asyncio", "rich.markdown", "duckdb"}.isdisjoint(result.err.split())


@pytest.mark.parametrize("name", [name for group in GROUPS.values() for name in group])
def test_the_help_of_every_command_explains_each_option(command, name):
    result = command(*name.split(), "--help")
    assert result.code == 0
    assert result.err == ""
    assert f"Example: pushsdk {name}" in result.out
    assert "See: pushsdk docs " in result.out
    for line in result.out.splitlines():
        # An option alone on its line has no explanation.
        assert not (line.startswith("│ --") and len(line.strip("│ ").split()) == 1), line


LOCALES = [
    {"PYTHONIOENCODING": "cp1252"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},  # which can't decode the words
]


@pytest.mark.parametrize("locale", LOCALES)
def test_json_is_utf_8_in_every_locale(monkeypatch, locale):
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    words = "send us\u00e9r --title 'Hi \U0001f600' --base-url http://localhost --dry-run"
    for options in ("--json", ""):
        with started(f"{words} {options}", text=False) as process:
            output = process.communicate()[0].decode("utf-8")
        request = json.loads(output)["body"] if options else json.loads(shlex.split(output)[-1])
        assert request["userIds"] == ["us\u00e9r"]
        assert request["message"]["title"] == {"en": "Hi \U0001f600"}


def test_a_letter_that_the_locale_lacks_is_escaped(tmp_path, monkeypatch):
    (tmp_path / "message.json").write_text('{"title": {"en": "\\u20ac"}}')
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    preview = run_apart("message preview", tmp_path / "message.json")
    assert preview.code == 0
    assert preview.out == "[en] no platform\n\\u20ac\n"


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_the_completion_script_of_a_shell_is_printed(command, shell):
    result = command("completion", shell)
    assert result.code == 0
    assert result.err == ""
    assert all(word in result.out for word in ("broadcast", "lint", "dry-run"))


def test_help_shows_the_help_of_a_command(command):
    assert command("help claims list") == command("claims list --help")
    assert "Usage: pushsdk COMMAND" in command("help").out
    assert command("help claims lsit").err == ("pushsdk: no command has the name 'claims lsit'. Did you mean 'list'?\n")
    assert command("help xyz").err == ("pushsdk: no command has the name 'xyz'. pushsdk --help lists the commands\n")


@pytest.mark.parametrize("module", ["pushsdk.cli", "cyclopts"])
def test_an_interrupt_while_modules_load_ends_the_command_silently(module, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"
    assert run_apart("demo --users 5000", PYTHONPATH=path) == (130, "", "")


def test_an_interrupt_that_is_ignored_stays_ignored(service):
    process = started("send ann --title Hi", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    for _ in range(3):
        process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "accepted: 1 user\n"
    assert process.returncode == 0
