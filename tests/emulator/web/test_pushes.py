"""The pushes on the page: live, in every language, search, keyboard, screen sizes."""

from __future__ import annotations

from typing import Any

import pytest

EN_AR = {"en": "Hey {{ first_name | 'you' }}", "ar": "مرحبا {{ first_name | 'صديقي' }}"}


def title(page: Any, phone: str = "iPhone") -> Any:
    """The title of the notification on one of the phones."""
    return page.get_by_role("group", name=phone).locator(".card-title")


async def shows_within(milliseconds: int, row: Any) -> bool:
    """Return True if the push appears in time; it must appear eventually."""
    from playwright.async_api import TimeoutError as PlaywrightTimeoutError

    try:
        await row.wait_for(timeout=milliseconds)
    except PlaywrightTimeoutError:
        await row.wait_for()
        return False
    return True


async def test_a_push_is_in_the_list_within_a_second(desk: Any) -> None:
    await desk.push("Push number 0")
    page = await desk.page()
    await page.get_by_role("option", name="Push number 0").wait_for()
    # A busy machine delays one of the pushes, a slow page all of them.
    for number in range(1, 10):
        await desk.push(f"Push number {number}")
        if await shows_within(1000, page.get_by_role("option", name=f"Push number {number}")):
            return
    pytest.fail("nine pushes took more than a second each")


async def test_the_first_push_opens_its_inbox(open_desk: Any) -> None:
    # As above: one of three pages is fast.
    for _ in range(3):
        desk = await open_desk()
        page = await desk.page()
        await page.get_by_role("heading", name="Send a push. It appears here.").wait_for()
        assert desk.emulator.base_url in await page.locator(".snippet pre").inner_text()
        await desk.push("Hello")
        is_quick = await shows_within(3000, page.get_by_role("option", name="Hello"))
        await title(page).get_by_text("Hello").wait_for()
        assert desk.complaints == []
        if is_quick:
            return
    pytest.fail("three first pushes took more than three seconds each")


async def test_refused_requests_are_shown_in_an_empty_inbox(desk: Any) -> None:
    page = await desk.page()
    async with desk.session.post(desk.emulator.base_url + "/v1/push", json={}) as response:
        assert response.status == 401
    await page.get_by_text("the Api-Key header is missing").wait_for()


async def test_both_phones_show_the_language_that_is_chosen(desk: Any) -> None:
    await desk.push({"en": "Good morning", "de": "Guten Morgen"}, body={"en": "Sun", "de": "Sonne"})
    page = await desk.page()
    await title(page).get_by_text("Good morning").wait_for()
    await page.get_by_role("button", name="de", exact=True).click()
    for phone in ("iPhone", "Android"):
        await title(page, phone).get_by_text("Guten Morgen").wait_for()
        assert await page.get_by_role("group", name=phone).locator(".card-body").inner_text() == "Sonne"


async def test_the_fallback_of_a_placeholder_is_marked_and_gives_way_to_a_value(desk: Any) -> None:
    await desk.push(EN_AR)
    page = await desk.page()
    fallback = title(page).locator(".ph.fallback")
    assert await fallback.inner_text() == "you"
    await page.get_by_label("first_name").fill("Ada")
    assert await title(page).locator(".ph.value").inner_text() == "Ada"
    assert await fallback.count() == 0
    await page.get_by_label("first_name").fill("")
    assert await fallback.inner_text() == "you"


async def test_custom_fields_fill_the_placeholders(desk: Any) -> None:
    message = {"title": EN_AR, "iosEnabled": True}
    await desk.send({"userIds": ["u"], "message": message, "customFields": {"first_name": "Ada"}})
    page = await desk.page()
    assert await title(page).locator(".ph.value").inner_text() == "Ada"


async def test_arabic_runs_from_right_to_left_on_both_phones(desk: Any) -> None:
    await desk.push(EN_AR, body={"en": "a", "ar": "المعطف متوفر 128 مرة أخرى"})
    page = await desk.page()
    await page.get_by_role("button", name="ar", exact=True).click()
    for phone in ("iPhone", "Android"):
        group = page.get_by_role("group", name=phone)
        directions = "nodes => nodes.map(node => getComputedStyle(node).direction)"
        assert await group.locator(".card-title, .card-body").evaluate_all(directions) == ["rtl", "rtl"]
        icon, text = group.locator(".app-icon, .small-icon").first, group.locator(".card-title")
        assert (await icon.bounding_box())["x"] > (await text.bounding_box())["x"]


