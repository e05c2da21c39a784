"""Bounds on bodies, connections, campaigns, and on the cost of one request."""

import asyncio
import threading

import pytest
from support.control_api import Api

from pushsdk.emulator import ServiceLimits, http_io, server
from pushsdk.emulator.control import handlers

PUSH = b'{"userIds":["ann"],"message":{}}'


# Bodies


async def test_a_slow_body_is_refused(running, monkeypatch):
    monkeypatch.setattr(http_io, "_BODY_SECONDS", 0.02)
    async with running() as wire:
        answer = await wire.bytes(wire.head(100) + PUSH)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert wire.emulator.pushes == ()


# Connections


@pytest.mark.parametrize("data", [b"", b"POST /ext", b"GET /_emulator/v1/health HTTP/1.1\r\nHost: "])
async def test_a_slow_head_ends_the_connection(running, monkeypatch, data):
    monkeypatch.setattr(server, "_IDLE_SECONDS", 0.02)
    async with running() as wire, asyncio.timeout(60):
        assert await wire.bytes(data) == b""


# Campaigns


async def test_a_segment_runs_only_with_the_token(running, until, tmp_path):
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


async def test_a_push_to_too_many_users_is_refused(wire, emulator):
    ids = [str(number) for number in range(100_001)]
    answer = await wire.push(*ids)
    assert (answer.status, emulator.users()) == (413, {})
    assert (await wire.push(*ids[1:])).status == 204
    assert answer.json["error"].startswith("the request has 100001 users, at most 100000")


async def test_strict_refuses_large_messages(running):
    large = {"userIds": ["ann"], "message": {"androidActionButtons": [{}] * 30_000}}
    async with running(limits=ServiceLimits(strict=True)) as wire:
        answer = await wire.send(large)
    assert answer.status == 400
    assert "over 65536 bytes beside the users" in answer.json["error"]


async def test_closing_does_not_wait_for_readers(running, until, monkeypatch):
    go_on, arrival, waited = threading.Event(), [], []

    def held(*_, **__):
        arrival.append(1)
        if not go_on.wait(15):
            waited.append(1)
        raise RuntimeError("it is too late to tell this")

    async with asyncio.timeout(30):
        async with running() as wire:
            monkeypatch.setattr(wire.emulator._store, "received", held)
            waiting = [asyncio.ensure_future(wire.bytes(_users(wire))) for _ in range(20)]
            await until(lambda: arrival and len(wire.emulator._service.lost) == 20)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(answer == b"" or isinstance(answer, ConnectionError) for answer in answers)
    assert waited == []
    go_on.set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def _users(wire):
    return f"GET /_emulator/v1/users HTTP/1.1\r\nHost: {wire.host}\r\nApi-Key: {wire.emulator.api_key}\r\n\r\n".encode()


async def test_the_bodies_of_a_users_pushes_are_bounded(emulator, wire, monkeypatch):
    for _ in range(4):
        await wire.push("ann")
    monkeypatch.setattr(handlers, "_MAX_BODIES", 2 * len(emulator.pushes[0].body))
    api = Api(emulator)
    pushes = (await api.get("/users/ann"))["pushes"]
    assert [push["message"] is not None for push in pushes] == [False, False, True, True]
    assert len(emulator.inbox().delivered("ann")) == 4
    assert all(push.body for push in emulator.inbox().delivered("ann"))


async def test_the_list_of_campaigns_is_bounded_and_reads_no_large_body(emulator, wire, monkeypatch):
    monkeypatch.setattr(handlers, "_MAX_CAMPAIGNS", 2)
    queries = ["SELECT 1", "SELECT 2", "x" * 70_000]
    for query in queries:
        await wire.send({"segment": {"query": query}}, path="/v1/campaigns")
    listed = await Api(emulator).get("/campaigns")
    assert [campaign["segment"] for campaign in listed] == [None, {"query": "SELECT 2"}]
    assert [campaign.request["segment"]["query"] for campaign in emulator.campaigns] == queries
