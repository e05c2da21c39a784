"""The control routes on the wire: responses and refusals."""

import asyncio
import json
import sqlite3
import time
from urllib.parse import quote

import aiohttp
import pytest
from support.control_api import Api

from pushsdk.emulator import Emulator, Fault
from pushsdk.emulator.faults import Rules

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}, "iosEnabled": True, "androidEnabled": True}
STRANGE = [
    *("a/b", "/", "a/../b", "..", ".", "a.b", "50%", "%41", "a b", " ", "a+b", "a&b=c", "a?b", "#", ";"),
    *(
        "\0",
        "a\0b",
        "\x7f",
        "\n",
        "ü",
        "😀",
        "👩‍👩‍👧",
        "\u2028",
        "\U0010ffff",
        "'; DROP TABLE requests; --",
        '"',
        "\\",
        "{id}",
    ),
]


@pytest.fixture
def api(emulator: Emulator) -> Api:
    return Api(emulator)


# Naming the inbox


async def test_health_needs_no_key(api):
    answer = await api.get("/health", Api_Key=None)
    assert answer["status"] == "ok"
    assert answer["version"][0].isdigit()


async def test_a_change_that_the_store_can_not_write_is_507(api, emulator):
    await api.done("PUT", "/label", {"label": "before"})
    emulator._store.open()._writer.execute("PRAGMA query_only = ON")  # as on a file system that was mounted read-only
    status, error = await api.refused("PUT", "/label", {"label": "after"})
    assert (status, error.partition(":")[0]) == (507, "the emulator's store can't be written")
    assert (await api.get("/health"))["status"] == "ok"


@pytest.mark.parametrize("key", [None, ""])
async def test_a_scoped_route_says_how_to_name_an_inbox(api, key):
    status, error = await api.refused("GET", "/users", Api_Key=key)
    assert status == 401
    assert "Api-Key" in error
    assert "?inbox=" in error


async def test_an_inbox_is_named_by_its_public_name_without_the_key(api, wire):
    await wire.push("ann")
    (inbox,) = await api.get("/inboxes", Api_Key=None)
    users = await api.get(f"/users?inbox={inbox['inbox']}", Api_Key=None)
    assert users == {"users": [{"user_id": "ann", "accepted": 1, "same": 1}], "next": None}


@pytest.mark.parametrize("name", ["nobody", "", "%00", "'%20OR%201=1", "%25", "_" * 16, "%f0%9f%98%80"])
async def test_an_unknown_name_of_an_inbox_is_not_found(api, wire, name):
    await wire.push("ann")
    assert (await api.refused("GET", f"/users?inbox={name}"))[0] == 404


async def test_keys_see_their_own_inbox_only(api, wire):
    await wire.push("ann")
    await wire.campaign()
    other = {"Api_Key": "another"}
    assert (await api.get("/users", **other))["users"] == []
    assert (await api.get("/requests", **other))["requests"] == []
    assert await api.get("/campaigns", **other) == []
    (request,) = (await api.get("/requests?search=is:push"))["requests"]
    (campaign,) = await api.get("/campaigns")
    assert (await api.refused("GET", f"/requests/{request['id']}", **other))[0] == 404
    assert (await api.refused("GET", f"/campaigns/{campaign['uuid']}", **other))[0] == 404
    assert (await api.refused("POST", f"/campaigns/{campaign['uuid']}/start", {}, **other))[0] == 404
    assert (await api.done("DELETE", f"/requests/{request['id']}", **other))["deleted"] == 0
    assert (await api.get(f"/requests/{request['id']}"))["id"] == request["id"]


async def test_there_is_a_bound_on_inboxes(api, emulator, monkeypatch):
    monkeypatch.setattr("pushsdk.emulator.inboxes._MAX_INBOXES", 0)
    status, error = await api.refused("GET", "/users", Api_Key="one more")
    assert status == 507
    assert "inboxes" in error


async def test_inboxes_are_listed_with_what_is_in_them(api, wire):
    await wire.push("ann", Api_Key="first")
    await wire.push("ann", "bob", Api_Key="second")
    await wire.push("ann", Api_Key="second")
    second, first = await api.get("/inboxes")
    assert [first["requests"], second["requests"]] == [1, 2]
    assert first["inbox"] != second["inbox"]
    assert abs(first["last"] - time.time()) < 600


