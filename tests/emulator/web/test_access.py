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
    found = (await Axe().run(page, options={"runOnly": RULES})).response["violations"]
    return [f"{one['id']}: {[node['target'] for node in one['nodes'][:3]]}" for one in found]


async def filled(desk: Any) -> None:
    """An inbox with every kind of content."""
    texts = {"en": "Hey {{ name | 'you' }}", "ar": "مرحبا"}
    await desk.push(texts, "u-1", "u-2", body=texts, collapseId="c", ttl=60, badgeCount=3, keyVals={"a": "b"})
    await desk.push("Later", "u-1", collapseId="c")  # replaces the previous push
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
        ("pushes/4", ".stage .nothing"),
        ("pushes/5", ".stage .nothing"),
        ("campaigns", ".steps"),
        ("users", ".users a"),
        ("users/u-1", ".tray .card"),
        ("faults", ".rule"),
    ):
        await page.evaluate(f"location.hash = '#/{view}'")
        await page.locator(f".view:not([hidden]) {ready}").first.wait_for(state="attached")
        assert await violations(page) == [], view
    await page.get_by_role("button", name="1 request reached no inbox").click()
    assert await violations(page) == []
    await page.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Help").click()
    assert await violations(page) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_nothing_on_an_empty_inbox(desk: Any, dark: bool) -> None:
    page = await desk.page(dark=dark)
    await page.get_by_role("heading", name="Send a push").wait_for()
    assert await violations(page) == []
