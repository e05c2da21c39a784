"""Pushes that reach no phone are explained: refused, stopped by a fault, for no platform, without an inbox."""

from pushsdk.emulator import Fault


async def test_each_push_that_reaches_no_phone_says_why(desk):
    await desk.send(b'{"userIds": [')
    await desk.control("PUT", "/limits", {"max_users": 1, "statuses": {"users": 429}})
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
        (2, "Refused with 429", "the request has 2 users, at most 1 are allowed"),
        (3, "For no platform", "iosEnabled"),
        (4, "Failed with 503", "down"),
        (5, "No answer", "lost-request"),
    ):
        await page.evaluate(f"location.hash = '#/pushes/{number}'")
        await page.get_by_role("heading", name=heading).wait_for()
        await page.locator(".stage").get_by_text(text).first.wait_for()
        await page.keyboard.press("e")
        assert await page.locator(".phone").count() == 0
    await page.get_by_role("option", name="For none").get_by_text("no platform").wait_for()
    await page.get_by_role("option", name="Lost 6").click()
    await page.locator(".stamp.lost").get_by_text("Accepted, unsaid").wait_for()
    await page.locator(".detail").get_by_text("lost-answer").wait_for()
    assert await page.locator(".phone").count() == 2


async def test_a_refused_body_is_mended_and_sent(desk):
    await desk.send(b'{"userIds": [')
    page = await desk.page()
    await page.get_by_role("button", name="Edit and send").click()
    await page.wait_for_function("() => document.querySelector('.editor textarea').value === '{\"userIds\": ['")
    editor = page.get_by_role("textbox", name="JSON", exact=True)
    await editor.fill('{"userIds": ["u"], "message": {"title": {"en": "Mended"}, "iosEnabled": true}}')
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.get_by_role("status", name="Result").get_by_text("204").wait_for()
    assert [push.message["title"] for push in desk.emulator.pushes] == [{"en": "Mended"}]


async def test_requests_that_reached_no_inbox_are_listed_and_can_be_hidden(desk):
    page = await desk.page()
    async with desk.session.post(f"{desk.emulator.base_url}/v1/push", json={}) as response:
        assert response.status == 401
    await page.get_by_text("the Api-Key header is missing").wait_for()
    assert await desk.send({}, path="/v2/push") == 404
    await desk.push("Mine")
    await page.evaluate("location.hash = '#/faults'")
    await page.get_by_role("button", name="2 requests reached no inbox ▸ Show").click()
    listed = page.locator(".refused-list")
    await listed.get_by_text("POST /external/api/v2/push").wait_for()
    await listed.get_by_text("base_url is probably wrong").wait_for()
    await page.get_by_text(desk.emulator.api_key, exact=True).first.wait_for()
    row = page.get_by_role("link", name="2 requests reached no inbox")
    await row.get_by_text("404").wait_for()
    await page.get_by_role("button", name="Hide them").click()
    await row.wait_for(state="hidden")
    await page.get_by_role("option", name="Mine").wait_for()
    await desk.send({}, path="/v2/push")
    await page.get_by_role("link", name="1 request reached no inbox").wait_for()
