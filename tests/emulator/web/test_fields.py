"""Every field of a message has its value on the page, also a new one."""

from support.page_words import read
from support.whole import whole

from pushsdk._core.models import PushRequest


async def test_the_overview_has_the_value_of_every_field(desk):
    request = whole(PushRequest, "a text")
    message = {name: f"value of {name}" if value == "a text" else value for name, value in request["message"].items()}
    request["message"] = {**message, "new": "value of new"}
    await desk.send(request)
    page = await desk.page()
    await read(page, "value of new")
    text = await page.get_by_role("region", name="Chosen push").inner_text()
    values = [value for value in message.values() if isinstance(value, str)]
    assert len(values) > 10
    assert [value for value in values if value not in text] == []
