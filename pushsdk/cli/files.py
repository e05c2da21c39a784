"""Input of commands: messages, campaigns and custom fields as JSON, and the source of users.

JSON is checked for the types of the interface document only, so fields of a newer service pass.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pushsdk._audience.audience import Audience
from pushsdk._core.lint import lint
from pushsdk._core.models import CampaignRequest, MessageType, MobilePush, Model, PushRequest
from pushsdk.cli.exit import usage_error
from pushsdk.cli.terminal import warn

STDIN = "-"
_MAX_BYTES = 16 * 1024 * 1024
_KIND_NAMES: Mapping[type[Model], str] = {
    MobilePush: "message",
    CampaignRequest: "campaign",
    PushRequest: "push request",
}


def read_message(file: str) -> dict[str, Any]:
    """Return the message in a file, or on standard input if the file is ``-``, with the JSON names of its fields.

    Raises a usage error that names the file and the JSON path.
    """
    message, kind = read_resource(file)
    if kind is not MobilePush:
        raise usage_error(f'{file}: must be a message, not a {_KIND_NAMES[kind]}; pass only the value of "message"')
    return {"type": MessageType.MOBILE_PUSH, **message}


def read_campaign(file: str) -> dict[str, Any]:
    """Return the campaign in a file, as `read_message` does."""
    campaign, kind = read_resource(file)
    if kind is not CampaignRequest:
        raise usage_error(
            f"{file}: must be a campaign, with name, segment, schedule and message, not a {_KIND_NAMES[kind]}"
        )
    return campaign


def read_resource(file: str) -> tuple[dict[str, Any], type[Model]]:
    """Return a message, campaign or push request, and its model."""
    name = "standard input" if file == STDIN else file
    resource = _object(name, _read_bytes(file))
    kind: type[Model] = MobilePush
    if resource.keys() & {"message", "segment", "schedule", "userIds"}:
        kind = PushRequest if "userIds" in resource else CampaignRequest
    try:
        msgspec.convert(resource, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `")
        root = "$.message" if kind is MobilePush else "$"
        raise usage_error(f"{name}: {root}{path.rstrip('`')[1:]}: {text}") from None
    return resource, kind


def read_fields(option: str, text: str) -> dict[str, Any]:
    """Return the JSON object in the value of an option: the text itself, or the file in ``@FILE``."""
    if text.startswith("@"):
        return _object(f"{option} {text[1:]}", _read_bytes(text[1:]))
    return _object(option, text.encode("utf-8", "surrogateescape"))


def print_advice(resource: Mapping[str, Any]) -> None:
    """Print the problems that lint finds to stderr."""
    for problem in lint(resource):
        warn(f"advice: {problem.path}: {problem.message} ({problem.code})")


def open_audience(source: str | None, query: str | None, primary_key: str, *, message: str) -> Audience:
    """Return the users of a file, standard input or a query.

    Raises a usage error unless there is exactly one source, and a ValidationError if the source can't be read.
    """
    if (source is None) is (query is None):
        raise usage_error("pass exactly one source of users: a file, - for standard input, or --query SQL")
    if query is not None:
        return Audience.query(query, primary_key=primary_key)
    if source != STDIN:
        return Audience.read(str(source), primary_key=primary_key)
    if message == STDIN:
        raise usage_error("standard input can't be both the users and the message: read one of them from a file")
    return Audience.lines(sys.stdin.buffer)


def _read_bytes(file: str) -> bytes:
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise usage_error(f"{file}: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise usage_error(f"{file}: must not be larger than {_MAX_BYTES // 2**20} MiB")
    return content


def _object(name: str, content: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(content)
    # Neither is a MsgspecError, and the text of a UnicodeDecodeError may quote the file.
    except (RecursionError, UnicodeDecodeError):
        raise usage_error(f"{name}: not JSON: nested too deeply, or not UTF-8") from None
    except msgspec.DecodeError as error:
        raise usage_error(f"{name}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise usage_error(f"{name}: must be a JSON object")
    return value
