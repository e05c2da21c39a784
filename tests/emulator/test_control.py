"""The control routes on the wire: journeys through each resource, and one table of wrong requests."""

import json
import sqlite3
from functools import reduce
from urllib.parse import quote

from support.control_api import Api

from pushsdk.emulator import Fault
from pushsdk.emulator.inboxes import Inboxes
from pushsdk.emulator.store.queries import Store

MESSAGE = {"title": {"en": "Hello"}, "body": {"en": "World"}, "iosEnabled": True, "androidEnabled": True}
WRONG = [
    # Paths and methods
    ("GET", "", None, 404, "openapi.json"),
    ("GET", "/requests/x", None, 404, "no such route"),
    ("GET", f"/requests/{'9' * 19}", None, 404, "no such route"),
    ("GET", "/requests/7", None, 404, "no request with this id"),
    ("DELETE", "/health", None, 405, "GET"),
    ("OPTIONS", "/requests", None, 405, "GET or POST or DELETE"),
    # Queries
    ("GET", "/users?unknown=1", None, 400, "unknown"),
    ("GET", "/users?search=a&search=b", None, 400, "repeated"),
    ("GET", "/users?limit=0", None, 400, "limit"),
    ("DELETE", "/requests?search=%20", None, 400, "all=true"),
    ("DELETE", "/requests?search=x%20title:", None, 400, "without a value"),
    ("DELETE", "/requests?search=x&all=true", None, 400, "either"),
    # Inboxes: only requests are read over all of them
    ("GET", "/users?inbox=nobody", None, 404, "GET /inboxes lists them"),
    ("GET", "/users?inbox=*", None, 404, "GET /inboxes lists them"),
    # Bodies
    ("PUT", "/label", b"", 400, "`label`"),
    ("PUT", "/label", b'{"label":"\xff"}', 400, "the body is invalid: "),
    ("PUT", "/label", {"label": "x" * 201}, 400, "$.label"),
    ("POST", "/lint", b'{"body":{"x":' + b"[" * 100_000, 400, "nested too deeply"),
    ("PUT", "/faults", [{"fault": "hang"}], 400, ": an object with faults, preset, seed"),
    ("POST", "/clock", {"advance": -1}, 400, "$.advance"),
    ("PUT", "/faults", {}, 400, "either"),
    ("PUT", "/faults", {"preset": "x"}, 400, "flaky"),
    ("PUT", "/faults", {"faults": [{"fault": "status", "code": 1}]}, 400, "; got 1 - at `$.faults[0]`"),
]


def encoded(text):
    return quote(text, safe="")


async def test_a_wrong_request_says_why_and_changes_nothing(wire):
    await wire.push("ann")
    for method, path, body, status, word in WRONG:
        answer = await wire.raw(method, f"/_emulator/v1{path}", body)
        assert answer.status == status, (method, path)
        assert word in answer.json["error"]
    assert (await wire.ask("PUT", "/requests", {})).headers["allow"] == "GET, POST, DELETE"
    (inbox,) = await wire.get("/inboxes")
    assert inbox["label"] == "Inbox 1"
    assert inbox["requests"] == 1
    assert await wire.get("/faults") == {"faults": [], "seed": 0}
    assert (await wire.get("/clock"))["ahead"] == 0


async def test_an_error_of_the_emulator_is_a_500_in_its_log(wire, emulator, monkeypatch, caplog, tmp_path):
    for name in ("inboxes", "inbox"):
        monkeypatch.setattr(Store, name, lambda *_: tmp_path.read_text())
    assert (await wire.raw("GET", "/_emulator/v1/inboxes")).status == 500
    assert (await wire.push("ann", Api_Key="another")).status == 500
    assert [record.name for record in caplog.records] == ["pushsdk.emulator"] * 2
    assert emulator.api_key not in caplog.text


