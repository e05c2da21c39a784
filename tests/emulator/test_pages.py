"""The page's files on the wire, and their content security policy."""

from importlib.resources import files

import pytest
from support.control_api import Api

STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
PAGE_FILES = (file.name for file in (files("pushsdk.emulator") / "web").iterdir())
FILES = sorted(name for name in PAGE_FILES if not name.startswith("__") and not name.endswith((".py", ".template")))
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
ELSEWHERE = [
    *("/nothing", "/main.js/", "//main.js", "/./main.js", "/main.js%00", "/MAIN.JS", "/main", "/..", "/inbox"),
    *("/web/main.js", "/%ff", "/__init__.py", "/x/../../pages.py", "/../pages.py", "/%2e%2e/pages.py"),
]


@pytest.fixture
def api(emulator):
    return Api(emulator, Api_Key=None)


async def test_every_file_is_served_with_its_type_and_the_policy(api):
    for name in FILES:
        answer = await api.raw("GET", f"/{name}")
        assert answer.status == 200
        assert answer.body == (files("pushsdk.emulator") / "web" / name).read_bytes()
        headers = {
            "content-type": f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8",
            "content-security-policy": STRICT,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-cache",
        }
        assert answer.headers.items() >= headers.items()
    index = await api.raw("GET", "/index.html")
    assert index.body.lower().startswith(b"<!doctype html>")
    assert (await api.raw("GET", "/")).body == index.body


async def test_images_widen_nothing_else(api):
    answer = await api.raw("GET", "/?images=1")
    assert answer.headers["content-security-policy"] == STRICT.replace("img-src 'self'", "img-src 'self' https: http:")
    for query in ("?images=0", "?images=", "?images=1%201", "?images=%27unsafe-inline%27"):
        assert (await api.raw("GET", f"/{query}")).headers["content-security-policy"] == STRICT


async def test_nothing_else_is_served(api):
    for path in ELSEWHERE:
        answer = await api.raw("GET", path)
        assert answer.status == 404, path
        assert b"import" not in answer.body
        assert b"root:" not in answer.body
    assert (await api.raw("GET", "/inbox")).json == {"error": "no such page; the inbox is at /"}


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/nothing", {}), ("/", {"Host": "evil.example"}), ("/", {"Origin": "null"}), ("/_emulator/v1/inboxes", {})],
)
async def test_what_is_not_a_page_is_under_the_strictest_policy(api, path, headers):
    answer = await api.raw("GET", path, **headers)
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["cache-control"] == "no-store"
