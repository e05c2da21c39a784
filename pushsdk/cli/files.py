"""What commands read: messages, campaigns and fields as JSON, checked against the interface and no more; and users."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pushsdk._audience.audience import Audience
from pushsdk._core.lint import lint
from pushsdk._core.models import CampaignRequest, MessageType, MobilePush, Model, PushRequest
from pushsdk.cli.exit import usage
from pushsdk.cli.terminal import warn

__all__ = ["advise", "audience_of", "read_campaign", "read_fields", "read_message", "read_resource"]

STDIN = "-"
_LARGEST = 16 * 1024 * 1024


def read_message(file: str) -> dict[str, Any]:
    """Return the message in this file, ``-`` is standard input, with the names of the wire (section 2.5).

    Fields that this version does not know stay as they are. Raises a usage error that names file and path.
    """
    message, kind = read_resource(file)
    if kind is not MobilePush:
        raise usage(f'{file}: this is a {_WORDS[kind]}; a message is what it has under "message"')
    return {"type": MessageType.MOBILE_PUSH, **message}


def read_campaign(file: str) -> dict[str, Any]:
    """Return the campaign in this file (section 2.1), as ``read_message`` returns messages."""
    campaign, kind = read_resource(file)
    if kind is not CampaignRequest:
        raise usage(f"{file}: this is a {_WORDS[kind]}, not a campaign: that has name, segment, schedule, message")
    return campaign


def read_resource(file: str) -> tuple[dict[str, Any], type[Model]]:
    """Return a message, campaign or push request, and which of these it looks like."""
    name = "standard input" if file == STDIN else file
    resource = _object(name, _bytes(file))
    kind: type[Model] = MobilePush
    if resource.keys() & {"message", "segment", "schedule", "userIds"}:
        kind = PushRequest if "userIds" in resource else CampaignRequest
    try:
        msgspec.convert(resource, kind)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `")
        root = "$.message" if kind is MobilePush else "$"
        raise usage(f"{name}: {root}{where.rstrip('`')[1:]}: {text}") from None
    return resource, kind


def read_fields(option: str, text: str) -> dict[str, Any]:
    """Return the JSON object that an option holds, or with ``@`` in front the file that holds it."""
    if text.startswith("@"):
        return _object(f"{option} {text[1:]}", _bytes(text[1:]))
    return _object(option, text.encode("utf-8", "surrogateescape"))


def advise(resource: Mapping[str, Any]) -> None:
    """Print what lint finds to stderr; nothing of it stops the command."""
    for problem in lint(resource):
        warn(f"advice: {problem.path}: {problem.message} ({problem.code})")


def audience_of(source: str | None, query: str | None, primary_key: str, *, message: str) -> Audience:
    """Return the users. Raises a usage error, or a ValidationError if they can't be read."""
    if (source is None) is (query is None):
        raise usage("name one source of users: a file, - for standard input, or --query SQL")
    if query is not None:
        return Audience.query(query, primary_key=primary_key)
    if source != STDIN:
        return Audience.read(str(source), primary_key=primary_key)
    if message == STDIN:
        raise usage("standard input can't be both the users and the message")
    return Audience.lines(sys.stdin.buffer)


_WORDS: Mapping[type[Model], str] = {
    MobilePush: "message",
    CampaignRequest: "campaign",
    PushRequest: "push request",
}


def _bytes(file: str) -> bytes:
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(_LARGEST + 1)
    except OSError as error:
        raise usage(f"{file}: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise usage(f"{file}: larger than {_LARGEST // 2**20} MiB")
    return content


def _object(name: str, content: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(content)
    # Deep nesting and bad UTF-8 are no MsgspecError; the latter's text may hold a piece of the file.
    except (RecursionError, UnicodeDecodeError):
        raise usage(f"{name}: not JSON: nested too deeply, or not UTF-8") from None
    except msgspec.DecodeError as error:
        raise usage(f"{name}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise usage(f"{name}: expected a JSON object")
    return value
