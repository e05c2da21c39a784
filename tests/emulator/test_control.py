"""The control routes on the wire: journeys through each resource, and one table of wrong requests."""

import json
import sqlite3
import time
from functools import reduce
from urllib.parse import quote

import pytest
from support.control_api import Api

from pushsdk.emulator import Fault
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.queries import Store

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}, "iosEnabled": True, "androidEnabled": True}
STRANGE = [
    *("a/b", "..", "%41", "a+b&c=d?e;#", " ", "{id}", "\0", "\x7f", "\n", "ü", "👩‍👩‍👧", "\u2028", "\U0010ffff"),
    *("'; DROP TABLE requests; --", '"', "\\"),
]
DEEP = b'{"body":{"x":' + b"[" * 100_000
WRONG = [
    # Paths and methods
    ("GET", "", None, 404, "openapi.json"),
    ("GET", "/users/a/b", None, 404, "openapi.json"),
    ("GET", "/requests/x", None, 404, "must be a number"),
    ("GET", "/requests/%D9%A1", None, 404, "must be a number"),
    ("GET", f"/requests/{'9' * 19}", None, 404, "must be a number"),
    ("GET", "/requests/7", None, 404, "no request with this id"),
    ("GET", "/campaigns/%00", None, 404, "no campaign of this inbox has this uuid"),
    ("PATCH", "/faults/x", {"enabled": False}, 404, "the names are: none"),
    ("DELETE", "/health", None, 405, "GET"),
    ("OPTIONS", "/requests", None, 405, "GET or POST or DELETE"),
    # Queries
    ("GET", "/users?unknown=1", None, 400, "unknown"),
    ("GET", "/users?search=a&search=b", None, 400, "repeated"),
    ("GET", f"/users?search={'x' * 1001}", None, 400, "search"),
    ("GET", "/users?limit=0", None, 400, "limit"),
    ("GET", "/requests?before=-1", None, 400, "before"),
    ("DELETE", "/requests?search=%20", None, 400, "all=true"),
    ("DELETE", "/requests?search=x&all=true", None, 400, "either"),
    ("DELETE", "/requests?search=x%20title:", None, 400, "without a value"),
    # Inboxes: only requests are read over all of them
    ("GET", "/users?inbox=nobody", None, 404, "GET /inboxes lists them"),
    ("GET", "/users?inbox=*", None, 404, "GET /inboxes lists them"),
    ("POST", "/requests?inbox=*", {}, 404, "GET /inboxes lists them"),
    # Bodies
    ("PUT", "/label", b"", 400, "`label`"),
    ("PUT", "/label", b"{", 400, "truncated"),
    ("PUT", "/label", b'{"label":"\xff"}', 400, "utf-8"),
    ("PUT", "/label", {"label": "x", "more": 1}, 400, "more"),
    ("PUT", "/label", {"label": "x" * 201}, 400, "$.label"),
    ("POST", "/lint", DEEP, 400, "nested too deeply"),
    ("POST", "/clock", {"advance": -1}, 400, "$.advance"),
    ("PUT", "/faults", {}, 400, "either"),
    ("PUT", "/faults", {"faults": [], "preset": "flaky"}, 400, "either"),
    ("PUT", "/faults", {"preset": "x"}, 400, "flaky"),
    ("PUT", "/faults", {"preset": "flaky", "seed": 1 << 63}, 400, "$.seed"),
    ("PUT", "/faults", {"faults": [{"fault": "status", "code": 1}]}, 400, "; got 1 - at `$.faults[0]`"),
    ("PUT", "/limits", {"max_users": 0}, 400, "max_users"),
]


def encoded(text):
    return quote(text, safe="")


async def test_a_wrong_request_says_why_and_changes_nothing(api, wire):
    await wire.push("ann")
    for method, path, body, status, word in WRONG:
        answer = await api.raw(method, f"/_emulator/v1{path}", body)
        assert (method, path, answer.status) == (method, path, status)
        assert word in answer.json["error"]
    assert (await api.ask("PUT", "/requests", {})).headers["allow"] == "GET, POST, DELETE"
    assert (await api.raw("HEAD", "/_emulator/v1/users")).status == 405
    (inbox,) = await api.get("/inboxes")
    assert (inbox["label"], inbox["requests"]) == ("Inbox 1", 1)
    assert await api.get("/faults") == {"faults": [], "seed": 0}
    assert ((await api.get("/limits"))["max_users"], (await api.get("/clock"))["ahead"]) == (None, 0)


