"""A stored request as something to run again: a curl command, and a Python program with pushsdk.

Neither holds a key or an address: both take PUSHSDK_BASE_URL and PUSHSDK_API_KEY from the environment. What is made
here is copied into shells, so nothing in a body may end a quote, nor move what a terminal shows.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pushsdk._core.models import UNSET, CampaignRequest, MobilePush, Model
from pushsdk.emulator.shapes import Unreadable, read_campaign, read_json, read_push

__all__ = ["curl", "python"]

_PATHS = {"push": "/v1/push", "campaigns": "/v1/campaigns"}
_WIDTH = 100
_DEEPEST = 40  # of nested values in a program; Python's own parser ends at about 90
_MERGED = 1000  # users that a client merges into one request, unless told otherwise

_UNSAYABLE = """\
# This request can't be sent with pushsdk: {}.
# The curl command sends it as it came.
"""

_PROGRAM = """\
import asyncio

from pushsdk import {names}


async def main() -> None:
    async with AsyncPushClient({options}) as client:  # PUSHSDK_BASE_URL, PUSHSDK_API_KEY
        {call}


asyncio.run(main())
"""


def curl(endpoint: str, body: bytes) -> str:
    """The request as a command for any POSIX shell. JSON arrives as equal JSON, any other body byte for byte."""
    text = _shown(body)
    sends = (
        f'curl -sS -i "$PUSHSDK_BASE_URL{_PATHS[endpoint]}" \\\n'
        '  -H "Api-Key: $PUSHSDK_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        "  --data-binary @-"
    )
    if text is None:
        return f"printf '{_octal(body)}' | {sends}\n"
    # No line of JSON is a bare EOF, as a string holds no line break.
    return f"{sends} <<'EOF'\n{text}\nEOF\n"


def python(endpoint: str, body: bytes) -> str:
    """The request as a program with pushsdk, with its models where they can say all of it, else with mappings.

    A program of comments only, where pushsdk can't send it: a body that is none, or with more beside its message.
    """
    try:
        (read_push if endpoint == "push" else read_campaign)(body)
        request: dict[str, Any] = read_json(body)
    except Unreadable:
        return _UNSAYABLE.format("it is not what the endpoint takes")
    if not _is_within(request, _DEEPEST):
        return _UNSAYABLE.format("it is nested too deeply")
    if endpoint == "campaigns":
        return _campaign(request)
    if request.keys() - {"userIds", "message", "customFields"}:
        return _UNSAYABLE.format("it has fields beside userIds, message and customFields")
    if len(set(request["userIds"])) < len(request["userIds"]):
        return _UNSAYABLE.format("it names a user twice, who counts once in a call")
    return _push(request)


def _push(request: dict[str, Any]) -> str:
    user_ids, message = request["userIds"], _model(request["message"], MobilePush)
    arguments = [("", user_ids[0] if len(user_ids) == 1 else user_ids), ("", message)]
    if "customFields" in request:
        arguments.append(("custom_fields=", request["customFields"]))
    options = "" if len(user_ids) <= _MERGED else f"batching=Batching(max_users={len(user_ids)})"
    return _program(_wrapped("await client.send(", arguments, ")", 8), options, message)


def _campaign(request: dict[str, Any]) -> str:
    campaign = _model(request, CampaignRequest)
    call = _wrapped("created = await client.create_campaign(", [("", campaign)], ")", 8)
    return _program(f"{call}\n        print(created.uuid)", "", campaign)


def _program(call: str, options: str, *values: object) -> str:
    names = {"AsyncPushClient"}.union(*map(_names, values))
    if options:
        names.add("Batching")
    return _PROGRAM.format(names=", ".join(sorted(names)), options=options, call=call)


def _model(value: dict[str, Any], model: type[Model]) -> Model | dict[str, Any]:
    """The value as this model where that says neither less nor more; as it is where it has unknown fields."""
    try:
        made = msgspec.convert(value, model)
    except msgspec.ValidationError:  # a number that the SDK does not send
        return value
    return made if msgspec.to_builtins(made) == value else value


def _names(value: object) -> set[str]:
    """The models that the source of this value needs."""
    if isinstance(value, Model):
        below = (getattr(value, name) for name in value.__struct_fields__)
        return {type(value).__name__}.union(*map(_names, below))
    return set().union(*map(_names, value)) if isinstance(value, list) else set()


def _source(value: object, indent: int) -> str:
    """The Python source of a model or of JSON, over several lines where it is wide."""
    if isinstance(value, Model):
        defaults = type(value)()
        fields = [
            (f"{name}=", each)
            for name in value.__struct_fields__
            if (each := getattr(value, name)) is not UNSET and each != getattr(defaults, name)
        ]
        return _wrapped(f"{type(value).__name__}(", fields, ")", indent)
    if isinstance(value, dict):
        return _wrapped("{", [(f"{key!r}: ", each) for key, each in value.items()], "}", indent)
    if isinstance(value, list):
        return _wrapped("[", [("", each) for each in value], "]", indent)
    return repr(value)  # which escapes what can't be seen


def _wrapped(start: str, items: list[tuple[str, Any]], end: str, indent: int) -> str:
    inner = indent + 4
    parts = [key + _source(value, inner) for key, value in items]
    line = f"{start}{', '.join(parts)}{end}"
    if not parts or ("\n" not in line and indent + len(line) <= _WIDTH):
        return line
    return f"{start}\n" + "".join(f"{' ' * inner}{part},\n" for part in parts) + f"{' ' * indent}{end}"


def _is_within(value: object, depth: int) -> bool:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_within(each, depth - 1) for each in below)


def _shown(body: bytes) -> str | None:
    """A text of the same JSON in which every character can be seen, or None where the body is no JSON."""
    try:
        read_json(body)
    except Unreadable:
        return None
    return "".join(char if char.isprintable() or char == "\n" else _seen(char) for char in body.decode())


def _seen(char: str) -> str:
    # Valid JSON has control characters between its tokens only, and any other unprintable one within strings only.
    return " " if char < " " else json.dumps(char)[1:-1]


def _octal(body: bytes) -> str:
    """The bytes as the format of printf: what can be seen and means nothing to it, and octal numbers."""
    plain = set(range(0x20, 0x7F)) - set(b"%\\'-")  # printf takes a first - for an option
    return "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in body)
