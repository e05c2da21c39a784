"""Fault rules, limits and the clock: set on the page, effective on the wire."""

from support.page_words import press, read, visit


async def test_faults_are_switched_on_counted_edited_and_switched_off(open_desk):
    desk = await open_desk()
    await desk.push()
    page = await desk.page("/#/faults")
    await press(page, "ratelimited")
    rule = page.locator(".rule").filter(has_text="too-many")
    await read(rule.locator(".hits"), "0", exact=True)
    assert [await desk.push() for _ in range(8)].count(429) == 2
    await read(rule.locator(".hits"), "2", exact=True)
    await press(page, "ratelimited")
    await read(page, "No rule: every good request is accepted.")
    assert await desk.push() == 204
    editor = page.get_by_label("Rules as JSON")
    apply = page.get_by_role("button", name="Apply rules")
    for text, answer in (("[{", "This is not JSON"), ('[{"fault": "no such"}]', "no such")):
        await editor.fill(text)
        await apply.click()
        await read(page.get_by_role("alert"), answer)
        assert await desk.push() == 204
    await editor.fill('[{"fault": "status", "code": 418, "name": "teapot"}]')
    await apply.click()
    await read(page.locator(".rule"), "Answers 418")
    assert await desk.push() == 418
    await visit(page, "compose")
    await press(page, "Send", exact=True)
    await read(page.get_by_role("status", name="Result"), "418")
    assert all("400" in one for one in desk.complaints)  # the console names the refusal, and nothing else


async def test_limits_and_the_clock_are_set_with_forms(desk):
    await desk.push()
    page = await desk.page("/#/faults")
    await read(page, "No rule")  # the form is overwritten when the current limits arrive
    await page.get_by_label("Users per request").fill("1")
    await page.get_by_label("User ids that are refused").fill("bad-user")
    await press(page, "Save limits")
    await read(page, "Limits saved")
    assert await desk.push("Two", "a", "b") == 413
    assert await desk.push("Bad", "bad-user") == 400
    assert await desk.push("One", "a") == 204
    await press(page, "+1 hour")
    await read(page, "1 hour ahead")
    assert (await desk.control("GET", "/clock"))["ahead"] == 3600
    await page.reload()
    await page.wait_for_function("() => document.querySelector('#limit-max_users')?.value === '1'")
