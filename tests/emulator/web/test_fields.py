"""Every field of the interface makes a visible difference on the page, or is listed there; see the table.

It names every field of every model, so a field that is new fails here until it has its place.
"""

import msgspec
from support.page_words import press, read

from pushsdk._core.models import ActionButton, ActionCategory, ActionComponent, MobilePush, PushRequest

# The places, as selectors. Phones show a field as text, as a picture, or by a class.
LOCK, EXPANDED = ".phone.locked", ".phone.expanded"
UNDER, USERS, OVERVIEW = "figcaption", ".inspector .count", ".inspector [data-key=overview]"

URL = "https://example.com/an-address"
TEXTS = {"en": "Some words"}
ON = {"iosEnabled": True, "androidEnabled": True}  # without them no phone is drawn
HI = {**ON, "body": {"en": "Hi {{ first_name | 'you' }}"}}
BUTTON, COMPONENT = {"label": "Press"}, {"actionId": "later"}

# A value for each field, and the places that the field changes. A field without a place is only in the table of fields.
PLACES = {
    MobilePush: {
        "type": ("ANOTHER_PUSH",),
        "iosEnabled": (True, LOCK, EXPANDED, UNDER, OVERVIEW),
        "androidEnabled": (True, LOCK, EXPANDED, UNDER, OVERVIEW),
        "title": (TEXTS, LOCK, EXPANDED),
        "subtitle": (TEXTS, LOCK, EXPANDED),
        "body": (TEXTS, LOCK, EXPANDED),
        "collapseId": ("the-collapse-id", OVERVIEW),
        "ttl": (7200, OVERVIEW),
        "action": ("ANOTHER_ACTION", OVERVIEW),
        "androidActionUrl": (URL, UNDER, OVERVIEW),
        "iosActionUrl": (URL, UNDER, OVERVIEW),
        "keyVals": ({"a-key": "a-value"}, OVERVIEW),
        "bigImageUrl": (URL, LOCK, EXPANDED, UNDER, OVERVIEW),
        "largeIconUrl": (URL, LOCK, EXPANDED, OVERVIEW),
        "smallIconResourceId": ("ic_zebra", LOCK, EXPANDED, OVERVIEW),
        "androidChannel": ("a-channel", LOCK, EXPANDED, OVERVIEW),
        "priority": ("HIGH", LOCK, EXPANDED, OVERVIEW),
        "androidActionButtons": ([BUTTON], EXPANDED, OVERVIEW),
        "soundFileName": ("a-sound.caf", UNDER, OVERVIEW),
        "richMediaUrl": (URL, LOCK, EXPANDED, UNDER, OVERVIEW),
        "mediaType": ("VIDEO", LOCK, EXPANDED, OVERVIEW),
        "interruptionLevel": ("TIME_SENSITIVE", LOCK, EXPANDED, OVERVIEW),
        "badgeCount": (77, LOCK, EXPANDED, UNDER, OVERVIEW),
        "relevanceScore": ("SCORE_MAX", OVERVIEW),
        "contentAvailable": (True, OVERVIEW),
        "actionCategory": ({"actionComponents": [COMPONENT]}, EXPANDED, OVERVIEW),
    },
    ActionButton: {
        "label": ("Buy now", EXPANDED, OVERVIEW),
        "url": (URL, OVERVIEW),
        "clickAction": ("DEEP_LINKING", OVERVIEW),
        "keyVals": ({"a-key": "a-value"},),
    },
    ActionCategory: {
        "type": ("PREDEFINED_CATEGORY",),
        "name": ("a-category", OVERVIEW),
        "actionComponents": ([COMPONENT], EXPANDED, OVERVIEW),
    },
    ActionComponent: {
        "actionId": ("later", EXPANDED, OVERVIEW),
        "url": (URL, OVERVIEW),
        "clickAction": ("DEEP_LINKING", OVERVIEW),
        "keyVals": ({"a-key": "a-value"},),
        "useWebview": (True, EXPANDED, OVERVIEW),
    },
    PushRequest: {
        "userIds": (["a-user", "b-user"], LOCK, EXPANDED, UNDER, USERS),  # without it the request is refused
        "message": ({"title": TEXTS, **ON}, LOCK, EXPANDED, UNDER, USERS, OVERVIEW),  # as here
        "customFields": ({"first_name": "Ada"}, LOCK, EXPANDED, OVERVIEW),
    },
}
# The fields beside the tested one, and the function that builds the request.
BESIDE = {
    MobilePush: {**HI, "richMediaUrl": "https://rich.example.com/"},
    PushRequest: {"userIds": ["u"], "message": HI},
}
WHOLE = {
    MobilePush: lambda one: {"userIds": ["u"], "message": one},
    ActionButton: lambda one: {"userIds": ["u"], "message": {**ON, "androidActionButtons": [one]}},
    ActionCategory: lambda one: {"userIds": ["u"], "message": {**ON, "actionCategory": one}},
    ActionComponent: lambda one: {"userIds": ["u"], "message": {**ON, "actionCategory": {"actionComponents": [one]}}},
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
ROWS = """() => [...document.querySelectorAll("table.fields tbody tr.set:not(.group)")].map(row =>
    [row.querySelector("th bdi").textContent, row.querySelector("td").innerText])"""


def test_every_field_of_every_model_has_its_place():
    for model, fields in PLACES.items():
        assert {field.encode_name for field in msgspec.structs.fields(model)} == fields.keys()


async def test_every_field_of_a_push_makes_the_difference_that_the_table_states(desk):
    numbers = {}  # of requests, each sent once

    async def sent(body):
        if repr(body) not in numbers:  # a request without users or message is refused, but shown
            await desk.send(body)
            numbers[repr(body)] = len(numbers) + 1
        return numbers[repr(body)]

    pairs = {}
    for model, fields in PLACES.items():
        for name, (value, *_) in fields.items():
            beside = {key: value for key, value in BESIDE.get(model, {}).items() if key != name}
            pairs[model, name] = await sent(WHOLE[model](beside)), await sent(WHOLE[model](beside | {name: value}))
    page = await desk.page(width=900, height=100)  # little to paint
    await page.locator(".push-row").first.wait_for()
    places = {}
    for number in numbers.values():
        await page.evaluate(f"location.hash = '#/pushes/{number}'")
        await read(page.locator(".detail:not(.waiting) .eyebrow"), f" {number} ")
        places[number] = await page.evaluate(SEEN, [LOCK, UNDER, USERS, OVERVIEW])
        await page.keyboard.press("e")
        places[number] |= await page.evaluate(SEEN, [EXPANDED])
        await page.keyboard.press("e")
    for (model, name), (one, other) in pairs.items():
        changed = {place for place in places[other] if places[other][place] != places[one][place]}
        assert changed == set(PLACES[model][name][1:]), f"{model.__name__}.{name}"


async def test_the_table_of_all_fields_has_every_field(desk):
    values = {model: {name: value for name, (value, *_) in fields.items()} for model, fields in PLACES.items()}
    category = values[ActionCategory] | {"actionComponents": [values[ActionComponent]]}
    nested = {"actionCategory": category, "androidActionButtons": [values[ActionButton]], "new": "field"}
    await desk.send(values[PushRequest] | {"message": values[MobilePush] | nested})
    page = await desk.page()
    await press(page, "All fields", "tab")
    await page.locator("table.fields").wait_for()
    rows = dict(await page.evaluate(ROWS))
    assert rows.keys() == {"new", *(name for fields in PLACES.values() for name in fields)}
    assert (rows["new"], rows["action"], rows["useWebview"]) == ("field", "ANOTHER_ACTION", "true")
