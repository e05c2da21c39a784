"""Consecutive pushes with the same texts: one row, which opens to its pushes."""

from __future__ import annotations

import asyncio
from typing import Any


async def broadcast(desk: Any, title: str, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await desk.push(title, f"user-{number}", body={"en": "Today only"})


async def test_equal_pushes_are_one_row_that_counts_users_and_failures(desk: Any) -> None:
    await broadcast(desk, "Sale", 1, 30)
    await desk.control("PUT", "/faults", {"faults": [{"fault": "status", "code": 503, "first": 2}]})
    page = await desk.page()
    sale = page.get_by_role("option", name="Sale")
    await sale.get_by_text("30 pushes").wait_for()
    await broadcast(desk, "Sale", 31, 34)
    await sale.get_by_text("34 pushes").wait_for()
    await sale.get_by_text("32 users").wait_for()
    await sale.get_by_text("2 failed").wait_for()
    await broadcast(desk, "Other", 1, 1)
    await broadcast(desk, "Sale", 35, 35)
    await page.locator(".push-row").nth(2).wait_for()
    await page.locator(".list-count").get_by_text("36 pushes", exact=True).wait_for()
    assert await sale.count() == 2


async def test_a_group_opens_to_its_users_by_keyboard(desk: Any) -> None:
    await broadcast(desk, "Before", 1, 1)
    await broadcast(desk, "Sale", 1, 120)
    page = await desk.page()
    await page.get_by_role("option", name="Sale").get_by_text("120 pushes").wait_for()
    await page.get_by_role("listbox").focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("option", name="user-120").wait_for()
    await page.locator(".list-count").get_by_text("100+ pushes", exact=True).wait_for()
    await page.keyboard.press("j")
    await page.get_by_role("option", name="user-119", selected=True).wait_for()
    await page.locator(".eyebrow").get_by_text("Push 120 ").wait_for()
    await page.keyboard.press("Escape")  # the list
    await page.keyboard.press("Escape")  # the pushes
    await page.get_by_role("option", name="Before").wait_for()
    assert await page.locator(".push-row").count() == 2


async def test_a_push_of_a_group_says_so_and_shows_the_others(desk: Any) -> None:
    await broadcast(desk, "Sale", 1, 3)
    page = await desk.page("/#/pushes/2")
    await page.get_by_role("option", name="Sale", selected=True).wait_for()
    await page.get_by_text("One of 3 pushes with these texts").wait_for()
    await page.get_by_role("button", name="Show the 3 pushes").click()
    await page.get_by_role("option", name="user-2", selected=True).wait_for()
    await broadcast(desk, "Sale", 4, 4)
    await page.get_by_role("option", name="user-4").wait_for()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.get_by_role("option", name="user-2").wait_for(state="detached")
    await page.get_by_role("button", name="All pushes").click()
    await page.get_by_role("option", name="Sale").get_by_text("3 pushes").wait_for()


async def test_the_mark_of_a_group_opens_it_and_a_deleted_push_leaves_the_count(desk: Any) -> None:
    await broadcast(desk, "Sale", 1, 3)
    page = await desk.page()
    await desk.control("DELETE", "/requests/2")
    await page.get_by_role("option", name="Sale").get_by_text("2 pushes").click()
    await page.get_by_role("option", name="user-1").wait_for()
    assert await page.locator(".push-row").count() == 2


async def test_a_flood_while_the_page_is_open_is_one_row(desk: Any) -> None:
    page = await desk.page()
    await broadcast(desk, "Sale", 1, 400)
    await page.get_by_role("option", name="Sale").get_by_text("400 pushes").wait_for()
    await page.locator(".list-count").get_by_text("400 pushes", exact=True).wait_for()
    assert await page.locator(".push-row").count() == 1


async def test_on_a_narrow_screen_a_group_opens_in_the_list(desk: Any) -> None:
    await broadcast(desk, "Sale", 1, 3)
    page = await desk.page("/#/pushes/2", width=390, height=844)
    await page.get_by_role("button", name="Show the 3 pushes").click()
    await page.get_by_role("option", name="user-1").wait_for()
    await page.get_by_role("button", name="All pushes").click()
    await page.get_by_role("option", name="Sale").get_by_text("3 pushes").wait_for()


async def test_what_changes_while_the_list_loads_is_in_it(desk: Any) -> None:
    await broadcast(desk, "Sale", 1, 3)
    other = await desk.page()
    page = await desk.page()
    await page.get_by_label("Search pushes").fill("user:user-1")
    await page.get_by_role("option", name="user-1").wait_for()

    async def answer_late(route: Any) -> None:
        before = await route.fetch()
        await desk.control("DELETE", "/requests/2")
        await broadcast(desk, "Later", 4, 4)
        await other.get_by_role("option", name="Later").wait_for()
        await route.fulfill(response=before)

    await page.route("**/requests?*", answer_late, times=1)
    await page.get_by_label("Search pushes").fill("")
    await page.get_by_role("option", name="Later").wait_for()
    await page.get_by_role("option", name="Sale").get_by_text("2 pushes").wait_for()


async def test_two_pushes_deleted_at_once_leave_the_list(desk: Any) -> None:
    for number in range(1, 5):
        await desk.push(f"Push {number}")
    page = await desk.page()
    await page.locator(".push-row").nth(3).wait_for()
    await page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
    await asyncio.gather(*(desk.control("DELETE", f"/requests/{number}") for number in (2, 3)))
    await page.locator(".list-count").get_by_text("2 pushes", exact=True).wait_for()
    assert await page.locator(".push-row").count() == 2
