"""Hostile content of a push is shown and inert: no script, no dialog, no foreign request."""

from importlib.resources import files

from support.page_words import keys, press, read, visit
from support.whole import whole

from pushsdk._core.models import MobilePush

PAYLOADS = [
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><img src=x onerror=window.hit=1>',
    "<svg/onload=window.hit=1>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "<style>@import '//evil.example/x.css';</style>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<form action=//evil.example/><button>press</button></form>",
    "<a href=javascript:window.hit=1>press</a>",
    "javascript:window.hit=1",
    "java\tscript:window.hit=1",
    "data:text/html,<script>parent.hit=1</script>",
    "//evil.example/x",
    "${window.hit=1}",
    "{{constructor.constructor('window.hit=1')()}}",
    "{{ __proto__ | 'x' }} {{ constructor | 'y' }}",
    "\u202egnp.exe\u202c\u2066\u2067\u061c",
    "a\u0300" * 500,
    "\u2028\u2029\x00\x1b[31m\ufeff",
    "😀" * 400 + "\ud83d".encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
    "A" * 60_000,
    "{{" * 20_000,
]


def message(payload):
    """A message with the payload in every text."""
    texts = dict.fromkeys(["en", "ar", payload[:50]], payload)
    given = {
        "title": texts,
        "subtitle": texts,
        "body": texts,
        "keyVals": {payload[:200]: payload},
        "mediaType": "IMAGE",
    }
    return {**whole(MobilePush, payload, **given), payload[:100]: payload}


async def harmless(desk, page):
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


async def test_hostile_pushes_are_inert_on_every_tab(desk):
    for payload in PAYLOADS:
        body = {"userIds": [payload, "u"], "message": message(payload), "customFields": {payload[:200]: payload}}
        assert await desk.send(body) == 204, payload[:60]
    page = await desk.page()
    for number in range(1, len(PAYLOADS) + 1):
        await visit(page, f"pushes/{number}")
        await read(page.locator(".detail:not(.waiting) .eyebrow"), f"Push {number} ")
        for tab in ("Users", "Code", "Raw", "Overview"):
            await press(page, tab, "tab")
        await keys(page, "e")
        await harmless(desk, page)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_hostile_users_campaigns_rules_and_names_are_inert(desk):
    payloads = PAYLOADS[:6]
    await desk.send({"userIds": payloads, "message": message(payloads[0])})
    for payload in payloads:
        campaign = {
            "name": payload,
            "externalId": payload,
            "segment": {"query": payload, "primaryKey": payload},
            "schedule": {"type": payload, "startTs": 1},
            "message": message(payload),
        }
        assert await desk.send(campaign, path="/v1/campaigns") == 200
    await desk.control("PUT", "/label", {"label": PAYLOADS[0]})
    rules = [{"fault": "status", "code": 503, "name": payload, "user": payload} for payload in payloads]
    await desk.control("PUT", "/faults", {"faults": rules})
    page = await desk.page("/#/users")
    links = page.get_by_role("list", name="Users").get_by_role("link")
    await links.nth(5).wait_for()
    for index in range(6):
        await links.nth(index).click()
        await page.locator(".view:not([hidden]) .detail h2").wait_for()
        await harmless(desk, page)
    for number in range(2, 8):
        await visit(page, f"pushes/{number}")
        await read(page.locator(".detail:not(.waiting) .eyebrow"), f"Campaign {number} ")
        await harmless(desk, page)
    await visit(page, "faults")
    await page.locator(".rule").nth(5).wait_for()
    await harmless(desk, page)
    assert PAYLOADS[0][:20] in await page.get_by_label("Inbox", exact=True).locator("option").inner_text()


async def test_an_odd_address_a_deep_value_and_a_body_that_is_not_json_do_not_break_the_page(open_desk):
    desk = await open_desk()
    deep = "[" * 900 + "]" * 900
    message = f'{{"title": {{"en": "Deep"}}, "iosEnabled": true, "odd": {deep}}}'
    assert await desk.send(f'{{"userIds": ["u"], "message": {message}}}'.encode()) == 204
    assert await desk.send(b"<script>window.hit=1</script>\xff") == 400
    page = await desk.page()
    await press(page, "Raw", "tab")
    await read(page, "<script>window.hit=1</script>")
    await harmless(desk, page)
    for address in ("constructor", "__proto__", "toString/1", "pushes/%E0%A4%A", "%", "users/u"):
        await visit(page, address)
        await keys(page, "1")
        await press(page, "Deep", "option")
        await page.locator(".card-title").get_by_text("Deep").first.wait_for()
    assert desk.complaints == []


async def test_remote_images_are_loaded_only_when_asked_for(open_desk):
    desk = await open_desk()
    await desk.push("Image", bigImageUrl="https://images.example/big.png")
    page = await desk.page()
    await page.locator(".no-picture").first.wait_for()
    assert desk.strangers == []

    async def answer(route):
        await route.fulfill(status=200, content_type="image/svg+xml", body="<svg xmlns='http://www.w3.org/2000/svg'/>")

    await page.route("https://images.example/**", answer)
    await press(page, "Load images", "switch")
    await page.wait_for_url("**/?images=1*")
    await page.locator("img.thumb").first.wait_for()
    assert set(desk.strangers) == {"https://images.example/big.png"}


def test_the_page_cannot_parse_html():
    web = files("pushsdk.emulator") / "web"
    banned = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setHTML")
    for file in web.iterdir():
        if file.name.endswith(".js"):
            assert [word for word in banned if word in file.read_text()] == [], file.name
    index = (web / "index.html").read_text()
    assert [word for word in ("style=", "onclick", '"http://"') if word in index] == []