@pytest.mark.parametrize(("flag", "reason"), [({"iosEnabled": False}, "false"), ({}, "not set")])
async def test_a_platform_that_is_not_on_shows_a_dark_screen(desk: Any, flag: dict[str, bool], reason: str) -> None:
    message = {"title": {"en": "Only there"}, "androidEnabled": True, **flag}
    await desk.send({"userIds": ["u"], "message": message})
    page = await desk.page()
    await page.get_by_role("group", name="iPhone").get_by_text(f"iosEnabled is {reason}").wait_for()
    await title(page, "Android").get_by_text("Only there").wait_for()
    assert await page.locator(".card").count() == 1


async def test_a_push_for_no_platform_is_explained(desk: Any) -> None:
    await desk.send({"userIds": ["u"], "message": {"title": {"en": "For none"}}})
    page = await desk.page()
    await page.get_by_role("heading", name="For no platform").wait_for()
    await page.get_by_role("option", name="For none").get_by_text("no platform").wait_for()
    assert await page.locator(".phone").count() == 0
    await page.evaluate("location.hash = '#/users/u'")
    await page.get_by_text("Nothing on this screen").nth(1).wait_for()


async def test_a_refused_push_is_explained(desk: Any) -> None:
    await desk.control("PUT", "/limits", {"max_users": 1, "statuses": {"users": 429}})
    await desk.push("Too many", "u-1", "u-2")
    page = await desk.page()
    await page.get_by_role("heading", name="Refused with 429").wait_for()
    await page.locator(".stage").get_by_text("the request has 2 users, at most 1 are allowed").wait_for()
    await page.keyboard.press("e")
    await page.keyboard.press("l")
    assert await page.locator(".phone").count() == 0


async def test_a_body_that_is_not_json_is_explained(desk: Any) -> None:
    headers = {"Api-Key": desk.emulator.api_key, "Content-Type": "application/json"}
    async with desk.session.post(
        desk.emulator.base_url + "/v1/push", data=b'{"userIds": [', headers=headers
    ) as response:
        assert response.status == 400
    page = await desk.page()
    await page.get_by_role("heading", name="Refused with 400").wait_for()
    await page.locator(".stage").get_by_text("truncated").wait_for()
    assert await page.locator(".phone, .advice, .fine").count() == 0


@pytest.mark.parametrize(
    ("fault", "heading"),
    [({"code": 503, "fault": "status"}, "Failed with 503"), ({"fault": "reset_before"}, "No answer")],
)
async def test_a_push_stopped_by_a_fault_is_explained(desk: Any, fault: dict[str, Any], heading: str) -> None:
    await desk.control("PUT", "/faults", {"faults": [{"name": "the rule", **fault}]})
    await desk.push("Lost")
    page = await desk.page()
    await page.get_by_role("heading", name=heading).wait_for()
    await page.locator(".stage").get_by_text("the rule").wait_for()
    assert await page.locator(".phone").count() == 0


async def test_expanded_shows_the_buttons_and_the_actions(desk: Any) -> None:
    await desk.push(
        "Sale",
        androidActionButtons=[{"label": "Buy now", "url": "https://shop.example/buy", "clickAction": "DEEP_LINKING"}],
        actionCategory={"type": "PREDEFINED_CATEGORY", "name": "sale", "actionComponents": [{"actionId": "later"}]},
    )
    page = await desk.page()
    assert await page.locator(".android-actions, .ios-actions").count() == 0
    await page.get_by_role("button", name="Expanded", exact=True).click()
    await page.get_by_role("group", name="Android, expanded").get_by_text("Buy now").wait_for()
    await page.get_by_role("group", name="iPhone, expanded").get_by_text("later").wait_for()


async def test_pressing_a_notification_expands_it(desk: Any) -> None:
    await desk.push("Press me")
    page = await desk.page()
    await page.get_by_role("button", name="Show the iPhone notification expanded").click()
    await page.get_by_role("group", name="iPhone, expanded").wait_for()


async def test_an_odd_message_gets_advice(desk: Any) -> None:
    await desk.push({"en": "Hi", "de": "Hallo"}, body={"en": "Only English"})
    page = await desk.page()
    await page.locator(".advice").get_by_text("languages-differ").wait_for()


