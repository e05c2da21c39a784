"""``pushsdk emulator``: run the emulator until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from pushsdk.cli._exit import Exit
from pushsdk.emulator import Emulator, Fault, load_faults

__all__ = ["emulator"]

Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))]


async def emulator(*, port: Port = 8080, faults: Path | None = None, seed: int = 0) -> int:
    """Run the push service on this machine until Ctrl-C, with the faults you like.

    Parameters
    ----------
    port
        The port on 127.0.0.1; 0 takes any free one.
    faults
        A JSON file of fault rules, as [{"fault": "status", "code": 429, "first": 3}, {"fault": "reset_after"}].
    seed
        Where the draws of faults with a probability start.
    """
    try:
        service = Emulator(port=port, faults=_read(faults), seed=seed)
    except ValueError as error:
        return _fail(f"{faults}: {error}", Exit.USAGE)
    except OSError as error:
        return _fail(f"{faults}: {error.strerror}", Exit.USAGE)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(service)
        except OSError as error:
            return _fail(f"cannot listen on port {port}: {os.strerror(error.errno or 0)}", Exit.CANNOT_RUN)
        await _until_signalled(service)
    return 0


def _read(path: Path | None) -> list[Fault]:
    return [] if path is None else load_faults(path.read_bytes())


async def _until_signalled(service: Emulator) -> None:
    stop = asyncio.Event()
    with _signals_set(stop):
        _say(f"# Emulator at {service.base_url} (Ctrl-C ends it)")
        _say(f"export PUSHSDK_BASE_URL={service.base_url}")
        _say(f"export PUSHSDK_API_KEY={service.api_key}")
        await stop.wait()
    _say(_summary(service))


@contextmanager
def _signals_set(stop: asyncio.Event) -> Iterator[None]:
    """Have SIGINT and SIGTERM set the event. Not add_signal_handler: Windows has none."""
    loop = asyncio.get_running_loop()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop.set)

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _summary(service: Emulator) -> str:
    totals = service.totals()
    return ", ".join(f"{count} {what}" for what, count in totals.items())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # a pipe waits for these lines


def _fail(reason: str, code: Exit) -> int:
    sys.stderr.write(f"pushsdk emulator: {reason}\n")
    return code
