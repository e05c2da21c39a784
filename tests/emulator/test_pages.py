"""The page's files on the wire, and their content security policy."""

import re
from importlib.resources import files

import pytest
from support.control_api import Api

from pushsdk.emulator import Emulator

STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
PAGE_FILES = (file.name for file in (files("pushsdk.emulator") / "web").iterdir())
FILES = sorted(name for name in PAGE_FILES if not name.startswith("__") and not name.endswith((".py", ".template")))

ELSEWHERE = [
    *("/nothing", "/main.js/", "//main.js", "/./main.js", "/main.js%00", "/MAIN.JS", "/main", "/.", "/.."),
    *("/web/main.js", "/web", "/%ff", "/index.html%20", "/__init__.py", "/pages.py", "/x/../../pages.py"),
    *("/../pages.py", "/../../emulator/pages.py", "/%2e%2e/pages.py", "/..%2fpages.py", "/%2e%2e%2fpages.py"),
    *("/..%5cpages.py", "/..\\pages.py", "/....//pages.py", "/%252e%252e/pages.py", "//etc/passwd"),
    *("/%2fetc/passwd", "/etc/passwd", "/C:%5cwindows", "/file:///etc/passwd"),
    *("/_emulator", "/_emulator/v2/health"),
]


@pytest.fixture
def api(emulator: Emulator) -> Api:
    return Api(emulator, Api_Key=None)


async def test_the_page_is_at_the_root(api):
    answer = await api.raw("GET", "/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.body.lower().startswith(b"<!doctype html>")
    assert (await api.raw("GET", "/index.html")).body == answer.body


async def test_every_file_is_served_with_its_type_and_the_policy(api):
    kind = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for name in FILES:
        answer = await api.raw("GET", f"/{name}")
        assert answer.status == 200
        assert answer.body == (files("pushsdk.emulator") / "web" / name).read_bytes()
        assert answer.headers["content-type"] == f"{kind[name.rpartition('.')[2]]}; charset=utf-8"
        assert answer.headers["content-security-policy"] == STRICT
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-cache"


async def test_every_referenced_file_exists(api):
    """Without a browser: every imported, linked and loaded file."""
    for name in FILES:
        content = (await api.raw("GET", f"/{name}")).body.decode()
        for other in re.findall(r"""(?:from|import|src=|href=)\s*\(?["'](?:\./)?([\w-]+\.\w+)["']""", content):
            assert (await api.raw("GET", f"/{other}")).status == 200, f"{name} names {other}"


async def test_images_widen_nothing_else(api):
    answer = await api.raw("GET", "/?images=1")
    assert answer.headers["content-security-policy"] == STRICT.replace("img-src 'self'", "img-src 'self' https: http:")
    for query in ("?images=0", "?images=", "?images=1%201", "?images=%27unsafe-inline%27", "?images=true", "?x=1"):
        assert (await api.raw("GET", f"/{query}")).headers["content-security-policy"] == STRICT


@pytest.mark.parametrize("name", ["/", "/main.js", "/nothing"])
async def test_head_says_the_same_without_the_body(api, name):
    response, head = await api.raw("GET", name), await api.raw("HEAD", name)
    assert (head.status, head.body) == (response.status, b"")
    changing = {"date"}
    assert {key: value for key, value in head.headers.items() if key not in changing} == {
        key: value for key, value in response.headers.items() if key not in changing
    }


async def test_nothing_else_is_served(api):
    for method in ("GET", "HEAD"):
        for path in ELSEWHERE:
            answer = await api.raw(method, path)
            assert answer.status == 404, path
            assert b"import" not in answer.body
            assert b"root:" not in answer.body


@pytest.mark.parametrize(
    ("path", "headers"), [("/nothing", {}), ("/", {"Host": "evil.example"}), ("/", {"Origin": "null"})]
)
async def test_a_refusal_is_under_the_strictest_policy(api, path, headers):
    answer = await api.raw("GET", path, **headers)
    assert answer.status in (403, 404)
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
async def test_the_page_is_only_read(api, method):
    answer = await api.raw(method, "/")
    assert answer.status == 404
    assert "/external/api/v1/push" in answer.json["error"]


async def test_an_unknown_page_names_the_inbox(api):
    assert (await api.raw("GET", "/inbox")).json == {"error": "no such page; the inbox is at /"}


async def test_control_responses_are_not_pages(api):
    for path in ("/_emulator/v1/inboxes", "/_emulator/v1/nothing"):
        answer = await api.raw("GET", path)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
