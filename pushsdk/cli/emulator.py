"""``pushsdk emulator``: the push service on this machine, until a signal ends it or beside another command."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pushsdk._core.words import count
from pushsdk.cli._emulator import LOOPBACK, Behaviour, Port, made, token_in
from pushsdk.cli._exit import CommandError, Exit, usage
from pushsdk.cli._interrupt import heard
from pushsdk.cli._terminal import say, warn
from pushsdk.emulator import Emulator, StoreError
from pushsdk.emulator.guard import is_host

__all__ = ["app", "emulator", "execute"]

_ENDS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 2.0  # seconds for the counts at the end
_FORWARDED = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]
_FROM_KEYS = {"SIGINT", "SIGQUIT"}  # a terminal sends them to all that run in front of it

app: App = App(name="emulator", help="Run the push service on this machine, with the faults and limits you like.")


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
        # Millions of users take seconds to count, and the end must not wait for that.
        totals: list[Mapping[str, int]] = []
        counting = threading.Thread(target=lambda: totals.append(service.totals()), daemon=True)
        counting.start()
        counting.join(_PATIENCE)
        if totals:
            [counts] = totals
            _say(
                f"{count(counts['requests'], 'request')}, {count(counts['users'])}, {count(counts['pushes'], 'push')},"
                f" {count(counts['campaigns'], 'campaign')}"
            )
        else:
            _say(f"{count(service.requests, 'request')}; there are too many users to count them now")
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