async def test_an_endless_or_incomplete_body_is_refused(running, caplog):
    async with running(max_body=1000) as wire:
        api = Api(wire.emulator)
        head = api.head("PUT", "/_emulator/v1/label", Content_Type="application/json", Transfer_Encoding="chunked")
        answer = await api.bytes(head + b"100\r\n" + b"x" * 256 + b"\r\n" + b"400\r\n" + b"y" * 1024 + b"\r\n")
        assert answer.status == 413
        async with api.connected() as (reader, writer):
            writer.write(api.head("PUT", "/_emulator/v1/label", Content_Type="application/json", Content_Length="100"))
            writer.write(b'{"label"')
            writer.write_eof()
            assert (await reader.read())[:12] in (b"HTTP/1.1 400", b"")
        assert await api.get("/inboxes") == []
    assert caplog.records == []


async def test_an_error_of_the_emulator_is_a_500_in_its_log(api, emulator, monkeypatch, caplog):
    monkeypatch.setattr(Store, "inboxes", lambda _: 1 // 0)
    assert (await api.raw("GET", "/_emulator/v1/inboxes")).status == 500
    assert [record.name for record in caplog.records] == ["pushsdk.emulator"]
    assert emulator.api_key not in caplog.text


async def test_what_the_store_can_not_write_is_507_and_not_accepted(running, tmp_path, monkeypatch):
    monkeypatch.setattr("pushsdk.emulator.store.database._BUSY", 0.01)
    async with running(store=tmp_path / "store") as wire:
        api = Api(wire.emulator)
        await wire.push("ann")
        foreign = sqlite3.connect(tmp_path / "store")
        foreign.execute("BEGIN IMMEDIATE")  # another program
        status, error = await api.refused("PUT", "/label", {"label": "after"})
        assert (status, error) == (507, "the emulator's store can't be written: database is locked")
        for key in (wire.emulator.api_key, "a new key"):
            assert (await wire.push("bob", Api_Key=key)).status == 507
        result = await api.done("POST", "/requests", {"userIds": ["bob"], "message": MESSAGE})
        assert (result["id"], result["status"], result["accepted"]) == (0, 507, False)
        foreign.close()
        assert (await wire.push("ann")).status == 204
        assert wire.emulator.users() == {"ann": 2}


# Inboxes


async def test_an_inbox_is_named_by_its_key_or_its_public_name(api, wire, emulator):
    status, error = await api.refused("GET", "/users", Api_Key="")
    assert (status, "Api-Key" in error, "?inbox=" in error) == (401, True, True)
    assert await api.get("/service") == {"api_key": emulator.api_key, "inbox": ""}
    await wire.push("ann")
    await wire.push("bob", Api_Key="another")
    await wire.push("bob", "eve", Api_Key="another")
    second, first = await api.get("/inboxes", Api_Key=None)
    assert [(inbox["label"], inbox["requests"]) for inbox in (first, second)] == [("Inbox 1", 1), ("Inbox 2", 2)]
    assert abs(second["last"] - time.time()) < 600
    assert (await api.get("/service"))["inbox"] == first["inbox"]
    users = await api.get(f"/users?inbox={first['inbox']}", Api_Key=None)
    assert users == {"users": [{"user_id": "ann", "accepted": 1, "same": 1}], "next": None}
    await api.done("PUT", "/label", {"label": "Mine <b>"})
    await api.done("POST", "/reset", {})
    assert (await api.get("/inboxes"))[1]["label"] == "Mine <b>"


async def test_a_key_sees_its_own_inbox_only(api, emulator, wire):
    await wire.push("ann")
    uuid = (await wire.campaign()).json["uuid"]
    other = Api(emulator, Api_Key="another")
    assert ((await other.get("/users"))["users"], (await other.get("/requests"))["requests"]) == ([], [])
    assert await other.get("/campaigns") == []
    for path in ("/requests/1", f"/campaigns/{uuid}"):
        assert (await other.refused("GET", path))[0] == 404
    assert (await other.refused("POST", f"/campaigns/{uuid}/start", {}))[0] == 404
    assert (await other.done("DELETE", "/requests/1"))["deleted"] == 0
    assert (await api.get("/requests/1"))["id"] == 1


async def test_there_is_a_bound_on_inboxes(api, wire, monkeypatch):
    await wire.push("ann")
    monkeypatch.setattr("pushsdk.emulator.inboxes._MAX_INBOXES", 1)
    status, error = await api.refused("GET", "/users", Api_Key="one more")
    assert (status, "there are 1 inboxes" in error) == (507, True)
    assert (await wire.push("bob")).status == 204


async def test_requests_are_read_over_all_inboxes(api, wire):
    async with api.events("?inbox=*", Api_Key=None) as events:
        await events.until("hello")
        await wire.push("ann")
        assert (await events.until("request"))[-1].data["id"] == 1
        await wire.push("ann", Api_Key="another")
        assert (await events.until("request"))[-1].data["id"] == 2
    await wire.push("ben", Api_Key="another")
    names = [inbox["inbox"] for inbox in await api.get("/inboxes", Api_Key=None)]  # the latest first
    requests = (await api.get("/requests?inbox=*", Api_Key=None))["requests"]
    assert [(request["id"], request["inbox"]) for request in requests] == [(3, names[0]), (2, names[0]), (1, names[1])]
    found = await api.get("/requests?inbox=*&search=user:ann", Api_Key=None)
    assert [request["id"] for request in found["requests"]] == [2, 1]
    assert (await api.get("/requests/2?inbox=*", Api_Key=None))["inbox"] == names[0]
    assert [line["inbox"] for line in await downloaded(api, "inbox=*", Api_Key=None)] == [names[0], names[0], names[1]]


async def downloaded(api, query, **headers):
    answer = await api.raw("GET", f"/_emulator/v1/export?{query}", **headers)
    assert answer.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in answer.body.splitlines()]


