"""Every field of the interface makes a visible difference on the page, or is listed there; see the table.

It names every field of every model, so a field that is new fails here until it has its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pushsdk._core.models import (
    ActionButton,
    ActionCategory,
    ActionComponent,
    CampaignCreated,
    CampaignRequest,
    MobilePush,
    Model,
    PushRequest,
    Schedule,
    Segment,
)

# The places, as selectors. Phones show a field as text, as a picture, or by a class.
LOCK, EXPANDED = ".phone.locked", ".phone.expanded"
UNDER, USERS, OVERVIEW = "figcaption", ".inspector .count", ".inspector [data-key=overview]"
CAMPAIGN = "the campaign's own page"


class Place(NamedTuple):
    """A value for a field, and the places on the page that the field changes."""

    value: Any
    where: Sequence[str]


def place(value: Any, *location: str) -> Place:
    """A field without a place is only in the table of all fields."""
    return Place(value, location)


URL = "https://example.com/an-address"
TEXTS = {"en": "Some words"}
IN_BOTH = (LOCK, EXPANDED)
ON = {"iosEnabled": True, "androidEnabled": True}  # without them no phone is drawn

PLACES: Mapping[type, Mapping[str, Place]] = {
    CampaignRequest: {  # 2.1
        "name": place("Spring sale", CAMPAIGN),
        "externalId": place("spring-27", CAMPAIGN),
        "segment": place({"query": "SELECT 1"}, CAMPAIGN),
        "schedule": place({"type": "START_NOW"}, CAMPAIGN),
        "message": place({"title": TEXTS, **ON}, *IN_BOTH, UNDER, OVERVIEW),
    },
    Segment: {  # 2.2
        "query": place("SELECT id FROM customers", CAMPAIGN),
        "primaryKey": place("customer_id", CAMPAIGN),
    },
    Schedule: {  # 2.3
        "type": place("START_NOW", CAMPAIGN),
        "startTs": place(4_000_000_000, CAMPAIGN),
    },
    CampaignCreated: {"uuid": place(None, CAMPAIGN)},  # 2.4; each campaign has its own
    MobilePush: {  # 2.5
        "type": place("ANOTHER_PUSH"),
        "iosEnabled": place(True, *IN_BOTH, UNDER, OVERVIEW),
        "androidEnabled": place(True, *IN_BOTH, UNDER, OVERVIEW),
        "title": place(TEXTS, *IN_BOTH),
        "subtitle": place(TEXTS, *IN_BOTH),
        "body": place(TEXTS, *IN_BOTH),
        "collapseId": place("the-collapse-id", OVERVIEW),
        "ttl": place(7200, OVERVIEW),
        "action": place("ANOTHER_ACTION", OVERVIEW),
        "androidActionUrl": place(URL, UNDER, OVERVIEW),
        "iosActionUrl": place(URL, UNDER, OVERVIEW),
        "keyVals": place({"a-key": "a-value"}, OVERVIEW),
        "bigImageUrl": place(URL, *IN_BOTH, UNDER, OVERVIEW),
        "largeIconUrl": place(URL, *IN_BOTH, OVERVIEW),
        "smallIconResourceId": place("ic_zebra", *IN_BOTH, OVERVIEW),
        "androidChannel": place("a-channel", *IN_BOTH, OVERVIEW),
        "priority": place("HIGH", *IN_BOTH, OVERVIEW),
        "androidActionButtons": place([{"label": "Press"}], EXPANDED, OVERVIEW),
        "soundFileName": place("a-sound.caf", UNDER, OVERVIEW),
        "richMediaUrl": place(URL, *IN_BOTH, UNDER, OVERVIEW),
        "mediaType": place("VIDEO", *IN_BOTH, OVERVIEW),
        "interruptionLevel": place("TIME_SENSITIVE", *IN_BOTH, OVERVIEW),
        "badgeCount": place(77, *IN_BOTH, UNDER, OVERVIEW),
        "relevanceScore": place("SCORE_MAX", OVERVIEW),
        "contentAvailable": place(True, OVERVIEW),
        "actionCategory": place({"actionComponents": [{"actionId": "later"}]}, EXPANDED, OVERVIEW),
    },
    ActionButton: {  # 2.6
        "label": place("Buy now", EXPANDED, OVERVIEW),
        "url": place(URL, OVERVIEW),
        "clickAction": place("DEEP_LINKING", OVERVIEW),
        "keyVals": place({"a-key": "a-value"}),
    },
    ActionCategory: {  # 2.7
        "type": place("PREDEFINED_CATEGORY"),
        "name": place("a-category", OVERVIEW),
        "actionComponents": place([{"actionId": "later"}], EXPANDED, OVERVIEW),
    },
    ActionComponent: {  # 2.8
        "actionId": place("later", EXPANDED, OVERVIEW),
        "url": place(URL, OVERVIEW),
        "clickAction": place("DEEP_LINKING", OVERVIEW),
        "keyVals": place({"a-key": "a-value"}),
        "useWebview": place(True, EXPANDED, OVERVIEW),
    },
    PushRequest: {  # 2.9
        "userIds": place(["a-user", "b-user"], *IN_BOTH, UNDER, USERS),  # without it the request is refused
        "message": place({"title": TEXTS, **ON}, *IN_BOTH, UNDER, USERS, OVERVIEW),  # as here
        "customFields": place({"first_name": "Ada"}, *IN_BOTH, OVERVIEW),
    },
}
SECTIONS = {
    CampaignRequest: "2.1",
    Segment: "2.2",
    Schedule: "2.3",
    MobilePush: "2.5",
    ActionButton: "2.6",
    ActionCategory: "2.7",
    ActionComponent: "2.8",
    PushRequest: "2.9",
}
IN_A_PUSH = (MobilePush, ActionButton, ActionCategory, ActionComponent, PushRequest)
# The fields beside the tested one, and the function that builds the request.
BESIDE: Mapping[type, Mapping[str, Any]] = {
    MobilePush: {**ON, "body": {"en": "Hi {{ first_name | 'you' }}"}, "richMediaUrl": "https://rich.example.com/"},
    PushRequest: {"userIds": ["u"], "message": {**ON, "body": {"en": "Hi {{ first_name | 'you' }}"}}},
    CampaignRequest: {"name": "Beside"},
}
WHOLE: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    CampaignRequest: lambda one: one,
    Segment: lambda one: {"name": "Beside", "segment": one},
    Schedule: lambda one: {"name": "Beside", "schedule": one},
    MobilePush: lambda one: {"userIds": ["u"], "message": one},
    ActionButton: lambda one: {"userIds": ["u"], "message": {**ON, "androidActionButtons": [one]}},
    ActionCategory: lambda one: {"userIds": ["u"], "message": {**ON, "actionCategory": one}},
    ActionComponent: lambda one: {
        "userIds": ["u"],
        "message": {**ON, "actionCategory": {"actionComponents": [one]}},
    },
    PushRequest: lambda one: one,
}
# Pictures as markup, everything else as text; without clocks, without labels for screen readers and tooltips,
# and without the advice, which only mentions fields.
SEEN = """selectors => Object.fromEntries(selectors.map(selector => [selector,
  [...document.querySelectorAll(selector)].map(node => {
    if (!node.classList.contains("phone")) {
        const advice = node.querySelector(".advice, .fine")?.innerText ?? "";
        return node.innerText.replace(advice, "");
    }
    const copy = node.cloneNode(true);
    for (const one of copy.querySelectorAll(".clock, .status-bar, time")) one.remove();
    for (const one of copy.querySelectorAll("*")) ["title", "aria-label"].forEach(name => one.removeAttribute(name));
    return copy.outerHTML;
  })]))"""
ROWS = """() => [...document.querySelectorAll("table.fields tbody")].flatMap(group => {
    const section = group.querySelector(".section").textContent.replace("§ ", "");
    return [...group.querySelectorAll("tr:not(.group)")].map(row =>
        [section, row.querySelector("th bdi").textContent, row.className.trim(), row.querySelector("td").innerText]);
})"""


def fields_of(model: type) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(model)}


def leaves(value: Any) -> list[str]:
    """Return the texts of a value, as the page shows them."""
    if isinstance(value, Mapping):
        return [word for part in value.values() for word in leaves(part)]
    if isinstance(value, list):
        return [word for part in value for word in leaves(part)]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def nested(value: Any) -> bool:
    """Return True if the table counts the elements, and lists their fields in further rows."""
    return isinstance(value, list) or (
        isinstance(value, Mapping) and any(not isinstance(one, str) for one in value.values())
    )


def test_every_field_of_every_model_has_its_place() -> None:
    models = {*Model.__subclasses__(), CampaignCreated}
    assert {model: fields_of(model) for model in models} == {model: set(PLACES[model]) for model in PLACES}


async def open_push(page: Any, number: int) -> None:
    await page.evaluate(f"location.hash = '#/pushes/{number}'")
    await page.locator(".detail:not(.waiting) .eyebrow").get_by_text(f" {number} ").wait_for()


async def test_every_field_of_a_push_makes_the_difference_that_the_table_states(desk: Any) -> None:
    fields = [(model, name) for model in PLACES if model in IN_A_PUSH for name in PLACES[model]]
    fields.append((CampaignRequest, "message"))
    numbers: dict[str, int] = {}  # of requests, each sent once

    async def sent(model: type, one: Mapping[str, Any]) -> int:
        body = WHOLE[model](one)
        if repr(body) not in numbers:  # a request without users or message is refused, but shown
            await desk.send(body, path="/v1/campaigns" if model is CampaignRequest else "/v1/push")
            numbers[repr(body)] = len(numbers) + 1
        return numbers[repr(body)]

    pairs = []
    for model, name in fields:
        beside = {key: value for key, value in BESIDE.get(model, {}).items() if key != name}
        pairs.append((await sent(model, beside), await sent(model, beside | {name: PLACES[model][name].value})))
    page = await desk.page(width=900, height=100)  # little to paint
    await page.locator(".push-row").first.wait_for()
    places: dict[int, dict[str, Any]] = {}
    for number in numbers.values():
        await open_push(page, number)
        places[number] = await page.evaluate(SEEN, [LOCK, UNDER, USERS, OVERVIEW])
        await page.keyboard.press("e")
        places[number] |= await page.evaluate(SEEN, [EXPANDED])
        await page.keyboard.press("e")
    for (model, name), (without, second) in zip(fields, pairs, strict=True):
        changed = {place for place in places[second] if places[second][place] != places[without][place]}
        assert changed == set(PLACES[model][name].where), f"{model.__name__}.{name}"


async def test_every_field_of_a_campaign_is_on_its_page(desk: Any) -> None:
    fields = [
        (model, name) for model in (CampaignRequest, Segment, Schedule) for name in PLACES[model] if name != "message"
    ]
    for model, name in fields:
        assert await desk.send(WHOLE[model]({name: PLACES[model][name].value}), path="/v1/campaigns") == 200
    page = await desk.page("/#/campaigns")
    for (model, name), campaign in zip(fields, desk.emulator.campaigns, strict=True):
        await page.evaluate(f"location.hash = '#/campaigns/{campaign.uuid}'")
        detail = page.locator(".view:not([hidden]) .detail")
        await detail.locator(".eyebrow").get_by_text(campaign.uuid).wait_for()  # the only field of section 2.4
        text = await detail.inner_text()
        assert [word for word in leaves(PLACES[model][name].value) if word not in text] == [], name
        assert ("no query" not in text) == (name in ("segment", "query"))


async def test_every_field_is_in_the_table_of_all_fields_with_its_value(desk: Any) -> None:
    whole = {model: {name: PLACES[model][name].value for name in PLACES[model]} for model in SECTIONS}
    whole[ActionCategory]["actionComponents"] = [whole[ActionComponent]]
    whole[MobilePush] |= {"actionCategory": whole[ActionCategory], "androidActionButtons": [whole[ActionButton]]}
    whole[CampaignRequest] |= {"segment": whole[Segment], "schedule": whole[Schedule]}
    for model, path in ((PushRequest, "/v1/push"), (CampaignRequest, "/v1/campaigns")):
        assert await desk.send(whole[model] | {"message": whole[MobilePush], "new": "field"}, path=path) < 300
    await desk.send({"message": {"androidActionButtons": [{}], "actionCategory": {"actionComponents": [{}]}}})
    page = await desk.page()
    await page.get_by_role("tab", name="All fields").click()
    rows = {}
    for number in (1, 2, 3):
        await open_push(page, number)
        rows[number] = {(section, name): (kind, text) for section, name, kind, text in await page.evaluate(ROWS)}
    listed = {(SECTIONS[model], name): value for model in whole for name, value in whole[model].items()}
    assert set(rows[1]) | set(rows[2]) == {*listed, ("2.9", "new"), ("2.1", "new")}
    assert rows[1].pop(("2.9", "new")) == ("set extra", "field")
    assert rows[2].pop(("2.1", "new")) == ("set extra", "field")
    for key, (kind, text) in (rows[1] | rows[2]).items():
        assert kind == "set"
        assert nested(listed[key]) or [word for word in leaves(listed[key]) if word not in text] == [], key
    assert {text for kind, text in rows[3].values() if kind == "unset"} == {"not set"}
    assert {key for key, (kind, _) in rows[3].items() if kind == "set"} == {
        ("2.9", "message"),
        ("2.5", "androidActionButtons"),
        ("2.5", "actionCategory"),
        ("2.7", "actionComponents"),
    }