async def test_an_inbox_has_a_label_or_a_number(api, wire):
    await wire.push("ann")
    assert [inbox["label"] for inbox in await api.get("/inboxes")] == ["Inbox 1"]
    await api.done("PUT", "/label", {"label": "Mine <b>"})
    await api.done("POST", "/reset", {})
    assert [inbox["label"] for inbox in await api.get("/inboxes")] == ["Mine <b>"]


# Paths, queries, bodies


@pytest.mark.parametrize(
    ("method", "path", "status", "word"),
    [
        ("GET", "", 404, "openapi.json"),
        ("GET", "/", 404, "openapi.json"),
        ("GET", "/nothing", 404, "openapi.json"),
        ("GET", "/users/", 404, "openapi.json"),
        ("GET", "/users/a/b", 404, "openapi.json"),
        ("GET", "/health/", 404, "openapi.json"),
        ("GET", "x/health", 404, "openapi.json"),
        ("GET", "/%75sers", 404, "openapi.json"),
        ("GET", "/requests/x", 404, "number"),
        ("GET", "/requests/-1", 404, "number"),
        ("GET", "/requests/1e3", 404, "number"),
        ("GET", "/requests/%D9%A1", 404, "number"),
        ("GET", f"/requests/{'9' * 19}", 404, "number"),
        ("GET", "/requests/7", 404, "no request with this id"),
        ("DELETE", "/requests/x", 404, "number"),
        ("GET", "/campaigns/7", 404, "uuid"),
        ("GET", "/campaigns/%00", 404, "uuid"),
        ("DELETE", "/health", 405, "GET"),
        ("OPTIONS", "/requests", 405, "GET or POST or DELETE"),
        ("HEAD", "/users", 405, "GET"),
        ("TRACE", "/users", 405, "GET"),
        ("DELETE", "/reset", 405, "POST"),
        ("GET", "/users?unknown=1", 400, "unknown"),
        ("GET", "/users?search=a&search=b", 400, "repeated"),
        ("GET", f"/users?search={'x' * 1001}", 400, "search"),
        ("GET", "/users?limit=0", 400, "limit"),
        ("GET", "/users?limit=1001", 400, "limit"),
        ("GET", "/users?limit=ten", 400, "limit"),
        ("GET", "/requests?before=-1", 400, "before"),
        ("GET", f"/requests?before={1 << 63}", 400, "before"),
        ("DELETE", "/requests", 400, "all=true"),
        ("DELETE", "/requests?search=%20", 400, "all=true"),
        ("DELETE", "/requests?all=false", 400, "all=true"),
        ("DELETE", "/requests?all=yes", 400, "all"),
        ("DELETE", "/requests?search=x&all=true", 400, "either"),
        ("DELETE", "/requests?search=user:", 400, "without a value"),
        ("DELETE", "/requests?search=x%20title:", 400, "without a value"),
    ],
)
async def test_an_invalid_path_or_query_says_why(api, wire, method, path, status, word):
    await wire.push("ann")
    answer = await api.raw(method, f"/_emulator/v1{path}")
    assert answer.status == status
    if method != "HEAD":
        assert word in answer.json["error"]
    assert len((await api.get("/requests"))["requests"]) == 1


