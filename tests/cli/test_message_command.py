"""``pushsdk message lint`` and ``pushsdk message preview``."""

import json

import pytest

MESSAGE = {
    "iosEnabled": True,
    "androidEnabled": True,
    "title": {"en": "Hello {{ name | 'languages' }}", "de": "Hallo {{ name | 'du' }}"},
    "subtitle": {"en": "Spring"},
    "body": {"en": "The sale is open.", "de": "Es geht los."},
    "bigImageUrl": "https://shop.example/a.png",
    "iosActionUrl": "https://shop.example",
    "androidActionButtons": [{"label": "Look"}, {"url": "x:y", "label": ""}, {"label": "Later"}],
}
GOOD = {name: value for name, value in MESSAGE.items() if name != "androidActionButtons"}
PLAIN = """\
[en] iOS, Android
Hello Ann
Spring
The sale is open.
androidActionButtons: [{"label":"Look"},{"url":"x:y","label":""},{"label":"Later"}]
bigImageUrl: "https://shop.example/a.png"
iosActionUrl: "https://shop.example"

[de] iOS, Android
Hallo Ann
Es geht los.
androidActionButtons: [{"label":"Look"},{"url":"x:y","label":""},{"label":"Later"}]
bigImageUrl: "https://shop.example/a.png"
iosActionUrl: "https://shop.example"
"""


def test_a_good_message_gets_no_advice(command, file):
    assert command("message lint", file(GOOD)) == (0, "no advice\n", "")
    assert command("message lint", file(GOOD), "--json") == (0, "", "")


def test_advice_is_one_line_each_and_exits_with_1(command, file):
    result = command("message lint", file(MESSAGE))
    assert result == (1, "$.message.androidActionButtons[1]: no label: the button has no text (no-label)\n", "")


def test_advice_is_printed_as_json_lines(command, file):
    result = command("message lint", file({**GOOD, "ttl": -1, "priorty": ""}), "--json")
    assert [json.loads(line)["code"] for line in result.out.splitlines()] == ["near-name", "negative-number"]


def test_a_preview_shows_each_language(command, file):
    assert command("message preview", file(MESSAGE), "--fields", '{"name": "Ann"}') == (0, PLAIN, "")


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_message_without_languages_prints_a_notice(command, file, words):
    notice = "the message has no text: title, subtitle and body name no language\n"
    assert command("message preview", file({"userIds": [], "title": {"en": "x"}}), *words) == (0, "", notice)


def test_a_preview_of_one_language_as_json(command, file):
    result = command("message preview", file({"message": MESSAGE, "userIds": ["ann"]}), "--lang", "de", "--json")
    content = json.loads(result.out)
    assert content["language"] == "de"
    assert content["title"] == "Hallo du"
    assert content["subtitle"] == ""
    assert content["androidActionButtons"] == MESSAGE["androidActionButtons"]


def test_the_interface_is_printed_for_the_address_that_is_given(command):
    result = command("openapi --base-url https://push.example/api")
    assert json.loads(result.out)["servers"] == [{"url": "https://push.example/api"}]