# Users


async def test_any_user_id_is_found_by_its_path_and_by_search(api, wire):
    await wire.push(*STRANGE)
    for user_id in STRANGE:
        user = await api.user(user_id)
        assert (user["user_id"], user["accepted"], len(user["pushes"])) == (user_id, 1, 1)
        page = await api.get(f"/users?search={encoded(user_id)}")
        assert {"user_id": user_id, "accepted": 1, "same": 1} in page["users"]
        quoted = user_id.replace("\\", "\\\\").replace('"', '\\"')
        line = encoded(f'user:"{quoted}"')
        assert len((await api.get(f"/requests?search={line}"))["requests"]) == 1


async def test_a_user_has_pushes_oldest_first_and_notifications(api, wire):
    nobody = await api.user("nobody")
    assert (nobody["accepted"], nobody["campaigns"], nobody["pushes"]) == (0, 0, [])
    assert nobody["devices"] == {"ios": [], "android": []}
    await wire.send({"userIds": ["ann", "ann"], "message": MESSAGE, "customFields": {"a": 10**40}})
    await wire.send({"userIds": ["ann"], "message": {"title": {"en": "2"}, "androidEnabled": True}})
    user = await api.user("ann")
    assert user["accepted"] == 3
    first, second = user["pushes"]
    assert (first["times"], first["message"], first["custom_fields"]) == (2, MESSAGE, {"a": 10**40})
    assert (second["times"], second["custom_fields"], second["campaign"]) == (1, None, None)
    assert first["id"] < second["id"]
    titles = {name: [card["message"]["title"]["en"] for card in cards] for name, cards in user["devices"].items()}
    assert titles == {"ios": ["Hello"], "android": ["Hello", "2"]}


async def test_users_are_paged_by_id_and_searched_literally(api, wire):
    names = ["ANN", "a%n", "a_n", "ann"]
    await wire.push(*names)
    await wire.push("ann")
    pages, after = [], ""
    while after is not None:
        page = await api.get(f"/users?limit=2&after={quote(after)}")
        pages.append([user["user_id"] for user in page["users"]])
        after = page["next"]
    assert pages == [names[:2], names[2:]]
    for search in names:
        page = await api.get(f"/users?search={quote(search)}")
        assert [user["user_id"] for user in page["users"]] == [search]
    assert await api.get("/duplicates") == [{"user_id": "ann", "accepted": 2, "same": 2}]


