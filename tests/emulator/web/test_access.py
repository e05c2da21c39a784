"""Accessibility: the keyboard is enough, and axe has no findings on any view, light and wide or dark and narrow."""

import pytest

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


@pytest.mark.parametrize(("dark", "width"), [(False, 1440), (True, 400)], ids=["light and wide", "dark and narrow"])
async def test_axe_finds_nothing_on_any_view(desk, dark, width):
    page = await desk.page(dark=dark, width=width)
    await page.get_by_role("heading", name="Send a push").wait_for()
    assert await violations(page) == [], "an empty inbox"
    await filled(desk)
    for view, ready in (
        ("pushes", ".push-row"),
        ("pushes/1", ".card"),
        ("pushes/2", ".group-row"),
        ("pushes/5", ".stage .nothing"),
        ("campaigns", ".steps"),
        ("users", ".users a"),
        ("users/u-1", ".tray .card"),
        ("faults", ".rule"),
        ("pushes/refused", ".refused-list li"),
        ("pushes/6", ".detail-head .advice"),
    ):
        await page.evaluate(f"location.hash = '#/{view}'")
        await page.locator(f".view:not([hidden]) {ready}").first.wait_for(state="attached")
        assert await violations(page) == [], view
    for tab in ("All fields", "Users", "Code", "Raw"):
        await page.get_by_role("tab", name=tab).click()
        assert await violations(page) == [], tab
    for name in ("Help", "Connect"):
        await page.get_by_role("button", name=name).click()
        assert await violations(page) == [], name
        await page.get_by_role("button", name="Close").click()
    await desk.theirs("Theirs")
    await page.get_by_role("button", name="1 push with another key").wait_for()
    await page.get_by_label("Inbox", exact=True).select_option("*")
    await page.keyboard.press("3")
    await page.get_by_role("heading", name="Users belong to an inbox").wait_for()
    assert await violations(page) == [], "all inboxes"


@pytest.mark.parametrize(("dark", "width"), [(False, 400), (True, 1440)], ids=["light and narrow", "dark and wide"])
async def test_axe_finds_nothing_on_the_composer_and_the_guide(desk, dark, width):
    await filled(desk)
    page = await desk.page("/#/compose/1", dark=dark, width=width)
    checks = page.get_by_role("status", name="Checks")
    await checks.locator(".fine").wait_for()
    for section in ("Tap and buttons", "Pictures", "How it arrives", "Data"):
        await page.locator("summary").get_by_text(section).click()
    await page.get_by_role("group", name="Android buttons").get_by_role("button", name="Add").click()
    await checks.locator(".advice").wait_for()
    await page.get_by_role("button", name="Send", exact=False).last.click()
    await page.get_by_role("status", name="Result").locator(".stamp").wait_for()
    assert await violations(page) == [], "result"
    await page.get_by_role("textbox", name="JSON", exact=True).fill("{")
    await checks.get_by_text("· json").wait_for()
    assert await violations(page) == [], "broken JSON"
    await page.get_by_role("button", name="Campaign", exact=True).click()
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
        await page.keyboard.press(key)
        await page.get_by_role("option", name=text, selected=True).wait_for()
        await title.get_by_text(text, exact=True).wait_for()
    await page.keyboard.press("l")
    await title.get_by_text("tea two auf Deutsch").wait_for()
    await page.keyboard.press("l")
    await title.get_by_text("tea two", exact=True).wait_for()
    await page.keyboard.press("e")
    await page.get_by_role("group", name="iPhone, expanded").wait_for()
    await page.keyboard.press("/")
    await page.keyboard.type("tea")  # typing does not move the choice
    await page.locator(".list-count").get_by_text("2 pushes", exact=True).wait_for()
    await page.keyboard.press("Enter")
    await page.keyboard.press("j")
    await page.get_by_role("option", name="tea one", selected=True).wait_for()
    await page.keyboard.press("4")
    await page.get_by_role("heading", name="Faults").wait_for()
    await page.keyboard.press("/")  # from a view without a search
    await page.locator("input[type=search]:focus").wait_for()
    await page.keyboard.type("tea")
    await page.keyboard.press("Enter")
    await page.locator(".list-count").get_by_text("2 pushes", exact=True).wait_for()
    for key, text in (("g", "tea two"), ("j", "tea one")):
        await page.keyboard.press(key)
        await page.get_by_role("option", name=text, selected=True).wait_for()
    await desk.push("green tea")
    await desk.push("water")
    await page.locator(".list-count").get_by_text("3 pushes", exact=True).wait_for()
    await page.keyboard.press("?")
    await page.get_by_role("dialog", name="Help").wait_for()
    await page.keyboard.press("Escape")
    for _ in range(3):
        await page.keyboard.down("s")  # a held key sends once
    await page.keyboard.up("s")
    await page.locator(".list-count").get_by_text("4 pushes", exact=True).wait_for()
    await page.keyboard.press("x")
    editing = page.get_by_role("textbox", name="Title (en)", exact=True)
    await editing.focus()
    await page.keyboard.press("Control+a")
    await page.keyboard.type("typed")
    await page.keyboard.press("Control+Enter")
    await page.get_by_role("status", name="Result").get_by_text("204").wait_for()
    titles = [push.message["title"]["en"] for push in desk.emulator.pushes]
    assert titles == ["tea one", "coffee", "tea two", "green tea", "water", "tea one", "typed"]


async def test_the_theme_is_kept(desk):
    page = await desk.page()
    background = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(background)
    await page.get_by_role("button", name="Switch to dark").click()
    dark = await page.evaluate(background)
    assert light != dark
    await page.reload()
    await page.get_by_role("button", name="Switch to light").wait_for()
    assert await page.evaluate(background) == dark
