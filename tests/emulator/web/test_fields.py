"""Every field of the interface is in the page's table of fields, also one that is new."""

import msgspec
from support.page_words import press
from support.whole import whole

from pushsdk._core.models import ActionButton, ActionCategory, ActionComponent, MobilePush, PushRequest

MODELS = (ActionButton, ActionCategory, ActionComponent, MobilePush, PushRequest)
ROWS = """() => [...document.querySelectorAll("table.fields tbody tr.set:not(.group)")].map(row =>
    [row.querySelector("th bdi").textContent, row.querySelector("td").innerText])"""


async def test_the_table_of_all_fields_has_every_field(desk):
    request = whole(PushRequest, "a text")
    request["message"]["new"] = "field"
    await desk.send(request)
    page = await desk.page()
    await press(page, "All fields", "tab")
    await page.locator("table.fields").wait_for()
    rows = dict(await page.evaluate(ROWS))
    assert rows.keys() == {"new", *(field.encode_name for model in MODELS for field in msgspec.structs.fields(model))}
    assert (rows["new"], rows["action"], rows["useWebview"]) == ("field", "a text", "true")
