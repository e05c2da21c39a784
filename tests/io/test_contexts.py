"""The work of a send runs in its caller's context, in tasks of any factory, or in no task at all."""

import asyncio
import itertools
import socket
import threading
from contextvars import ContextVar
from types import SimpleNamespace

import pytest
from support.fake_service import idle
from support.wire_answers import response
from support.wire_faults import answering, hold, only, reached, step, take, when
from support.wire_judge import HELLO
from support.wire_rig import OWN_OR_INJECTED, meeting

from pushsdk import (
    AsyncPushClient,
    AttemptEnded,
    Batching,
    Limits,
    Outcome,
    OutcomeUnknownError,
    RetryScheduled,
    SendAbandoned,
)
from pushsdk._core.batching import Batches
from pushsdk._io.batch_sender import BatchRequest
from pushsdk._io.fast_post import HttpConnection
from pushsdk._io.limiter import ConcurrencyLimiter
from pushsdk._io.pending import PendingCalls
from pushsdk._io.queue import QueuedBatch

CALLER = ContextVar("CALLER", default="nobody")
ONE = Limits(in_flight=1)
NAMES = ["ann", "bob", "cid", "dan"]
BUSY = answering(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n")


@OWN_OR_INJECTED
async def test_on_event_runs_in_the_context_of_the_caller_also_if_that_had_to_wait_for_a_slot(injected):
    seen = []

    def note(event):
        seen.append((type(event), CALLER.get()))

    async def send_as(name):
        CALLER.set(name)
        await client.send(name, {"title": {"en": f"Hello {name}"}})

    async with meeting(when(only(4, 5), BUSY), injected=injected, limits=ONE, on_event=note) as (_, client):
        await asyncio.gather(*map(send_as, NAMES))  # opens the connection
        seen.clear()
        await asyncio.gather(*map(send_as, NAMES))
    kinds = [[kind for kind, caller in seen if caller == name] for name in NAMES]
    assert kinds.count([AttemptEnded]) == 2
    assert kinds.count([AttemptEnded, RetryScheduled, AttemptEnded]) == 2


def old(loop, coro):
    """Knows no ``context``, as those that were written before Python 3.11."""
    return asyncio.Task(coro, loop=loop)


@pytest.mark.parametrize("factory", [old, getattr(asyncio, "eager_task_factory", old)])
async def test_any_task_factory_will_do_also_if_attempts_end_at_once(factory):
    asyncio.get_running_loop().set_task_factory(factory)
    received, held = reached(take, hold)
    async with meeting(when(only(15), held), limits=ONE) as (server, client):
        for number in range(3):
            await asyncio.gather(*(client.send(f"user-{number}", {"title": {"en": name}}) for name in NAMES))
            await client.submit(f"one-{number}", HELLO)
        last = client.submit("last", HELLO)
        keyless = client.with_options(api_key=str)
        others = [keyless.submit("user", {"title": {"en": str(number)}}) for number in range(300)]
        await received.wait()
        last.cancel()
        async with asyncio.timeout(5):
            errors = await asyncio.gather(*others, return_exceptions=True)
        assert client.stats().in_flight == 0
    assert set(server.processed.values()) == {4, 1}
    assert {error.outcome for error in errors} == {Outcome.NOT_SENT}


def fail(*_, **__):
    raise RuntimeError("a bug")


@pytest.mark.plays_bug
async def test_a_write_that_raises_is_unknown_and_loses_no_connection(monkeypatch):
    write = HttpConnection.write
    async with meeting(limits=ONE) as (server, client):
        await client.send("warm", HELLO)
        with monkeypatch.context() as patch:
            head = SimpleNamespace(write=fail)
            patch.setattr(HttpConnection, "write", lambda connection, _, *rest: write(connection, head, *rest))
            with pytest.raises(OutcomeUnknownError):
                await client.send("user", HELLO)
        # Its place in the pool is free.
        await client.send("other", HELLO)
    assert server.processed == {"warm": 1, "other": 1}


@pytest.mark.plays_bug
@pytest.mark.parametrize("linger", [0.0, 0.001])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Batches, "join"),
        (Batches, "open"),
        (ConcurrencyLimiter, "try_acquire"),
        (ConcurrencyLimiter, "enqueue"),
        (ConcurrencyLimiter, "likely_end"),
        (QueuedBatch, "__init__"),
    ],
)
async def test_a_bug_in_the_queue_ends_its_batch_and_gives_back_its_place(owner, name, linger, monkeypatch, caplog):
    real = getattr(owner, name)

    def fail_in_turn(*arguments, **options):
        if name == "enqueue":  # which may have begun the batch
            real(*arguments, **options)
        return fail() if next(numbers) == turn else name == "enqueue" or real(*arguments, **options)

    async with meeting(limits=ONE, batching=Batching(linger=linger)) as (server, client):
        await client.send("warm", HELLO)
        monkeypatch.setattr(owner, name, fail_in_turn)
        sent = ["warm"]
        for turn in range(4):  # noqa: B007 - the call that fails
            numbers = itertools.count()
            texts = {"ann": "Hello", "bob": "Hello", "cid": "Bye"}
            sends = [client.submit(user, {"title": {"en": text}}) for user, text in texts.items()]
            async with asyncio.timeout(5):
                ends = await asyncio.gather(*sends, return_exceptions=True)
            sent += [user for user, end in zip(texts, ends, strict=True) if not isinstance(end, OutcomeUnknownError)]
            assert idle(client)
    assert sorted(server.processed.elements()) == sorted(sent)
    assert linger or "a bug" in caplog.text


