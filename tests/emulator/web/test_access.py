"""Accessibility: axe has no findings on any view, in both themes, on wide and narrow screens."""

from __future__ import annotations

import os
from typing import Any

import pytest

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
TABS = ("All fields", "Users", "Code", "Raw")


async def violations(page: Any) -> list[str]:
    """Return the findings of axe, one line each."""
    try:
        from axe_playwright_python.async_playwright import Axe
    except ImportError:
        if os.environ.get("PUSHSDK_REQUIRE_BROWSER") == "1":
            raise
        pytest.skip("axe is not installed: pip install axe-playwright-python")
    await page.locator(".detail.waiting").wait_for(state="detached")  # pale until the push is loaded
    rows = (await Axe().run(page, options={"runOnly": RULES})).response["violations"]
    return [f"{one['id']}: {[node['target'] for node in one['nodes'][:3]]}" for one in rows]


async def filled(desk: Any) -> None:
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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 400])
async def test_axe_finds_nothing_on_any_view(desk: Any, dark: bool, width: int) -> None:
    await filled(desk)
    page = await desk.page("/#/pushes/1", dark=dark, width=width)
    await page.locator(".card").first.wait_for()
    assert await violations(page) == []
    await page.get_by_role("button", name="Expanded", exact=True).click()
    assert await violations(page) == []
    for tab in TABS:
        await page.get_by_role("tab", name=tab).click()
        assert await violations(page) == [], tab
    for view, ready in (
        ("pushes", ".push-row"),
        ("pushes/5", ".stage .nothing"),
        ("pushes/6", ".stage .nothing"),
        ("pushes/2", ".group-row"),
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
    for name in ("Help", "Connect"):
        await page.get_by_role("button", name=name).click()
        assert await violations(page) == [], name
        await page.get_by_role("button", name="Close").click()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_nothing_on_an_empty_inbox(desk: Any, dark: bool) -> None:
    page = await desk.page(dark=dark)
    await page.get_by_role("heading", name="Send a push").wait_for()
    assert await violations(page) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1100, 400])
async def test_axe_finds_nothing_on_the_composer(desk: Any, dark: bool, width: int) -> None:
    await filled(desk)
    page = await desk.page("/#/compose/1", dark=dark, width=width)
    checks = page.get_by_role("status", name="Checks")
    await checks.locator(".fine").wait_for()
    for section in ("Tap and buttons", "Pictures", "How it arrives", "Data"):
        await page.locator("summary").get_by_text(section).click()
    await page.get_by_role("group", name="Android buttons").get_by_role("button", name="Add").click()
    await checks.locator(".advice").wait_for()
    assert await violations(page) == []
    await page.get_by_role("button", name="Send", exact=False).last.click()
    await page.get_by_role("status", name="Result").locator(".stamp").wait_for()
    assert await violations(page) == []
    await page.get_by_role("textbox", name="JSON", exact=True).fill("{")
    await checks.get_by_text("· json").wait_for()
    assert await violations(page) == []
    await page.get_by_role("button", name="Campaign", exact=True).click()
    await page.get_by_label("Segment query").wait_for()
    assert await violations(page) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_nothing_on_all_inboxes(desk: Any, dark: bool) -> None:
    await filled(desk)
    await desk.send({"userIds": ["u"], "message": {"title": {"en": "Theirs"}}}, api_key="another")
    page = await desk.page(dark=dark)
    await page.get_by_label("Inbox", exact=True).select_option("*")
    await page.get_by_role("option", name="Theirs").wait_for()
    await page.get_by_role("link", name="1 request reached no inbox").wait_for()
    assert await violations(page) == []
    await page.keyboard.press("3")
    await page.get_by_role("button", name="1 request reached no inbox").wait_for()
    await page.get_by_role("heading", name="Users belong to an inbox").wait_for()
    assert await violations(page) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_nothing_on_a_group_and_on_a_notice(desk: Any, dark: bool) -> None:
    for number in range(3):
        await desk.push("Sale", f"user-{number}", body={"en": "Today only"})
    page = await desk.page(dark=dark)
    await page.get_by_role("button", name="Show the 3 pushes").wait_for()
    await desk.send({"userIds": ["u"], "message": {"title": {"en": "Theirs"}}}, api_key="another")
    await page.get_by_role("button", name="1 push with another key").wait_for()
    assert await violations(page) == []
    await page.get_by_role("button", name="Show the 3 pushes").click()
    await page.get_by_role("option", name="user-2").wait_for()
    assert await violations(page) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 400])
async def test_axe_finds_nothing_on_the_guide(open_desk: Any, dark: bool, width: int) -> None:
    desk = await open_desk()
    context = await desk.browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    page = await context.new_page()
    for topic in ("", "/emulator", "/errors"):
        await page.goto(f"{desk.origin}/docs{topic}")
        assert await violations(page) == [], topic
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_the_guide_is_searched_by_keyboard_and_fits_a_phone(desk: Any, dark: bool, width: int) -> None:
    page = await desk.page(dark=dark, width=width)
    await page.goto(f"{desk.origin}/docs")
    await page.get_by_role("searchbox", name="Search the guide").press_sequentially("retry budget")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Search").wait_for()
    assert await violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    await page.get_by_role("link", name="retries: The retry budget").click()
    await page.get_by_role("heading", name="The retry budget").wait_for()
    assert page.url.endswith("/docs/retries#the-retry-budget")