async def test_a_wrong_method_gets_the_right_ones(api):
    assert (await api.ask("PUT", "/requests", {})).headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize(
    ("method", "path", "body", "word"),
    [
        ("PUT", "/label", b"", "label"),
        ("PUT", "/label", b"[]", "object"),
        ("PUT", "/label", b"{", "truncated"),
        ("PUT", "/label", b'{"label":"\xff"}', "utf-8"),
        ("PUT", "/label", b'{"label":1}', "$.label"),
        ("PUT", "/label", {"label": "x" * 201}, "$.label"),
        ("PUT", "/label", {"label": ""}, "$.label"),
        ("PUT", "/label", {"label": "x", "more": 1}, "more"),
        ("POST", "/lint", b'{"body":{"x":' + b"[" * 100_000, "nested too deeply"),
        ("PUT", "/label", b'{"more":' * 5000, "unknown field"),
        ("POST", "/clock", {"advance": -1}, "$.advance"),
        ("POST", "/clock", {"advance": 1e12}, "$.advance"),
        ("POST", "/clock", b'{"advance":NaN}', "malformed"),
        ("PUT", "/faults", {}, "either"),
        ("PUT", "/faults", {"faults": [], "preset": "flaky"}, "either"),
        ("PUT", "/faults", {"preset": "x"}, "flaky"),
        ("PUT", "/faults", {"faults": [{"fault": "x"}]}, "$.faults[0]"),
        ("PUT", "/faults", {"faults": [{"fault": "status"}]}, "code"),
        (
            "PUT",
            "/faults",
            {"faults": [{"fault": "status", "code": 1}]},
            "; got 1 - at `$.faults[0]`",
        ),
        ("PUT", "/faults", {"faults": [{"fault": "hang", "name": "a"}] * 2}, "must be unique"),
        (
            "PUT",
            "/faults",
            {"faults": [{"fault": "status", "code": 400, "headers": {"a": "b\r\nc: d"}}]},
            "no control character",
        ),
        ("PUT", "/faults", {"preset": "flaky", "seed": 1 << 63}, "$.seed"),
        ("PATCH", "/faults/x", {}, "enabled"),
        ("PUT", "/limits", {"max_users": 0}, "max_users"),
        ("PUT", "/limits", {"burst": 2}, "burst"),
        ("PUT", "/limits", {"statuses": {"rate": 200}}, "LimitStatuses.rate must be a status from 400 to 599"),
        ("PUT", "/limits", {"users": 1}, "users"),
    ],
)
async def test_an_invalid_body_says_why(api, method, path, body, word):
    status, error = await api.refused(method, path, body)
    assert status == 400
    assert word in error
    assert (await api.get("/faults"))["faults"] == []
    assert (await api.get("/limits"))["max_users"] is None


async def test_a_control_body_over_the_bound_is_refused(running):
    async with running(max_body=1000) as wire:
        api = Api(wire.emulator)
        assert (await api.refused("PUT", "/label", {"label": "x" * 2000}))[0] == 413


async def test_an_endless_body_is_ended(running):
    async with running(max_body=1000) as wire:
        api = Api(wire.emulator)
        head = api.head("PUT", "/_emulator/v1/label", Content_Type="application/json", Transfer_Encoding="chunked")
        answer = await api.bytes(head + b"100\r\n" + b"x" * 256 + b"\r\n" + b"400\r\n" + b"y" * 1024 + b"\r\n")
        assert answer.status == 413


async def test_an_incomplete_body_is_refused(api, emulator, until, caplog):
    async with api.connected() as (reader, writer):
        writer.write(api.head("PUT", "/_emulator/v1/label", Content_Type="application/json", Content_Length="100"))
        writer.write(b'{"label"')
        writer.write_eof()
        assert (await reader.read())[:12] in (b"HTTP/1.1 400", b"")
    await until(lambda: not emulator._service.lost)
    assert caplog.records == []
    assert await api.get("/inboxes") == []


