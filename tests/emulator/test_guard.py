"""Admission of requests by host, origin, type and token; the Api-Key never leaves the emulator."""

import hmac
import json
import logging
import re
from contextlib import suppress

import pytest
from support.control_api import Api

from pushsdk.emulator import Emulator, Fault
from pushsdk.emulator.control.routes import ROOT, ROUTES, Route
from pushsdk.emulator.guard import Guard, Refused

PATHS = ["/", "/main.js", "/nothing", f"{ROOT}/health", f"{ROOT}/openapi.json", f"{ROOT}/users", f"{ROOT}/inboxes"]
TOKEN = "a token of some length"


@pytest.fixture
def api(emulator: Emulator) -> Api:
    return Api(emulator)


@pytest.fixture
async def guarded(running):
    """An emulator with a token, called without the token."""
    async with running(host="0.0.0.0", token=TOKEN, hosts=["push.test"]) as wire:
        yield Api(wire.emulator)


def refuses(check, *head):
    """Return True if the check refuses this head."""
    try:
        check(*head)
    except Refused:
        return True
    return False


# Hosts and origins


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:{port}", "localhost", "localhost:1", "localhost.evil.example:{port}"),
        *("127.0.0.1.nip.io:{port}", "127.0.0.2:{port}", "0.0.0.0:{port}", "[::]:{port}", "2130706433:{port}"),
        *("evil@localhost:{port}", "localhost:{port}@evil", "localhost:{port}/", "localhost:0{port}", "", ":{port}"),
    ],
)
async def test_a_foreign_host_is_refused_with_the_fix(api, host):
    port = api.host.rpartition(":")[2]
    for path in PATHS:
        answer = await api.raw("GET", path, Host=host.replace("{port}", port))
        assert answer.status == 403
        assert "localhost" in answer.json["error"]
        assert "`hosts`" in answer.json["error"]


async def test_a_request_without_a_host_is_refused(api):
    assert (await api.raw("GET", f"{ROOT}/users", Host=None)).status in (400, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://{host}.evil.example"},
        {"Origin": "http://evil.example#http://{host}"},
        {"Origin": "http://evil@{host}"},
        {"Origin": "{host}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://{host}"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
    ],
)
async def test_requests_from_other_sites_are_refused(api, headers):
    headers = {name: value.replace("{host}", api.host) for name, value in headers.items()}
    for path in PATHS:
        answer = await api.raw("GET", path, **headers)
        assert answer.status == 403
        assert "other sites" in answer.json["error"]


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_the_emulators_own_page_is_allowed(api, site):
    assert (await api.ask("GET", "/users", Origin=f"http://{api.host}", Sec_Fetch_Site=site)).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "http://{host}"])
async def test_a_preflight_gets_no_permission_on_any_route(api, origin):
    for route in ROUTES:
        answer = await api.raw(
            "OPTIONS",
            f"{ROOT}{_filled(route)}",
            Origin=origin.replace("{host}", api.host),
            Access_Control_Request_Method=route.method,
            Access_Control_Request_Headers="api-key,content-type",
            Access_Control_Request_Private_Network="true",
        )
        assert answer.status in (403, 405)
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "kind",
    [
        *(None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
        *("application/jsonx", "text/plain; application/json"),
    ],
)
async def test_a_form_of_another_site_changes_nothing(api, wire, kind):
    await wire.push("ann")
    body = {"advance": 1, "label": "x", "preset": "flaky", "enabled": True}
    for route in (route for route in ROUTES if route.method in ("POST", "PUT", "PATCH")):
        answer = await api.raw(route.method, f"{ROOT}{_filled(route)}", body, Content_Type=kind)
        assert answer.status == 415
        assert "application/json" in answer.json["error"]
    assert (await api.get("/inboxes"))[0]["label"] == "Inbox 1"


def _filled(route: Route) -> str:
    return re.sub(r"\{.*?\}", "1", route.path)


