"""Admission of requests by host, origin, type and token; the Api-Key never leaves the emulator."""

import hmac
import logging
import re
from contextlib import suppress

import pytest

from pushsdk.emulator import Emulator, Fault
from pushsdk.emulator.control.routes import ROOT, ROUTES
from pushsdk.emulator.guard import Guard, Refused

PUSH = "/external/api/v1/push"
PATHS = ["/", "/nothing", f"{ROOT}/health", f"{ROOT}/users", PUSH]
TOKEN = "a-token-of-some-length"


@pytest.fixture
async def guarded(running):
    """An emulator with a token, called without the token."""
    async with running(host="0.0.0.0", token=TOKEN, hosts=["push.test"]) as wire:
        yield wire


def admits(check, *head):
    """Return True if the check admits this head."""
    with suppress(Refused):
        check(*head)
        return True
    return False


# Hosts and origins


@pytest.mark.parametrize(
    ("name", "values", "fix"),
    [
        (
            "Host",
            [
                *("evil.example:{port}", "localhost", "localhost:1", "localhost.evil.example:{port}", ""),
                *("127.0.0.2:{port}", "0.0.0.0:{port}", "[::]:{port}", "localhost:{port}@evil", "localhost:{port}/"),
            ],
            "pass further names as `hosts`",
        ),
        (
            "Origin",
            [
                *("https://evil.example", "null", "", "http://localhost:1", "localhost:{port}"),
                *("http://localhost:{port}.evil.example", "http://evil.example#http://localhost:{port}"),
            ],
            "other sites",
        ),
        ("Sec-Fetch-Site", ["cross-site", "same-site"], "other sites"),
    ],
)
async def test_requests_to_other_names_and_from_other_sites_are_refused(wire, emulator, name, values, fix):
    for value in values:
        for path in PATHS:
            method = "POST" if path == PUSH else "GET"
            answer = await wire.raw(method, path, None, **{name: value.replace("{port}", str(wire.port))})
            assert answer.status == 403, (value, path)
            assert fix in answer.json["error"]
    assert emulator.pushes == ()


