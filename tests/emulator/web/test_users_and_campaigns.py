"""Users, duplicates and devices on the page; campaigns with their start and recipients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


async def test_duplicates_are_marked_and_can_be_listed_alone(desk: Any) -> None:
    await desk.push("One", "u-two", "u-twice")
    await desk.push("One", "u-twice")
    await desk.push("Another", "u-two")
    page = await desk.page("/#/users")
    users = page.get_by_role("list", name="Users")
    await users.get_by_role("link", name="u-two \u00d72", exact=True).wait_for()
    await users.get_by_role("link", name="u-twice same push \u00d72 \u00d72", exact=True).wait_for()
    await page.get_by_role("switch", name="Duplicates only").click()
    await users.get_by_role("link", name="u-two").wait_for(state="detached")
    assert await users.get_by_role("link").count() == 1


async def test_a_user_twice_in_one_request_is_marked(desk: Any) -> None:
    await desk.push("Twice at once", "u", "u")
    page = await desk.page("/#/users/u")
    await page.get_by_text("2 times in one request").wait_for()


async def test_a_later_push_replaces_the_one_with_its_collapse_id_on_the_devices(desk: Any) -> None:
    await desk.push("Old news", "u", collapseId="news")
    await desk.push("Fresh news", "u", collapseId="news")
    await desk.push("Other", "u", androidEnabled=False)
    page = await desk.page("/#/users/u")
    titles = page.locator(".tray.ios:not(.ghosts) .card-title")
    await titles.nth(1).wait_for()
    assert await titles.all_inner_texts() == ["Other", "Fresh news"]
    assert await page.locator(".tray.android:not(.ghosts) .card-title").all_inner_texts() == ["Fresh news"]
    ghosts = page.locator(".ghosts.ios")
    assert await ghosts.locator(".card-title").all_inner_texts() == ["Old news"]
    await ghosts.get_by_text("replaced").wait_for()


async def test_an_expired_notification_leaves_the_devices(desk: Any) -> None:
    await desk.push("Short-lived", "u", ttl=60)
    await desk.control("POST", "/clock", {"advance": 120})
    page = await desk.page("/#/users/u")
    await page.locator(".ghosts.android").get_by_text("expired").wait_for()


async def test_the_pushes_of_a_user_are_linked(desk: Any) -> None:
    await desk.push("For u 1", "u 1")
    await desk.push("For others", "u 2")
    page = await desk.page("/#/users/u%201")
    await page.get_by_role("link", name="Pushes to this user").click()
    await page.locator(".list-count").get_by_text("1 push", exact=True).wait_for()
    await page.get_by_role("option", name="For u 1").wait_for()


async def test_a_campaign_shows_how_its_start_was_read_and_its_segment(desk: Any) -> None:
    campaign = {
        "name": "Spring sale",
        "externalId": "spring-27",
        "segment": {"query": "SELECT user_id FROM customers", "primaryKey": "user_id"},
        "schedule": {"type": "START_NOW", "startTs": 4_000_000_000_000},
        "message": {"title": {"en": "Spring"}},
    }
    assert await desk.send(campaign, path="/v1/campaigns") == 200
    page = await desk.page("/#/campaigns")
    for text in ("spring-27", "4000000000000", "SELECT user_id FROM customers", "over ten years ahead"):
        await page.locator(".detail").get_by_text(text).first.wait_for()
    await page.get_by_role("link", name="Open its request").click()
    await page.locator(".detail-head .eyebrow").get_by_text("Campaign 1 ").wait_for()
    await page.get_by_role("link", name="see its campaign").click()
    await page.get_by_role("heading", name="Spring sale").wait_for()


async def test_a_waiting_campaign_is_started_by_hand_and_shows_its_recipients(open_desk: Any, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    (tmp_path / "customers.csv").write_text("user_id,first_name\nu-1,Ada\nu-2,\n")
    desk = await open_desk(audience=tmp_path)
    campaign = {
        "name": "Later",
        "segment": {"query": "SELECT * FROM customers ORDER BY user_id", "primaryKey": "user_id"},
        "schedule": {"type": "SOME_DAY"},
        "message": {"title": {"en": "Hello {{ first_name | 'there' }}"}, "iosEnabled": True},
    }
    assert await desk.send(campaign, path="/v1/campaigns") == 200
    page = await desk.page("/#/campaigns")
    await page.get_by_role("button", name="Start now").click()
    await page.locator(".stamp.accepted").get_by_text("done").wait_for()
    assert await page.locator(".big").inner_text() == "2 users"
    card = page.get_by_role("group", name="iPhone").locator(".card-title")
    assert await card.inner_text() == "Hello Ada"
    await page.get_by_role("button", name="u-2").click()
    assert await card.inner_text() == "Hello there"
    assert desk.complaints == []


async def test_a_new_campaign_appears_by_itself(desk: Any) -> None:
    await desk.push()
    page = await desk.page("/#/campaigns")
    await page.get_by_role("heading", name="No campaign yet").wait_for()
    await desk.send({"name": "Sudden", "message": {"title": {"en": "Now"}}}, path="/v1/campaigns")
    await page.get_by_role("link", name="Sudden").wait_for()


async def test_the_result_of_a_campaign_is_below_its_heading_at_full_width(desk: Any) -> None:
    await desk.send({"name": "Spring"}, path="/v1/campaigns")
    page = await desk.page("/#/campaigns", width=390)
    await page.get_by_role("link", name="Spring").click()
    result = page.locator(".block.result")
    heading, reason = [await result.locator(part).bounding_box() for part in ("h3", ".trouble")]
    assert reason["y"] >= heading["y"] + heading["height"]
    assert reason["width"] > 340
