"""The stream: a lost connection, a token, a flood, a hundred thousand pushes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from pushsdk.emulator import Emulator
from pushsdk.emulator.store.queries import Store
from pushsdk.emulator.store.records import Preview, RequestContent, RequestRecord

MANY = 100_000


async def test_a_lost_connection_is_shown_and_restored(open_desk: Any, tmp_path: Path) -> None:
    store = tmp_path / "inbox.db"
    async with Emulator(store=store, api_key="the-key-of-both") as first:
        desk = await open_desk()  # for its browser and its session
        desk.emulator, desk.origin = first, first.base_url.removesuffix("/external/api")
        await desk.push("Before")
        page = await desk.page()
        await page.get_by_role("option", name="Before").wait_for()
        port = int(desk.origin.rpartition(":")[2])
    await page.locator(".connection[data-state=reconnecting]").wait_for()
    async with Emulator(store=store, api_key="the-key-of-both", port=port) as second:
        desk.emulator = second
        await page.locator(".connection[data-state=live]").wait_for()
        await desk.push("After")
        await page.get_by_role("option", name="After").wait_for()
        assert await page.locator(".push-row").count() == 2
        await page.close()


async def test_an_emulator_without_the_former_inbox_restarts_the_page(open_desk: Any) -> None:
    desk = await open_desk()
    async with Emulator() as first:
        desk.emulator, desk.origin = first, first.base_url.removesuffix("/external/api")
        await desk.push("Before")
        page = await desk.page()
        await page.get_by_role("option", name="Before").wait_for()
        port = int(desk.origin.rpartition(":")[2])
    async with Emulator(port=port) as second:
        desk.emulator = second
        await page.get_by_role("heading", name="Send a push").wait_for()
        await desk.push("After")
        await page.get_by_role("option", name="After").wait_for()
        await page.close()


async def test_the_token_is_taken_from_the_address_and_kept_out_of_it(open_desk: Any) -> None:
    desk = await open_desk(token="a token/&?")
    await desk.push("Secret")
    page = await desk.page("/#token=a%20token%2F%26%3F")
    await page.get_by_role("option", name="Secret").wait_for()
    assert "token" not in page.url
    await page.reload()
    await page.get_by_role("option", name="Secret").wait_for()
    assert desk.complaints == []


async def test_without_a_token_the_page_asks_for_it(open_desk: Any) -> None:
    desk = await open_desk(token="the-token")
    await desk.push("Secret")
    page = await desk.browser.new_page()
    await page.goto(desk.origin)
    await page.get_by_label("Token").fill("the-token")
    await page.get_by_role("button", name="Open").click()
    await page.get_by_role("option", name="Secret").wait_for()


async def test_a_reset_empties_the_page(desk: Any) -> None:
    await desk.push("Gone soon")
    page = await desk.page()
    await page.get_by_role("option", name="Gone soon").wait_for()
    await page.locator(".card").first.wait_for()  # otherwise the page requests deleted pushes
    await desk.control("POST", "/reset")
    await page.get_by_role("option", name="Gone soon").wait_for(state="detached")
    await page.get_by_role("heading", name="Send a push").wait_for()


async def test_a_scrolled_list_does_not_move_and_counts_new_rows(desk: Any) -> None:
    for number in range(40):
        await desk.push(f"Push number {number}")
    page = await desk.page()
    await page.get_by_role("option", name="Push number 39").wait_for()
    await page.locator(".rows").evaluate("rows => { rows.scrollTop = 20 * 84 }")
    row = page.get_by_role("option", name="Push number 18")
    await row.wait_for()
    before = await row.bounding_box()
    await desk.push("Newest")
    pill = page.get_by_role("button", name="1 new")
    await pill.wait_for()
    assert await row.bounding_box() == before
    await pill.click()
    await page.get_by_role("option", name="Newest").wait_for()


async def test_a_flood_is_shown_to_its_last_push_with_few_elements(desk: Any) -> None:
    await desk.push("The first")
    page = await desk.page()
    await page.get_by_role("option", name="The first").wait_for()

    async def some(sender: int) -> None:
        for number in range(100):
            await desk.push(f"Push {number} of {sender}")

    await asyncio.gather(*(some(sender) for sender in range(20)))
    await desk.push("The last")
    await page.get_by_role("option", name="The last").wait_for()
    await page.locator(".list-count").get_by_text("2,002 pushes").wait_for()
    assert await page.locator(".push-row").count() < 60


def fill(path: Path, api_key: str, count: int) -> None:
    """Fill a store with pushes, as the service would."""
    store = Store(path, keep=count)
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
                    content=RequestContent(
                        users=1,
                        preview=Preview(title={"en": f"Push number {number}"}, languages=("en",), first_user="u"),
                        title=f"push number {number}",
                    ),
                )
                for number in range(start, start + 10_000)
            ]
        )
    store.close()


async def test_a_hundred_thousand_pushes_are_scrolled_through(open_desk: Any, tmp_path: Path) -> None:
    fill(tmp_path / "many.db", "the-key", MANY)
    desk = await open_desk(store=tmp_path / "many.db", api_key="the-key")
    page = await desk.page()
    await page.locator(".list-count").get_by_text("100,000 pushes").wait_for()
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    rows = page.locator(".rows")
    for share in (0.5, 0.9, 1.0, 0.25, 0.0):
        await rows.evaluate("(rows, share) => { rows.scrollTop = share * rows.scrollHeight }", share)
        index = round(share * MANY)
        script = f"""() => [...document.querySelectorAll('.push-row')].some(row => {{
            const number = Number(/\\d+/.exec(row.querySelector('.row-title').textContent)[0]);
            return Math.abs({MANY} - {index} - number) < 40;
        }})"""
        await page.wait_for_function(script)
        assert await page.locator(".push-row").count() < 60
    await page.get_by_role("option", name="Push number 99999").wait_for()
    assert sum("/requests?" in url for url in urls) < 40  # the page jumps, without loading all rows in between
    await page.get_by_role("searchbox", name="Search pushes").fill("number 77777")
    await page.get_by_role("option", name="Push number 77777").wait_for()
    assert desk.complaints == []


async def test_deep_in_the_list_visible_rows_do_not_move(open_desk: Any, tmp_path: Path) -> None:
    fill(tmp_path / "many.db", "the-key", 10_000)
    desk = await open_desk(store=tmp_path / "many.db", api_key="the-key")
    page = await desk.page()
    await page.locator(".list-count").get_by_text("10,000 pushes").wait_for()
    await page.locator(".rows").evaluate("rows => { rows.scrollTop = rows.scrollHeight / 2 }")
    row = page.get_by_role("option", name="Push number 4997")
    await row.wait_for()
    before = await row.bounding_box()
    await desk.push("Newest")
    await page.get_by_role("button", name="1 new").wait_for()
    assert await row.bounding_box() == before
    await page.locator(".list-count").get_by_text("10,001 pushes").wait_for()
    await page.get_by_role("button", name="1 new").click()
    await page.get_by_role("option", name="Newest").wait_for()
    assert desk.complaints == []
