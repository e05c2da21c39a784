"""Faults of a connection: small actions, combined into steps of a script.

An act is a coroutine function over a ``Wire``. ``step(take, fin)`` says: process the request, then end
without a response. Reading comes first, then writing, then the end; a step without an end leaves the
connection open.
"""

import asyncio
import random
from dataclasses import dataclass

from support.wire_server import Wire, no_content

# --- reading ---

first_byte = Wire.begun
read_head = Wire.read_head
read_request = Wire.read_request


def read_half(wire):
    """Read the head and the first ten bytes of the body."""
    return wire.read_some(10)


async def take(wire):
    """Read the whole request and process it."""
    await wire.read_request()
    wire.process()


async def never_read(wire):
    """Leave everything in the kernel's buffers until the server stops."""
    wire.writer.transport.pause_reading()
    await asyncio.get_running_loop().create_future()


# --- saying ---


def send(data):
    """Say this, all at once."""
    return lambda wire: wire.send(data)


def drip(data, gap=0.005):
    """Say this byte by byte, ``gap`` seconds apart: every byte re-arms a timeout on silence."""

    async def dripping(wire):
        for byte in data:
            await wire.send(bytes((byte,)))
            await asyncio.sleep(gap)

    return dripping


def endless(data, gap=0.0):
    """Say this again and again until the peer goes away."""

    async def repeating(wire):
        while not wire.writer.is_closing():
            await wire.send(data)
            await asyncio.sleep(gap)

    return repeating


def pause(seconds):
    """Pause for a moment, so that the next bytes are in a separate packet."""
    return lambda _: asyncio.sleep(seconds)


def say_when(event):
    """Tell the test that the script has come so far."""

    async def telling(_wire):
        event.set()

    return telling


# --- ending ---

fin = Wire.fin
rst = Wire.rst
hold = Wire.hold

# --- steps and scripts ---


@dataclass(frozen=True)
class Step:
    """One thing a server does, and the moment at which it does it."""

    run: object
    #: "accept" or "request".
    moment: str = "request"


def _chain(acts):
    async def running(wire):
        for act in acts:
            await act(wire)

    return running


def step(*acts):
    """Do these, one after the other, from the first byte of a request on."""
    return Step(_chain(acts))


def on_accept(*acts):
    """Do these on a connection before anything was read from it."""
    return Step(_chain(acts), "accept")


def reached(*acts):
    """These acts, and the event that says that all but the last are done."""
    event = asyncio.Event()
    return event, step(*acts[:-1], say_when(event), acts[-1])


def answering(data, *, processed=False):
    """Read the whole request, then say this and stay."""
    return step(take if processed else read_request, send(data))


good = Step(no_content)

# A function of the n-th time (from 0) says whether it is a bad one.


def always(_number):
    """Every time."""
    return True


def only(*numbers):
    """At these times."""
    return lambda number: number in numbers


def first(count):
    """The first ``count`` times, then never again."""
    return lambda number: number < count


def when(bad, name):
    """Do ``what`` at the bad times, and behave at all others."""
    return lambda moment, number: name.run if moment == name.moment and bad(number) else None


def mixed(seed, share, steps):
    """At a ``share`` of the times do one of the steps, drawn by ``seed``, the number and the moment alone."""

    def script(moment, number):
        draw = random.Random(f"{seed}/{moment}/{number}")
        fitting = [step for step in steps if step.moment == moment]
        return draw.choice(fitting).run if fitting and draw.random() < share else None

    return script