async def test_what_the_store_can_not_write_is_507_and_not_accepted(running, tmp_path, monkeypatch):
    monkeypatch.setattr("pushsdk.emulator.store.database._BUSY", 0.01)
    async with running(store=tmp_path / "store") as wire:
        await wire.push("ann")
        foreign = sqlite3.connect(tmp_path / "store")
        foreign.execute("BEGIN IMMEDIATE")  # another program
        error = "the emulator's store can't be written: database is locked"
        assert await wire.refused("PUT", "/label", {"label": "after"}) == (507, error)
        for key in (wire.emulator.api_key, "a new key"):
            assert (await wire.push("bob", Api_Key=key)).status == 507
        (unmatched,) = await wire.get("/unmatched")
        assert unmatched["error"] == error
        foreign.close()
        await wire.push("ann")
        assert wire.emulator.users() == {"ann": 2}


# Inboxes


async def test_each_key_has_an_inbox_which_is_also_read_by_its_public_name(wire, emulator, monkeypatch):
    status, error = await wire.refused("GET", "/users", Api_Key="")
    assert status == 401
    assert "Api-Key" in error
    assert "?inbox=" in error
    (inbox,) = await wire.get("/inboxes")
    assert await wire.get("/service") == {"api_key": emulator.api_key, "inbox": inbox["inbox"]}
    await wire.push("ann")
    other = Api(emulator, Api_Key="another")
    assert await other.get("/users") == {"users": [], "next": None}
    assert (await other.refused("GET", "/requests/1"))[0] == 404
    assert (await other.done("DELETE", "/requests/1"))["deleted"] == 0
    await wire.push("bob", Api_Key="another")
    second, first = await wire.get("/inboxes", Api_Key=None)  # the latest first
    assert [(inbox["label"], inbox["requests"]) for inbox in (first, second)] == [("Inbox 1", 1), ("Inbox 2", 1)]
    users = await wire.get(f"/users?inbox={first['inbox']}", Api_Key=None)
    assert users == {"users": [{"user_id": "ann", "accepted": 1, "same": 1}], "next": None}
    monkeypatch.setattr("pushsdk.emulator.inboxes._MAX_INBOXES", 2)
    status, error = await wire.refused("GET", "/users", Api_Key="one more")
    assert status == 507
    assert "there are 2 inboxes" in error


async def test_requests_are_read_over_all_inboxes(wire):
    await wire.push("ann")
    async with wire.events("?inbox=*", Api_Key=None) as events:
        await events.until("hello")
        await wire.push("ann", Api_Key="another")
        assert (await events.until("request"))[-1].data["id"] == 2
    second, first = [inbox["inbox"] for inbox in await wire.get("/inboxes")]
    requests = (await wire.get("/requests?inbox=*&search=user:ann", Api_Key=None))["requests"]
    assert [(request["id"], request["inbox"]) for request in requests] == [(2, second), (1, first)]
    assert [line["inbox"] for line in await downloaded(wire, "inbox=*")] == [second, first]


async def downloaded(wire, query):
    answer = await wire.raw("GET", f"/_emulator/v1/export?{query}")
    assert answer.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in answer.body.splitlines()]


async def pages(wire, path, mark):
    """Return the rows of each page."""
    found = []
    more = ""
    while more is not None:
        rows, after = (await wire.get(f"{path}{more}")).values()
        found.append(rows)
        more = after and f"&{mark}={encoded(str(after))}"
    return found


# Users


async def test_a_user_has_pushes_oldest_first_and_notifications_which_expire(wire):
    sent = {"userIds": ["a/b", "a/b"], "message": {**MESSAGE, "ttl": 60}, "customFields": {"a": 10**40}}
    await wire.send(sent)
    await wire.push("a/b")
    first, second = (await wire.user("a/b"))["pushes"]
    assert first["times"] == 2
    assert first["message"] == sent["message"]
    assert first["custom_fields"] == sent["customFields"]
    assert second["times"] == 1
    assert second["custom_fields"] is None
    assert (await wire.done("POST", "/clock", {"advance": 3600}))["ahead"] == 3600
    devices = (await wire.user("a/b"))["devices"]
    assert [card["state"] for name in devices for card in devices[name]] == ["expired"] * 2
    await wire.push("ann")
    assert 3600 <= (await wire.get("/requests"))["requests"][0]["time"] - first["time"] < 4200


