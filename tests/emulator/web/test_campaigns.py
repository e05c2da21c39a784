"""A campaign is composed, appears by itself, and is started by hand; users and their devices."""

import pytest
from support.page_words import counted, press, read, see, visit


async def test_a_campaign_is_composed_started_by_hand_and_shows_its_recipients(open_desk, tmp_path):
    pytest.importorskip("duckdb")
    (tmp_path / "customers.csv").write_text("user_id,first_name\nu-1,Ada\nu-2,\n")
    desk = await open_desk(audience=tmp_path)
    page = await desk.page("/#/campaigns")
    await see(page, "heading", "No campaign yet")
    await visit(page, "compose")
    await press(page, "Campaign", exact=True)
    await page.get_by_role("textbox", name="Name", exact=True).fill("Summer")
    query = page.get_by_role("textbox", name="Segment query", exact=True)
    await query.fill("SELECT * FROM customers ORDER BY user_id")
    editor = page.get_by_role("textbox", name="JSON", exact=True)
    text = (
        (await editor.input_value()).replace("START_NOW", "SOME_DAY").replace("Hello there", "Hello {{ first_name }}")
    )
    await editor.fill(text)
    await press(page, "Send", exact=True)
    await page.get_by_role("status", name="Result").locator(".stamp").wait_for()
    (campaign,) = desk.emulator.campaigns
    assert campaign.name == "Summer"
    assert campaign.request["segment"]["primaryKey"] == "user_id"
    await visit(page, "campaigns")
    await press(page, "Start now")
    await read(page.locator(".stamp.accepted"), "done")
    assert await page.locator(".big").inner_text() == "2 users"
    card = page.get_by_role("group", name="iPhone").locator(".card-title")
    assert await card.inner_text() == "Hello Ada"
    await press(page, "u-2")
    await card.get_by_text("Ada").wait_for(state="detached")
    assert desk.complaints == []


async def test_users_have_duplicates_and_devices(desk):
    await desk.push("Short-lived", "u 1", ttl=60)
    await desk.push("Old news", "u 1", collapseId="news")
    await desk.push("Fresh news", "u 1", collapseId="news")
    await desk.push("Other", "u 1", androidEnabled=False)
    await desk.push("Twice at once", "twice", "twice")
    await desk.control("POST", "/clock", {"advance": 120})
    page = await desk.page("/#/users")
    users = page.get_by_role("list", name="Users")
    await see(users, "link", "u 1 \u00d74", exact=True)
    await press(page, "Duplicates only", "switch")
    await users.get_by_role("link", name="u 1").wait_for(state="detached")
    await press(users, "twice same push", "link")
    await read(page, "2 times in one request")
    await press(page, "Duplicates only", "switch")
    await press(users, "u 1", "link")
    titles = page.locator(".tray.ios:not(.ghosts) .card-title")
    await read(titles, "Fresh news")
    assert await titles.all_inner_texts() == ["Other", "Fresh news"]
    assert await page.locator(".tray.android:not(.ghosts) .card-title").all_inner_texts() == ["Fresh news"]
    await read(page.locator(".ghosts.ios"), "replaced")
    await read(page.locator(".ghosts.android"), "expired")
    await press(page, "Pushes to this user", "link")
    await counted(page, "4 pushes")