async def test_an_unexpected_error_is_a_500_and_is_logged(api, emulator, monkeypatch, caplog):
    monkeypatch.setattr(emulator._store, "inboxes", lambda: 1 // 0)
    assert (await api.raw("GET", "/_emulator/v1/inboxes")).status == 500
    assert [record.name for record in caplog.records] == ["pushsdk.emulator"]
    assert emulator.api_key not in caplog.text


# Users


@pytest.mark.parametrize("user_id", STRANGE)
async def test_any_user_id_is_found_by_its_path_and_by_search(api, wire, user_id):
    await wire.push("ann", user_id)
    user = await api.user(user_id)
    assert (user["user_id"], user["accepted"], len(user["pushes"])) == (user_id, 1, 1)
    page = await api.get(f"/users?search={quote(user_id, safe='')}")
    assert {"user_id": user_id, "accepted": 1, "same": 1} in page["users"]
    line = quote('user:"' + user_id.replace("\\", "\\\\").replace('"', '\\"') + '"', safe="")
    assert len((await api.get(f"/requests?search={line}"))["requests"]) == 1


async def test_a_user_without_pushes_is_empty(api):
    user = await api.user("nobody")
    assert (user["accepted"], user["campaigns"], user["pushes"]) == (0, 0, [])
    assert user["devices"] == {"ios": [], "android": []}


async def test_a_user_has_pushes_oldest_first_and_notifications(api, wire):
    await wire.send({"userIds": ["ann", "ann"], "message": MESSAGE, "customFields": {"a": [1]}})
    await wire.send({"userIds": ["ann"], "message": {"title": {"en": "2"}, "androidEnabled": True}})
    user = await api.user("ann")
    assert user["accepted"] == 3
    first, second = user["pushes"]
    assert (first["times"], first["message"], first["custom_fields"]) == (2, MESSAGE, {"a": [1]})
    assert (second["times"], second["custom_fields"], second["campaign"]) == (1, None, None)
    assert first["id"] < second["id"]
    rules = {name: [card["message"]["title"]["en"] for card in cards] for name, cards in user["devices"].items()}
    assert rules == {"ios": ["Hello"], "android": ["Hello", "2"]}


async def test_users_are_paged_by_their_ids(api, wire):
    names = [f"u{number:02}" for number in range(10)]
    await wire.push(*names)
    pages, after = [], ""
    while after is not None:
        page = await api.get(f"/users?limit=3&after={after}")
        assert len(page["users"]) <= 3
        pages += [user["user_id"] for user in page["users"]]
        after = page["next"]
    assert pages == names


async def test_a_full_last_page_has_no_next(api, wire):
    await wire.push("a", "b")
    assert (await api.get("/users?limit=2"))["next"] is None
    assert (await api.get("/users?limit=1"))["next"] == "a"


async def test_users_are_searched_literally(api, wire):
    await wire.push("ann", "a_n", "a%n", "ANN")
    for search in ("a_n", "a%n", "ann", "ANN"):
        page = await api.get(f"/users?search={quote(search)}")
        assert [user["user_id"] for user in page["users"]] == [search]


async def test_duplicates_are_users_with_the_same_push_twice(api, wire):
    await wire.push("ann", "bob")
    await wire.push("ann")
    for user in ("ann", "bob"):
        await wire.send({"userIds": [user], "message": {"title": {"en": "another"}}})
    ann, bob = {"user_id": "ann", "accepted": 3, "same": 2}, {"user_id": "bob", "accepted": 2, "same": 1}
    assert await api.get("/duplicates") == [ann]
    assert (await api.get("/users"))["users"] == [ann, bob]


# Requests


async def test_requests_are_paged_newest_first(api, wire):
    for number in range(7):
        await wire.push(f"u{number}")
    pages, query = [], ""
    while query is not None:
        page = await api.get(f"/requests?limit=3{query}")
        pages += [request["first_user"] for request in page["requests"]]
        query = None if page["next"] is None else f"&before={page['next']}"
    assert pages == [f"u{number}" for number in reversed(range(7))]


async def test_requests_after_an_id_are_newer(api, wire):
    for number in range(3):
        await wire.push(f"u{number}")
    newest, middle, _ = (await api.get("/requests"))["requests"]
    requests = (await api.get(f"/requests?after={middle['id']}"))["requests"]
    assert [request["id"] for request in requests] == [newest["id"]]


async def test_a_grouped_list_has_pages_of_groups(api, wire):
    for title in ("one", "one", "two", "three"):
        await wire.send({"userIds": ["ann"], "message": {"title": {"en": title}}})
    page = await api.get("/requests?grouped=true&limit=2")
    assert [(row["id"], row["requests"]) for row in page["requests"]] == [(4, 1), (3, 1)]
    rest = await api.get(f"/requests?grouped=true&limit=2&before={page['next']}")
    assert [(row["id"], row["group"], row["requests"]) for row in rest["requests"]] == [(2, 1, 2)]
    assert rest["next"] is None


async def test_a_summary_has_the_request_and_its_result(api, wire):
    await wire.send({"userIds": ["ann", "bob"], "message": {**MESSAGE, "collapseId": "c", "iosEnabled": False}})
    (requests,) = (await api.get("/requests"))["requests"]
    assert abs(requests.pop("time") - time.time()) < 600
    assert requests.pop("bytes") > 50
    assert requests.pop("inbox") == (await api.get("/service"))["inbox"]
    assert requests == {
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


@pytest.mark.parametrize(
    ("search", "count"),
    [
        ("", 3),
        ("hello", 2),
        ("is:accepted", 2),
        ("is:refused", 1),
        ("status:400", 1),
        ("user:ann", 1),
        ("user:an", 0),
        ("%25", 0),
        ("'", 0),
        ("' OR 1=1 --", 0),
        ("title:hel lang:en", 2),
        ("\0", 0),
        ('"', 3),
    ],
)
async def test_requests_are_searched(api, wire, search, count):
    await wire.push("ann")
    await wire.campaign()
    await wire.send({"userIds": []})
    assert len((await api.get(f"/requests?search={quote(search, safe='%')}"))["requests"]) == count


async def test_one_request_is_shown_whole(api, wire):
    sent = {"userIds": ["ann"], "message": {"title": {"en": "Hi {{ name | 'you' }}"}}, "customFields": {"name": "Ann"}}
    await wire.send(sent)
    requests = await api.get("/requests/1")
    assert requests["body"] == json.loads(requests["text"]) == sent
    assert requests["user_ids"] == ["ann"]
    assert "curl" in requests["curl"]
    assert "AsyncPushClient" in requests["python"]
    assert all(set(finding) == {"path", "code", "message"} for finding in requests["lint"])


async def test_one_request_is_deleted_and_the_counts_stay(api, wire, emulator):
    await wire.push("ann")
    await wire.push("ann")
    assert await api.done("DELETE", "/requests/1") == {"deleted": 1}
    assert (await api.done("DELETE", "/requests/1"))["deleted"] == 0
    assert [request["id"] for request in (await api.get("/requests"))["requests"]] == [2]
    assert emulator.accepted("ann") == (await api.user("ann"))["accepted"] == 2


async def test_the_requests_of_a_search_are_deleted(api, wire):
    await wire.push("ann")
    await wire.push("bob")
    assert (await api.done("DELETE", "/requests?search=user:ann"))["deleted"] == 1
    assert [request["first_user"] for request in (await api.get("/requests"))["requests"]] == ["bob"]


async def test_all_requests_are_deleted_with_all(api, wire):
    await wire.push("ann")
    await wire.campaign()
    assert (await api.done("DELETE", "/requests?all=true"))["deleted"] == 2
    assert (await api.get("/requests"))["requests"] == []
    assert await api.get("/campaigns") == []


# Faults, limits, clock, reset


async def test_presets_are_listed_and_taken_by_name(api, wire):
    presets = await api.get("/presets", Api_Key=None)
    assert "flaky" in [preset["name"] for preset in presets]
    for preset in presets:
        assert set(preset["explained"]) == {rule["name"] for rule in preset["faults"]}
        answer = await api.done("PUT", "/faults", {"preset": preset["name"], "seed": 7})
        assert [rule["name"] for rule in answer["faults"]] == list(preset["explained"])
        assert answer["seed"] == 7
        rules = [{key: rule[key] for key in rule if key not in ("enabled", "hits")} for rule in answer["faults"]]
        assert rules == preset["faults"]
        assert await api.done("PUT", "/faults", {"faults": preset["faults"], "seed": 7}) == answer


async def test_rules_act_count_and_can_be_disabled(api, wire):
    await api.done("PUT", "/faults", {"faults": [{"fault": "status", "code": 503}]})
    assert (await wire.push("ann")).status == 503
    (rule,) = (await api.get("/faults"))["faults"]
    assert rule == {"fault": "status", "code": 503, "name": "1: status", "enabled": True, "hits": 1}
    (rule,) = (await api.done("PATCH", f"/faults/{quote(rule['name'])}", {"enabled": False}))["faults"]
    assert (rule["enabled"], rule["hits"]) == (False, 1)
    assert (await wire.push("ann")).status == 204
    await api.done("PATCH", f"/faults/{quote(rule['name'])}", {"enabled": True})
    assert (await wire.push("ann")).status == 503
    assert await api.done("DELETE", "/faults") == {"faults": [], "seed": 0}
    assert (await wire.push("ann")).status == 204


async def test_an_unknown_rule_cannot_be_disabled(api):
    await api.done("PUT", "/faults", {"faults": [{"fault": "hang", "name": "a/b"}]})
    status, error = await api.refused("PATCH", "/faults/hang", {"enabled": False})
    assert status == 404
    assert "a/b" in error
    assert (await api.done("PATCH", "/faults/a%2Fb", {"enabled": False}))["faults"][0]["enabled"] is False


async def test_bad_rules_leave_the_old_ones(api):
    await api.done("PUT", "/faults", {"preset": "outage"})
    before = await api.get("/faults")
    await api.refused("PUT", "/faults", {"faults": [{"fault": "x"}]})
    assert await api.get("/faults") == before


async def test_an_inbox_without_own_rules_shows_the_emulators(running):
    async with running(faults=[Fault.status(400, name="all")], seed=3) as wire:
        assert (await Api(wire.emulator).get("/faults"))["faults"][0]["name"] == "all"


async def test_rules_are_of_one_inbox(api, wire):
    await api.done("PUT", "/faults", {"faults": [{"fault": "status", "code": 503}]}, Api_Key="other")
    assert (await wire.push("ann")).status == 204
    assert (await wire.push("ann", Api_Key="other")).status == 503


async def test_limits_are_set_shown_and_hold(api, wire):
    limits = await api.get("/limits")
    assert limits["max_users"] is None
    answer = await api.done("PUT", "/limits", {"max_users": 1, "quota": 3, "statuses": {"users": 422}})
    assert answer == await api.get("/limits") == {**limits, "max_users": 1, "quota": 3, "statuses": answer["statuses"]}
    assert (await wire.push("a", "b")).status == 422
    assert [(await wire.push("a")).status for _ in range(4)] == [204, 204, 204, 429]
    assert await api.done("PUT", "/limits", {}) == limits
    assert (await wire.push("a", "b")).status == 204


async def test_strict_is_a_limit(api, wire):
    await api.done("PUT", "/limits", {"strict": True})
    answer = await wire.send({"userIds": ["ann"], "message": {"androidEnable": True}})
    assert answer.status == 400
    assert "androidEnabled" in answer.json["error"]


async def test_the_clock_is_set_forward(api, wire):
    before = await api.get("/clock")
    assert before["ahead"] == 0
    after = await api.done("POST", "/clock", {"advance": 3600})
    assert after["ahead"] == 3600
    assert 3600 <= after["now"] - before["now"] < 4200
    await wire.push("ann")
    assert (await api.get("/requests"))["requests"][0]["time"] >= after["now"]


async def test_a_push_expires_when_the_clock_is_set_forward(api, wire):
    await wire.send({"userIds": ["ann"], "message": {**MESSAGE, "ttl": 60}})
    assert {device["state"] for device in (await api.user("ann"))["devices"]["ios"]} == {"delivered"}
    await api.done("POST", "/clock", {"advance": 61})
    assert {device["state"] for device in (await api.user("ann"))["devices"]["ios"]} == {"expired"}


async def test_a_reset_forgets_the_inbox_and_keeps_its_rules(api, wire):
    await api.done("PUT", "/faults", {"faults": [{"fault": "status", "code": 503, "first": 1}]})
    await api.done("PUT", "/limits", {"quota": 1})
    assert [(await wire.push("ann")).status for _ in range(3)] == [503, 204, 429]
    (inbox,) = await api.get("/inboxes")
    await api.done("POST", "/reset", {})
    assert (await api.user("ann"))["accepted"] == 0
    assert (await api.get("/requests"))["requests"] == []
    (rule,) = (await api.get("/faults"))["faults"]
    assert (rule["first"], rule["hits"]) == (1, 0)
    assert [(await wire.push("ann")).status for _ in range(3)] == [503, 204, 429]
    (inboxes,) = await api.get("/inboxes")
    assert (inboxes["inbox"], inboxes["requests"]) == (inbox["inbox"], 3)


# Requests that reached no inbox


async def test_requests_that_reached_no_inbox_are_listed_newest_first(api, wire):
    await wire.push("ann", path="/v1/pushes")
    await wire.push("ann", Api_Key=None)
    await wire.push("ann", Content_Type="text/plain")
    await api.raw("POST", "/somewhere", {})
    requests = await api.get("/unmatched", Api_Key=None)
    assert [(request["method"], request["path"], request["status"]) for request in requests] == [
        ("POST", "/somewhere", 404),
        ("POST", "/external/api/v1/push", 415),
        ("POST", "/external/api/v1/push", 401),
        ("POST", "/external/api/v1/pushes", 404),
    ]
    assert "/external/api/v1/push" in requests[-1]["error"]


async def test_strange_paths_that_reached_no_inbox_can_be_listed(api):
    for path in ("/%ff", "/%00%ed%a0%80", "/" + "x" * 5000):
        await api.raw("POST", path, {})
    requests = await api.get("/unmatched")
    assert len(requests) == 3
    assert all(len(request["path"]) <= 200 for request in requests)


# Deep and large values


async def test_a_value_nested_near_the_bound_is_shown_or_refused(api, wire):
    """Every accepted depth can be read back."""
    statuses = set()
    for depth in range(880, 1010, 5):
        body = b'{"userIds":["ann"],"message":{"x":%b1%b},"customFields":{"y":%b1%b}}' % (
            *(b"[" * depth, b"]" * depth),
            *(b"[" * depth, b"]" * depth),
        )
        if (await wire.send(body)).status != 204:
            continue
        newest = (await api.get("/requests?limit=1"))["requests"][0]["id"]
        answer = await api.raw("GET", f"/_emulator/v1/requests/{newest}")
        assert answer.status == 200
        answer = await api.raw("GET", "/_emulator/v1/users/ann")
        statuses.add(answer.status)
        assert answer.status == 200 or "nested too deeply" in answer.json["error"]
    assert 200 in statuses


async def test_a_response_nested_too_deeply_is_a_500(api, monkeypatch):
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    monkeypatch.setattr("pushsdk.emulator.control.handlers.PRESETS", {"deep": value})
    assert await api.refused("GET", "/presets") == (500, "a value in the response is nested too deeply to be shown")
    while value:
        value = value.pop()


async def test_large_numbers_come_back_as_they_were(api, wire):
    sent = {"userIds": ["ann"], "message": MESSAGE, "customFields": {"big": 10**40, "small": 5e-324}}
    await wire.send(sent)
    assert (await api.get("/requests/1"))["body"] == sent
    assert (await api.user("ann"))["pushes"][0]["custom_fields"] == sent["customFields"]


# The Emulator object beside the routes


async def test_a_reset_by_the_test_is_seen_on_the_wire(api, wire, emulator):
    await wire.push("ann")
    emulator.reset()
    assert (await api.get("/users"))["users"] == []


async def test_concurrent_calls_are_all_answered(api, wire):
    await wire.push("ann")
    answers = await asyncio.gather(*(api.get("/users") for _ in range(50)))
    assert all(answer["users"] == [{"user_id": "ann", "accepted": 1, "same": 1}] for answer in answers)


async def test_rules_of_the_emulator_never_act_on_control_routes(running):
    async with running(faults=[Fault.status(500)]) as wire:
        assert (await Api(wire.emulator).get("/users"))["users"] == []
        assert wire.emulator._inboxes.rules.hits() == Rules([Fault.status(500)]).hits()


# Before and after a request is sent


async def test_the_page_learns_the_key_of_the_emulator(api, wire, emulator):
    assert await api.get("/service") == {"api_key": emulator.api_key, "inbox": ""}
    await wire.push("ann")
    assert (await api.get("/service"))["inbox"] == emulator._store.find(emulator.api_key).name


@pytest.mark.parametrize(
    ("body", "error", "codes"),
    [
        ({"userIds": ["ann"], "message": {"iosEnabled": True, "title": {"en": "x"}}}, None, []),
        ({"userIds": ["ann"], "message": {"titel": 1}}, None, ["near-name", "no-platform", "no-text"]),
        ({"userIds": []}, "`$.userIds`", []),
        ({"userIds": ["ann"], "message": {"x": "x" * 70_000}}, None, ["large"]),
    ],
)
async def test_a_request_is_checked_without_being_sent(api, emulator, body, error, codes):
    result = await api.done("POST", "/lint", {"body": body})
    assert (error or "None") in str(result["error"])
    assert [advice["code"] for advice in result["lint"]] == codes
    assert emulator.requests == 0


async def test_requests_are_downloaded_as_json_lines(api, wire, emulator):
    await wire.push("ann")
    await wire.bytes(wire.head(1) + b"{")
    url = f"{emulator.url}/_emulator/v1/export?search="
    async with (
        aiohttp.ClientSession(headers={"Api-Key": emulator.api_key}) as session,
        session.get(url) as response,
    ):
        assert response.content_type == "application/jsonl"
        broken, accepted = map(json.loads, (await response.text()).splitlines())
    assert (broken["status"], broken["body"]) == (400, "{")
    assert (accepted["status"], accepted["body"]["userIds"]) == (204, ["ann"])


async def test_a_request_is_sent_into_an_inbox_without_its_key(api, wire, emulator):
    await wire.push("ann")
    (inbox,) = await api.get("/inboxes", Api_Key=None)
    path = f"/requests?inbox={inbox['inbox']}"
    result = await api.done("POST", path, {"userIds": ["ben"], "message": MESSAGE}, Api_Key=None)
    assert result == {"id": 2, "status": 204, "accepted": True, "body": ""}
    assert emulator.users() == {"ann": 1, "ben": 1}
    result = await api.done("POST", path, {"userIds": []}, Api_Key=None)
    assert (result["id"], result["status"], "`$.userIds`" in result["body"]) == (3, 400, True)
    result = await api.done("POST", f"{path}&endpoint=campaigns", {"name": "Spring"}, Api_Key=None)
    assert (result["status"], emulator.campaigns[0].uuid in result["body"]) == (200, True)


async def test_a_request_from_the_page_meets_the_faults_of_its_inbox(api, emulator):
    body = {"userIds": ["ann"], "message": MESSAGE}
    emulator.inbox().set_faults([Fault.status(503, body="later", first=1)])
    assert await api.done("POST", "/requests", body) == {"id": 1, "status": 503, "accepted": False, "body": "later"}
    for fault, accepted in ((Fault.reset_after(), True), (Fault.hang(), False), (Fault.truncated(), True)):
        emulator.inbox().set_faults([fault])  # the page's own connection is not cut
        result = await api.done("POST", "/requests", body)
        assert (result["status"], result["accepted"]) == (emulator.inbox().requests()[-1].status, accepted)
    assert emulator.accepted("ann") == 2


async def test_a_request_from_the_page_that_could_not_be_stored_is_not_accepted(api, emulator, monkeypatch):
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(emulator._store, "_drop_surplus", full)  # after the insert
    result = await api.done("POST", "/requests", {"userIds": ["ann"], "message": MESSAGE})
    assert (result["id"], result["status"], result["accepted"]) == (0, 507, False)
    assert (emulator.users(), "disk is full" in result["body"]) == ({}, True)


async def test_a_request_from_the_page_that_is_too_large_is_refused(running):
    async with running(max_body=100) as wire:
        result = await Api(wire.emulator).done("POST", "/requests", b'"%b"' % (b"x" * 100))
    assert (result["id"], result["status"], "100 bytes" in result["body"]) == (0, 413, True)


async def test_requests_of_all_inboxes_are_read_at_once(api, wire, emulator):
    await wire.push("ann")
    await wire.push("ann", Api_Key="another")
    await wire.push("ben", Api_Key="another")
    names = [inbox["inbox"] for inbox in await api.get("/inboxes", Api_Key=None)]  # the latest first
    requests = (await api.get("/requests?inbox=*", Api_Key=None))["requests"]
    assert [(request["id"], request["inbox"]) for request in requests] == [(3, names[0]), (2, names[0]), (1, names[1])]
    found = await api.get("/requests?inbox=*&search=user:ann", Api_Key=None)
    assert [request["id"] for request in found["requests"]] == [2, 1]
    assert (await api.get("/requests/2?inbox=*", Api_Key=None))["inbox"] == names[0]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{emulator.url}/_emulator/v1/export?inbox=*") as response,
    ):
        lines = (await response.text()).splitlines()
    assert [json.loads(line)["inbox"] for line in lines] == [names[0], names[0], names[1]]


async def test_a_stream_of_all_inboxes_has_the_requests_of_each(api, wire):
    async with api.events("?inbox=*", Api_Key=None) as events:
        await events.until("hello")
        await wire.push("ann")
        assert (await events.until("request"))[-1].data["id"] == 1
        await wire.push("ben", Api_Key="another")
        assert (await events.until("request"))[-1].data["id"] == 2


async def test_only_requests_are_read_over_all_inboxes(api):
    for method, path, body in (
        ("GET", "/users", None),
        ("PUT", "/faults", {}),
        ("DELETE", "/requests/1", None),
        ("POST", "/requests", {}),
        ("POST", "/reset", {}),
    ):
        assert (await api.refused(method, f"{path}?inbox=*", body, Api_Key=None))[0] == 404
