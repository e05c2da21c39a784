"""Consecutive pushes with the same texts: one row, which opens to its pushes."""

import asyncio


async def broadcast(desk, title, first, last):
    for number in range(first, last + 1):
        await desk.push(title, f"user-{number}", body={"en": "Today only"})


async def test_equal_pushes_are_one_row_that_opens_to_its_users(desk):
    await desk.push("Before")
    page = await desk.page()
    await broadcast(desk, "Sale", 1, 110)
    await desk.control("PUT", "/faults", {"faults": [{"fault": "status", "code": 503, "first": 2}]})
    await broadcast(desk, "Sale", 111, 114)
    sale = page.get_by_role("option", name="Sale")
    for text in ("114 pushes", "112 users", "2 failed"):
        await sale.get_by_text(text).wait_for()
    await page.locator(".list-count").get_by_text("115 pushes", exact=True).wait_for()
    assert await page.locator(".push-row").count() == 2
    await page.get_by_role("listbox").focus()
    await page.keyboard.press("g")
    await page.get_by_text("One of 114 pushes with these texts").wait_for()
    await page.keyboard.press("Enter")
    await page.get_by_role("option", name="user-114").wait_for()
    await page.locator(".list-count").get_by_text("100+ pushes", exact=True).wait_for()
    await page.keyboard.press("j")
    await page.get_by_role("option", name="user-113", selected=True).wait_for()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.get_by_role("option", name="user-113").wait_for(state="detached")
    await page.get_by_role("button", name="All pushes").click()
    await sale.get_by_text("113 pushes").wait_for()
    await desk.push("Between")
    await broadcast(desk, "Sale", 115, 115)
    await page.locator(".push-row").nth(3).wait_for()


async def test_what_changes_while_the_list_loads_is_in_it(desk):
    await broadcast(desk, "Sale", 1, 3)
    other = await desk.page()
    page = await desk.page()
    await page.get_by_label("Search pushes").fill("user:user-1")
    await page.get_by_role("option", name="user-1").wait_for()

    async def answer_late(route):
        before = await route.fetch()
        await desk.control("DELETE", "/requests/2")
        await broadcast(desk, "Later", 4, 4)
        await other.get_by_role("option", name="Later").wait_for()
        await route.fulfill(response=before)

    await page.route("**/requests?*", answer_late, times=1)
    await page.get_by_label("Search pushes").fill("")
    await page.get_by_role("option", name="Later").wait_for()
    await page.get_by_role("option", name="Sale").get_by_text("2 pushes").wait_for()
    await asyncio.gather(*(desk.control("DELETE", f"/requests/{number}") for number in (1, 3)))
    await page.locator(".list-count").get_by_text("1 push", exact=True).wait_for()
    await page.get_by_role("button", name="Delete all").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete all").click()
    await page.get_by_role("heading", name="Send a push").wait_for()
    assert desk.emulator.accepted("user-4") == 1
