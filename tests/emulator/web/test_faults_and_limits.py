"""Fault rules, limits and the clock: set on the page, effective on the wire."""


async def test_faults_are_switched_on_counted_edited_and_switched_off(open_desk):
    desk = await open_desk()
    await desk.push()
    page = await desk.page("/#/faults")
    await page.get_by_role("button", name="ratelimited").click()
    rule = page.locator(".rule").filter(has_text="too-many")
    await rule.locator(".hits").get_by_text("0", exact=True).wait_for()
    assert [await desk.push() for _ in range(8)].count(429) == 2
    await rule.locator(".hits").get_by_text("2", exact=True).wait_for()
    await page.get_by_role("button", name="ratelimited").click()
    await page.get_by_text("No rule: every good request is accepted.").wait_for()
    assert await desk.push() == 204
    editor, apply = page.get_by_label("Rules as JSON"), page.get_by_role("button", name="Apply rules")
    for text, answer in (("[{", "This is not JSON"), ('[{"fault": "no such"}]', "no such")):
        await editor.fill(text)
        await apply.click()
        await page.get_by_role("alert").get_by_text(answer).wait_for()
        assert await desk.push() == 204
    await editor.fill('[{"fault": "status", "code": 418, "name": "teapot"}]')
    await apply.click()
    await page.locator(".rule").get_by_text("Answers 418").wait_for()
    assert await desk.push() == 418
    await page.get_by_role("switch", name="Rule teapot").click()
    await page.locator(".rule.off").wait_for()
    assert await desk.push() == 204
    await page.get_by_role("switch", name="Rule teapot").click()
    await page.locator(".rule:not(.off)").wait_for()
    await page.evaluate("location.hash = '#/compose'")
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.get_by_role("status", name="Result").get_by_text("418").wait_for()
    assert all("400" in one for one in desk.complaints)  # the console names the refusal, and nothing else


async def test_limits_and_the_clock_are_set_with_forms(desk):
    await desk.push()
    page = await desk.page("/#/faults")
    await page.get_by_text("No rule").wait_for()  # the form is overwritten when the current limits arrive
    await page.get_by_label("Users per request").fill("1")
    await page.get_by_label("users", exact=True).fill("422")
    await page.get_by_label("User ids that are refused").fill("bad-user")
    await page.get_by_role("button", name="Save limits").click()
    await page.get_by_text("Limits saved").wait_for()
    assert await desk.push("Two", "a", "b") == 422
    assert await desk.push("Bad", "bad-user") == 400
    assert await desk.push("One", "a") == 204
    await page.get_by_role("button", name="+1 hour").click()
    await page.get_by_text("1 hour ahead").wait_for()
    assert (await desk.control("GET", "/clock"))["ahead"] == 3600
    await page.reload()
    await page.wait_for_function("() => document.querySelector('#limit-max_users')?.value === '1'")
