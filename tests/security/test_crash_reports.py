"""Crash reporters that show locals: no part of a key or a password, however long."""

import asyncio
import inspect
import pkgutil
import re
import traceback
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType

import aiohttp
import msgspec
import pytest
from multidict import CIMultiDict
from rich.pretty import pretty_repr
from rich.traceback import Traceback
from support.wire_faults import always, hold, step, take, when
from support.wire_rig import OWN_OR_INJECTED
from support.wire_server import WireServer

import pushsdk
from pushsdk import AsyncPushClient, ConfigurationError, PushClient
from pushsdk._core.batching import Call
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._core.secret import Secret
from pushsdk._core.user_states import UserStates
from pushsdk.arrow import push_batches
from pushsdk.claims import MemoryClaims
from pushsdk.cli.settings import SettingValue

HERE = "https://push.example/api"
# Reporters cut a text above 80 characters before they take its repr.
LENGTHS = pytest.mark.parametrize("length", [20, 4096])


def secret_of(length):
    return "".join(f"x{number:04}" for number in range(length))[:length]


def sent(value, depth, seen):
    """Return the texts in a value, as reporters do that send a str unchanged, and walk containers and attributes."""
    if isinstance(value, str):
        yield str.__str__(value)
    elif isinstance(value, (bytes, bytearray)):
        yield value.decode("latin-1")
    elif depth and id(value) not in seen and not isinstance(value, (type, ModuleType)):
        seen.add(id(value))
        parts = [*value.items()] if isinstance(value, Mapping) else []
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            parts = [*value]
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        parts += [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in slots)]
        for part in parts:
            yield from sent(part, depth - 1, seen)


