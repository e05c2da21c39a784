"""A push is composed, edited and sent again on the page: every test looks at what the emulator stored."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pushsdk.emulator import Fault


def editor(page: Any) -> Any:
    """The JSON beside the form."""
    return page.get_by_role("textbox", name="JSON", exact=True)


def result(page: Any) -> Any:
    return page.get_by_role("status", name="Result")


def checks(page: Any) -> Any:
    return page.get_by_role("status", name="Checks")


def field(page: Any, label: str) -> Any:
    return page.get_by_role("textbox", name=label, exact=True)


async def unfold(page: Any, section: str) -> None:
    await page.locator("summary").get_by_text(section).click()


async def composer(desk: Any, path: str = "/#/compose", **options: Any) -> Any:
    page = await desk.page(path, **options)
    await checks(page).locator(".fine, .advice").wait_for()
    return page


async def send(page: Any, name: str = "Send") -> None:
    await page.get_by_role("button", name=name, exact=True).click()
    await result(page).locator(".stamp, .trouble").first.wait_for()


async def change(page: Any, old: str, new: str) -> None:
    """Edit the JSON."""
    text = await editor(page).input_value()
    assert old in text
    await editor(page).fill(text.replace(old, new))


async def test_the_first_push_is_sent_from_the_empty_page(desk: Any) -> None:
    page = await desk.page()
    await page.get_by_role("link", name="Compose a push").click()
    await send(page)
    await result(page).get_by_text("204").wait_for()
    (push,) = desk.emulator.pushes  # the terminal's key opens the inbox
    assert push.user_ids == ("user-1",)
    assert push.message["iosEnabled"] is push.message["androidEnabled"] is True
    await result(page).get_by_role("link", name=f"Open push {push.id}").click()
    await page.get_by_role("option", name="Hello there", selected=True).wait_for()


async def test_the_form_and_the_json_are_one_request(desk: Any) -> None:
    page = await composer(desk)
    await field(page, "Users").fill("ann\nben, carl")
    await field(page, "Title (en)").fill("From the form")
    await page.get_by_role("switch", name="Android").click()
    await page.get_by_label("Add a language").select_option("de")
    await field(page, "Title (de)").fill("Vom Formular")
    await unfold(page, "How it arrives")
    await field(page, "Time to live").fill("60")
    await page.get_by_role("button", name="use PASSIVE").click()
    await unfold(page, "Tap and buttons")
    buttons = page.get_by_role("group", name="Android buttons")
    await buttons.get_by_role("button", name="Add").click()
    await page.keyboard.type("Buy")
    await field(page, "Android buttons 1: url").fill("app://buy")
    await change(page, '"From the form"', '"From the JSON"')
    await page.get_by_role("button", name="en", exact=True).first.click()
    assert await field(page, "Title (en)").input_value() == "From the JSON"
    await page.get_by_role("group", name="iPhone").locator(".card-title").get_by_text("From the JSON").wait_for()
    await send(page)
    (push,) = desk.emulator.pushes
    assert push.user_ids == ("ann", "ben", "carl")
    assert push.message == {
        "type": "MOBILE_PUSH",
        "iosEnabled": True,
        "androidEnabled": False,
        "title": {"en": "From the JSON", "de": "Vom Formular"},
        "body": {"en": "Your first push has arrived."},
        "ttl": 60,
        "interruptionLevel": "PASSIVE",
        "androidActionButtons": [{"label": "Buy", "url": "app://buy"}],
    }


async def test_what_is_emptied_or_removed_is_left_out(desk: Any) -> None:
    await desk.push({"en": "Hello", "de": "Hallo"}, keyVals={"a": "1", "b": "2"}, ttl=5, iosActionUrl="app://x")
    page = await composer(desk, "/#/compose/1")
    await page.get_by_role("button", name="de", exact=True).first.click()
    await page.get_by_role("button", name="Remove de").click()
    await unfold(page, "How it arrives")
    await field(page, "Time to live").fill("")
    await unfold(page, "Tap and buttons")
    await field(page, "Opens on iPhone").fill("")
    await unfold(page, "Data")
    await page.get_by_role("button", name="Remove Key-values for the app 1").click()
    await send(page)
    message = desk.emulator.pushes[1].message
    assert message.keys() == {"type", "iosEnabled", "androidEnabled", "title", "keyVals"}
    assert (message["title"], message["keyVals"]) == ({"en": "Hello"}, {"b": "2"})


async def test_a_placeholder_is_inserted_and_filled(desk: Any) -> None:
    page = await composer(desk)
    await field(page, "Title (en)").fill("Hi ")
    await page.get_by_role("button", name="Placeholder").click()
    assert await field(page, "Title (en)").input_value() == "Hi {{ first_name | 'there' }}"
    await field(page, "first_name").fill("Ada")
    assert await page.get_by_role("group", name="iPhone").locator(".ph.value").inner_text() == "Ada"
    await send(page)
    assert desk.emulator.pushes[0].custom_fields == {"first_name": "Ada"}


async def test_a_near_miss_and_no_platform_are_advice_before_sending(desk: Any) -> None:
    page = await composer(desk)
    await change(page, '"title"', '"titel"')
    await checks(page).get_by_text("Unknown field, did you mean title?").wait_for()
    for name in ("iPhone", "Android"):
        await page.get_by_role("switch", name=name).click()
    await checks(page).get_by_text("Neither iosEnabled nor androidEnabled is true").wait_for()
    await page.get_by_role("heading", name="For no platform").wait_for()
    assert desk.emulator.requests == 0
    await checks(page).get_by_role("button", name="no-platform").click()
    assert await page.evaluate("document.activeElement.textContent") == "iPhone"
    await checks(page).get_by_role("button", name="near-name").click()
    assert await page.evaluate("document.activeElement.value.slice(document.activeElement.selectionStart)[1]") == "t"
    await send(page, "Send anyway")
    assert "titel" in desk.emulator.pushes[0].message


async def test_what_the_service_would_refuse_is_said_at_its_field(desk: Any) -> None:
    page = await composer(desk)
    await unfold(page, "How it arrives")
    await field(page, "Time to live").fill("soon")
    await checks(page).get_by_text("The service would refuse this: Expected `int").wait_for()
    assert await field(page, "Time to live").get_attribute("aria-invalid") == "true"
    await send(page, "Send anyway")
    await result(page).get_by_text("Refused").wait_for()
    await result(page).get_by_text("Expected `int").wait_for()
    assert [request.status for request in desk.emulator.inbox().requests()] == [400]
    assert desk.emulator.pushes == ()


async def test_broken_json_is_not_sent(desk: Any) -> None:
    page = await composer(desk)
    await change(page, '"user-1"', '"user-1')
    await page.get_by_text("Line 3, column").wait_for()
    assert await page.get_by_role("button", name="Send").is_disabled()
    await editor(page).press("Control+Enter")
    await editor(page).fill("[]")
    await page.get_by_text("must be an object").wait_for()
    await page.get_by_role("button", name="Start over").click()
    await send(page)
    assert len(desk.emulator.pushes) == 1


async def test_a_push_is_sent_again_as_it_was(desk: Any) -> None:
    await desk.push("Again", "u-1", "u-2", odd=[1, {"x": None}])
    page = await desk.page()
    await page.get_by_role("button", name="Send again").click()
    await page.get_by_role("option", name="Again").get_by_text("2 pushes").wait_for()
    await page.locator(".eyebrow").get_by_text("Push 2 ").wait_for()
    first, second = desk.emulator.pushes
    assert first.body == second.body
    assert desk.emulator.duplicates() == {"u-1": 2, "u-2": 2}


async def test_a_push_is_edited_and_sent_into_its_inbox(desk: Any) -> None:
    await desk.push("Mine")
    await desk.send({"userIds": ["u"], "message": {"title": {"en": "Theirs"}, "iosEnabled": True}}, api_key="another")
    page = await desk.page("/#/pushes/2")
    await page.get_by_role("button", name="Edit and send").click()
    await page.get_by_text("A copy of push 2").wait_for()
    await field(page, "Title (en)").fill("Theirs, edited")
    await send(page)
    titles = [push.message["title"]["en"] for push in desk.emulator.inbox("another").pushes]
    assert titles == ["Theirs", "Theirs, edited"]
    assert len(desk.emulator.pushes) == 1


async def test_large_numbers_survive_an_edit(desk: Any) -> None:
    body = {"userIds": ["u"], "message": {"title": {"en": "Big"}, "iosEnabled": True}, "customFields": {"n": 10**30}}
    body["message"]["title"]["en"] = "Big {{ n | '1' }}"
    await desk.send(body)
    page = await composer(desk, "/#/compose/1")
    await change(page, "Big", "Bigger")
    await field(page, "Subtitle (en)").fill("By the form")
    await send(page)
    assert desk.emulator.pushes[1].custom_fields == {"n": 10**30}
    assert await page.get_by_role("group", name="iPhone").locator(".ph.value").inner_text() == str(10**30)


async def test_a_refused_body_that_is_not_json_is_edited_as_it_came(desk: Any) -> None:
    await desk.push("First")
    headers = {"Api-Key": desk.emulator.api_key, "Content-Type": "application/json"}
    await (await desk.session.post(f"{desk.emulator.base_url}/v1/push", data=b'{"userIds": [', headers=headers)).read()
    page = await desk.page("/#/pushes/2")
    await page.get_by_role("button", name="Edit and send").click()
    await page.wait_for_function("() => document.querySelector('.editor textarea').value === '{\"userIds\": ['")
    await editor(page).fill('{"userIds": ["u"], "message": {"title": {"en": "Mended"}, "iosEnabled": true}}')
    await send(page)
    assert desk.emulator.pushes[1].message["title"] == {"en": "Mended"}


async def test_a_campaign_is_composed(desk: Any) -> None:
    page = await composer(desk)
    await page.get_by_role("button", name="Campaign", exact=True).click()
    await field(page, "Name").fill("Summer")
    await field(page, "Segment query").fill("SELECT user_id FROM members")
    await send(page)
    (campaign,) = desk.emulator.campaigns
    assert campaign.request["segment"] == {"query": "SELECT user_id FROM members", "primaryKey": "user_id"}
    assert (campaign.name, campaign.request["schedule"]) == ("Summer", {"type": "START_NOW"})


@pytest.mark.parametrize(
    ("fault", "word", "says", "accepted"),
    [
        (Fault.status(503), "Failed", "not accepted: the service failed", 0),
        (Fault.status(400, body='{"error": "no such user"}'), "Refused", "no such user", 0),
        (Fault.hang(), "No answer", "not accepted, and no response was sent", 0),
        (Fault.reset_after(), "Accepted, unsaid", "the client got no success and can't know", 1),
    ],
    ids=["failed", "refused", "hangs", "reset after acceptance"],
)
async def test_faults_act_on_what_the_page_sends(
    open_desk: Any, fault: Fault, word: str, says: str, accepted: int
) -> None:
    desk = await open_desk(faults=[fault])
    page = await composer(desk)
    await send(page)
    await result(page).get_by_text(word, exact=True).wait_for()
    await result(page).get_by_text(says).wait_for()
    assert (len(desk.emulator.inbox().requests()), desk.emulator.accepted("user-1")) == (1, accepted)


async def test_a_push_is_composed_by_keyboard_alone(desk: Any) -> None:
    await desk.push("Before")
    page = await desk.page()
    await page.locator(".push-row").wait_for()
    await page.keyboard.press("x")
    await page.get_by_text("A copy of push 1").wait_for()
    await field(page, "Title (en)").focus()
    await page.keyboard.press("Control+a")
    await page.keyboard.type("Typed")
    await page.keyboard.down("Control")
    await page.keyboard.down("Enter")
    await result(page).get_by_text("204").wait_for()
    await page.keyboard.down("Enter")
    await page.keyboard.up("Enter")
    await page.keyboard.up("Control")
    await page.keyboard.press("Escape")
    await page.keyboard.press("1")
    await page.get_by_role("option", name="Typed").wait_for()
    await page.keyboard.press("g")
    await page.get_by_role("option", name="Typed", selected=True).wait_for()
    for _ in range(3):
        await page.keyboard.down("s")  # a held key sends once
    await page.keyboard.up("s")
    await page.get_by_role("option", name="Typed").get_by_text("2 pushes").wait_for()
    await page.keyboard.press("c")
    await page.get_by_role("heading", name="Edit and send").wait_for()
    titles = [push.message["title"]["en"] for push in desk.emulator.pushes]
    assert titles == ["Before", "Typed", "Typed"]


async def test_a_key_acts_on_the_chosen_push_while_it_is_loading(desk: Any) -> None:
    await desk.push("First")
    await desk.push("Second")
    page = await desk.page()
    await page.locator(".eyebrow").get_by_text("Push 2 ").wait_for()
    held: asyncio.Queue[Any] = asyncio.Queue()
    await page.route("**/requests/1*", held.put, times=1)
    await page.keyboard.press("j")
    route = await held.get()
    await page.keyboard.press("x")
    await route.continue_()
    await page.get_by_text("A copy of push 1").wait_for()


async def test_the_composer_fits_a_narrow_screen(desk: Any) -> None:
    page = await composer(desk, width=390, height=800)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await send(page)
    await page.get_by_role("group", name="iPhone").scroll_into_view_if_needed()
    assert len(desk.emulator.pushes) == 1


NAMES = ["__proto__", "constructor", "toString", "<img src=x onerror=window.hit=1>", 'quote"\\', "a.b[0]"]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_can_be_edited(desk: Any, name: str) -> None:
    text = f"Hi {{{{ {name} | 'you' }}}}"
    message = {"iosEnabled": True, "title": {"en": text, name: text}, "keyVals": {name: "1"}}
    await desk.send({"userIds": [name], "message": message, "customFields": {name: "1"}})
    page = await composer(desk, "/#/compose/1")
    await unfold(page, "Data")
    await field(page, "Key-values for the app: value 1").fill("2")
    await field(page, "Custom fields: value 1").fill("3")
    await field(page, "Title (en)").fill(f"{text}!")
    await send(page)
    push = desk.emulator.pushes[1]
    assert push.message == {**message, "keyVals": {name: "2"}, "title": {"en": f"{text}!", name: text}}
    assert (push.user_ids, push.custom_fields) == ((name,), {name: "3"})
    assert await page.evaluate("window.hit === undefined && ({}).en === undefined")


async def test_the_json_is_sent_as_it_is_shown(desk: Any) -> None:
    page = await composer(desk)
    text = '{ "userIds" : ["u"],"message":{"iosEnabled":true, "title":{"en":"As is"}, "x": 1.0e5} }'
    await editor(page).fill(text)
    await send(page)
    assert desk.emulator.pushes[0].body == text.encode()
    await page.get_by_role("button", name="Format").click()
    assert json.loads(await editor(page).input_value()) == json.loads(text)
