"""The two request bodies of the interface document, and their decoding.

The SDK's models are not used on purpose: shared field names would hide a misspelled one.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

LARGE = 64 * 1024
"""Bytes beside the users up to which a body is analyzed: 16 times the limit of a device, 0.3 s of work."""
_MAX_USER_IDS = 4 * 1024 * 1024  # bytes

T = TypeVar("T")

Text: TypeAlias = str | UnsetType
Flag: TypeAlias = bool | UnsetType
Number: TypeAlias = int | UnsetType
TextMap: TypeAlias = dict[str, str] | UnsetType


class Shape(Struct, frozen=True, rename="camel"):
    """A documented object: all fields are optional, further fields are allowed, null is not."""


class Button(Shape, frozen=True):
    label: Text = UNSET
    url: Text = UNSET
    click_action: Text = UNSET
    key_vals: TextMap = UNSET


class Component(Shape, frozen=True):
    action_id: Text = UNSET
    url: Text = UNSET
    click_action: Text = UNSET
    key_vals: TextMap = UNSET
    use_webview: Flag = UNSET


class Category(Shape, frozen=True):
    type: Text = UNSET
    name: Text = UNSET
    action_components: list[Component] | UnsetType = UNSET


class Message(Shape, frozen=True):
    type: Text = UNSET
    ios_enabled: Flag = UNSET
    android_enabled: Flag = UNSET
    title: TextMap = UNSET
    subtitle: TextMap = UNSET
    body: TextMap = UNSET
    collapse_id: Text = UNSET
    ttl: Number = UNSET
    action: Text = UNSET
    android_action_url: Text = UNSET
    ios_action_url: Text = UNSET
    key_vals: TextMap = UNSET
    big_image_url: Text = UNSET
    large_icon_url: Text = UNSET
    small_icon_resource_id: Text = UNSET
    android_channel: Text = UNSET
    priority: Text = UNSET
    android_action_buttons: list[Button] | UnsetType = UNSET
    sound_file_name: Text = UNSET
    rich_media_url: Text = UNSET
    media_type: Text = UNSET
    interruption_level: Text = UNSET
    badge_count: Number = UNSET
    relevance_score: Text = UNSET
    content_available: Flag = UNSET
    action_category: Category | UnsetType = UNSET


class SegmentShape(Shape, frozen=True):
    query: Text = UNSET
    primary_key: Text = UNSET


class ScheduleShape(Shape, frozen=True):
    type: Text = UNSET
    start_ts: Number = UNSET


class CampaignBody(Shape, frozen=True):
    """The interface document does not name required fields, so none is required."""

    name: Text = UNSET
    external_id: Text = UNSET
    segment: SegmentShape | UnsetType = UNSET
    schedule: ScheduleShape | UnsetType = UNSET
    message: Message | UnsetType = UNSET


class PushBody(Shape, frozen=True):
    """Users and message are required: a push is impossible without them."""

    user_ids: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
    message: Message
    custom_fields: dict[str, Any] | UnsetType = UNSET

    def digest(self) -> int:
        """Return 64 bits that are equal for equal message and custom fields, in any order of their names.

        Two accepted pushes with equal digests to one user are a duplicate, see `Store.duplicates`.
        """
        content = msgspec.json.encode(msgspec.structs.replace(self, user_ids=()), order="deterministic")
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


class Unreadable(ValueError):
    """The body is invalid for the endpoint; the text contains the path, never a value."""


class _UserList(Shape, frozen=True):
    user_ids: msgspec.Raw = msgspec.Raw()


_json = msgspec.json.Decoder()
_users = msgspec.json.Decoder(_UserList)
_push = msgspec.json.Decoder(PushBody)
_campaign = msgspec.json.Decoder(CampaignBody)


def read_json(body: bytes) -> Any:
    """Decode any JSON. Raises `Unreadable`."""
    return _read(_json, body)


def read_push(body: bytes) -> PushBody:
    """Decode a push send request. Raises `Unreadable`."""
    return _read(_push, body)


def read_campaign(body: bytes) -> CampaignBody:
    """Decode a campaign create request. Raises `Unreadable`."""
    return _read(_campaign, body)


def _read(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except RecursionError:
        error = "JSON is nested too deeply"
    except UnicodeError:  # whose text would quote the body
        error = "JSON is not UTF-8"
    except ValueError as invalid:
        error = str(invalid)
    raise Unreadable(error if " - at " in error else f"{error} - at `$`")


def weight(body: bytes) -> int:
    """Return the bytes of a body beside its users; of all if the users are too many or the body is not an object."""
    try:
        users = len(_users.decode(body).user_ids)
    except (ValueError, RecursionError):
        return len(body)
    return len(body) - users if users <= _MAX_USER_IDS else len(body)
