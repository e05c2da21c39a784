"""``pushsdk emulator``: the push service on this machine, until a signal or while another command runs."""

import asyncio
import os
import select
import signal
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from cyclopts import App, Parameter

from pushsdk._core.kinds import check
from pushsdk._core.words import count
from pushsdk._io.files import lock
from pushsdk.cli.exit import CommandError, Exit, usage_error
from pushsdk.cli.files import decoded
from pushsdk.cli.interrupt import not_ignored, signal_handlers
from pushsdk.cli.settings import emulator_file
from pushsdk.cli.terminal import say, warn
from pushsdk.emulator import Emulator, Fault, ServiceLimits, StoreError
from pushsdk.emulator.faults import PRESETS, Rules
from pushsdk.emulator.guard import HOST
from pushsdk.emulator.server import HeaderText

DEFAULT_PORT = 8080
# Claims and runs are bound to their address, so it stays; and the command may be a server, whose port is often 8080.
EXEC_PORT = 8090
_MAX_BYTES = 64 * 1024
_LONGEST_LINE = 1000  # characters: at most 4 KiB, which a pipe that select reports takes at once
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_FORWARDED = [number for number in signal.Signals if number.name in _NAMES]
_FROM_KEYS = {"SIGINT", "SIGQUIT"}  # a terminal sends these to the whole foreground process group

app: App = App(name="emulator", help="Run the push service with the faults and limits of your choice.")
for _name, _help in {
    "requests": "Print your Api-Key's newest 1,000 requests, oldest first; with --json with their bodies.",
    "tail": "Print each request that the emulator gets with your Api-Key, until Ctrl-C.",
    "reset": "Empty the emulator's inbox: requests, counts, campaigns, faults and limits.",
}.items():
    app.command(f"pushsdk.cli.commands.inbox:{_name}", name=_name, help=f"{_help}\n\nSee: pushsdk docs emulator")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EmulatorOptions:
    """The service's behavior, and how much it keeps."""

    faults: str | None = None
    """Fail by a preset (flaky) or by the rules in a JSON file ([{"fault": "status", "code": 429}])."""
    seed: int = 0
    """Set the random seed for faults with a probability. [default: 0]"""
    limits: Path | None = None
    """Apply the limits in this JSON file, for example {"max_users": 1000, "rate": 50}."""
    strict: bool = False
    """Refuse fields and values that the interface document does not show."""
    store: Path | None = None
    """Keep requests, with user ids and messages, in this file across restarts."""
    keep: int = 100_000
    """Keep at most this many requests in each inbox."""
    max_age: float | None = None
    """Keep requests for at most this many seconds. [default: no limit]"""


def _arguments(options: EmulatorOptions) -> dict[str, Any]:
    """Return the emulator's arguments for these options. Raises CommandError."""
    limits = ServiceLimits()
    if options.limits is not None:
        with _option_errors(f"--limits {options.limits}"):
            limits = decoded(options.limits.read_bytes(), ServiceLimits)
    faults: list[Fault] = []
    if options.faults in PRESETS:
        faults += PRESETS[options.faults].faults
    elif options.faults is not None:
        with _option_errors(f"--faults {options.faults}", f"not a preset ({', '.join(PRESETS)}), and as a file: "):
            faults += decoded(Path(options.faults).read_bytes(), list[Fault])
            Rules(faults)
    arguments = {**vars(options), "faults": faults, "limits": limits}
    if arguments.pop("strict"):
        arguments["limits"] = msgspec.structs.replace(limits, strict=True)
    return arguments


def read_token(file: Path) -> str:
    """Return the token in a file, without the line end after it."""
    with _option_errors(f"--token-file {file}"), file.open("rb") as opened:
        token = opened.read(_MAX_BYTES).decode("utf-8-sig", "replace").strip()
        check("token", token, HeaderText, ValueError)
        return token


@contextmanager
def _option_errors(option: str, advice: str = "") -> Iterator[None]:
    """Name the option in errors; ``advice`` follows it if the file can't be read."""
    try:
        yield
    except ValueError as error:
        raise usage_error(f"{option}: {error}") from None
    except OSError as error:
        raise usage_error(f"{option}: {advice}{error.strerror}") from None


@app.default
async def emulator(
    *,
    port: int | None = None,
    options: EmulatorOptions = EmulatorOptions(),
    quiet: bool = False,
    open_page: Annotated[bool, Parameter(name="--open")] = False,
    host: str = HOST,
    allow_host: Sequence[str] = (),
    token_file: Path | None = None,
) -> int:
    """Run the push service until Ctrl-C, with the faults and limits of your choice.

    Args:
        port: Listen on this port; 0 takes any free port. [default: 8080, or any free port if 8080 is in use]
        quiet: Print no line for each request.
        open_page: Open the page in a browser.
        host: Listen on this address. Other machines than this one need the token.
        allow_host: Accept this host name too, for example push.test or push.test:8080. Repeatable.
        token_file: Read the token for the page and the control API from this file; pushes need no token.
    """
    token = None if token_file is None else read_token(token_file)
    log = None if quiet else _say
    arguments = {**_arguments(options), "host": host, "hosts": allow_host, "token": token, "log": log}
    async with _running(arguments, port, DEFAULT_PORT) as service:
        stop = asyncio.Event()
        with signal_handlers(not_ignored(_STOPPING), lambda _: stop.set()), kept_profile(service) as profile:
            _say(f"# Emulator at {service.base_url} (Ctrl-C stops it)")
            _say(f"# Inbox page at {service.url}/{'' if token is None else ' (add #token= and the token)'}")
            if profile:
                _say(f"# In another terminal: pushsdk send ann --title Hello --profile {profile}")
            for name, value in _variables(service).items():
                _say(f"export {name}={value}")
            if open_page:
                await asyncio.to_thread(webbrowser.open, service.url)
            await stop.wait()
        _say(_verdict(service))
    return 0