# Requests


async def test_requests_are_paged_newest_first_and_grouped(api, wire):
    for title in ("one", "one", "two", "three", "three"):
        await wire.send({"userIds": ["ann"], "message": {"title": {"en": title}}})
    pages, query = [], ""
    while query is not None:
        page = await api.get(f"/requests?limit=2{query}")
        pages.append([request["id"] for request in page["requests"]])
        query = None if page["next"] is None else f"&before={page['next']}"
    assert pages == [[5, 4], [3, 2], [1]]
    assert [request["id"] for request in (await api.get("/requests?after=3"))["requests"]] == [5, 4]
    page = await api.get("/requests?grouped=true&limit=2")
    assert [(row["id"], row["requests"]) for row in page["requests"]] == [(5, 2), (3, 1)]
    rest = await api.get(f"/requests?grouped=true&limit=2&before={page['next']}")
    assert [(row["id"], row["group"], row["requests"]) for row in rest["requests"]] == [(2, 1, 2)]
    assert rest["next"] is None


async def test_a_request_is_summed_up_and_shown_whole(api, wire):
    sent = {"userIds": ["ann", "bob"], "message": {**MESSAGE, "iosEnabled": False}, "customFields": {"a": "b"}}
    await wire.send(sent)
    (summary,) = (await api.get("/requests"))["requests"]
    whole = await api.get("/requests/1")
    assert whole["body"] == json.loads(whole["text"]) == sent
    assert (whole["user_ids"], whole["lint"]) == (["ann", "bob"], [])
    assert ("curl" in whole["curl"], "AsyncPushClient" in whole["python"]) == (True, True)
    assert abs(summary.pop("time") - time.time()) < 600
    assert summary.pop("bytes") == len(whole["text"])
    assert summary.pop("inbox") == (await api.get("/service"))["inbox"]
    assert summary == {
        "id": 1,
        "group": 1,
        "requests": 1,
        "failed": 0,
        "reached": 2,
        "endpoint": "push",
        "status": 204,
        "accepted": True,
        "fault": None,
        "error": None,
        "users": 2,
        "first_user": "ann",
        "title": {"en": "Hello"},
        "body": {"en": "World"},
        "languages": ["en"],
        "platforms": ["android"],
        "campaign": None,
    }


async def test_requests_are_searched_downloaded_and_deleted(api, wire, emulator):
    for user in ("ann", "bob"):
        await wire.push(user)
    await wire.campaign()
    await wire.bytes(wire.head(1) + b"{")
    for search, found in (
        ("", [4, 3, 2, 1]),
        ("title:hel lang:en", [3, 2, 1]),
        ("group:1", [2, 1]),
        ("is:refused status:4xx", [4]),
        ("user:ann", [1]),
        ("' OR 1=1 --", []),
        ("%", []),
    ):
        requests = (await api.get(f"/requests?search={encoded(search)}"))["requests"]
        assert (search, [request["id"] for request in requests]) == (search, found)
    broken, _, *_, oldest = await downloaded(api, "search=")
    assert (broken["status"], broken["body"]) == (400, "{")
    assert (oldest["status"], oldest["body"]["userIds"]) == (204, ["ann"])
    assert await api.done("DELETE", "/requests?search=user:ann") == {"deleted": 1}
    assert await api.done("DELETE", "/requests/2") == {"deleted": 1}
    assert await api.done("DELETE", "/requests/2") == {"deleted": 0}
    assert await api.done("DELETE", "/requests?all=true") == {"deleted": 2}
    assert ((await api.get("/requests"))["requests"], await api.get("/campaigns")) == ([], [])
    assert emulator.users() == {"ann": 1, "bob": 1}  # the counts stay