async def test_users_are_paged_by_id_and_searched_literally(wire):
    names = ["ANN", "a%n", "a_n", "ann", "u2", "u10"]  # as people count
    await wire.push(*sorted(names))
    await wire.push("ann")
    found = await pages(wire, "/users?limit=2", "after")
    assert [[user["user_id"] for user in users] for users in found] == [names[:2], names[2:4], names[4:]]
    for search in names:
        page = await wire.get(f"/users?search={encoded(search)}")
        assert [user["user_id"] for user in page["users"]] == [search]
    assert await wire.get("/duplicates") == [{"user_id": "ann", "accepted": 2, "same": 2}]


# Requests


async def test_requests_are_paged_newest_first_and_grouped(wire):
    for title in ("one", "one", "two", "three", "three"):
        await wire.send({"userIds": ["ann"], "message": {"title": {"en": title}}})
    for query, expected in (
        ("limit=2", [[(5, 4, 1), (4, 4, 1)], [(3, 3, 1), (2, 1, 1)], [(1, 1, 1)]]),
        ("after=3", [[(5, 4, 1), (4, 4, 1)]]),
        ("grouped=true&limit=2", [[(5, 4, 2), (3, 3, 1)], [(2, 1, 2)]]),
    ):
        found = await pages(wire, f"/requests?{query}", "before")
        assert [[(row["id"], row["group"], row["requests"]) for row in rows] for rows in found] == expected


async def test_requests_are_searched_downloaded_and_deleted(wire, emulator):
    for user in ("ann", "bob"):
        await wire.push(user)
    await wire.campaign()
    await wire.send(b"{")
    for search, found in (("", [4, 3, 2, 1]), ("title:hel lang:en", [3, 2, 1]), ("is:refused status:4xx", [4])):
        requests = (await wire.get(f"/requests?search={encoded(search)}"))["requests"]
        assert [request["id"] for request in requests] == found, search
    broken, _, *_, oldest = await downloaded(wire, "search=")
    assert broken["status"] == 400
    assert broken["body"] == "{"
    assert oldest["status"] == 204
    assert oldest["body"]["userIds"] == ["ann"]
    for path, deleted in (("?search=user:ann", 1), ("/2", 1), ("/2", 0), ("?all=true", 2)):
        assert await wire.done("DELETE", f"/requests{path}") == {"deleted": deleted}
    assert (await wire.get("/requests"))["requests"] == []
    assert emulator.users() == {"ann": 1, "bob": 1}  # the counts stay


async def test_requests_that_reached_no_inbox_are_listed_newest_first(wire):
    await wire.push("ann", path="/v1/pushes")
    await wire.push("ann", Api_Key=None)
    for path in ("/%ff", "/" + "x" * 5000):
        await wire.raw("POST", path, {})
    long, strange, without_key, missing = await wire.get("/unmatched", Api_Key=None)
    assert without_key["method"] == "POST"
    assert without_key["path"] == "/external/api/v1/push"
    assert without_key["status"] == 401
    assert missing["status"] == 404
    assert "/external/api/v1/push" in missing["error"]
    assert len(long["path"]) == 200
    assert strange["status"] == 404


async def test_a_value_nested_near_the_bound_is_shown_or_refused(wire, monkeypatch):
    """Every accepted depth can be read back."""
    statuses = set()
    for depth in range(880, 1010, 5):
        value = b"[" * depth + b"1" + b"]" * depth
        body = b'{"userIds":["ann"],"message":{"x":%b},"customFields":{"y":%b}}' % (value, value)
        if (await wire.send(body)).status != 204:
            continue
        newest = (await wire.get("/requests?limit=1"))["requests"][0]["id"]
        assert (await wire.raw("GET", f"/_emulator/v1/requests/{newest}")).status == 200
        answer = await wire.raw("GET", "/_emulator/v1/users/ann")
        statuses.add(answer.status)
        assert answer.status == 200 or "nested too deeply" in answer.json["error"]
    assert 200 in statuses
    deep = reduce(lambda inner, _: [inner], range(100_000), [])
    monkeypatch.setattr(Inboxes, "views", lambda _: deep)
    assert await wire.refused("GET", "/inboxes") == (500, "a value in the response is nested too deeply to be shown")


