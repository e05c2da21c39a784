"""All inboxes at once, the notice of pushes with another key, requests that reached no inbox, the download, the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


async def theirs(desk: Any, title: str, key: str = "another-key") -> None:
    message = {"title": {"en": title}, "iosEnabled": True}
    assert await desk.send({"userIds": ["u"], "message": message}, api_key=key) == 204


async def downloaded(page: Any) -> tuple[str, list[Any]]:
    """Press Download; return the name of the file and its lines."""
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Download").click()
    download = await downloading.value
    return download.suggested_filename, read_lines(await download.path())


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line)["body"]["message"]["title"] for line in path.read_text().splitlines()]


async def choose_all(page: Any) -> None:
    await page.get_by_label("Inbox", exact=True).select_option("*")


async def test_all_inboxes_are_one_live_list_with_their_names(desk: Any) -> None:
    await desk.push("Mine")
    await desk.control("PUT", "/label", {"label": "Checkout"})
    await theirs(desk, "Theirs")
    page = await desk.page()
    await choose_all(page)
    await page.get_by_role("option", name="Mine").get_by_text("Checkout").wait_for()
    await page.get_by_role("option", name="Theirs").get_by_text("Inbox 2").wait_for()
    await theirs(desk, "Live", "a-third-key")
    await page.get_by_role("option", name="Live").get_by_text("Inbox 3").wait_for()
    await page.get_by_role("searchbox", name="Search pushes").fill("mine")
    await page.locator(".list-count").get_by_text("1 push", exact=True).wait_for()
    await page.reload()
    await page.locator(".list-count").get_by_text("3 pushes", exact=True).wait_for()


async def test_a_push_of_all_inboxes_is_sent_again_and_deleted_in_its_own(desk: Any) -> None:
    await desk.push("Mine")
    await theirs(desk, "Theirs")
    page = await desk.page()
    await choose_all(page)
    await page.get_by_role("option", name="Theirs").click()
    await page.get_by_role("button", name="Send again").click()
    await page.locator(".eyebrow").get_by_text("Push 3 ").wait_for()
    assert len(desk.emulator.inbox("another-key").pushes) == 2
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.locator(".list-count").get_by_text("2 pushes", exact=True).wait_for()
    assert [push.id for push in desk.emulator.inbox("another-key").pushes] == [2]
    assert await page.get_by_role("button", name="Delete all").count() == 0


async def test_a_deletion_elsewhere_is_followed(desk: Any) -> None:
    await desk.push("Mine")
    await theirs(desk, "Theirs")
    page = await desk.page()
    await choose_all(page)
    await page.locator(".push-row").nth(1).wait_for()
    await desk.control("DELETE", "/requests/1")
    await page.get_by_role("option", name="Mine").wait_for(state="detached")


async def test_views_of_one_inbox_ask_which(desk: Any) -> None:
    await desk.push("Mine", "ann")
    await theirs(desk, "Theirs")
    page = await desk.page("/#/faults")
    await page.get_by_role("heading", name="Faults").wait_for()
    await choose_all(page)
    await page.get_by_role("heading", name="Faults belong to an inbox").wait_for()
    await theirs(desk, "Not for this view")
    await page.keyboard.press("3")
    await page.get_by_role("heading", name="Users belong to an inbox").wait_for()
    await page.get_by_role("button", name="Inbox 1").click()
    await page.get_by_role("list", name="Users").get_by_text("ann").wait_for()


async def test_a_user_of_a_push_is_shown_in_the_inbox_of_the_push(desk: Any) -> None:
    await desk.push("Mine", "ann")
    await theirs(desk, "Theirs")
    page = await desk.page()
    await choose_all(page)
    await page.get_by_role("option", name="Mine").click()
    await page.locator(".eyebrow").get_by_text("Push 1 ").wait_for()
    await page.get_by_role("tab", name="Users").click()
    await page.get_by_role("link", name="ann").click()
    await page.get_by_role("heading", name="ann").wait_for()
    await page.get_by_label("Inbox", exact=True).get_by_text("Inbox 1").wait_for(state="attached")


async def test_a_notice_counts_pushes_with_other_keys_and_opens_them(desk: Any) -> None:
    await desk.push("Mine")
    page = await desk.page("/#/faults")
    await theirs(desk, "Theirs")
    await theirs(desk, "Theirs too")
    await page.get_by_role("button", name="2 pushes with another key, in Inbox 2 ▸ Show").click()
    await page.get_by_role("option", name="Theirs too").wait_for()
    await page.locator(".notice").wait_for(state="detached")
    await desk.push("Mine too")
    await theirs(desk, "A third", "a-third-key")
    await page.get_by_role("button", name="2 pushes with 2 other keys ▸ Show").click()
    for title in ("Mine too", "A third", "Theirs"):
        await page.get_by_role("option", name=title, exact=False).first.wait_for()
    await page.locator(".notice").wait_for(state="detached")


async def test_a_dismissed_notice_stays_away_until_the_next_push(desk: Any) -> None:
    await desk.push("Mine")
    page = await desk.page()
    await theirs(desk, "Theirs")
    for count in ("1 push", "1 push"):
        await page.get_by_role("button", name=f"{count} with another key").wait_for()
        await page.get_by_role("button", name="Dismiss").click()
        await page.locator(".notice").wait_for(state="detached")
        await theirs(desk, "Theirs too")
    await page.evaluate("location.hash = '#/faults'")
    await desk.send({}, path="/v2/push")
    await page.get_by_role("button", name="1 request reached no inbox").wait_for()
    await page.locator(".notice.refused").get_by_role("button", name="Dismiss").click()
    await page.locator(".notice.refused").wait_for(state="detached")


async def test_a_new_page_opens_where_the_pushes_are(desk: Any) -> None:
    await desk.control("PUT", "/label", {"label": "Without pushes"})
    await theirs(desk, "Theirs")
    page = await desk.page()
    await page.get_by_role("option", name="Theirs").wait_for()
    await page.get_by_label("Inbox", exact=True).get_by_text("Inbox 2 · 1").wait_for(state="attached")
    await desk.push("Mine")
    page = await desk.page()
    for title in ("Mine", "Theirs"):
        await page.get_by_role("option", name=title).wait_for()


async def test_requests_that_reached_no_inbox_have_a_row_and_a_notice(desk: Any) -> None:
    await desk.push("Mine")
    page = await desk.page("/#/faults")
    for path, status in (("/v1/push", 401), ("/v2/push", 404)):
        async with desk.session.post(desk.emulator.base_url + path, json={}) as response:
            assert response.status == status
    await page.get_by_role("button", name="2 requests reached no inbox ▸ Show").click()
    listed = page.locator(".refused-list")
    await listed.get_by_text("the Api-Key header is missing").wait_for()
    await listed.get_by_text("POST /external/api/v2/push").wait_for()
    await listed.get_by_text("base_url is probably wrong").wait_for()
    await page.get_by_text(desk.emulator.api_key, exact=True).first.wait_for()
    await page.locator(".notice").wait_for(state="detached")
    row = page.get_by_role("link", name="2 requests reached no inbox")
    await row.get_by_text("404").wait_for()
    await page.get_by_role("button", name="Hide them").click()
    await row.wait_for(state="hidden")
    await page.get_by_role("option", name="Mine").wait_for()
    await desk.send({}, path="/v2/push")
    await page.get_by_role("link", name="1 request reached no inbox").wait_for()


async def test_the_shown_requests_are_downloaded_as_json_lines(desk: Any) -> None:
    await desk.push("Tea")
    await desk.push("Coffee")
    await theirs(desk, "Theirs")
    page = await desk.page("/")
    await page.get_by_label("Inbox", exact=True).select_option(label="Inbox 1 · 2")
    await page.get_by_role("option", name="Tea").wait_for()
    assert await downloaded(page) == ("Inbox 1.jsonl", [{"en": "Coffee"}, {"en": "Tea"}])
    await page.get_by_role("searchbox", name="Search pushes").fill("tea")
    await page.locator(".list-count").get_by_text("1 push", exact=True).wait_for()
    assert (await downloaded(page))[1] == [{"en": "Tea"}]
    await page.get_by_role("searchbox", name="Search pushes").fill("")
    await choose_all(page)
    await page.locator(".list-count").get_by_text("3 pushes", exact=True).wait_for()
    assert await downloaded(page) == ("all inboxes.jsonl", [{"en": "Theirs"}, {"en": "Coffee"}, {"en": "Tea"}])


async def test_the_key_of_the_terminal_is_shown_and_copied(desk: Any) -> None:
    page = await desk.page()
    welcome = page.locator(".welcome")
    await welcome.get_by_text(desk.emulator.api_key, exact=True).wait_for()
    assert desk.emulator.api_key in await welcome.locator(".snippet pre").inner_text()
    await desk.push("Mine")
    await page.get_by_role("button", name="Connect").click()
    dialog = page.get_by_role("dialog", name="Connect a program")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await dialog.get_by_role("button", name="Copy api_key").click()
    assert await page.evaluate("navigator.clipboard.readText()") == desk.emulator.api_key
    await dialog.get_by_role("tab", name="Command line").click()
    await dialog.get_by_text(f"export PUSHSDK_BASE_URL={desk.emulator.base_url}").wait_for()


async def test_a_token_protects_the_key_and_the_download_carries_it(open_desk: Any) -> None:
    desk = await open_desk(token="secret")
    await desk.push("Mine")
    page = await desk.page("/#token=secret")
    await page.get_by_role("option", name="Mine").wait_for()
    assert (await downloaded(page))[1] == [{"en": "Mine"}]
    await page.get_by_role("button", name="Send again").click()
    await page.get_by_role("option", name="Mine").get_by_text("2 pushes").wait_for()
    assert len(desk.emulator.pushes) == 2


async def test_the_guide_is_linked_and_opens_beside_the_page(desk: Any) -> None:
    page = await desk.page()
    async with page.context.expect_page() as opening:
        await page.get_by_role("link", name="Guide", exact=True).click()
    guide = await opening.value
    assert guide.url.endswith("/docs")
    await guide.get_by_role("link", name="emulator", exact=True).click()
    await guide.get_by_role("heading", name="The emulator").wait_for()
    await guide.get_by_role("link", name="back to the inbox").click()
    await guide.get_by_role("heading", name="Send a push. It appears here.").wait_for()