async def test_the_emulators_own_page_is_allowed(wire):
    for name in ("localhost", "LOCALHOST", "127.0.0.1", "[::1]"):
        host = f"{name}:{wire.port}"
        headers = {"Host": host, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
        assert (await wire.ask("GET", "/users", **headers)).status == 200
        assert (await wire.push("ann", **headers)).status == 204


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
async def test_a_form_or_a_preflight_of_another_site_changes_nothing(wire, kind):
    await wire.push("ann")
    body = {"advance": 1, "label": "x", "preset": "flaky"}
    for route in (route for route in ROUTES if route.method in ("POST", "PUT")):
        answer = await wire.raw(route.method, f"{ROOT}{_filled(route)}", body, Content_Type=kind)
        assert answer.status == 415
        assert "application/json" in answer.json["error"]
        headers = {"Origin": f"http://{wire.host}", "Access_Control_Request_Method": route.method}
        preflight = await wire.raw("OPTIONS", f"{ROOT}{_filled(route)}", **headers)  # it also has no CORS headers
        assert preflight.status == 405
    assert (await wire.get("/inboxes"))[0]["label"] == "Inbox 1"


def _filled(route):
    return re.sub(r"\{.*?\}", "1", route.path)


@pytest.mark.parametrize(
    ("port", "host", "admitted"),
    [
        (8025, "PUSH.test:8025", True),
        (8025, "proxy.test:443", True),
        (8025, "[fd00::7]:8025", True),
        (8025, "push.test", False),
        (80, "push.test", True),
    ],
)
def test_a_named_host_needs_the_emulators_port_unless_it_names_one(port, host, admitted):
    guard = Guard(max_body=1, hosts=["Push.Test", "proxy.test:443", "[fd00::7]"])
    guard.listen(port)
    assert admits(guard.check_origin, {"Host": host}) == admitted
    assert admits(guard.check_origin, {"Host": host, "Origin": f"https://{host}"}) == admitted


# The token


@pytest.mark.parametrize(
    "head",
    [
        b"GET /%b HTTP/1.1\r\n" % (b"x" * 100_000),
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (number, b"y" * 100) for number in range(10_000)),
        b"PUT / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
        b"PUT / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    ],
)
async def test_a_hostile_head_is_refused_without_a_log_line(wire, head, caplog):
    ending = f"Host: {wire.host}\r\nConnection: close\r\n\r\n0\r\n\r\n".encode()
    with suppress(ConnectionError):  # the emulator stops reading
        assert (await wire.bytes(head + ending)).status >= 400
    assert (await wire.get("/health"))["status"] == "ok"
    assert caplog.records == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_host_beyond_loopback_requires_the_token(host):
    with pytest.raises(ValueError, match="token"):
        Emulator(host=host, token="")


@pytest.mark.parametrize("authorization", [*(None, f"Basic {TOKEN}", f"Bearer{TOKEN}", f"Bearer {TOKEN}x")])
async def test_without_the_token_every_route_is_refused(guarded, authorization):
    await guarded.push("ann-secret")
    for route in (route for route in ROUTES if not route.open):
        answer = await guarded.raw(route.method, f"{ROOT}{_filled(route)}", {}, Authorization=authorization)
        assert answer.status == 401, route.path
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "secret" not in answer.body.decode()
        assert TOKEN not in answer.body.decode()
    assert (await guarded.raw("GET", f"{ROOT}/nothing", Authorization=authorization)).status == 401


async def test_the_token_opens_the_routes_for_the_named_hosts(guarded):
    await guarded.push("ann")
    token = {"Authorization": f"bearer  {TOKEN} "}
    users = await guarded.get("/users", Host=f"push.test:{guarded.port}", **token)
    assert users["users"][0]["user_id"] == "ann"
    for headers in ({"Origin": "https://evil.example"}, {"Host": f"other.test:{guarded.port}"}):
        assert (await guarded.refused("GET", "/users", **token, **headers))[0] == 403


async def test_health_and_the_page_need_no_token_and_hold_no_data(guarded):
    assert (await guarded.get("/health"))["status"] == "ok"
    for path in ("/", "/main.js", f"{ROOT}/health", f"{ROOT}/openapi.json"):
        answer = await guarded.raw("GET", path)
        assert answer.status == 200
        assert TOKEN not in answer.body.decode()


@pytest.mark.parametrize("value", ["wrong", "ü😀", "\udcff"])
def test_tokens_of_any_characters_are_compared_in_constant_time(monkeypatch, value):
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *pair: compared.append(pair) or pair[0] == pair[1])
    guard = Guard(max_body=1, token="ü😀")
    guard.listen(80)
    head = {"Host": "localhost", "Authorization": f"Bearer {value}"}
    assert admits(guard.check_control, "GET", head) == (value == "ü😀")
    assert compared == [(value.encode("utf-8", "surrogateescape"), "ü😀".encode())]


# The Api-Key


async def test_the_key_is_only_in_the_request_and_in_the_route_that_shows_it(running, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    key = "the-secret-key-of-somebody"
    user = "ann-secret"
    async with running(store=tmp_path / "store", api_key=key, faults=[Fault.status(503, user="bob")]) as wire:
        answers = [await wire.push(user), await wire.push("bob"), await wire.campaign(), await wire.send(b"{")]
        answers.append(await wire.push("ann", path="/v1/nothing"))
        assert key == (await wire.get("/service"))["api_key"]  # the page shows this key; nothing else does
        async with wire.events() as events:
            texts = [repr(await events.next()), repr(wire.emulator), repr(wire.emulator.inbox())]
        for route in ROUTES:
            if route.method == "GET" and route.path not in ("/service", "/events"):
                path = route.path.format(number="1", user="1", uuid=answers[2].json["uuid"])
                answers.append(await wire.raw("GET", f"{ROOT}{path}"))
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert any(user.encode() in content for content in files)
    for content in (*files, *(answer.body for answer in answers), "".join((*texts, caplog.text)).encode()):
        assert key[:8].encode() not in content
    assert user not in caplog.text