# Faults, limits, reset


async def test_rules_act_in_one_inbox(running):
    async with running(faults=[Fault.status(500, name="all")]) as wire:
        assert [rule["name"] for rule in (await wire.get("/faults"))["faults"]] == ["all"]
        await wire.done("PUT", "/faults", {"faults": [{"fault": "status", "code": 503, "name": "a/b"}]})
        assert (await wire.push("ann")).status == 503
        assert (await wire.push("ann", Api_Key="other")).status == 500
        rule = {"fault": "status", "code": 503, "name": "a/b", "hits": 1}
        assert await wire.get("/faults") == {"faults": [rule], "seed": 0}
        assert await wire.done("PUT", "/faults", {"faults": []}) == {"faults": [], "seed": 0}
        assert (await wire.push("ann")).status == 204


async def test_a_reset_empties_the_inbox_and_restarts_its_rules(wire):
    await wire.done("PUT", "/faults", {"faults": [{"fault": "status", "code": 503, "first": 1}]})
    await wire.done("PUT", "/limits", {"quota": 1})
    await wire.done("PUT", "/label", {"label": "Mine <b>"})
    (inbox,) = await wire.get("/inboxes")
    for _ in range(2):
        assert [(await wire.push("ann")).status for _ in range(3)] == [503, 204, 429]
        await wire.done("POST", "/reset", {})
        assert await wire.get("/requests") == {"requests": [], "next": None}
        assert [rule["hits"] for rule in (await wire.get("/faults"))["faults"]] == [0]
    assert await wire.get("/inboxes") == [inbox]
    assert inbox["label"] == "Mine <b>"


# Requests from the page


async def test_a_request_is_checked_without_being_sent(wire, emulator):
    for body, error, codes in (
        ({"userIds": ["ann"], "message": {"titel": 1}}, "None", ["near-name", "no-platform", "no-text"]),
        ({"userIds": []}, "`$.userIds`", []),
        ({"userIds": ["ann"], "message": {"x": "x" * 70_000}}, "None", ["large"]),
    ):
        result = await wire.done("POST", "/lint", {"body": body})
        assert error in str(result["error"])
        assert [advice["code"] for advice in result["lint"]] == codes
    assert emulator.requests == 0


async def test_a_request_is_sent_into_an_inbox_without_its_key_and_meets_its_faults(running):
    async with running(max_body=100) as wire:
        emulator = wire.emulator
        body = {"userIds": ["ben"], "message": {}}
        path = f"/requests?inbox={(await wire.get('/inboxes'))[0]['inbox']}"
        for sent, number, status, text in (
            (body, 1, 204, ""),
            ({"userIds": []}, 2, 400, "`$.userIds`"),
            (b'"%b"' % (b"x" * 100), 0, 413, "100 bytes"),
        ):
            result = await wire.done("POST", path, sent, Api_Key=None)
            assert result["id"] == number
            assert result["status"] == status
            assert text in result["body"]
        assert (await wire.refused("PUT", "/label", b" " * 101))[0] == 413
        result = await wire.done("POST", f"{path}&endpoint=campaigns", {"name": "Spring"})
        assert emulator.campaigns[0].uuid in result["body"]
        for fault, accepted in ((Fault.reset_after(), True), (Fault.hang(), False), (Fault.truncated(), True)):
            emulator.inbox().set_faults([fault])  # the page's own connection is not cut
            result = await wire.done("POST", path, body)
            assert result["status"] is None
            assert result["accepted"] == accepted
        assert emulator.users() == {"ben": 3}