def test_named_hosts_are_accepted_with_either_port():
    guard = Guard(port=8025, max_body=1, hosts=["Push.Test", "proxy.test:443", "10.0.0.7"])
    results = {
        host: not refuses(guard.check_origin, {"Host": host})
        for host in ("push.test:8025", "PUSH.TEST:8025", "proxy.test:443", "10.0.0.7:8025", "push.test", "proxy.test")
    }
    assert list(results.values()) == [True, True, True, True, False, False]
    assert not refuses(guard.check_origin, {"Host": "proxy.test:443", "Origin": "https://proxy.test:443"})


def test_a_named_ipv6_address_has_no_port():
    guard = Guard(port=8025, max_body=1, hosts=["[fd00::7]"])
    assert not refuses(guard.check_origin, {"Host": "[fd00::7]:8025"})
    assert refuses(guard.check_origin, {"Host": "[fd00::7]"})


# Other hostile requests


@pytest.mark.parametrize(
    "request_line",
    [b"GET /%s HTTP/1.1" % (b"x" * 100_000), b"GET / HTTP/9.9", b"\x16\x03\x01\x02\x00", b"CONNECT evil:1 HTTP/1.1"],
)
async def test_a_hostile_request_line_is_harmless(api, request_line):
    await api.bytes(request_line + f"\r\nHost: {api.host}\r\nConnection: close\r\n\r\n".encode())
    assert (await api.get("/health"))["status"] == "ok"


@pytest.mark.parametrize("headers", [{f"X-{number}": "y" * 100 for number in range(10_000)}, {"X": "y" * 1_000_000}])
async def test_a_flood_of_headers_is_refused(api, headers):
    with suppress(ConnectionError):  # the emulator stops reading
        assert (await api.raw("GET", f"{ROOT}/users", **headers)).status == 400
    assert (await api.get("/health"))["status"] == "ok"


@pytest.mark.parametrize(
    "lengths", ["Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\nTransfer-Encoding: chunked"]
)
async def test_a_body_of_two_lengths_is_refused(api, lengths):
    head = f"PUT {ROOT}/label HTTP/1.1\r\nHost: {api.host}\r\nApi-Key: k\r\n{lengths}\r\nConnection: close\r\n\r\n"
    assert (await api.bytes(head.encode() + b"0\r\n\r\n")).status == 400


# The token


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5"])
def test_a_host_beyond_loopback_requires_the_token(host):
    with pytest.raises(ValueError, match="token"):
        Emulator(host=host)
    with pytest.raises(ValueError, match="token"):
        Emulator(host=host, token="")


