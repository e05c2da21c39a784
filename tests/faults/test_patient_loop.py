"""The loop of the async tests: which clocks stop together with the machine."""

import asyncio
import selectors
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from support import patient_loop
from support.patient_loop import SLICE, TURN, PatientLoop


class Machine:
    """The real clock, and the stalls that a test has it suffer."""

    def __init__(self) -> None:
        self.stalled = 0.0
        #: Seconds that each wait of the selector takes longer than it was asked to.
        self.oversleeps = 0.0
        self._real = patient_loop.time.monotonic

    def monotonic(self) -> float:
        self.stalled += self.oversleeps
        return self._real() + self.stalled


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(patient_loop, "time", SimpleNamespace(monotonic=machine.monotonic))
    return machine


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_async_tests_run_on_it() -> None:
    assert type(asyncio.get_running_loop()) is PatientLoop


async def test_a_stall_in_a_turn_counts_next_to_nothing(machine: Machine) -> None:
    await asyncio.sleep(0)
    start = now()
    machine.stalled += 9.0
    await asyncio.sleep(0)
    assert now() - start <= 3 * TURN


async def test_a_stall_in_a_wait_makes_it_no_shorter_on_the_clock_and_no_longer(machine: Machine) -> None:
    await asyncio.sleep(0)
    start, machine.oversleeps = now(), 2.0
    await asyncio.sleep(3 * SLICE)
    assert 3 * SLICE <= now() - start < 4 * SLICE


async def test_what_comes_at_the_very_end_of_a_wait_is_met_before_a_timer_strikes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, right = socket.socketpair()
    left.setblocking(False)
    select = selectors.DefaultSelector.select
    held_up = [True]

    def late(self: selectors.DefaultSelector, timeout: float | None = None) -> Any:
        """Once: the system stops the process in this wait, and lets it go on when its time is up."""
        if timeout and held_up:
            held_up.clear()
            right.send(b"x")
            return []
        return select(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", late)
    with left, right:
        async with asyncio.timeout(SLICE / 2):
            assert await asyncio.get_running_loop().sock_recv(left, 1) == b"x"


async def test_a_timer_strikes_though_the_loop_is_never_idle() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5 * TURN):
            while True:  # noqa: ASYNC110 - there is nothing to wait for
                await asyncio.sleep(0)
