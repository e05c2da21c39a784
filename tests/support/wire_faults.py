"""Faults of a connection: small actions, combined into steps of a script.

An act is a coroutine function over a ``Wire``. ``step(take, fin)`` says: process the request, then end
without a response. Reading comes first, then writing, then the end; a step without an end leaves the
connection open.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from support.wire_server import Act, Moment, Script, Wire, no_content

__all__ = [
    "Step",
    "When",
    "always",
    "answering",
    "drip",
    "endless",
    "fin",
    "first",
    "first_byte",
    "good",
    "hold",
    "mixed",
    "never_read",
    "on_accept",
    "only",
    "pause",
    "process",
    "reached",
    "read_half",
    "read_head",
    "read_request",
    "rst",
    "say_when",
    "send",
    "step",
    "take",
    "when",
]

# --- reading ---


async def read_head(wire: Wire) -> None:
    """Read up to the empty line."""
    await wire.read_head()


async def read_half(wire: Wire) -> None:
    """Read the head and the first ten bytes of the body."""
    await wire.read_some(10)


async def read_request(wire: Wire) -> None:
    """Read the whole request, and do nothing about it."""
    await wire.read_request()


async def process(wire: Wire) -> None:
    """Process the request that was read."""
    wire.process()


async def take(wire: Wire) -> None:
    """Read the whole request and process it."""
    await wire.read_request()
    wire.process()


async def first_byte(wire: Wire) -> None:
    """Wait for the first byte, whatever it means."""
    await wire.begun()


async def never_read(wire: Wire) -> None:
    """Leave everything in the kernel's buffers until the server stops."""
    wire.writer.transport.pause_reading()
    await asyncio.get_running_loop().create_future()


# --- saying ---


def send(data: bytes) -> Act:
    """Say this, all at once."""

    async def sending(wire: Wire) -> None:
        await wire.send(data)

    return sending


def drip(data: bytes, gap: float = 0.005) -> Act:
    """Say this byte by byte, ``gap`` seconds apart: every byte re-arms a timeout on silence."""

    async def dripping(wire: Wire) -> None:
        for byte in data:
            await wire.send(bytes((byte,)))
            await asyncio.sleep(gap)

    return dripping


def endless(data: bytes, gap: float = 0.0) -> Act:
    """Say this again and again until the peer goes away."""

    async def repeating(wire: Wire) -> None:
        while not wire.writer.is_closing():
            await wire.send(data)
            await asyncio.sleep(gap)

    return repeating


def pause(seconds: float) -> Act:
    """Pause for a moment, so that the next bytes are in a separate packet."""

    async def pausing(_wire: Wire) -> None:
        await asyncio.sleep(seconds)

    return pausing


def say_when(event: asyncio.Event) -> Act:
    """Tell the test that the script has come so far."""

    async def telling(_wire: Wire) -> None:
        event.set()

    return telling


# --- ending ---


async def fin(wire: Wire) -> None:
    """End in good order."""
    await wire.fin()


async def rst(wire: Wire) -> None:
    """Break the connection."""
    await wire.rst()


async def hold(wire: Wire) -> None:
    """Silence, until the peer goes away."""
    await wire.hold()


# --- steps and scripts ---


@dataclass(frozen=True)
class Step:
    """One thing a server does, and the moment at which it does it."""

    run: Act
    moment: Moment = "request"


def _chain(acts: Sequence[Act]) -> Act:
    async def running(wire: Wire) -> None:
        for act in acts:
            await act(wire)

    return running


def step(*acts: Act) -> Step:
    """Do these, one after the other, from the first byte of a request on."""
    return Step(_chain(acts))


def on_accept(*acts: Act) -> Step:
    """Do these on a connection before anything was read from it."""
    return Step(_chain(acts), "accept")


def reached(*acts: Act) -> tuple[asyncio.Event, Step]:
    """These acts, and the event that says that all but the last are done."""
    event = asyncio.Event()
    return event, step(*acts[:-1], say_when(event), acts[-1])


def answering(data: bytes, *, processed: bool = False) -> Step:
    """Read the whole request, then say this and stay."""
    return step(take if processed else read_request, send(data))


good = Step(no_content)

When = Callable[[int], bool]
"""Whether the n-th time (from 0) is a bad one."""


def always(_number: int) -> bool:
    """Every time."""
    return True


def only(*numbers: int) -> When:
    """At these times."""
    return lambda number: number in numbers


def first(count: int) -> When:
    """The first ``count`` times, then never again."""
    return lambda number: number < count


def when(bad: When, name: Step) -> Script:
    """Do ``what`` at the bad times, and behave at all others."""
    return lambda moment, number: name.run if moment == name.moment and bad(number) else None


def mixed(seed: int, share: float, steps: Sequence[Step]) -> Script:
    """At a ``share`` of the times do one of the steps, drawn by ``seed``, the number and the moment alone."""

    def script(moment: Moment, number: int) -> Act | None:
        draw = random.Random(f"{seed}/{moment}/{number}")
        fitting = [step for step in steps if step.moment == moment]
        return draw.choice(fitting).run if fitting and draw.random() < share else None

    return script