async def test_requests_that_reached_no_inbox_are_listed_newest_first(api, wire):
    await wire.push("ann", path="/v1/pushes")
    await wire.push("ann", Api_Key=None)
    for path in ("/%ff", "/" + "x" * 5000):
        await api.raw("POST", path, {})
    long, strange, without_key, missing = await api.get("/unmatched", Api_Key=None)
    assert (without_key["method"], without_key["path"], without_key["status"]) == ("POST", "/external/api/v1/push", 401)
    assert (missing["status"], "/external/api/v1/push" in missing["error"]) == (404, True)
    assert (len(long["path"]), strange["status"]) == (200, 404)


async def test_a_value_nested_near_the_bound_is_shown_or_refused(api, wire, monkeypatch):
    """Every accepted depth can be read back."""
    statuses = set()
    for depth in range(880, 1010, 5):
        value = b"[" * depth + b"]" * depth
        body = b'{"userIds":["ann"],"message":{"x":%b},"customFields":{"y":%b}}' % (value, value)
        if (await wire.send(body)).status != 204:
            continue
        newest = (await api.get("/requests?limit=1"))["requests"][0]["id"]
        assert (await api.raw("GET", f"/_emulator/v1/requests/{newest}")).status == 200
        answer = await api.raw("GET", "/_emulator/v1/users/ann")
        statuses.add(answer.status)
        assert answer.status == 200 or "nested too deeply" in answer.json["error"]
    assert 200 in statuses
    deep = reduce(lambda inner, _: [inner], range(100_000), [])
    monkeypatch.setattr(Store, "inboxes", lambda _: deep)
    assert await api.refused("GET", "/inboxes") == (500, "a value in the response is nested too deeply to be shown")


# Faults, limits, clock, reset


async def test_each_preset_is_the_same_as_its_rules(api):
    presets = await api.get("/presets", Api_Key=None)
    assert "flaky" in [preset["name"] for preset in presets]
    for preset in presets:
        answer = await api.done("PUT", "/faults", {"preset": preset["name"], "seed": 7})
        assert [rule["name"] for rule in answer["faults"]] == list(preset["explained"])
        assert await api.done("PUT", "/faults", {"faults": preset["faults"], "seed": 7}) == answer


async def test_rules_act_in_one_inbox_and_can_be_disabled(running):
    async with running(faults=[Fault.status(500, name="all")]) as wire:
        api = Api(wire.emulator)
        assert [rule["name"] for rule in (await api.get("/faults"))["faults"]] == ["all"]
        await api.done("PUT", "/faults", {"faults": [{"fault": "status", "code": 503, "name": "a/b"}]})
        assert [(await wire.push("ann")).status, (await wire.push("ann", Api_Key="other")).status] == [503, 500]
        (rule,) = (await api.get("/faults"))["faults"]
        assert rule == {"fault": "status", "code": 503, "name": "a/b", "enabled": True, "hits": 1}
        for enabled, status in ((False, 204), (True, 503)):
            (rule,) = (await api.done("PATCH", "/faults/a%2Fb", {"enabled": enabled}))["faults"]
            assert (rule["enabled"], (await wire.push("ann")).status) == (enabled, status)
        assert await api.done("DELETE", "/faults") == {"faults": [], "seed": 0}
        assert (await wire.push("ann")).status == 204


async def test_limits_are_set_shown_and_hold(api, wire):
    limits = await api.get("/limits")
    answer = await api.done("PUT", "/limits", {"max_users": 1, "quota": 3, "statuses": {"users": 422}})
    assert answer == await api.get("/limits") == {**limits, "max_users": 1, "quota": 3, "statuses": answer["statuses"]}
    assert (await wire.push("a", "b")).status == 422
    assert [(await wire.push("a")).status for _ in range(4)] == [204, 204, 204, 429]
    await api.done("PUT", "/limits", {"strict": True})
    refusal = await wire.send({"userIds": ["ann"], "message": {"androidEnable": True}})
    assert (refusal.status, "androidEnabled" in refusal.json["error"]) == (400, True)
    assert await api.done("PUT", "/limits", {}) == limits
    assert (await wire.push("a", "b")).status == 204


