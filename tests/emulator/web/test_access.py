"""Accessibility: the keyboard is enough, and axe has no findings on any view, light and wide or dark and narrow."""

import pytest
from support.page_words import counted, keys, press, read, see, visit

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def violations(page):
    """Return the findings of axe, one line each."""
    from axe_playwright_python.async_playwright import Axe

    await page.locator(".detail.waiting").wait_for(state="detached")  # pale until the push is loaded
    rows = (await Axe().run(page, options={"runOnly": RULES})).response["violations"]
    return [f"{one['id']}: {[node['target'] for node in one['nodes'][:3]]}" for one in rows]


async def filled(desk):
    """An inbox with every kind of content."""
    texts = {"en": "Hey {{ name | 'you' }}", "ar": "مرحبا"}
    await desk.push(texts, "u-1", "u-2", body=texts, collapseId="c", ttl=60, badgeCount=3, keyVals={"a": "b"})
    await desk.push("Later", "u-1", collapseId="c")  # replaces the previous push
    await desk.push("Later", "u-2")
    await desk.push("Second", "u-1", bigImageUrl="https://example.com/i.png", interruptionLevel="PASSIVE", odd="x")
    await desk.control("PUT", "/limits", {"max_users": 2})
    await desk.push("Refused", "a", "b", "c")
    await desk.send({"userIds": ["u"], "message": {"title": {"en": "For none"}}})
    await desk.send({}, path="/v2/push")
    await desk.send({"name": "Spring", "message": {"title": texts}}, path="/v1/campaigns")
    await desk.control("PUT", "/faults", {"preset": "flaky"})


@pytest.mark.parametrize(("dark", "width"), [(False, 1440), (True, 400)])
async def test_axe_finds_nothing_on_any_view(desk, dark, width):
    page = await desk.page(dark=dark, width=width)
    await see(page, "heading", "Send a push")
    assert await violations(page) == [], "an empty inbox"
    await filled(desk)
    for view, ready in (
        ("pushes", ".push-row"),
        ("pushes/1", ".card"),
        ("pushes/2", ".group-row"),
        ("pushes/5", ".stage .nothing"),
        ("users", ".users a"),
        ("users/u-1", ".tray .card"),
        ("faults", ".rule"),
        ("pushes/refused", ".refused-list li"),
        ("pushes/6", ".detail-head .advice"),
    ):
        await visit(page, f"{view}")
        await page.locator(f".view:not([hidden]) {ready}").first.wait_for(state="attached")
        assert await violations(page) == [], view
    for tab in ("Users", "Code", "Raw"):
        await press(page, tab, "tab")
        assert await violations(page) == [], tab
    for name in ("Help", "Connect"):
        await press(page, name)
        assert await violations(page) == [], name
        await press(page, "Close")
    await desk.theirs("Theirs")
    await see(page, "button", "1 push with another key")
    await page.get_by_label("Inbox", exact=True).select_option("*")
    await keys(page, "2")
    await see(page, "heading", "Users belong to an inbox")
    assert await violations(page) == [], "all inboxes"


@pytest.mark.parametrize(("dark", "width"), [(False, 400), (True, 1440)])
async def test_axe_finds_nothing_on_the_composer_and_the_guide(desk, dark, width):
    await filled(desk)
    page = await desk.page("/#/compose/1", dark=dark, width=width)
    checks = page.get_by_role("status", name="Checks")
    await checks.locator(".fine").wait_for()
    for section in ("Tap", "Pictures", "How it arrives"):
        await page.locator("summary").get_by_text(section).click()
    await page.get_by_role("textbox", name="Time to live").fill("soon")
    await checks.locator(".advice").wait_for()
    await page.get_by_role("button", name="Send", exact=False).last.click()
    await page.get_by_role("status", name="Result").locator(".stamp").wait_for()
    assert await violations(page) == [], "result"
    await page.get_by_role("textbox", name="JSON", exact=True).fill("{")
    await read(checks, "· json")
    assert await violations(page) == [], "broken JSON"
    await press(page, "Campaign", exact=True)
    await page.get_by_label("Segment query").wait_for()
    assert await violations(page) == [], "campaign"
    for topic in ("", "/emulator", "?q=retry"):
        await page.goto(f"{desk.origin}/docs{topic}")
        assert await violations(page) == [], topic
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_the_keyboard_does_it_all(desk):
    for name in ("tea one", "coffee", "tea two"):
        await desk.push({"en": name, "de": f"{name} auf Deutsch"})
    page = await desk.page()
    title = page.get_by_role("group", name="iPhone").locator(".card-title")
    for key, text in (("g", "tea two"), ("j", "coffee"), ("ArrowDown", "tea one"), ("k", "coffee"), ("g", "tea two")):
        await keys(page, key)
        await see(page, "option", text, selected=True)
        await read(title, text, exact=True)
    await keys(page, "l")
    await read(title, "tea two auf Deutsch")
    await keys(page, "l")
    await read(title, "tea two", exact=True)
    await keys(page, "e")
    await see(page, "group", "iPhone, expanded")
    await keys(page, "/")
    await page.keyboard.type("tea")  # typing does not move the choice
    await counted(page, "2 pushes")
    await keys(page, "Enter", "j")
    await see(page, "option", "tea one", selected=True)
    await keys(page, "3")
    await see(page, "heading", "Faults")
    await page.keyboard.press("/")  # from a view without a search
    await page.locator("input[type=search]:focus").wait_for()
    await page.keyboard.type("tea")
    await keys(page, "Enter")
    await counted(page, "2 pushes")
    await keys(page, "g", "j")
    await see(page, "option", "tea one", selected=True)
    await desk.push("green tea")
    await desk.push("water")
    await counted(page, "3 pushes")
    await keys(page, "?")
    await see(page, "dialog", "Help")
    await keys(page, "Escape")
    for _ in range(3):
        await page.keyboard.down("s")  # a held key sends once
    await page.keyboard.up("s")
    await counted(page, "4 pushes")
    await keys(page, "x")
    editing = page.get_by_role("textbox", name="Title (en)", exact=True)
    await editing.focus()
    await keys(page, "Control+a")
    await page.keyboard.type("typed")
    await keys(page, "Control+Enter")
    await read(page.get_by_role("status", name="Result"), "204")
    titles = [push.message["title"]["en"] for push in desk.emulator.pushes]
    assert titles == ["tea one", "coffee", "tea two", "green tea", "water", "tea one", "typed"]
