"""The oracle: accepted pushes per user and key, once per request, only for complete requests."""

import json
import logging

import pytest

from pushsdk.emulator import Emulator, Fault

BODY = json.dumps({"userIds": ["ann"], "message": {}}).encode()


async def test_each_user_is_counted_once_for_each_time_accepted(wire, emulator):
    await wire.push("ann", "bob")
    await wire.push("ann")
    assert (emulator.accepted("ann"), emulator.accepted("bob"), emulator.accepted("eve")) == (2, 1, 0)
    assert (emulator.users(), emulator.duplicates()) == ({"ann": 2, "bob": 1}, {"ann": 2})


async def test_an_id_twice_in_one_request_is_a_duplicate(wire, emulator):
    await wire.push("ann", "ann")
    assert emulator.duplicates() == {"ann": 2}


@pytest.mark.parametrize(
    ("second", "duplicates"),
    [
        ({"message": {"title": {"de": "Hallo", "en": "Hi"}}, "customFields": {"b": [2], "a": 1}}, {"ann": 2}),
        ({"message": {"title": {"en": "Hi", "de": "Hallo!"}}, "customFields": {"a": 1, "b": [2]}}, {}),
        ({"message": {"title": {"en": "Hi", "de": "Hallo"}}, "customFields": {"a": 1, "b": [3]}}, {}),
        ({"message": {"title": {"en": "Hi", "de": "Hallo"}}}, {}),
    ],
    ids=["the same in another order", "another text", "another custom field", "no custom fields"],
)
async def test_a_duplicate_is_the_same_content_to_the_same_user(wire, emulator, second, duplicates):
    first = {"message": {"title": {"en": "Hi", "de": "Hallo"}}, "customFields": {"a": 1, "b": [2]}}
    await wire.send({"userIds": ["ann", "bob"], **first})
    await wire.send({"userIds": ["eve", "ann"], **second})
    assert (emulator.accepted("ann"), emulator.duplicates()) == (2, duplicates)
    assert emulator.totals()["duplicates"] == len(duplicates)


async def test_a_duplicate_counts_how_often_the_most_frequent_push_was_accepted(wire, emulator):
    for title in ("one", "two", "three", "two", "one", "two"):
        await wire.send({"userIds": ["ann"], "message": {"title": {"en": title}}})
    assert (emulator.users(), emulator.duplicates()) == ({"ann": 6}, {"ann": 3})


async def test_every_key_has_its_own_inbox(wire, emulator):
    await wire.push("ann")
    await wire.push("bob", Api_Key="another")
    assert emulator.users() == {"ann": 1}
    another = emulator.inbox("another")
    assert (another.users(), another.accepted("bob"), another.duplicates()) == ({"bob": 1}, 1, {})
    assert [push.user_ids for push in another.pushes] == [("bob",)]


async def test_totals_are_over_all_keys(wire, emulator):
    await wire.push("ann", "bob")
    await wire.campaign(Api_Key="another")
    await wire.push("ann", Api_Key="")
    assert emulator.totals() == {"requests": 3, "users": 2, "duplicates": 0, "pushes": 1, "campaigns": 1}


async def test_reset_empties_the_inbox_and_restarts_the_faults(wire, emulator):
    emulator.set_faults([Fault.status(503, first=1, name="outage")])
    for user_id, api_key in (("ann", emulator.api_key), ("ann", emulator.api_key), ("bob", "b"), ("bob", "b")):
        await wire.push(user_id, Api_Key=api_key)
    assert emulator.hits() == {"outage": 2}
    emulator.reset()
    assert (emulator.users(), emulator.pushes, emulator.requests, emulator.hits()) == ({}, (), 0, {"outage": 0})
    assert emulator.inbox("b").users() == {"bob": 1}
    assert [(await wire.push("ann")).status for _ in range(2)] == [503, 204]
    emulator.inbox("b").forget()
    assert (emulator.users(), emulator.inbox("b").users(), emulator.requests) == ({"ann": 1}, {}, 2)


@pytest.mark.parametrize("part", [b"", BODY[:-1]])
async def test_a_body_cut_short_is_not_accepted(wire, emulator, part):
    async with wire.connected() as connection:
        connection.write(wire.head(len(BODY)) + part)
        connection.writer.write_eof()
        assert await connection.read.read() == b""
    assert (emulator.requests, emulator.users()) == (1, {})


async def test_a_body_whose_client_resets_in_its_middle_is_not_accepted(wire, emulator, until):
    async with wire.connected() as connection:
        connection.write(wire.head(len(BODY)) + BODY[:-1])
        await until(lambda: emulator.requests == 1)
    await until(lambda: not emulator._service.lost)
    assert emulator.users() == {}


async def test_a_chunked_body_is_accepted_once_it_ended(wire, emulator):
    head = wire.head(0, Content_Length=None, Transfer_Encoding="chunked")
    async with wire.connected() as connection:
        connection.write(head + b"%x\r\n%b\r\n" % (len(BODY), BODY))
        await connection.drain()
        assert emulator.users() == {}
        connection.write(b"0\r\n\r\n")
        assert (await connection.read.readline()).startswith(b"HTTP/1.1 204")
    assert emulator.users() == {"ann": 1}


async def test_a_chunked_body_without_its_end_is_not_accepted(wire, emulator, until):
    head = wire.head(0, Content_Length=None, Transfer_Encoding="chunked")
    await wire.vanish(head + b"%x\r\n%b\r\n" % (len(BODY), BODY))
    await until(lambda: emulator.requests == 1 and not emulator._service.lost)
    assert emulator.users() == {}


async def test_a_body_over_the_limit_is_refused_with_413(running):
    async with running(max_body=len(BODY)) as wire:
        assert (await wire.send(BODY)).status == 204
        answer = await wire.send(BODY + b" ")
        assert (answer.status, answer.json) == (413, {"error": f"the body is over {len(BODY)} bytes"})
        chunks = b"%x\r\n%b \r\n0\r\n\r\n" % (len(BODY) + 1, BODY)
        head = wire.head(0, Content_Length=None, Transfer_Encoding="chunked")
        assert (await wire.bytes(head + chunks)).startswith(b"HTTP/1.1 413")
        assert wire.emulator.accepted("ann") == 1


async def test_pipelined_requests_are_each_accepted_once(wire, emulator):
    one = wire.head(len(BODY), Connection=None) + BODY
    last = wire.head(len(BODY)) + BODY
    assert (await wire.bytes(one + one + last)).count(b"HTTP/1.1 204") == 3
    assert emulator.accepted("ann") == 3


async def test_malformed_http_is_answered_without_a_log_line(wire, emulator, caplog):
    assert (await wire.bytes(b"\x16\x03\x01 hello\r\n\r\n")).startswith(b"HTTP/1.0 400")
    assert (emulator.requests, caplog.records) == (0, [])


async def test_an_error_of_the_emulator_is_logged(wire, emulator, caplog):
    del emulator._service.inboxes
    assert (await wire.push("ann")).status == 500
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_the_oracle_can_be_read_after_closing():
    async with Emulator() as emulator:
        base_url = emulator.base_url
    assert (emulator.base_url, emulator.users(), emulator.requests) == (base_url, {}, 0)
