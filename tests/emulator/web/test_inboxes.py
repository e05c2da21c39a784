"""Each key has its inbox: all inboxes at once, the notice of other keys, the download, the key of the terminal."""

import json


async def downloaded(page):
    """Press Download; return the name of the file and the titles in its lines."""
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Download").click()
    download = await downloading.value
    lines = (await download.path()).read_text().splitlines()
    return download.suggested_filename, [json.loads(line)["body"]["message"]["title"]["en"] for line in lines]


async def test_all_inboxes_are_one_live_list_in_which_each_push_keeps_its_inbox(desk):
    await desk.push("Mine", "ann")
    await desk.control("PUT", "/label", {"label": "Checkout"})
    await desk.theirs("Theirs")
    page = await desk.page("/#/faults")
    inbox = page.get_by_label("Inbox", exact=True)
    await inbox.select_option("*")
    await page.get_by_role("heading", name="Faults belong to an inbox").wait_for()
    await page.keyboard.press("1")
    await page.get_by_role("option", name="Mine").get_by_text("Checkout").wait_for()
    await desk.theirs("Live", "a-third-key")
    await page.get_by_role("option", name="Live").get_by_text("Inbox 3").wait_for()
    assert await downloaded(page) == ("all inboxes.jsonl", ["Live", "Theirs", "Mine"])
    await page.reload()
    await page.locator(".list-count").get_by_text("3 pushes", exact=True).wait_for()
    await page.get_by_role("option", name="Theirs").click()
    await page.get_by_role("button", name="Send again").click()
    await page.locator(".eyebrow").get_by_text("Push 4 ").wait_for()
    assert len(desk.emulator.inbox("another-key").pushes) == 2
    assert await page.get_by_role("button", name="Delete all").count() == 0
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.locator(".list-count").get_by_text("3 pushes", exact=True).wait_for()
    assert [push.id for push in desk.emulator.inbox("another-key").pushes] == [2]
    await page.get_by_role("option", name="Mine").click()
    await page.get_by_role("tab", name="Users").click()
    await page.get_by_role("link", name="ann").click()
    await page.get_by_role("heading", name="ann").wait_for()
    await inbox.get_by_text("Checkout").wait_for(state="attached")
    await page.get_by_role("button", name="Rename").click()
    await page.get_by_label("Name", exact=True).fill("Renamed")
    await page.get_by_role("button", name="Save").click()
    await inbox.get_by_text("Renamed · 1").wait_for(state="attached")


async def test_a_notice_counts_pushes_with_other_keys_opens_them_and_can_be_dismissed(desk):
    await desk.control("PUT", "/label", {"label": "Without pushes"})
    await desk.theirs("Theirs")
    page = await desk.page()  # opens where the pushes are
    await page.get_by_role("option", name="Theirs").wait_for()
    await desk.push("Mine")
    await page.get_by_role("button", name="1 push with another key").wait_for()
    await page.get_by_role("button", name="Dismiss").click()
    await page.locator(".notice").wait_for(state="detached")
    await desk.push("Mine too")
    await page.get_by_role("button", name="1 push with another key, in Without pushes ▸ Show").wait_for()
    await desk.theirs("A third", "a-third-key")
    await page.get_by_role("button", name="2 pushes with 2 other keys ▸ Show").click()
    for title in ("Mine too", "A third", "Theirs"):
        await page.get_by_role("option", name=title).wait_for()
    await page.locator(".notice").wait_for(state="detached")


async def test_the_key_of_the_terminal_is_shown_and_copied_and_the_guide_is_linked(desk):
    page = await desk.page()
    await page.get_by_role("button", name="Connect").click()
    dialog = page.get_by_role("dialog", name="Connect a program")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await dialog.get_by_role("button", name="Copy api_key").click()
    assert await page.evaluate("navigator.clipboard.readText()") == desk.emulator.api_key
    await dialog.get_by_role("tab", name="Command line").click()
    await dialog.get_by_text(f"export PUSHSDK_BASE_URL={desk.emulator.base_url}").wait_for()
    await page.keyboard.press("Escape")
    async with page.context.expect_page() as opening:
        await page.get_by_role("link", name="Guide", exact=True).click()
    guide = await opening.value
    await guide.get_by_role("searchbox", name="Search the guide").press_sequentially("retry budget")
    await guide.keyboard.press("Enter")
    await guide.get_by_role("link", name="retries: The retry budget").click()
    await guide.get_by_role("heading", name="The retry budget").wait_for()
    assert guide.url.endswith("/docs/retries#the-retry-budget")
    await guide.get_by_role("link", name="back to the inbox").click()
    await guide.get_by_role("heading", name="Send a push. It appears here.").wait_for()


async def test_a_token_protects_the_page_and_is_kept_out_of_the_address(open_desk):
    desk = await open_desk(token="a token/&?")
    await desk.push("Secret")
    page = await desk.page("/#token=a%20token%2F%26%3F")
    await page.get_by_role("option", name="Secret").wait_for()
    assert "token" not in page.url
    await page.reload()
    await page.get_by_role("option", name="Secret").wait_for()
    assert (await downloaded(page))[1] == ["Secret"]
    assert desk.complaints == []
    stranger = await desk.browser.new_page()
    await stranger.goto(desk.origin)
    await stranger.get_by_label("Token").fill("a token/&?")
    await stranger.get_by_role("button", name="Open").click()
    await stranger.get_by_role("option", name="Secret").wait_for()