async def test_a_push_expires_when_the_clock_is_set_forward(api, wire):
    before = await api.get("/clock")
    await wire.send({"userIds": ["ann"], "message": {**MESSAGE, "ttl": 60}})
    for ahead, state in ((0, "delivered"), (3600, "expired")):
        after = await api.done("POST", "/clock", {"advance": ahead})
        assert after["ahead"] == ahead
        assert ahead <= after["now"] - before["now"] < ahead + 600
        assert [device["state"] for device in (await api.user("ann"))["devices"]["ios"]] == [state]
    await wire.push("ann")
    assert (await api.get("/requests"))["requests"][0]["time"] >= after["now"]


async def test_a_reset_empties_the_inbox_and_restarts_its_rules(api, wire):
    await api.done("PUT", "/faults", {"faults": [{"fault": "status", "code": 503, "first": 1}]})
    await api.done("PUT", "/limits", {"quota": 1})
    (inbox,) = await api.get("/inboxes")
    for _ in range(2):
        assert [(await wire.push("ann")).status for _ in range(3)] == [503, 204, 429]
        await api.done("POST", "/reset", {})
        assert (await api.user("ann"))["accepted"] == 0
        assert (await api.get("/requests"))["requests"] == []
        assert [rule["hits"] for rule in (await api.get("/faults"))["faults"]] == [0]
    assert [view["inbox"] for view in await api.get("/inboxes")] == [inbox["inbox"]]


# Requests from the page


@pytest.mark.parametrize(
    ("body", "error", "codes"),
    [
        ({"userIds": ["ann"], "message": {"titel": 1}}, "None", ["near-name", "no-platform", "no-text"]),
        ({"userIds": []}, "`$.userIds`", []),
        ({"userIds": ["ann"], "message": {"x": "x" * 70_000}}, "None", ["large"]),
    ],
)
async def test_a_request_is_checked_without_being_sent(api, emulator, body, error, codes):
    result = await api.done("POST", "/lint", {"body": body})
    assert error in str(result["error"])
    assert [advice["code"] for advice in result["lint"]] == codes
    assert emulator.requests == 0


async def test_a_request_is_sent_into_an_inbox_without_its_key(running):
    async with running(max_body=100) as wire:
        api = Api(wire.emulator)
        await wire.push("ann")
        (inbox,) = await api.get("/inboxes", Api_Key=None)
        path = f"/requests?inbox={inbox['inbox']}"
        result = await api.done("POST", path, {"userIds": ["ben"], "message": {}}, Api_Key=None)
        assert result == {"id": 2, "status": 204, "accepted": True, "body": ""}
        assert wire.emulator.users() == {"ann": 1, "ben": 1}
        result = await api.done("POST", path, {"userIds": []}, Api_Key=None)
        assert (result["id"], result["status"], "`$.userIds`" in result["body"]) == (3, 400, True)
        result = await api.done("POST", f"{path}&endpoint=campaigns", {"name": "Spring"}, Api_Key=None)
        assert (result["status"], wire.emulator.campaigns[0].uuid in result["body"]) == (200, True)
        result = await api.done("POST", path, b'"%b"' % (b"x" * 100), Api_Key=None)
        assert (result["id"], result["status"], "100 bytes" in result["body"]) == (0, 413, True)


async def test_a_request_from_the_page_meets_the_faults_of_its_inbox(api, emulator):
    body = {"userIds": ["ann"], "message": MESSAGE}
    emulator.inbox().set_faults([Fault.status(503, body="later", first=1)])
    assert await api.done("POST", "/requests", body) == {"id": 1, "status": 503, "accepted": False, "body": "later"}
    for fault, accepted in ((Fault.reset_after(), True), (Fault.hang(), False), (Fault.truncated(), True)):
        emulator.inbox().set_faults([fault])  # the page's own connection is not cut
        result = await api.done("POST", "/requests", body)
        assert (result["status"], result["accepted"]) == (emulator.inbox().requests()[-1].status, accepted)
    assert emulator.accepted("ann") == 2


async def test_a_request_from_the_page_whose_commit_failed_has_no_id(api, emulator, monkeypatch):
    def full(_, records):
        records[0].id = 7
        raise StoreError("disk is full")

    monkeypatch.setattr(Store, "write", full)
    result = await api.done("POST", "/requests", {"userIds": ["ann"], "message": MESSAGE})
    assert (result["id"], result["status"], result["accepted"]) == (0, 507, False)
    assert (emulator.users(), "disk is full" in result["body"]) == ({}, True)
