"""The stream: a lost connection, a restart, a flood."""

import asyncio

from support.page_words import counted, see
from support.servers import free_port

from pushsdk.emulator import Emulator


async def test_a_lost_connection_is_restored_with_the_inbox_or_without_it(open_desk, tmp_path):
    desk = await open_desk()  # for its browser
    port = free_port()
    stored = {"store": tmp_path / "inbox.db", "api_key": "the-key-of-both"}
    async with Emulator(port=port, **stored) as first:
        desk.emulator, desk.origin = first, first.base_url.removesuffix("/external/api")
        await desk.push("Before")
        page = await desk.page()
        await see(page, "option", "Before")
    await page.locator(".connection[data-state=reconnecting]").wait_for()
    async with Emulator(port=port, **stored) as second:
        desk.emulator = second
        await page.locator(".connection[data-state=live]").wait_for()
        await desk.push("After")
        await see(page, "option", "After")
        assert await page.locator(".push-row").count() == 2
    async with Emulator(port=port) as third:
        desk.emulator = third
        await see(page, "heading", "Send a push")
        await desk.push("Elsewhere")
        await see(page, "option", "Elsewhere")
        await page.close()


async def test_a_flood_is_shown_to_its_last_push_and_a_reset_empties_the_page(desk):
    page = await desk.page()

    async def some(sender):
        for number in range(50):
            await desk.push(f"Push {number} of {sender}")

    await asyncio.gather(*(some(sender) for sender in range(10)))
    await desk.push("The last")
    await see(page, "option", "The last")
    await counted(page, "501 pushes")
    assert await page.locator(".push-row").count() < 60
    await page.locator(".card").first.wait_for()  # otherwise the page requests deleted pushes
    await desk.control("POST", "/reset", {})
    await see(page, "heading", "Send a push")
    assert await page.locator(".push-row").count() == 0
