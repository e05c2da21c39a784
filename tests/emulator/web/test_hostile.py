"""Hostile content of a push is shown and inert: no script, no dialog, no foreign request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

PAYLOADS = [
    "<script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><img src=x onerror=window.hit=1>',
    "<svg/onload=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    "<svg><animate onbegin=window.hit=1 attributeName=x dur=1s>",
    "<body onload=window.hit=1>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<iframe src=javascript:parent.hit=1>",
    "<object data=javascript:window.hit=1>",
    "<embed src=//evil.example/x.swf>",
    "<details open ontoggle=window.hit=1>",
    "<input autofocus onfocus=window.hit=1>",
    "<video><source onerror=window.hit=1></video>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "<noscript><p title='</noscript><img src=x onerror=window.hit=1>'>",
    "<template><script>window.hit=1</script></template>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import '//evil.example/x.css';</style>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<form action=//evil.example/><button>press</button></form>",
    "<a href=javascript:window.hit=1>press</a>",
    "javascript:window.hit=1",
    "JaVaScRiPt:window.hit=1",
    " javascript:window.hit=1",
    "java\tscript:window.hit=1",
    "java\nscript:window.hit=1",
    "data:text/html,<script>parent.hit=1</script>",
    "vbscript:msgbox(1)",
    "//evil.example/x",
    "http:evil.example",
    "https://[bad",
    "${window.hit=1}",
    "{{constructor.constructor('window.hit=1')()}}",
    "{{ __proto__ | 'x' }} {{ constructor | 'y' }}",
    "__proto__",
    "\u202egnp.exe\u202c\u2066\u2067\u061c",
    "a\u0300" * 500,
    "\u2028\u2029\x00\x1b[31m\ufeff",
    "😀" * 400 + "\ud83d".encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
    "'; DROP TABLE requests; --",
    "%00%ff%2e%2e/",
    "A" * 60_000,
    "{{" * 20_000,
]
TABS = ("All fields", "Users", "Code", "Raw", "Overview")


def message(payload: str) -> dict[str, Any]:
    """A message with the payload in every text."""
    action = {"url": payload, "clickAction": payload, "keyVals": {payload[:200]: payload}}
    texts = {"en": payload, "ar": payload, payload[:50]: payload}
    return {
        "type": payload,
        "iosEnabled": True,
        "androidEnabled": True,
        "title": texts,
        "subtitle": texts,
        "body": texts,
        "collapseId": payload,
        "action": payload,
        "androidActionUrl": payload,
        "iosActionUrl": payload,
        "keyVals": {payload[:200]: payload},
        "bigImageUrl": payload,
        "largeIconUrl": payload,
        "smallIconResourceId": payload,
        "androidChannel": payload,
        "priority": payload,
        "androidActionButtons": [{"label": payload, **action}],
        "soundFileName": payload,
        "richMediaUrl": payload,
        "mediaType": "IMAGE",
        "interruptionLevel": payload,
        "relevanceScore": payload,
        "actionCategory": {"type": payload, "name": payload, "actionComponents": [{"actionId": payload, **action}]},
        payload[:100]: payload,
    }


async def harmless(desk: Any, page: Any) -> None:
    """Assert that no payload ran or became markup, and that only http(s) links lead away."""
    assert await page.evaluate("window.hit") is None
    selector = (
        "script:not([src]), iframe, object, embed, base, form[action], style, img:not([src='icon.svg']), [onerror]"
    )
    assert await page.locator(selector).count() == 0
    links = await page.locator("a").evaluate_all("all => all.map(one => [one.protocol, one.hash, one.rel, one.href])")
    for protocol, anchor, rel, href in links:
        assert protocol in ("http:", "https:"), href
        own = href.startswith(desk.origin + "/") and anchor
        assert own or rel == "noopener noreferrer", href


def test_there_are_many_payloads() -> None:
    assert len(PAYLOADS) >= 30


async def test_hostile_text_is_inert_everywhere(desk: Any) -> None:
    for payload in PAYLOADS:
        body = {"userIds": [payload or "u", "u"], "message": message(payload), "customFields": {payload[:200]: payload}}
        assert await desk.send(body) == 204, payload[:60]
    page = await desk.page("/?images=0")
    await page.locator(".push-row").first.wait_for()
    for number in range(1, len(PAYLOADS) + 1):
        await page.evaluate(f"location.hash = '#/pushes/{number}'")
        await page.locator(".detail:not(.waiting) .eyebrow").get_by_text(f"Push {number} ").wait_for()
        for tab in TABS:
            await page.get_by_role("tab", name=tab).click()
        await page.keyboard.press("e")
        await harmless(desk, page)


async def test_a_hostile_user_id_has_its_own_page(desk: Any) -> None:
    ids = [payload for payload in PAYLOADS if len(payload) < 2000]
    await desk.send({"userIds": ids, "message": message("<img src=x onerror=window.hit=1>")})
    page = await desk.page("/#/users")
    users = page.get_by_role("list", name="Users").get_by_role("link")
    await users.nth(len(set(ids)) - 1).wait_for()
    for index in range(0, len(set(ids)), 3):
        await users.nth(index).click()
        name = await users.nth(index).locator(".user-id").text_content()
        await page.wait_for_function(
            "name => document.querySelector('.view:not([hidden]) .detail h2').textContent === name.slice(0, 300)",
            arg=name,
        )
        await page.locator(".tray .card").first.wait_for()
        await harmless(desk, page)


async def test_a_hostile_campaign_and_hostile_names_are_inert(desk: Any) -> None:
    for payload in PAYLOADS[:12]:
        campaign = {
            "name": payload,
            "externalId": payload,
            "segment": {"query": payload, "primaryKey": payload},
            "schedule": {"type": payload, "startTs": 1},
            "message": message(payload),
        }
        assert await desk.send(campaign, path="/v1/campaigns") == 200
    await desk.control("PUT", "/label", {"label": PAYLOADS[0]})
    rules = [{"fault": "status", "code": 503, "name": payload, "user": payload} for payload in PAYLOADS[:12]]
    await desk.control("PUT", "/faults", {"faults": rules})
    page = await desk.page("/#/campaigns")
    links = page.get_by_role("list", name="Campaigns").get_by_role("link")
    await links.nth(11).wait_for()
    for index in range(12):
        await links.nth(index).click()
        await harmless(desk, page)
    await page.goto(desk.origin + "/#/faults")
    await page.locator(".rule").nth(11).wait_for()
    await harmless(desk, page)
    assert await page.get_by_label("Inbox", exact=True).locator("option").inner_text() == f"{PAYLOADS[0]} · 12"


async def test_a_body_that_is_not_json_is_shown_raw(desk: Any) -> None:
    headers = {"Api-Key": desk.emulator.api_key, "Content-Type": "application/json"}
    async with desk.session.post(
        desk.emulator.base_url + "/v1/push", data=b"<script>window.hit=1</script>\xff", headers=headers
    ) as response:
        assert response.status == 400
    page = await desk.page()
    await page.get_by_role("tab", name="Raw").click()
    await page.get_by_text("<script>window.hit=1</script>").wait_for()
    await harmless(desk, page)


async def test_values_of_another_kind_and_of_great_depth_are_shown(desk: Any) -> None:
    deep = "[" * 900 + "]" * 900
    body = (
        '{"userIds": ["u"], "message": {"title": {"en": "Deep"}, "iosEnabled": true, "odd": %s, "keyVals": {}},'
        ' "customFields": {"a": %s}}'
    )
    headers = {"Api-Key": desk.emulator.api_key, "Content-Type": "application/json"}
    data = (body % (deep, deep)).encode()
    async with desk.session.post(desk.emulator.base_url + "/v1/push", data=data, headers=headers) as response:
        assert response.status == 204
    page = await desk.page()
    await page.locator(".card-title").get_by_text("Deep").first.wait_for()
    for tab in TABS:
        await page.get_by_role("tab", name=tab).click()
    await page.evaluate("location.hash = '#/users/u'")
    await page.locator(".tray .card").first.wait_for()


async def test_text_can_not_leave_its_box(desk: Any) -> None:
    await desk.push("a\u0300\u0301\u0302" * 200, body={"en": "\u202e" + "x" * 3000})
    page = await desk.page()
    card = page.locator(".ios-card")
    await card.wait_for()
    style = await card.evaluate("one => getComputedStyle(one).contain")
    assert "paint" in style
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("path", "loaded"), [("/", False), ("/?images=1", True)])
async def test_remote_images_are_loaded_only_when_asked_for(open_desk: Any, path: str, loaded: bool) -> None:
    desk = await open_desk()
    await desk.push("Image", bigImageUrl="https://images.example/big.png")
    page = await desk.page()
    urls: list[str] = []

    async def answer(route: Any) -> None:
        urls.append(urlsplit(route.request.url).netloc)
        await route.fulfill(status=200, content_type="image/svg+xml", body="<svg xmlns='http://www.w3.org/2000/svg'/>")

    await page.route("https://images.example/**", answer)
    if loaded:
        await page.get_by_role("switch", name="Remote images").click()
        await page.wait_for_url("**/?images=1*")
        await page.locator("img.thumb").first.wait_for()
        assert set(urls) == {"images.example"}
    else:
        await page.locator(".no-picture").first.wait_for()
        assert urls == []
        assert desk.strangers == []


async def test_the_page_cannot_parse_html() -> None:
    web = Path(__file__).parents[3] / "pushsdk" / "emulator" / "web"
    banned = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setHTML")
    for file in web.glob("*.js"):
        source = file.read_text()
        assert [word for word in banned if word in source] == [], file.name
    index = (web / "index.html").read_text()
    assert "style=" not in index
    assert "onclick" not in index
    assert json.dumps("http://") not in index
