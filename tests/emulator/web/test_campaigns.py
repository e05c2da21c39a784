"""A campaign is composed and shown; users and their devices."""

from support.page_words import counted, press, read, see


async def test_a_composed_campaign_is_sent_and_shown_with_its_segment(desk):
    page = await desk.page("/#/compose")
    await press(page, "Campaign", exact=True)
    await page.get_by_role("textbox", name="Name", exact=True).fill("Summer")
    query = page.get_by_role("textbox", name="Segment query", exact=True)
    await query.fill("SELECT * FROM customers")
    await press(page, "Send", exact=True)
    await page.get_by_role("status", name="Result").locator(".stamp").wait_for()
    (campaign,) = desk.emulator.campaigns
    assert campaign.request["name"] == "Summer"
    assert campaign.request["segment"]["primaryKey"] == "user_id"
    await press(page, "Open campaign 1", "link")
    await read(page.locator(".eyebrow"), campaign.uuid)
    await read(page.locator(".facts").first, "SELECT * FROM customers")
    await page.get_by_role("group", name="iPhone").locator(".card-title").wait_for()
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