@pytest.mark.parametrize(
    ("search", "titles"),
    [
        ("user:u-2", ["Black coffee"]),
        ('title:"black friday"', ["Black Friday is near"]),
        ("lang:fr", ["Bonjour"]),
        ("status:429", ["Too early"]),
        ("is:refused", ["Too early"]),
        ("coffee", ["Black coffee"]),
        ("nobody wrote this", []),
    ],
)
async def test_the_search_finds(desk: Any, search: str, titles: list[str]) -> None:
    await desk.push("Black Friday is near", "u-1")
    await desk.push("Black coffee", "u-2")
    await desk.push({"fr": "Bonjour"}, "u-3")
    await desk.control("PUT", "/limits", {"max_users": 1, "statuses": {"users": 429}})
    await desk.push("Too early", "u-4", "u-5")
    page = await desk.page()
    await page.locator(".push-row").nth(3).wait_for()
    await page.get_by_role("searchbox", name="Search pushes").fill(search)
    rows = page.locator(".push-row")
    await page.locator(".list-count").get_by_text(f"{len(titles)} push", exact=False).wait_for()
    assert [await row.locator(".row-title").inner_text() for row in await rows.all()] == titles


async def test_a_search_shows_new_matches(desk: Any) -> None:
    await desk.push("Coffee one")
    await desk.push("Tea")
    page = await desk.page()
    await page.get_by_role("option", name="Tea").wait_for()
    await page.get_by_role("searchbox", name="Search pushes").fill("coffee")
    await page.get_by_role("option", name="Tea").wait_for(state="detached")
    await desk.push("Green tea")
    await desk.push("Coffee two")
    await page.get_by_role("option", name="Coffee two").wait_for()
    assert await page.locator(".push-row").count() == 2


async def test_the_keyboard_does_it_all(desk: Any) -> None:
    for name in ("one", "two", "three"):
        await desk.push({"en": name, "de": f"{name} auf Deutsch"})
    page = await desk.page()
    chosen = page.locator("[role=option][aria-selected=true]")
    await title(page).get_by_text("three").wait_for()
    for key, text in (
        ("j", "two"),
        ("ArrowDown", "one"),
        ("k", "two"),
        ("ArrowUp", "three"),
        ("j", "two"),
        ("g", "three"),
    ):
        await page.keyboard.press(key)
        await title(page).get_by_text(text, exact=True).wait_for()
        await chosen.get_by_text(text, exact=True).wait_for()
    await page.keyboard.press("l")
    await title(page).get_by_text("three auf Deutsch").wait_for()
    await page.keyboard.press("e")
    await page.get_by_role("group", name="iPhone, expanded").wait_for()
    await page.keyboard.press("/")
    await page.keyboard.type("jk?")  # typing does not move the choice
    assert await page.get_by_role("searchbox", name="Search pushes").input_value() == "jk?"
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await page.get_by_role("dialog", name="Help").wait_for()
    await page.keyboard.press("Escape")
    await page.get_by_role("dialog").wait_for(state="detached")
    await page.keyboard.press("4")
    await page.get_by_role("heading", name="Faults").wait_for()


async def test_enter_and_escape_leave_the_search_and_keep_it(desk: Any) -> None:
    for name in ("tea one", "coffee", "tea two"):
        await desk.push(name)
    page = await desk.page()
    await page.locator(".push-row").nth(2).wait_for()
    search = page.get_by_role("searchbox", name="Search pushes")
    rows, count = page.locator(".push-row"), page.locator(".list-count")
    for key, chosen in (("Enter", "tea one"), ("Escape", "tea one")):
        await page.keyboard.press("g")
        await page.get_by_role("option", name="tea two", selected=True).wait_for()
        await page.keyboard.press("/")
        await page.keyboard.type("tea")  # replaces the text
        await page.keyboard.press(key)
        await count.get_by_text("2 pushes", exact=True).wait_for()
        await rows.nth(1).wait_for()
        await page.keyboard.press("j")
        await page.get_by_role("option", name=chosen, selected=True).wait_for()
        assert (await search.input_value(), await rows.count()) == ("tea", 2)
    await page.keyboard.press("/")
    await page.keyboard.press("Backspace")
    await count.get_by_text("3 pushes", exact=True).wait_for()


async def test_the_search_key_opens_the_pushes_from_a_view_that_has_no_search(desk: Any) -> None:
    await desk.push("tea")
    page = await desk.page("/#/faults")
    await page.get_by_role("heading", name="Faults").wait_for()
    await page.keyboard.press("/")
    await page.keyboard.type("tea")
    assert await page.get_by_role("searchbox", name="Search pushes").input_value() == "tea"


@pytest.mark.parametrize(
    "hash_",
    ["constructor", "__proto__", "toString/1", "pushes/%E0%A4%A", "pushes/constructor", "%", "campaigns/%", "users/%"],
)
async def test_an_unknown_address_does_not_break_the_page(open_desk: Any, hash_: str) -> None:
    desk = await open_desk()
    await desk.push("Still here")
    page = await desk.page(f"/#/{hash_}")
    await page.keyboard.press("1")
    await title(page).get_by_text("Still here").wait_for()
    assert [complaint for complaint in desk.complaints if "404" not in complaint] == []  # there is no such campaign


