"""Bounds of what strangers can have open, in hand or in the queue, and of what one request costs."""

from __future__ import annotations

import asyncio
import errno
import resource
import threading
import time
from contextlib import AsyncExitStack

import pytest
from support.control_api import Api

from pushsdk.emulator import ServiceLimits, bodies, campaigns, connections, control, views

PUSH = b'{"userIds":["ann"],"message":{}}'


# Bodies


async def test_bodies_over_the_total_are_refused_until_others_are_through(running, until):
    async with running(max_body=1000) as wire, AsyncExitStack() as stack:
        held = wire.emulator._service._bodies
        assert ((await wire.push("ann")).status, held.held) == (204, 0)
        for _ in range(8):
            unfinished = await stack.enter_async_context(wire.connected())
            unfinished.write(wire.head(1000) + b"x" * 999)
        await until(lambda: held.held == 8 * 999)
        refused = await wire.push("ann")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "are over 8000 bytes" in refused.json["error"]
        await stack.aclose()
        await until(lambda: held.held == 0)
        assert (await wire.push("ann")).status == 204
        assert held.held == 0


async def test_the_control_routes_count_too(running, until):
    async with running(max_body=1000) as wire, AsyncExitStack() as stack:
        api = Api(wire.emulator)
        for _ in range(8):
            unfinished = await stack.enter_async_context(wire.connected())
            unfinished.write(wire.head(1000) + b"x" * 999)
        await until(lambda: wire.emulator._service._bodies.held == 8 * 999)
        assert (await api.refused("PUT", "/label", {"label": "x" * 100}))[0] == 503


async def test_a_body_that_does_not_come_in_time_is_refused(running, monkeypatch, until):
    monkeypatch.setattr(bodies, "_SECONDS", 0.02)
    async with running() as wire:
        answer = await wire.bytes(wire.head(100) + PUSH)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert wire.emulator.pushes == ()
        await until(lambda: wire.emulator._service._bodies.held == 0)


# Connections


@pytest.mark.parametrize("begun", [b"", b"POST /ext", b"GET /_emulator/v1/health HTTP/1.1\r\nHost: "])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(running, monkeypatch, begun):
    monkeypatch.setattr(connections, "_IDLE", 0.02)
    async with running() as wire, asyncio.timeout(60):
        assert await wire.bytes(begun) == b""


async def test_more_connections_than_may_be_open_wait_for_a_place(running, monkeypatch, until, caplog):
    monkeypatch.setattr(connections, "_MOST", 2)
    async with running() as wire, wire.connected(), wire.connected() as second:
        await until(lambda: len(wire.emulator._connections._open) == 2)
        third = asyncio.ensure_future(wire.push("ann"))
        fourth = asyncio.ensure_future(wire.push("bob"))
        await asyncio.sleep(0.02)
        assert len(wire.emulator._connections._open) == 2
        second.writer.transport.abort()
        assert [(await third).status, (await fourth).status] == [204, 204]
    assert [record.getMessage() for record in caplog.records] == ["as many connections are open as may be: others wait"]


async def test_running_out_of_file_descriptors_is_one_line_and_takes_no_place(running, monkeypatch, caplog):
    monkeypatch.setattr(connections, "_MOST", 1)
    monkeypatch.setattr(connections, "_RETRY", 0)
    loop, failures = asyncio.get_running_loop(), [errno.EMFILE] * 50 + [errno.ECONNABORTED]
    accept = loop.sock_accept

    async def failing(sock):
        if failures:
            raise OSError(failures.pop(0), "Too many open files")
        return await accept(sock)

    monkeypatch.setattr(loop, "sock_accept", failing)
    async with running() as wire, asyncio.timeout(60):
        assert (await wire.push("ann")).status == 204
    assert failures == []
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "no connection can be taken: Too many open files"
    assert len(lines) == 1