@app.command(
    name="exec",
    usage="Usage: pushsdk emulator exec [OPTIONS] -- COMMAND [ARGS...]",
    help="Run a command beside the push service: exec -- COMMAND ...\n\n"
    "The command gets PUSHSDK_BASE_URL and PUSHSDK_API_KEY. Exits with its exit code, or 128 plus the signal that "
    "ended it, and prints to stderr what the service accepted.\n\n"
    "Example: pushsdk emulator exec --faults flaky -- python job.py\n\nSee: pushsdk docs emulator",
)
async def execute(*command: str, port: int | None = None, options: EmulatorOptions = EmulatorOptions()) -> int:
    """Run a command beside the push service.

    Args:
        command: The command and its arguments, after --.
        port: Listen on this port of 127.0.0.1; 0 takes any free port. [default: 8090, or any free port]
    """
    if not command:
        raise usage_error("name the command to run: pushsdk emulator exec -- COMMAND ...")
    async with _running(_arguments(options), port, EXEC_PORT) as service:
        warn(f"pushsdk emulator: the page is at {service.url}/ until the command ends")
        with kept_profile(service):
            code = await _run_command(command, _variables(service))
        warn(f"pushsdk emulator: {_verdict(service)}")
    return code if code >= 0 else 128 - code


@asynccontextmanager
async def _running(arguments: Mapping[str, Any], port: int | None, usual: int) -> AsyncIterator[Emulator]:
    """Run the emulator on this port; if it is None, on the usual one, or on any free one if that is in use.

    Raises CommandError if the emulator can't start.
    """
    async with AsyncExitStack() as stack:

        async def start(number: int) -> Emulator:
            with _option_errors("emulator"):
                service = Emulator(port=number, **arguments)
            return await stack.enter_async_context(service)

        try:
            if port is None:
                try:
                    service = await start(usual)
                except OSError as error:
                    service = await start(0)
                    why = os.strerror(error.errno or 0)
                    warn(f"pushsdk emulator: port {usual} can't be used ({why}), so it took a free one")
            else:
                service = await start(port)
        except StoreError as error:
            raise usage_error(f"--store: {error}") from None
        except OSError as error:
            code = Exit.USAGE if isinstance(error, socket.gaierror) else Exit.CANNOT_RUN
            raise CommandError(error.strerror or str(error), code) from None
        yield service


@contextmanager
def kept_profile(service: Emulator) -> Iterator[str | None]:
    """Keep a profile for commands while the service runs, and yield its name; None if it can't be kept."""
    name, file = None, emulator_file(urlsplit(service.url).port)
    with ExitStack() as stack:
        with suppress(OSError):
            if file is not None:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.callback(lock(file))
                name = file.stem
                file.write_text(f"[profiles.{name}]\nbase_url = '{service.base_url}'\napi_key = '{service.api_key}'\n")
        yield name


def _variables(service: Emulator) -> Mapping[str, str]:
    """Return the variables by which a program reaches the service."""
    return {"PUSHSDK_BASE_URL": service.base_url, "PUSHSDK_API_KEY": service.api_key}


async def _run_command(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command with the standard streams and signals of this process, and return its exit status."""
    process: asyncio.subprocess.Process | None = None
    early: list[int] = []

    def forward(number: int) -> None:
        if process is None:
            early.append(number)
        elif not (signal.Signals(number).name in _FROM_KEYS and _in_foreground()):
            with suppress(ProcessLookupError):
                process.send_signal(number)

    # A profile outranks the variables: the command would reach the profile's service.
    elsewhere = "PUSHSDK_API_KEY_", "PUSHSDK_PROFILE"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(elsewhere)}
    with signal_handlers(not_ignored(_FORWARDED), forward):
        try:
            process = await asyncio.create_subprocess_exec(*command, env={**inherited, **variables})
        except OSError as error:
            raise usage_error(f"can't run {command[0]}: {error.strerror}") from None
        for number in early:
            forward(number)
        return await process.wait()


def _in_foreground() -> bool:
    """Return True if a key of the terminal signals this process group, and so the command too."""
    with suppress(OSError), open("/dev/tty", "rb", buffering=0) as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


def _verdict(service: Emulator) -> str:
    try:
        totals = service.totals()
    except StoreError as error:  # for example, the command removed the file
        return str(error)
    return (
        f"{count(totals['requests'], 'request')}; accepted {count(totals['pushes'], 'push')} to"
        f" {count(totals['users'])} and {count(totals['campaigns'], 'campaign')};"
        f" {count(totals['duplicates'])} got more than one push"
    )


def _say(line: str) -> None:
    """Print a line, unless stdout is a pipe without a reader: the service goes on."""
    with suppress(OSError, ValueError):  # on Windows, and for a stdout that isn't a file
        if not select.select((), (sys.stdout,), (), 0)[1]:
            return
    say(line[:_LONGEST_LINE])
    sys.stdout.flush()  # scripts read these lines from a pipe while the service runs