async def test_a_placeholder_can_have_any_name(desk: Any) -> None:
    await desk.push("Hi {{ constructor | 'you' }} {{ __proto__ | 'there' }}")
    page = await desk.page()
    await page.get_by_label("__proto__").fill("again")
    await title(page).get_by_text("Hi you again").wait_for()
    assert await page.get_by_label("constructor").input_value() == ""


async def test_one_push_and_all_pushes_are_deleted_after_a_question(desk: Any) -> None:
    for name in ("one", "two", "three"):
        await desk.push(name)
    page = await desk.page()
    await page.locator(".push-row").nth(2).wait_for()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("button", name="Cancel").click()
    assert await page.locator(".push-row").count() == 3
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.get_by_role("option", name="three").wait_for(state="detached")
    await title(page).get_by_text("two").wait_for()
    await page.get_by_role("button", name="Delete all").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete all").click()
    await page.get_by_role("heading", name="Send a push").wait_for()
    assert desk.emulator.accepted("user-1") == 3


async def test_a_push_is_copied_as_curl_and_as_python(desk: Any) -> None:
    await desk.push("Copy me")
    page = await desk.page()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for name, part in (("curl", "curl"), ("Python", "AsyncPushClient")):
        await page.get_by_role("button", name=f"Copy as {name}").click()
        await page.get_by_text(f"{name} copied").wait_for()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert part in copied
        assert "Copy me" in copied
        assert desk.emulator.api_key not in copied


async def test_long_text_is_clipped_and_can_be_read_in_full(desk: Any) -> None:
    await desk.push("long " * 500)
    page = await desk.page()
    phone = await page.get_by_role("group", name="iPhone").bounding_box()
    card = await page.locator(".ios-card").bounding_box()
    assert card["height"] < phone["height"] / 2
    await page.locator("h2").get_by_role("button", name="show all").click()
    assert len(await page.get_by_role("dialog").locator("pre").inner_text()) > 2400


async def test_on_a_narrow_screen_the_list_and_the_push_take_turns(desk: Any) -> None:
    await desk.push("Small")
    page = await desk.page(width=400, height=800)
    await page.get_by_role("option", name="Small").click()
    await title(page).get_by_text("Small").wait_for()
    assert not await page.get_by_role("listbox").is_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 400
    await page.get_by_role("button", name="Back to the list").click()
    await page.get_by_role("listbox").wait_for()


async def test_the_theme_is_kept(desk: Any) -> None:
    await desk.push()
    page = await desk.page()
    background = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(background)
    await page.get_by_role("button", name="Switch to dark").click()
    dark = await page.evaluate(background)
    assert light != dark
    await page.reload()
    await page.get_by_role("button", name="Switch to light").wait_for()
    assert await page.evaluate(background) == dark


async def test_each_key_has_its_own_inbox(desk: Any) -> None:
    await desk.push("Mine")
    await desk.send({"userIds": ["u"], "message": {"title": {"en": "Theirs"}}}, api_key="another-key-123")
    await desk.control("PUT", "/label", {"label": "My inbox"})
    page = await desk.page()
    await page.get_by_label("Inbox", exact=True).select_option(label="My inbox · 1")
    await page.get_by_role("option", name="Mine").wait_for()
    assert await page.get_by_role("option", name="Theirs").count() == 0
    await page.get_by_role("button", name="Rename").click()
    await page.get_by_label("Name", exact=True).fill("Renamed")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_label("Inbox", exact=True).get_by_text("Renamed · 1").wait_for(state="attached")


async def test_only_silent_pushes_leave_the_screen_dark(desk: Any) -> None:
    await desk.push("Quiet", interruptionLevel="PASSIVE")
    page = await desk.page()
    veil = "one => getComputedStyle(one.querySelector('.screen'), '::before').backgroundColor"
    phones = page.get_by_role("group", name="lock screen")
    await phones.nth(1).wait_for()
    dark, bright = [await phone.evaluate(veil) for phone in await phones.all()]
    assert dark != bright == "rgba(0, 0, 0, 0)"


async def test_the_list_shows_its_count(desk: Any) -> None:
    for number in range(103):
        await desk.push(f"Push number {number}")
    page = await desk.page()
    await page.locator(".list-count").get_by_text("103 pushes", exact=True).wait_for()
