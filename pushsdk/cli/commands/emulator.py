"""``pushsdk emulator``: the push service on this machine, until a signal ends it or beside another command."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number

from pushsdk._core.words import count
from pushsdk.cli.exit import CommandError, Exit, usage
from pushsdk.cli.interrupt import heard
from pushsdk.cli.options import Flag
from pushsdk.cli.terminal import say, warn
from pushsdk.emulator import Emulator, Fault, ServiceLimits, StoreError, load_faults
from pushsdk.emulator.campaigns.segment import segment_available
from pushsdk.emulator.faults import PRESETS, Rules
from pushsdk.emulator.guard import is_host

__all__ = ["Behaviour", "app", "emulator", "execute"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))]
_LARGEST = 64 * 1024
_ENDS = (signal.SIGINT, signal.SIGTERM)
_FORWARDED = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]
_FROM_KEYS = {"SIGINT", "SIGQUIT"}  # a terminal sends them to all that run in front of it

app: App = App(name="emulator", help="Run the push service on this machine, with the faults and limits you like.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What the service does, and what it keeps."""

    faults: str | None = None
    """A JSON file of rules, as [{"fault": "status", "code": 429, "first": 3}]; or flaky, outage or another preset."""
    seed: int = 0
    """Where the draws of faults with a probability start."""
    limits: Path | None = None
    """A JSON file of what an inbox takes, as {"max_users": 1000, "rate": 50, "quota": 100000}."""
    strict: Flag = False
    """Refuse what the interface does not show."""
    store: Path | None = None
    """The file that keeps what came, also for the next time. It holds user ids and messages."""
    keep: Annotated[int, Parameter(validator=Number(gte=0))] = 100_000
    """Requests to keep in each inbox."""
    max_age: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """Seconds to keep them for."""
    audience: Path | None = None
    """A folder of tables (CSV, Parquet, JSON lines): campaigns run their segments on them."""


def made(behaviour: Behaviour | None, **options: Any) -> Emulator:
    """The emulator that the options describe. Raises CommandError."""
    wish = behaviour or Behaviour()
    if wish.audience is not None and not segment_available():
        raise CommandError("--audience needs duckdb: pip install 'pushsdk[cli]'", Exit.CANNOT_RUN)
    limits = ServiceLimits() if wish.limits is None else _limits(wish.limits)
    faults = _faults(wish.faults)
    with _said_with("--audience"):  # all else was looked at
        return Emulator(
            faults=faults,
            seed=wish.seed,
            limits=msgspec.structs.replace(limits, strict=True) if wish.strict else limits,
            store=wish.store,
            keep=wish.keep,
            max_age=wish.max_age,
            audience=wish.audience,
            **options,
        )


def token_in(file: Path) -> str:
    """The token in a file, without the line end after it."""
    with _said_with(f"--token-file {file}"), file.open("rb") as opened:
        token = opened.read(_LARGEST).decode("ascii", "replace").strip()
    if not token or not all("!" <= character <= "~" for character in token):
        raise usage(f"--token-file {file}: expected one word of ASCII letters, digits and signs")
    return token


def _faults(named: str | None) -> list[Fault]:
    if named is None:
        return []
    if named in PRESETS:
        return list(PRESETS[named].faults)
    with _said_with(f"--faults {named}", f"; the presets are {', '.join(PRESETS)}"):
        faults = load_faults(Path(named).read_bytes())
        Rules(faults)
        return faults


def _limits(file: Path) -> ServiceLimits:
    with _said_with(f"--limits {file}"):
        return msgspec.json.decode(file.read_bytes(), type=ServiceLimits)


@contextmanager
def _said_with(option: str, advice: str = "") -> Iterator[None]:
    """Name the option in the error; ``advice`` follows if the file can't be read."""
    try:
        yield
    except ValueError as error:
        raise usage(f"{option}: {error}") from None
    except OSError as error:
        raise usage(f"{option}: {error.strerror}{advice}") from None


