"""A stored request as a curl command, and as a Python program with pushsdk.

Both read PUSHSDK_BASE_URL and PUSHSDK_API_KEY from the environment. Snippets are pasted into shells, so no body may end
a quote or contain a control character.
"""

import json
from pathlib import Path
from pprint import pformat
from typing import Any

from pushsdk.emulator.shapes import READERS, Unreadable, read_json

_WIDTH = 100
_MAX_DEPTH = 40  # for nested values in a program; Python's parser fails at about 90
_MAX_USERS = 1000  # default for Batching(max_users=)

_NOT_SENDABLE = "# This request can't be sent with pushsdk: {}.\n# Use the curl command.\n"

_CURL = Path(__file__).with_name("snippet.sh.template").read_text().rstrip()
_PROGRAM = Path(__file__).with_name("snippet.py.template").read_text()


def curl(endpoint: str, body: bytes) -> str:
    """Return the request as a POSIX shell command that sends equal JSON, or the same bytes if the body is not JSON."""
    sends = _CURL.format(endpoint=endpoint)
    try:
        read_json(body)
    except Unreadable:
        # Octal numbers for special characters within quotes or for printf, which takes a first - for an option.
        plain = set(range(0x20, 0x7F)) - set(b"%\\'-")
        octal = "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in body)
        return f"printf '{octal}' | {sends}\n"
    text = body.decode()
    # In valid JSON control characters are between tokens, other unprintable characters within strings.
    unsafe = {char for char in {*text} - {"\n"} if not char.isprintable()}
    text = text.translate({ord(char): " " if char < " " else json.dumps(char)[1:-1] for char in unsafe})
    # A JSON line is never a bare EOF, because strings contain no line breaks.
    return f"{sends} <<'EOF'\n{text}\nEOF\n"


def python(endpoint: str, body: bytes) -> str:
    """Return the request as a program that uses pushsdk; only a comment if pushsdk can't send such a request."""
    try:
        READERS[endpoint](body)
        request: dict[str, Any] = read_json(body)
    except Unreadable:
        return _NOT_SENDABLE.format("it is invalid for the endpoint")
    if not _is_within(request, _MAX_DEPTH):
        return _NOT_SENDABLE.format("it is nested too deeply")
    if endpoint == "campaigns":
        return _program("print((await client.create_campaign(CAMPAIGN)).uuid)", {"CAMPAIGN": request})
    if request.keys() - {"userIds", "message", "customFields"}:
        return _NOT_SENDABLE.format("it has fields beside userIds, message and customFields")
    users = len(request["userIds"])
    if len(set(request["userIds"])) < users:
        return _NOT_SENDABLE.format("it repeats a user id")
    values, custom_fields = {"USER_IDS": request["userIds"], "MESSAGE": request["message"]}, ""
    if "customFields" in request:
        values["CUSTOM_FIELDS"], custom_fields = request["customFields"], ", custom_fields=CUSTOM_FIELDS"
    call = f"await client.send(USER_IDS, MESSAGE{custom_fields})"
    return _program(call, values, max_users=None if users <= _MAX_USERS else users)


def _program(call: str, values: dict[str, object], *, max_users: int | None = None) -> str:
    # repr() escapes every unprintable character.
    shown = {name: pformat(value, width=_WIDTH, sort_dicts=False) for name, value in values.items()}
    return _PROGRAM.format(
        names="AsyncPushClient" if max_users is None else "AsyncPushClient, Batching",
        values="\n".join(f"{name} = {value}" for name, value in shown.items()),
        options="" if max_users is None else f"batching=Batching(max_users={max_users})",
        call=call,
    )


def _is_within(value: object, depth: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_within(child, depth - 1) for child in children)
