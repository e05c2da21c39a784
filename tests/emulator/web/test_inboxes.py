"""Each key has its inbox: all inboxes at once, the notice of other keys, the download, the key of the terminal."""

import json

from support.page_words import counted, keys, press, read, see


async def downloaded(page):
    """Press Download; return the name of the file and the titles in its lines."""
    async with page.expect_download() as downloading:
        await press(page, "Download")
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
    await see(page, "heading", "Faults belong to an inbox")
    await keys(page, "1")
    await read(page.get_by_role("option", name="Mine"), "Checkout")
    await desk.theirs("Live", "a-third-key")
    await read(page.get_by_role("option", name="Live"), "Inbox 3")
    assert await downloaded(page) == ("all inboxes.jsonl", ["Live", "Theirs", "Mine"])
    await page.reload()
    await counted(page, "3 pushes")
    await press(page, "Theirs", "option")
    await press(page, "Send again")
    await read(page.locator(".eyebrow"), "Push 4 ")
    assert len(desk.emulator.inbox("another-key").pushes) == 2
    assert await page.get_by_role("button", name="Delete all").count() == 0
    await press(page, "Delete", exact=True)
    await press(page.get_by_role("dialog"), "Delete")
    await counted(page, "3 pushes")
    assert [push.id for push in desk.emulator.inbox("another-key").pushes] == [2]
    await press(page, "Mine", "option")
    await press(page, "Users", "tab")
    await press(page, "ann", "link")
    await see(page, "heading", "ann")
    await inbox.get_by_text("Checkout").wait_for(state="attached")
    await press(page, "Rename")
    await page.get_by_label("Name", exact=True).fill("Renamed")
    await press(page, "Save")
    await inbox.get_by_text("Renamed").wait_for(state="attached")


async def test_a_notice_counts_pushes_with_other_keys_opens_them_and_can_be_dismissed(desk):
    await desk.control("PUT", "/label", {"label": "Without pushes"})
    await desk.theirs("Theirs")
    page = await desk.page()  # opens where the pushes are
    await see(page, "option", "Theirs")
    await desk.push("Mine")
    await see(page, "button", "1 push with another key")
    await press(page, "Dismiss")
    await page.locator(".notice").wait_for(state="detached")
    await desk.push("Mine too")
    await see(page, "button", "1 push with another key, in Without pushes ▸ Show")
    await desk.theirs("A third", "a-third-key")
    await press(page, "2 pushes with 2 other keys ▸ Show")
    for title in ("Mine too", "A third", "Theirs"):
        await see(page, "option", title)
    await page.locator(".notice").wait_for(state="detached")


async def test_the_key_of_the_terminal_is_shown_and_copied_and_the_guide_is_linked(desk):
    page = await desk.page()
    await press(page, "Connect")
    dialog = page.get_by_role("dialog", name="Connect a program")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await press(dialog, "Copy api_key")
    assert await page.evaluate("navigator.clipboard.readText()") == desk.emulator.api_key
    await press(dialog, "Command line", "tab")
    await read(dialog, f"export PUSHSDK_BASE_URL={desk.emulator.base_url}")
    await keys(page, "Escape")
    async with page.context.expect_page() as opening:
        await press(page, "Guide", "link", exact=True)
    guide = await opening.value
    await guide.get_by_role("searchbox", name="Search the guide").press_sequentially("retry budget")
    await guide.keyboard.press("Enter")
    await press(guide, "Retries: The retry budget", "link")
    await see(guide, "heading", "The retry budget")
    assert guide.url.endswith("/docs/retries#the-retry-budget")
    await press(guide, "back to the inbox", "link")
    await see(guide, "heading", "Send a push. It appears here.")


async def test_a_token_protects_the_page_and_is_kept_out_of_the_address(open_desk):
    desk = await open_desk(token="a%token/&?")
    await desk.push("Secret")
    page = await desk.page("/#token=a%25token%2F%26%3F")
    await see(page, "option", "Secret")
    assert "token" not in page.url
    await page.reload()
    await see(page, "option", "Secret")
    assert (await downloaded(page))[1] == ["Secret"]
    assert desk.complaints == []
    stranger = await desk.browser.new_page()
    await stranger.goto(desk.origin)
    await stranger.get_by_label("Token").fill("a%token/&?")
    await press(stranger, "Open")
    await see(stranger, "option", "Secret")
