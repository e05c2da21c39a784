"""A push is composed, looked at, sent again and edited."""

import asyncio
import json

import pytest
from support.page_words import keys, press, read, see


def title(page, phone="iPhone"):
    """The title of the notification on one of the phones."""
    return page.get_by_role("group", name=phone).locator(".card-title")


def field(page, label):
    return page.get_by_role("textbox", name=label, exact=True)


async def unfold(page, section):
    await page.locator("summary").get_by_text(section).click()


async def send(page, name="Send"):
    await press(page, name, exact=True)
    await page.get_by_role("status", name="Result").locator(".stamp, .trouble").first.wait_for()


async def change(page, old, new):
    """Edit the JSON beside the form."""
    text = await field(page, "JSON").input_value()
    assert old in text
    await field(page, "JSON").fill(text.replace(old, new))


async def test_the_first_push_is_composed_looked_at_sent_again_and_edited(desk):
    page = await desk.page()
    await see(page, "heading", "Send a push. It appears here.")
    welcome = await page.locator(".welcome").inner_text()
    assert desk.emulator.api_key in welcome
    assert desk.emulator.base_url in welcome
    await press(page, "Compose a push", "link")
    await field(page, "Users").fill("ann\nben, carl")
    await field(page, "Title (en)").fill("From the form")
    await page.get_by_label("Add a language").select_option("de")
    await field(page, "Title (de)").fill("Vom Formular")
    await unfold(page, "How it arrives")
    await field(page, "Time to live").fill("60")
    await change(page, '"ttl"', '"androidActionButtons": [{"label": "Buy", "url": "app://buy"}], "ttl"')
    await change(page, '"From the form"', '"From the JSON"')
    await page.get_by_role("button", name="en", exact=True).first.click()
    assert await field(page, "Title (en)").input_value() == "From the JSON"
    await read(title(page), "From the JSON")
    await send(page)
    (first,) = desk.emulator.pushes
    assert first.user_ids == ("ann", "ben", "carl")
    assert first.message == {
        "type": "MOBILE_PUSH",
        "iosEnabled": True,
        "androidEnabled": True,
        "title": {"en": "From the JSON", "de": "Vom Formular"},
        "body": {"en": "Your first push has arrived."},
        "ttl": 60,
        "androidActionButtons": [{"label": "Buy", "url": "app://buy"}],
    }
    await press(page, "Open push 1", "link")
    await see(page, "option", "From the JSON", selected=True)
    await read(page.locator(".view:not([hidden]) .advice"), "languages-differ")
    await press(page, "de", exact=True)
    for phone in ("iPhone", "Android"):
        await read(title(page, phone), "Vom Formular")
    await press(page, "Show the Android notification expanded")
    await read(page.get_by_role("group", name="Android, expanded"), "Buy")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await press(page, "Code", "tab")
    await press(page, "Copy curl")
    await read(page, "curl copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert "curl" in copied
    assert desk.emulator.api_key not in copied
    await press(page, "Send again")
    await read(page.get_by_role("option", name="From the JSON"), "2 pushes")
    assert desk.emulator.pushes[1].body == first.body
    await read(page.locator(".eyebrow"), "Push 2 ")
    await press(page, "Edit and send")
    await read(page, "A copy of push 2")
    await page.get_by_role("button", name="de", exact=True).first.click()
    await press(page, "Remove de")
    await field(page, "Time to live").fill("")
    await send(page)
    edited = desk.emulator.pushes[2].message
    assert edited["title"] == {"en": "From the JSON"}
    assert "ttl" not in edited


async def test_a_push_is_in_the_list_soon_and_shows_its_languages_and_placeholders(desk):
    page = await desk.page()
    texts = {"en": "Hey {{ first_name | 'you' }}", "ar": "مرحبا {{ first_name | 'صديقي' }}"}
    await desk.push(texts, body={"en": "a", "ar": "المعطف متوفر 128 مرة أخرى"}, interruptionLevel="PASSIVE")
    await see(page, "option", "Hey")
    assert await title(page).locator(".ph.fallback").inner_text() == "you"
    await page.get_by_label("first_name").fill("Ada")
    assert await title(page).locator(".ph.value").inner_text() == "Ada"
    assert await title(page).locator(".ph.fallback").count() == 0
    await press(page, "ar", exact=True)
    for phone in ("iPhone", "Android"):
        group = page.get_by_role("group", name=phone)
        directions = "nodes => nodes.map(node => getComputedStyle(node).direction)"
        assert await group.locator(".card-title, .card-body").evaluate_all(directions) == ["rtl", "rtl"]
        icon = group.locator(".app-icon, .small-icon").first
        text = group.locator(".card-title")
        assert (await icon.bounding_box())["x"] > (await text.bounding_box())["x"]
    await desk.push("long " * 500)
    await press(page, "long", "option")
    await press(page.locator("h2"), "show all")
    assert len(await page.get_by_role("dialog").locator("pre").inner_text()) > 2400
    await keys(page, "Escape")
    assert (await page.locator(".ios-card").bounding_box())["height"] < 200  # as on a lock screen


async def test_the_composer_warns_before_it_sends(desk):
    page = await desk.page("/#/compose")
    checks = page.get_by_role("status", name="Checks")
    result = page.get_by_role("status", name="Result")
    await checks.locator(".fine").wait_for()
    await change(page, '"title"', '"titel"')
    await read(checks, "Unknown field, did you mean title?")
    for name in ("iPhone", "Android"):
        await press(page, name, "switch")
    await read(checks, "Neither iosEnabled nor androidEnabled is true")
    await press(checks, "no-platform")
    assert await page.evaluate("document.activeElement.textContent") == "iPhone"
    await press(checks, "near-name")
    assert await page.evaluate("document.activeElement.value.slice(document.activeElement.selectionStart)[1]") == "t"
    await send(page, "Send anyway")
    assert "titel" in desk.emulator.pushes[0].message
    await press(page, "Start over")
    await unfold(page, "How it arrives")
    await field(page, "Time to live").fill("soon")
    await read(checks, "The service would refuse this: Expected `int")
    assert await field(page, "Time to live").get_attribute("aria-invalid") == "true"
    await send(page, "Send anyway")
    await read(result, "Refused")
    await read(result, "Expected `int")
    await change(page, '"user-1"', '"user-1')
    await read(page, "Line 3, column")
    assert await page.get_by_role("button", name="Send").is_disabled()
    await field(page, "JSON").press("Control+Enter")
    await field(page, "JSON").fill("[]")
    await read(page, "must be an object")
    assert [request.status for request in desk.emulator.inbox().requests()] == [204, 400]


@pytest.mark.parametrize("name", ["__proto__", "<img src=x onerror=window.hit=1>", 'a.b[0]"\\'])
async def test_the_json_is_sent_as_it_is_shown_and_any_name_can_be_edited(desk, name):
    text = f"Hi {{{{ {name} | 'you' }}}}"
    message = {"iosEnabled": True, "title": {"en": text, name: text}, "keyVals": {name: "1"}, "x": 10**30}
    sent = json.dumps({"userIds": [name], "message": message, "customFields": {name: "1"}})
    page = await desk.page("/#/compose")
    await field(page, "JSON").fill(sent)
    await send(page)
    assert desk.emulator.pushes[0].body == sent.encode()
    await press(page, "Open push 1", "link")
    await read(page.locator(".detail:not(.waiting) .eyebrow"), "Push 1 ")
    await keys(page, "x")
    await read(page, "A copy of push 1")  # the push before has a field with this name, too
    await field(page, name).fill("3")  # of the placeholder
    await field(page, "Title (en)").fill(f"{text}!")
    await send(page)
    push = desk.emulator.pushes[1]
    assert push.message == {**message, "title": {"en": f"{text}!", name: text}}
    assert push.user_ids == (name,)
    assert push.custom_fields == {name: "3"}
    assert await page.evaluate("window.hit === undefined && ({}).en === undefined")


async def test_a_copy_can_be_edited_once_its_text_is_loaded(desk):
    page = await desk.page("/#/compose")
    await send(page)
    await press(page, "Open push 1", "link")
    loads = asyncio.Queue()
    await press(page, "Users 1", "tab")
    await page.route("**/requests/1?*", loads.put)
    await press(page, "Edit and send")
    load = await loads.get()
    await field(page, "Title (en)").focus()
    assert await page.evaluate("document.activeElement === document.body")
    await load.continue_()
    await field(page, "Title (en)").fill("Edited")
    await read(title(page), "Edited")


async def test_on_a_narrow_screen_the_list_and_the_push_take_turns(desk):
    page = await desk.page("/#/compose", width=390, height=800)
    await send(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await keys(page, "Escape", "1")
    await press(page, "Hello there", "option")
    await read(title(page), "Hello there")
    assert not await page.get_by_role("listbox").is_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await press(page, "Back to the list")
    await page.get_by_role("listbox").wait_for()