@app.default
async def emulator(
    *,
    port: Port = 8080,
    behaviour: Behaviour | None = None,
    host: str = LOOPBACK[0],
    allow_host: Annotated[Sequence[str], Parameter(negative=(), show_default=False)] = (),
    token_file: Path | None = None,
) -> int:
    """Run the push service on this machine until Ctrl-C, with the faults and limits you like.

    Parameters
    ----------
    port
        The port; 0 takes any free one.
    host
        The address to listen on, where others are to reach it. They need the token.
    allow_host
        A name by which it is called then, as push.test or push.test:8080; may be given more than once.
    token_file
        A file that holds the token: who reads or changes anything there needs it, sending goes by Api-Key.
    """
    if host not in LOOPBACK and token_file is None:
        raise usage(f"--host {host} lets other machines in: give --token-file FILE with the token that they need")
    token = None if token_file is None else token_in(token_file)
    for name in allow_host:
        if not is_host(name):
            raise usage(f"--allow-host {name}: expected a name, as push.test or push.test:8080")
    service = made(behaviour, port=port, host=host, hosts=allow_host, token=token)
    async with _running(service, port, host=host):
        stop = asyncio.Event()
        with heard(_heeded(_ENDS), lambda _: stop.set()):
            _say(f"# Emulator at {service.base_url} (Ctrl-C ends it)")
            _say(f"# Inbox page at {service.url}/{'' if token is None else ' (add #token= and the token)'}")
            _say(f"export PUSHSDK_BASE_URL={service.base_url}")
            _say(f"export PUSHSDK_API_KEY={service.api_key}")
            await stop.wait()
        totals = service.totals()
        _say(
            f"{count(totals['requests'], 'request')}, {count(totals['users'])}, {count(totals['pushes'], 'push')},"
            f" {count(totals['campaigns'], 'campaign')}"
        )
    return 0


@app.command(name="exec", usage="Usage: pushsdk emulator exec [OPTIONS] -- COMMAND [ARGS...]")
async def execute(
    *command: str,
    port: Port = 0,
    behaviour: Behaviour | None = None,
) -> int:
    """Run a command beside the push service: exec -- COMMAND ...

    It gets PUSHSDK_BASE_URL and PUSHSDK_API_KEY, and says how this ends: by its exit code, or 128 and its signal.

    What was accepted is told on stderr.

    Parameters
    ----------
    command
        The command and its arguments, after --.
    port
        The port on 127.0.0.1; 0 takes any free one.
    """
    if not command:
        raise usage("say what to run: pushsdk emulator exec -- COMMAND ...")
    async with _running(made(behaviour, port=port), port) as service:
        code = await _ran(command, {"PUSHSDK_BASE_URL": service.base_url, "PUSHSDK_API_KEY": service.api_key})
        warn(f"pushsdk emulator: {_verdict(service)}")
    return code if code >= 0 else 128 - code


@asynccontextmanager
async def _running(service: Emulator, port: int, *, host: str = LOOPBACK[0]) -> AsyncIterator[Emulator]:
    """The emulator, or what keeps it from running, in words."""
    try:
        await service.__aenter__()
    except StoreError as error:
        raise usage(f"--store: {error}") from None
    except (socket.gaierror, UnicodeError):  # unknown, or no name at all
        raise usage(f"--host {host}: no machine of that name is known here") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        advice = "; --port 0 takes a free one" if port else ""
        raise CommandError(f"cannot listen on port {port}: {reason}{advice}", Exit.CANNOT_RUN) from None
    try:
        yield service
    finally:
        await service.__aexit__(None, None, None)


async def _ran(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command with our standard streams, and hand on the signals that we get; how it ended."""
    process: asyncio.subprocess.Process | None = None
    early: list[int] = []

    def forward(number: int) -> None:
        if process is None:
            early.append(number)
        elif not (signal.Signals(number).name in _FROM_KEYS and _in_front()):
            with suppress(ProcessLookupError):
                process.send_signal(number)

    others = {name: value for name, value in os.environ.items() if not name.startswith("PUSHSDK_API_KEY_")}
    with heard(_heeded(_FORWARDED), forward):
        try:
            process = await asyncio.create_subprocess_exec(*command, env={**others, **variables})
        except OSError as error:
            raise usage(f"can't run {command[0]}: {error.strerror}") from None
        for number in early:
            forward(number)
        return await process.wait()


def _heeded(numbers: Sequence[int]) -> list[int]:
    # What is ignored, as under nohup, stays so: the command that is run has it from us.
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


def _in_front() -> bool:
    """Whether a terminal's keys reach us, and so the command: it is in our process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def _verdict(service: Emulator) -> str:
    totals = service.totals()
    twice = totals["duplicates"]
    return (
        f"{count(totals['requests'], 'request')}; accepted {count(totals['pushes'], 'push')} to"
        f" {count(totals['users'])} and"
        f" {count(totals['campaigns'], 'campaign')}; {count(twice) if twice else 'nobody'} got more than one push"
    )


def _say(line: str) -> None:
    say(line)
    sys.stdout.flush()  # a pipe waits for these lines