def shown(error):
    """Return the locals of the frames below the test and of its causes, as crash reporters show them.

    These are rich, structlog, and one that sends a str unchanged and walks mappings, ``__dict__`` and ``__slots__``.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    assert trace is not None
    for frame, _ in traceback.walk_tb(trace):
        for value in frame.f_locals.values():
            yield from sent(value, 8, set())
            if isinstance(value, str):
                yield str(value)  # what a subclass makes of it
    rendered = Traceback.extract(type(error), error, trace, show_locals=True)
    yield from (
        str(node) for stack in rendered.stacks for frame in stack.frames for node in (frame.locals or {}).values()
    )
    transformer = pytest.importorskip("structlog.tracebacks").ExceptionDictTransformer
    for use_rich in (True, False):
        yield str(transformer(use_rich=use_rich)((type(error), error, trace)))


def leaks(secret, error):
    pieces = {secret[n : n + 10] for n in range(0, len(secret) - 9, 5)}
    return [text[:300] for text in shown(error) if any(piece in text for piece in pieces)]


def refused(make):
    with pytest.raises((ConfigurationError, TypeError)) as excinfo:
        make()
    return excinfo.value


def pushed(*args, **options):
    settings = dict(zip(("base_url", "api_key"), args, strict=True)) | options
    return push_batches([], {"body": {"en": "hi"}}, run="run", claims=MemoryClaims, **settings)


@LENGTHS
@pytest.mark.parametrize("client", [AsyncPushClient, PushClient, pushed])
def test_a_refused_setting_is_not_in_a_crash_report(client, length):
    secret = secret_of(length)
    refusing = [
        lambda: client(HERE, f"{secret}\n"),
        lambda: client(HERE, secret, timeout=-1),
        lambda: client(secret, HERE),
        lambda: client(HERE, "key", token=secret),
        lambda: client(HERE, secret.encode()),
        lambda: client(f"https://user:{secret}@push.example", "key"),
        lambda: client(HERE, "key", proxy=f"ftp://user:{secret}@push.example"),
        lambda: client(HERE, "key", proxy=f"http://user:{secret}@push.example", retry="never"),
        lambda: client(HERE, "key", headers={"X-Token": f"{secret}\n"}),
        lambda: client(HERE, "key", headers={"X-Token": secret}, retry="never"),
        lambda: client(HERE, "key", headers=CIMultiDict({"X-Token": secret}), retry="never"),
    ]
    if client is not pushed:
        refusing += [
            lambda: client(HERE, "key").with_options(api_key=secret, timeout=-1),
            lambda: client(HERE, "key").with_options(api_key=f"{secret}\n"),
            lambda: client(HERE, "key", claims=secret),
            lambda: client(HERE, "key", claims=f"redis://:{secret}@host:port"),
            lambda: client(HERE, "key", claims=f"postgresql://me:{secret}@host:port"),
            lambda: client(HERE, "key", claims=f"redis://:{secret}@host", retry="never"),
        ]
    for make in refusing:
        assert leaks(secret, refused(make)) == []


async def cancelled(call, arrival):
    """Return the error of a call that is cancelled when its request has arrived."""
    task = asyncio.ensure_future(call)
    await arrival.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as excinfo:
        await task
    return excinfo.value


@LENGTHS
@OWN_OR_INJECTED
async def test_a_cancelled_request_has_no_key_in_its_crash_report(injected, length):
    secret = secret_of(length)
    arrival = asyncio.Event()

    async def tell(*_):
        arrival.set()

    async with WireServer(when(always, step(take, tell, hold))) as server, aiohttp.ClientSession() as session:
        for key in (secret, lambda: secret):
            options = {"session": session if injected else None, "headers": {"X-Token": secret}}
            async with AsyncPushClient(server.base_url, key, **options) as client:
                for call in (client.send("u", {"body": {"en": "hi"}}), client.create_campaign({"name": "c"})):
                    arrival.clear()
                    assert leaks(secret, await cancelled(call, arrival)) == []


@LENGTHS
@pytest.mark.parametrize("base_url", [HERE, "http://push.example"])
@OWN_OR_INJECTED
async def test_a_proxys_password_is_not_in_the_crash_report_of_a_cancelled_call(injected, base_url, length):
    secret = secret_of(length)
    arrival = asyncio.Event()
    heads = []

    async def serve(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        arrival.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy, aiohttp.ClientSession() as session:
        url = f"http://user:{secret}@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        options = {"proxy": url, "session": session if injected else None, "allow_insecure": True}
        async with AsyncPushClient(base_url, "key", **options) as client:
            error = await cancelled(client.create_campaign({"name": "c"}), arrival)
    basic = aiohttp.encode_basic_auth("user", secret)
    assert f"Proxy-Authorization: {basic}\r\n".encode() in heads[0]
    assert leaks(secret, error) == leaks(basic, error) == []


def test_a_secret_is_an_object_that_shows_nothing():
    secret = Secret.of("push-key")
    assert f"{secret} {secret!r} {[secret]}" == "*** *** [***]"
    assert "push-key" not in pretty_repr(secret)
    for use in (iter, len, vars, lambda value: value[0]):
        with pytest.raises(TypeError):
            use(secret)
    assert secret.reveal() == "push-key"


def test_secrets_are_equal_if_their_texts_are():
    assert {Secret.of("abc")} == {Secret.of("abc")}
    assert Secret.of("abc") not in (Secret.of("abd"), "abc")


HELD = [
    Call(("secret",), b'"secret"', 0.0, 1),
    Attempt(outcome=Outcome.REJECTED, headers={"X": "secret"}, body=b"secret"),
    UserStates(1),
    SettingValue({"secret": 1}, "config.toml: api_key", "file"),
]


@pytest.mark.parametrize("value", HELD)
def test_no_id_text_or_key_that_a_local_holds_is_shown(value):
    assert "secret" not in f"{pretty_repr(value)} {value!r}"


SHOWN = re.compile(
    r"pushsdk\.(?!emulator|testing).*'(user_ids?|users|ids|custom_fields|record|payloads|body|options)', .*(str|bytes)"
)


def test_each_struct_with_ids_or_texts_has_another_repr_than_msgspecs():
    for module in pkgutil.walk_packages(pushsdk.__path__, "pushsdk."):
        with suppress(ImportError):  # of an extra that is not installed
            import_module(module.name)
    kinds = [msgspec.Struct]
    for kind in kinds:
        kinds += kind.__subclasses__()
    shown = [
        f"{kind} {field}"
        for kind in kinds
        if kind.__repr__ is msgspec.Struct.__repr__
        for field in inspect.get_annotations(kind).items()
    ]
    assert [*filter(SHOWN.search, shown)] == []
