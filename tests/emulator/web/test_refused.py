"""Pushes that reach no phone are explained: refused, stopped by a fault, for no platform, without an inbox."""

from support.page_words import keys, press, read, see, visit

from pushsdk.emulator import Fault


async def test_each_push_that_reaches_no_phone_says_why(desk):
    await desk.send(b'{"userIds": [')
    await desk.control("PUT", "/limits", {"max_users": 1})
    await desk.push("Too many", "u-1", "u-2")
    await desk.send(b'{"userIds": ["u"], "message": {"title": {"en": "For none"}}}')
    desk.emulator.inbox().set_faults(
        [
            Fault.status(503, first=1, name="down"),
            Fault.reset_before(first=1, name="lost-request"),
            Fault.reset_after(name="lost-answer"),
        ]
    )
    for number in (4, 5, 6):
        await desk.push(f"Lost {number}")
    page = await desk.page()
    for number, heading, text in (
        (1, "Refused with 400", "truncated"),
        (2, "Refused with 413", "the request has 2 users, at most 1 are allowed"),
        (3, "For no platform", "iosEnabled"),
        (4, "Failed with 503", "down"),
        (5, "No answer", "lost-request"),
    ):
        await visit(page, f"pushes/{number}")
        await see(page, "heading", heading)
        await page.locator(".stage").get_by_text(text).first.wait_for()
        await keys(page, "e")
        assert await page.locator(".phone").count() == 0
    await read(page.get_by_role("option", name="For none"), "no platform")
    await press(page, "Lost 6", "option")
    await read(page.locator(".stamp.lost"), "Accepted, unsaid")
    await read(page.locator(".detail"), "lost-answer")
    assert await page.locator(".phone").count() == 2


async def test_requests_that_reached_no_inbox_are_listed_and_can_be_hidden(desk):
    page = await desk.page()
    assert (await desk.api.raw("POST", "/external/api/v1/push", {}, Api_Key=None)).status == 401
    await read(page, "the Api-Key header is missing")
    assert await desk.send({}, path="/v2/push") == 404
    await desk.push("Mine")
    row = page.get_by_role("link", name="2 requests reached no inbox")
    await row.click()
    listed = page.locator(".refused-list")
    await read(listed, "POST /external/api/v2/push")
    await read(listed, "base_url is probably wrong")
    await page.get_by_text(desk.emulator.api_key, exact=True).first.wait_for()
    await read(row, "404")
    await press(page, "Hide them")
    await row.wait_for(state="hidden")
    await see(page, "option", "Mine")
    await desk.send({}, path="/v2/push")
    await see(page, "link", "1 request reached no inbox")
