"""The lifetime of an emulator: on loopback only, entered once, closed without waiting for clients."""

import asyncio
import socket
from contextlib import suppress

import pytest

from pushsdk.emulator import Emulator, Fault, ServiceLimits


async def test_it_listens_on_127_0_0_1_and_nowhere_else(emulator):
    port = int(emulator.url.rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port))


async def test_its_address_keeps_the_services_path_prefix(wire, emulator):
    assert emulator.base_url == f"http://127.0.0.1:{wire.port}/external/api"


def test_it_has_no_address_before_it_runs():
    emulator = Emulator()
    with pytest.raises(RuntimeError, match="async with"):
        _ = emulator.base_url
    assert (emulator.requests, emulator.users()) == (0, {})


async def test_it_runs_once(emulator):
    with pytest.raises(RuntimeError, match="once"):
        await emulator.__aenter__()


async def test_ending_twice_is_no_error(running):
    async with running() as wire:
        await wire.emulator.__aexit__(None, None, None)


def test_each_emulator_has_its_own_or_the_given_key():
    assert Emulator().api_key != Emulator().api_key
    assert Emulator(api_key="mine").api_key == "mine"
    for key in ("", "a b", "né"):
        with pytest.raises(ValueError, match=r"^api_key must be 1 to 4096 visible ASCII characters, or left out; got"):
            Emulator(api_key=key)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"port": "x"}, "port must be a port from 0 to 65535, 0 for any free one; got 'x'"),
        ({"port": 70_000}, "port must be a port from 0 to 65535, .*; got 70000"),
        ({"faults": Fault.hang()}, "faults must be a list; got Fault"),
        ({"faults": "flaky"}, "faults must be a list; got 'flaky'"),
        ({"faults": ["flaky"]}, r"faults\[0\] must be a Fault, for example Fault.status\(429\); got 'flaky'"),
        ({"limits": {}}, r"limits must be a ServiceLimits, for example ServiceLimits\(max_users=100\); got dict"),
        ({"keep": -1}, "keep must be a whole number, 0 or more; got -1"),
        ({"max_age": -0.1}, "max_age must be a number of seconds, 0 or more; got -0.1"),
        ({"store": 5}, "store must be a str, or a pathlib.Path; got 5"),
        ({"hosts": "push.test"}, "hosts must be a list; got 'push.test'"),
        ({"log": True}, "log must be a function of 1 argument, not async; got True"),
        ({"log": lambda: None}, "log must be .*; got the function .*<lambda>"),
    ],
)
def test_a_wrong_option_is_an_error_with_the_rule(options, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        Emulator(**options)


@pytest.mark.parametrize("log", [print, max, [].append])
def test_a_log_may_be_any_function_of_one_argument(log):
    Emulator(log=log)


async def test_a_port_in_use_is_an_error_that_names_the_port(wire):
    text = f"can't listen on 127.0.0.1:{wire.port}: Address already in use; .* or port=0 for any free one"
    with pytest.raises(OSError, match=text):
        await Emulator(port=wire.port).__aenter__()


def test_the_limits_of_all_inboxes_are_read_only():
    emulator = Emulator(limits=ServiceLimits(max_users=5))
    assert emulator.limits.max_users == 5
    with pytest.raises(AttributeError, match="limits"):
        emulator.limits = ServiceLimits()


async def test_a_named_store_is_kept(running, tmp_path):
    async with running(store=tmp_path / "kept", api_key="key") as wire:
        await wire.push("ann")
    async with running(store=str(tmp_path / "kept"), api_key="key") as wire:
        await wire.push("ann")
        assert wire.emulator.accepted("ann") == 2


async def test_resets_before_it_runs_are_fine():
    emulator = Emulator(faults=[Fault.hang()])
    emulator.reset()
    assert emulator.hits() == {"1: hang": 0}


@pytest.mark.parametrize("fault", [Fault.hang(), Fault.hang(accepted=True), Fault.delay(60)])
async def test_closing_does_not_wait_for_faults(running, until, fault, caplog):
    async with asyncio.timeout(30):
        async with running(faults=[fault]) as wire:
            body = b'{"userIds":["ann"],"message":{}}'
            stuck = [asyncio.ensure_future(wire.bytes(wire.head(len(body)) + body)) for _ in range(20)]
            await until(lambda: sum(wire.emulator.hits().values()) == 20)
        answers = await asyncio.gather(*stuck, return_exceptions=True)
    assert all(answer == b"" or isinstance(answer, ConnectionError) for answer in answers)
    assert len(wire.emulator.pushes) == (20 if fault.accepts else 0)
    assert caplog.records == []


async def test_closing_does_not_wait_for_clients(running, until):
    """Clients that are idle, within a head, within a body, or do not read a long response."""
    async with asyncio.timeout(30):
        async with running(faults=[Fault.status(400, body="x" * 8_000_000)]) as wire:
            stuffed = b'{"userIds":["ann"],"message":{}}'
            sent = [b"", b"POST /ext", wire.head(10) + b"{", wire.head(len(stuffed)) + stuffed]
            socks = [socket.create_connection(("127.0.0.1", wire.port)) for _ in sent]
            for sock, part in zip(socks, sent, strict=True):
                sock.sendall(part)
            handlers = wire.emulator._service.lost
            await until(
                lambda: len(handlers) == 4 and any(handler.transport.get_write_buffer_size() for handler in handlers)
            )
    for sock in socks:
        with suppress(ConnectionResetError):
            while sock.recv(1 << 20):
                pass
        sock.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_22_000_users_are_fast(wire, emulator):
    batches = [[f"user-{number}" for number in range(start, start + 1000)] for start in range(0, 22_000, 1000)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(wire.push(*batch) for batch in batches))
    assert (len(emulator.users()), emulator.duplicates()) == (22_000, {})


@pytest.mark.parametrize("view", [lambda emulator: emulator, lambda emulator: emulator.inbox()])
def test_a_misspelled_attribute_can_not_be_set(view):
    with pytest.raises(AttributeError, match="limts"):
        view(Emulator()).limts = None