@pytest.mark.parametrize(
    "authorization",
    [
        *(None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Token {TOKEN}", f"Bearer{TOKEN}", "Bearer wrong"),
        *(f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN.upper()}", "Bearer \udcff\udcfe", "Bearer ü"),
    ],
)
async def test_without_the_token_every_route_is_refused(guarded, authorization):
    await guarded.raw("POST", "/external/api/v1/push", {"userIds": ["ann-secret"], "message": {}})
    for route in (route for route in ROUTES if not route.open):
        answer = await guarded.raw(route.method, f"{ROOT}{_filled(route)}", {}, Authorization=authorization)
        assert (route.name, answer.status) == (route.name, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "secret" not in answer.body.decode()
        assert TOKEN not in answer.body.decode()


async def test_without_the_token_an_unknown_route_looks_the_same(guarded):
    assert (await guarded.raw("GET", f"{ROOT}/nothing")).status == 401
    assert (await guarded.raw("OPTIONS", f"{ROOT}/users")).status == 401


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer  {TOKEN} "])
async def test_with_the_token_the_routes_are_open(guarded, authorization):
    await guarded.raw("POST", "/external/api/v1/push", {"userIds": ["ann"], "message": {}})
    assert (await guarded.get("/users", Authorization=authorization))["users"][0]["user_id"] == "ann"


async def test_health_and_the_page_need_no_token_and_hold_no_data(guarded):
    for path in ("/", "/main.js", f"{ROOT}/health", f"{ROOT}/openapi.json"):
        answer = await guarded.raw("GET", path)
        assert answer.status == 200
        assert TOKEN not in answer.body.decode()


async def test_the_token_does_not_admit_other_sites(guarded):
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        assert (await guarded.ask("GET", "/users", Authorization=f"Bearer {TOKEN}", **headers)).status == 403


async def test_unnamed_hosts_are_refused(guarded):
    port = guarded.host.rpartition(":")[2]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert (await guarded.ask("GET", "/users", Host=f"push.test:{port}", **headers)).status == 200
    status, error = await guarded.refused("GET", "/users", Host=f"other.test:{port}", **headers)
    assert status == 403
    assert "push.test" in error
    assert "`hosts`" in error


@pytest.mark.parametrize("value", ["wrong", TOKEN, ""])
def test_tokens_are_compared_in_constant_time(monkeypatch, value):
    compared = []

    def compare(first: bytes, right: bytes) -> bool:
        compared.append((first, right))
        return first == right

    monkeypatch.setattr(hmac, "compare_digest", compare)
    guard = Guard(port=80, max_body=1, token=TOKEN)
    head = {"Host": "localhost", "Authorization": f"Bearer {value}"}
    assert refuses(guard.check_control, "GET", head) == (value != TOKEN)
    assert compared == [(value.encode(), TOKEN.encode())]


def test_a_token_of_any_characters_is_a_token():
    guard = Guard(port=80, max_body=1, token="ü😀")
    assert not refuses(guard.check_control, "GET", {"Host": "localhost", "Authorization": "Bearer ü😀"})
    assert refuses(guard.check_control, "GET", {"Host": "localhost", "Authorization": "Bearer \udcff"})


# Api-Key and user ids


async def test_the_key_is_only_in_the_request_and_in_the_route_that_shows_it(running, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    key, user = "the-secret-key-of-somebody", "ann-secret"
    async with running(store=tmp_path / "store", api_key=key, faults=[Fault.status(503, every=2)]) as wire:
        api = Api(wire.emulator)
        bodies = []
        for number in range(4):
            bodies.append((await wire.push(user, str(number))).text.encode())
        await wire.campaign()
        for sent in (b"{", b"[]", {"userIds": [user], "message": {"ttl": user}}):
            bodies.append((await wire.send(sent)).text.encode())
        await wire.push("ann", path="/v1/nothing")
        async with api.events() as events:
            bodies.append(repr(await events.next()).encode())
        (campaign,) = await api.get("/campaigns")
        names = {"id": "1", "uuid": campaign["uuid"], "name": "x"}
        assert key == (await api.get("/service"))["api_key"]  # the page shows the emulator's own key; nothing else does
        skipped = ("get_service", "post_reset", "delete_requests", "delete_requests_id")
        for route in ROUTES:
            if route.response is not None and route.name not in skipped:
                path = re.sub(r"\{(.*?)\}", lambda match: names[match[1]], route.path)
                body = None if route.method in ("GET", "DELETE") else {"advance": 1, "label": "x", "enabled": True}
                bodies.append((await api.raw(route.method, f"{ROOT}{path}", body)).body)
        inside = [
            wire.emulator,
            wire.emulator.inbox(),
            wire.emulator._inboxes,
            wire.emulator._store,
            wire.emulator._service,
        ]
        text = b"\n".join([*bodies, repr(inside).encode(), caplog.text.encode()])
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert any(user.encode() in content for content in files)
    for content in (text, *files):
        assert key.encode() not in content
        assert json.dumps(key).encode() not in content
        assert key[:8].encode() not in content
    assert user not in caplog.text


async def test_a_key_in_the_query_is_ignored(api, emulator):
    status, error = await api.refused("GET", f"/users?api_key={emulator.api_key}", Api_Key=None)
    assert status == 400
    assert emulator.api_key not in error
