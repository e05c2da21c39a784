"""A stored request as something to run again: a curl command, and a Python program with pushsdk.

Neither holds a key or an address: both take PUSHSDK_BASE_URL and PUSHSDK_API_KEY from the environment. What is made
here is copied into shells, so nothing in a body may end a quote, nor move what a terminal shows.
"""

from __future__ import annotations

import json
from pprint import pformat
from typing import Any

from pushsdk.emulator.shapes import Unreadable, read_campaign, read_json, read_push

__all__ = ["curl", "python"]

_PATHS = {"push": "/v1/push", "campaigns": "/v1/campaigns"}
_WIDTH = 100
_DEEPEST = 40  # of nested values in a program; Python's own parser ends at about 90
_MERGED = 1000  # users that a client merges into one request, unless told otherwise

_NOT_SENDABLE = """\
# This request can't be sent with pushsdk: {}.
# The curl command sends it as it came.
"""

_PROGRAM = """\
import asyncio

from pushsdk import {names}

{values}


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
    """Return the request as a program that uses pushsdk, with the content as mappings.

    The program is comments only if pushsdk can't send such a request.
    """
    try:
        (read_push if endpoint == "push" else read_campaign)(body)
        request: dict[str, Any] = read_json(body)
    except Unreadable:
        return _NOT_SENDABLE.format("it is not what the endpoint takes")
    if not _is_within(request, _DEEPEST):
        return _NOT_SENDABLE.format("it is nested too deeply")
    if endpoint == "campaigns":
        return _program("print((await client.create_campaign(CAMPAIGN)).uuid)", {"CAMPAIGN": request})
    if request.keys() - {"userIds", "message", "customFields"}:
        return _NOT_SENDABLE.format("it has fields beside userIds, message and customFields")
    users = len(request["userIds"])
    if len(set(request["userIds"])) < users:
        return _NOT_SENDABLE.format("it names a user twice, who counts once in a call")
    values, custom_fields = {"USER_IDS": request["userIds"], "MESSAGE": request["message"]}, ""
    if "customFields" in request:
        values["CUSTOM_FIELDS"], custom_fields = request["customFields"], ", custom_fields=CUSTOM_FIELDS"
    call = f"await client.send(USER_IDS, MESSAGE{custom_fields})"
    return _program(call, values, max_users=None if users <= _MERGED else users)


def _program(call: str, values: dict[str, object], *, max_users: int | None = None) -> str:
    # repr() escapes every character that can't be seen.
    shown = {name: pformat(value, width=_WIDTH, sort_dicts=False) for name, value in values.items()}
    return _PROGRAM.format(
        names="AsyncPushClient" if max_users is None else "AsyncPushClient, Batching",
        values="\n".join(f"{name} = {value}" for name, value in shown.items()),
        options="" if max_users is None else f"batching=Batching(max_users={max_users})",
        call=call,
    )


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
