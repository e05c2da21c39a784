"""The stream: a lost connection, a restart, a flood, a hundred thousand pushes."""

import asyncio
import json

from support.page_words import press, read, see

from pushsdk.emulator import Emulator
from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import Preview, RequestRecord

MANY = 100_000


async def test_a_lost_connection_is_restored_with_the_inbox_or_without_it(open_desk, tmp_path):
    desk = await open_desk()  # for its browser
    stored = {"store": tmp_path / "inbox.db", "api_key": "the-key-of-both"}
    async with Emulator(**stored) as first:
        desk.emulator, desk.origin = first, first.base_url.removesuffix("/external/api")
        await desk.push("Before")
        page = await desk.page()
        await see(page, "option", "Before")
        port = int(desk.origin.rpartition(":")[2])
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
    await read(page.locator(".list-count"), "501 pushes")
    assert await page.locator(".push-row").count() < 60
    await page.locator(".card").first.wait_for()  # otherwise the page requests deleted pushes
    await desk.control("POST", "/reset", {})
    await see(page, "heading", "Send a push")
    assert await page.locator(".push-row").count() == 0


def fill(path, api_key, count):
    """Fill a store with pushes, as the service would."""
    store = Store(path, keep=count + 1)
    inbox = store.inbox(api_key).id
    body = json.dumps({"userIds": ["u"], "message": {"title": {"en": "Push"}}}).encode()
    for start in range(0, count, 10_000):
        store.write(
            [
                RequestRecord(
                    inbox=inbox,
                    time=1_700_000_000.0 + number,
                    body=body,
                    endpoint="push",
                    status=204,
                    accepted=True,
                    user_ids=("u",),
                    preview=Preview(title={"en": f"Push number {number}"}, languages=("en",), first_user="u"),
                    title=f"push number {number}",
                )
                for number in range(start, start + 10_000)
            ]
        )
    store.close()


async def test_a_hundred_thousand_pushes_are_counted_and_loaded_on_demand_and_do_not_move(open_desk, tmp_path):
    fill(tmp_path / "many.db", "the-key", MANY)
    desk = await open_desk(store=tmp_path / "many.db", api_key="the-key", keep=MANY + 1)
    page = await desk.page()
    await read(page.locator(".list-count"), "100,000 pushes")
    row = page.get_by_role("option", name=f"Push number {MANY - 250}")
    while not await row.count():
        await page.locator(".rows").evaluate("rows => { rows.scrollTop = Math.min(rows.scrollTop + 600, 249 * 84) }")
    assert await page.locator(".push-row").count() < 60
    before = await row.bounding_box()
    await desk.push("Newest")
    await see(page, "button", "1 new")
    assert await row.bounding_box() == before
    await press(page, "1 new")
    await see(page, "option", "Newest")
    await page.get_by_role("searchbox", name="Search pushes").fill("number 77777")
    await see(page, "option", "Push number 77777")
    assert desk.complaints == []
