"""Fault rules, limits and the clock: set on the page, effective on the wire."""

from __future__ import annotations

from typing import Any

from pushsdk.emulator import Fault


async def test_a_preset_is_switched_on_and_its_hits_are_counted_live(desk: Any) -> None:
    await desk.push()
    page = await desk.page("/#/faults")
    await page.get_by_role("button", name="ratelimited").click()
    await page.locator(".preset[aria-pressed=true]").get_by_text("ratelimited").wait_for()
    rule = page.locator(".rule").filter(has_text="too-many")
    assert await rule.locator(".hits").inner_text() == "0"
    assert [await desk.push() for _ in range(8)].count(429) == 2
    await rule.locator(".hits").get_by_text("2", exact=True).wait_for()


async def test_a_preset_that_is_on_is_switched_off_again(desk: Any) -> None:
    await desk.push()
    page = await desk.page("/#/faults")
    await page.get_by_role("button", name="outage").click()
    await page.locator(".rule").first.wait_for()
    await page.get_by_role("button", name="outage").click()
    await page.get_by_text("No rule: every good request is accepted.").wait_for()
    assert await desk.push() == 204


async def test_a_rule_is_switched_off_and_on(desk: Any) -> None:
    await desk.push()
    desk.emulator.set_faults([Fault.status(503, name="down")])
    page = await desk.page("/#/faults")
    switch = page.get_by_role("switch", name="Rule down")
    await switch.click()
    await page.locator(".rule.off").wait_for()
    assert await desk.push() == 204
    await switch.click()
    await page.locator(".rule:not(.off)").wait_for()
    assert await desk.push() == 503
    await page.locator(".hits").get_by_text("1", exact=True).wait_for()


async def test_rules_are_edited_as_json(desk: Any) -> None:
    await desk.push()
    page = await desk.page("/#/faults")
    await page.get_by_text("No rule").wait_for()
    editor = page.get_by_label("Rules as JSON")
    await editor.fill("[{")
    await page.get_by_role("button", name="Apply rules").click()
    await page.get_by_text("This is not JSON").wait_for()
    await editor.fill('[{"fault": "status", "code": 418, "name": "teapot"}]')
    await page.get_by_role("button", name="Apply rules").click()
    await page.locator(".rule").get_by_text("Answers 418").wait_for()
    assert await desk.push() == 418


async def test_refused_rules_say_why_and_change_nothing(open_desk: Any) -> None:
    desk = await open_desk()
    await desk.push()
    page = await desk.page("/#/faults")
    await page.get_by_text("No rule").wait_for()
    await page.get_by_label("Rules as JSON").fill('[{"fault": "no such"}]')
    await page.get_by_role("button", name="Apply rules").click()
    await page.get_by_role("alert").get_by_text("no such").wait_for()
    assert await desk.push() == 204
    assert all("400" in one for one in desk.complaints)  # the console names the refusal, and nothing else


async def test_limits_are_set_with_the_form(desk: Any) -> None:
    await desk.push()
    page = await desk.page("/#/faults")
    # The form is overwritten when the current limits arrive.
    await page.get_by_text("No rule").wait_for()
    await page.get_by_label("Users per request").fill("1")
    await page.get_by_label("users", exact=True).fill("422")
    await page.get_by_label("User ids that are refused").fill("bad-user")
    await page.get_by_role("button", name="Save limits").click()
    await page.get_by_text("Limits saved").wait_for()
    assert await desk.push("Two", "a", "b") == 422
    assert await desk.push("Bad", "bad-user") == 400
    assert await desk.push("One", "a") == 204
    await page.reload()
    await page.locator(".connection[data-state=live]").wait_for()
    await page.wait_for_function("document.querySelector('#limit-max_users').value === '1'")


async def test_the_clock_is_set_forward(desk: Any) -> None:
    await desk.push()
    page = await desk.page("/#/faults")
    await page.get_by_role("button", name="+1 hour").click()
    await page.get_by_text("1 hour ahead").wait_for()
    assert (await desk.control("GET", "/clock"))["ahead"] == 3600


async def test_a_push_shows_its_fault(desk: Any) -> None:
    await desk.push()
    desk.emulator.set_faults([Fault.reset_after(name="lost-answer")])
    await desk.push("Accepted and unsaid")
    page = await desk.page()
    await page.locator(".stamp.lost").get_by_text("Accepted, unsaid").wait_for()
    await page.locator(".detail").get_by_text("lost-answer").wait_for()