@pytest.mark.parametrize(("files", "most"), [(1024, 960), (10, 1), (10**6, 20_000), (resource.RLIM_INFINITY, 20_000)])
def test_some_file_descriptors_are_left_to_the_process(monkeypatch, files, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert connections._most_open() == most


# Campaigns


async def test_campaigns_over_the_queue_are_refused(running, monkeypatch, tmp_path):
    pytest.importorskip("duckdb")
    monkeypatch.setattr(campaigns, "_MOST", 1)
    tomorrow = {"type": "START_LATER", "startTs": int(time.time()) + 86_400}
    later = {"segment": {"query": "SELECT 1", "primaryKey": "a"}, "schedule": tomorrow}
    async with running(audience=tmp_path) as wire:
        answers = [await wire.send(later, path="/v1/campaigns") for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 429]
        assert answers[1].headers["retry-after"] == "10"
        assert len(wire.emulator.campaigns) == 1
        assert wire.emulator.inbox().requests("status:429")[0].accepted is False


async def test_a_strangers_segment_is_run_only_by_the_token(running, until, tmp_path):
    pytest.importorskip("duckdb")
    (tmp_path / "users.csv").write_text("user_id\nann\n")
    segment = {"query": "SELECT user_id FROM users", "primaryKey": "user_id"}
    token = {"Authorization": "Bearer secret"}
    async with running(audience=tmp_path, token="secret") as wire:

        def states():
            return [campaign.state for campaign in wire.emulator.campaigns]

        stranger = await wire.send({"segment": segment}, path="/v1/campaigns")
        assert (stranger.status, states()) == (200, ["not run"])
        assert "token" in wire.emulator.campaigns[0].error
        assert wire.emulator._service.campaigns._running == {}
        await wire.send({"segment": segment}, path="/v1/campaigns", **token)
        await until(lambda: states() == ["not run", "done"])
        api = Api(wire.emulator, **token)
        await api.done("POST", f"/campaigns/{stranger.json['uuid']}/start", {})
        await until(lambda: states() == ["done", "done"])


# Requests


async def test_a_push_to_more_users_than_can_be_counted_in_a_moment_is_refused(wire, emulator):
    ids = [str(number) for number in range(100_001)]
    answer = await wire.push(*ids)
    assert (answer.status, emulator.users()) == (413, {})
    assert (await wire.push(*ids[1:])).status == 204
    assert answer.json["error"].startswith("the request has 100001 users, at most 100000")


async def test_large_messages_are_refused_where_it_is_strict(running):
    large = {"userIds": ["ann"], "message": {"androidActionButtons": [{}] * 30_000}}
    async with running(limits=ServiceLimits(strict=True)) as wire:
        answer = await wire.send(large)
    assert answer.status == 400
    assert "over 65536 bytes beside the users" in answer.json["error"]


async def test_a_view_is_made_once_for_all_who_ask_while_it_is_made(emulator, wire, until, monkeypatch):
    made, go_on = [], threading.Event()

    def held(subject):
        made.append(subject)
        go_on.wait(60)
        return []

    monkeypatch.setattr(views, "lint", held)
    await wire.push("ann")
    api = Api(emulator)
    [request] = (await api.get("/requests"))["requests"]
    asked = [asyncio.ensure_future(api.get(f"/requests/{request['id']}")) for _ in range(8)]
    await until(lambda: len(emulator._connections._open) == 8 and made)
    go_on.set()
    assert {answer["text"] for answer in await asyncio.gather(*asked)} == {(await asked[0])["text"]}
    assert len(made) == 1
    await api.get(f"/requests/{request['id']}")
    assert len(made) == 2


async def test_the_end_waits_for_no_reader(running, until, monkeypatch):
    go_on, asked, waited = threading.Event(), [], []

    def held(*_, **__):
        asked.append(1)
        if not go_on.wait(15):
            waited.append(1)
        raise RuntimeError("it is too late to tell this")

    async with asyncio.timeout(30):
        async with running() as wire:
            monkeypatch.setattr(wire.emulator._store, "received", held)
            waiting = [asyncio.ensure_future(wire.bytes(_users(wire))) for _ in range(20)]
            await until(lambda: len(asked) == 8 and len(wire.emulator._connections._open) == 20)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(answer == b"" or isinstance(answer, ConnectionError) for answer in answers)
    assert (len(asked), waited) == (8, [])
    go_on.set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def _users(wire):
    return f"GET /_emulator/v1/users HTTP/1.1\r\nHost: {wire.host}\r\nApi-Key: {wire.emulator.api_key}\r\n\r\n".encode()


async def test_of_what_a_user_got_bodies_are_read_up_to_a_bound(emulator, wire, monkeypatch):
    for _ in range(4):
        await wire.push("ann")
    monkeypatch.setattr(control, "_BODIES", 2 * len(emulator.pushes[0].body))
    api = Api(emulator)
    pushes = (await api.get("/users/ann"))["pushes"]
    assert [push["message"] is not None for push in pushes] == [False, False, True, True]
    assert len(emulator.inbox().delivered("ann")) == 4
    assert all(push.body for push in emulator.inbox().delivered("ann"))


async def test_the_list_of_campaigns_is_bounded_and_reads_no_large_body(emulator, wire, monkeypatch):
    monkeypatch.setattr(control, "_CAMPAIGNS", 2)
    queries = ["SELECT 1", "SELECT 2", "x" * 70_000]
    for query in queries:
        await wire.send({"segment": {"query": query}}, path="/v1/campaigns")
    listed = await Api(emulator).get("/campaigns")
    assert [campaign["segment"] for campaign in listed] == [None, {"query": "SELECT 2"}]
    assert [campaign.request["segment"]["query"] for campaign in emulator.campaigns] == queries
