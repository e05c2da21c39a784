"""Consecutive pushes with the same texts: one row, which opens to its pushes."""

import asyncio

from support.page_words import counted, keys, press, read, see


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
        await read(sale, text)
    await counted(page, "115 pushes")
    assert await page.locator(".push-row").count() == 2
    await page.get_by_role("listbox").focus()
    await keys(page, "g")
    await read(page, "One of 114 pushes with these texts")
    await keys(page, "Enter")
    await see(page, "option", "user-114")
    await counted(page, "100+ pushes")
    await keys(page, "j")
    await see(page, "option", "user-113", selected=True)
    await press(page, "Delete", exact=True)
    await press(page.get_by_role("dialog"), "Delete")
    await page.get_by_role("option", name="user-113").wait_for(state="detached")
    await press(page, "All pushes")
    await read(sale, "113 pushes")
    await desk.push("Between")
    await broadcast(desk, "Sale", 115, 115)
    await page.locator(".push-row").nth(3).wait_for()


async def test_what_changes_while_the_list_loads_is_in_it(desk):
    await broadcast(desk, "Sale", 1, 3)
    other = await desk.page()
    page = await desk.page()
    await page.get_by_label("Search pushes").fill("user:user-1")
    await see(page, "option", "user-1")

    async def answer_late(route):
        before = await route.fetch()
        await desk.control("DELETE", "/requests/2")
        await broadcast(desk, "Later", 4, 4)
        await see(other, "option", "Later")
        await route.fulfill(response=before)

    await page.route("**/requests?*", answer_late, times=1)
    await page.get_by_label("Search pushes").fill("")
    await see(page, "option", "Later")
    await read(page.get_by_role("option", name="Sale"), "2 pushes")
    await asyncio.gather(*(desk.control("DELETE", f"/requests/{number}") for number in (1, 3)))
    await counted(page, "1 push")
    await press(page, "Delete all")
    await press(page.get_by_role("dialog"), "Delete all")
    await see(page, "heading", "Send a push")
    assert desk.emulator.accepted("user-4") == 1