@pytest.mark.plays_bug
async def test_a_bug_in_taking_an_answer_in_ends_its_call(monkeypatch, caplog):
    async with meeting() as (_, client):
        await client.send("warm", HELLO)
        monkeypatch.setattr(PendingCalls, "settle_part", fail)
        with pytest.raises(OutcomeUnknownError):
            await client.send("user", HELLO)
    assert "a request failed inside the client" in caplog.text


async def test_a_send_that_its_event_or_its_caller_cancels_and_an_answer_that_comes_twice_count_once(monkeypatch):
    respond = BatchRequest.respond
    sends = []

    def respond_twice(request, is_plain):
        respond(request, is_plain)
        respond(request, is_plain)

    def cancel(event):
        if isinstance(event, AttemptEnded) and sends:
            sends[0].cancel()

    monkeypatch.setattr(BatchRequest, "respond", respond_twice)
    async with meeting(when(only(2), step(take, hold)), on_event=cancel) as (server, client):
        await client.send("warm", HELLO)
        sends.append(client.submit("user", HELLO))
        await asyncio.wait(sends)
        await client.flush()
        late = client.submit("late", HELLO)
        await asyncio.sleep(0)
        late.cancel()
        stats = client.stats()
    assert sends[0].cancelled()
    assert stats.accepted == 2
    assert stats.unknown == 1
    assert stats.abandoned == 2
    assert stats.requests == 3
    assert stats.in_flight == 0
    assert server.processed == {"warm": 1, "user": 1}


@pytest.mark.parametrize("users", [["ann"], ["ann", "bob"]])
def test_the_end_of_the_loop_ends_what_is_in_flight_without_a_task(users):
    events = []

    def serve(listener):
        wire, _ = listener.accept()
        with wire:
            wire.recv(65536)
            wire.sendall(response(204))
            wire.recv(65536)
            arrived.set()
            wire.recv(65536)

    async def main(port):
        client = AsyncPushClient(f"http://127.0.0.1:{port}", "key", on_event=events.append)
        await client.send("warm", HELLO)
        _ = [client.submit(user, HELLO) for user in users]
        await asyncio.to_thread(arrived.wait, 5.0)

    arrived = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        with pytest.warns(ResourceWarning, match="unclosed AsyncPushClient"):
            asyncio.run(main(listener.getsockname()[1]))
        server.join(5.0)
    ended = [event for event in events if isinstance(event, SendAbandoned)]
    assert {event.outcome for event in ended} == {Outcome.UNKNOWN}
    assert sorted(user for event in ended for user in event.user_ids) == users
