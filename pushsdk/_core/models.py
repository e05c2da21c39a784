"""What travels: the resources of the interface (sections 2.1-2.9) as frozen structs, and the values it shows.

Shapes, and how a place in them is named. Nothing here validates, encodes or advises: that is ``wire`` and
``lint``. A struct's field order is the interface's, and so is the order on the wire.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pushsdk._public import set_public_module

__all__ = [
    "UNSET",
    "Action",
    "ActionButton",
    "ActionCategory",
    "ActionCategoryType",
    "ActionComponent",
    "CampaignCreated",
    "CampaignRequest",
    "ClickAction",
    "InterruptionLevel",
    "MediaType",
    "MessageType",
    "MobilePush",
    "Model",
    "Path",
    "Priority",
    "PushRequest",
    "RelevanceScore",
    "Schedule",
    "ScheduleType",
    "Segment",
    "UnsetType",
    "show_path",
]

# Section 2.10 leaves the bounds open. 64 bits are what most parsers can hold: a larger number would arrive as
# another one.
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Texts = Mapping[str, str]

Path = tuple[str | int, ...]
"""A place in a resource: keys and indexes from the root. It becomes text only when somebody has to read it."""


def show_path(path: Path) -> str:
    """The path as text, as ``$.message.androidActionButtons[0].url``.

    A key that is no field name or language code may be anything, a user id too, and is shown as ``[...]``.
    """
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else _show_key(part) for part in path)


def _show_key(key: str) -> str:
    return f".{key}" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,40}", key) else "[...]"


# The enumerated fields are open: section 2.10 shows one value of each, and any other str passes both ways.
class MessageType:
    """Values of ``MobilePush.type`` (section 2.5)."""

    MOBILE_PUSH: Final = "MOBILE_PUSH"


class Action:
    """Values of ``MobilePush.action`` (section 2.5)."""

    DEFAULT: Final = "DEFAULT"


class Priority:
    """Values of ``MobilePush.priority`` (section 2.5)."""

    NORMAL: Final = "NORMAL"


class MediaType:
    """Values of ``MobilePush.media_type`` (section 2.5)."""

    IMAGE: Final = "IMAGE"


class InterruptionLevel:
    """Values of ``MobilePush.interruption_level`` (section 2.5)."""

    PASSIVE: Final = "PASSIVE"


class RelevanceScore:
    """Values of ``MobilePush.relevance_score`` (section 2.5)."""

    SCORE_MAX: Final = "SCORE_MAX"


class ClickAction:
    """Values of ``ActionButton.click_action`` and ``ActionComponent.click_action`` (sections 2.6, 2.8)."""

    DEEP_LINKING: Final = "DEEP_LINKING"


class ActionCategoryType:
    """Values of ``ActionCategory.type`` (section 2.7)."""

    PREDEFINED_CATEGORY: Final = "PREDEFINED_CATEGORY"


class ScheduleType:
    """Values of ``Schedule.type`` (section 2.3)."""

    START_NOW: Final = "START_NOW"


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of what is sent: camelCase on the wire, unset fields left out, no content in its repr.

    User ids and texts must not reach a log through a repr, so only the names of the set fields are shown.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(name for name, _ in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, ...) for name in self.__struct_fields__ if getattr(self, name) is not UNSET]


class ActionButton(Model, frozen=True, kw_only=True):
    """A button on the Android notification (section 2.6)."""

    label: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    click_action: str | UnsetType = UNSET
    key_vals: Texts | UnsetType = UNSET


class ActionComponent(Model, frozen=True, kw_only=True):
    """One action of an action category (section 2.8)."""

    action_id: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    click_action: str | UnsetType = UNSET
    key_vals: Texts | UnsetType = UNSET
    use_webview: bool | UnsetType = UNSET


class ActionCategory(Model, frozen=True, kw_only=True):
    """The actions of an iOS notification (section 2.7)."""

    type: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    action_components: Sequence[ActionComponent] | UnsetType = UNSET


class MobilePush(Model, frozen=True, kw_only=True):
    """The push message, the same for a direct push and for a campaign (section 2.5).

    ``title``, ``subtitle`` and ``body`` map a language code to a text, which may hold placeholders. The
    interface does not show the unit of ``ttl`` nor the bounds of ``badge_count``. ``type`` is the only default
    value that goes out on the wire; every other field is left out until it is set, and none is required.
    """

    type: str = MessageType.MOBILE_PUSH
    ios_enabled: bool | UnsetType = UNSET
    android_enabled: bool | UnsetType = UNSET
    title: Texts | UnsetType = UNSET
    subtitle: Texts | UnsetType = UNSET
    body: Texts | UnsetType = UNSET
    collapse_id: str | UnsetType = UNSET
    ttl: Integer | UnsetType = UNSET
    action: str | UnsetType = UNSET
    android_action_url: str | UnsetType = UNSET
    ios_action_url: str | UnsetType = UNSET
    key_vals: Texts | UnsetType = UNSET
    big_image_url: str | UnsetType = UNSET
    large_icon_url: str | UnsetType = UNSET
    small_icon_resource_id: str | UnsetType = UNSET
    android_channel: str | UnsetType = UNSET
    priority: str | UnsetType = UNSET
    android_action_buttons: Sequence[ActionButton] | UnsetType = UNSET
    sound_file_name: str | UnsetType = UNSET
    rich_media_url: str | UnsetType = UNSET
    media_type: str | UnsetType = UNSET
    interruption_level: str | UnsetType = UNSET
    badge_count: Integer | UnsetType = UNSET
    relevance_score: str | UnsetType = UNSET
    content_available: bool | UnsetType = UNSET
    action_category: ActionCategory | UnsetType = UNSET


class Segment(Model, frozen=True, kw_only=True):
    """Whom a campaign is for (section 2.2): ``primary_key`` names the column of ``query`` that holds the user."""

    query: str | UnsetType = UNSET
    primary_key: str | UnsetType = UNSET


class Schedule(Model, frozen=True, kw_only=True):
    """When a campaign starts (section 2.3). The unit of ``start_ts`` is not shown."""

    type: str | UnsetType = UNSET
    start_ts: Integer | UnsetType = UNSET


class CampaignRequest(Model, frozen=True, kw_only=True):
    """What creates a campaign (section 2.1). ``external_id`` is your own name for it, to look it up by."""

    name: str | UnsetType = UNSET
    external_id: str | UnsetType = UNSET
    segment: Segment | UnsetType = UNSET
    schedule: Schedule | UnsetType = UNSET
    message: MobilePush | UnsetType = UNSET


class PushRequest(Model, frozen=True, kw_only=True):
    """What a direct push sends (section 2.9). ``custom_fields`` is any JSON object."""

    user_ids: Sequence[str] | UnsetType = UNSET
    message: MobilePush | UnsetType = UNSET
    custom_fields: Mapping[str, Any] | UnsetType = UNSET


class CampaignCreated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to a created campaign (section 2.4)."""

    uuid: str


set_public_module(__name__)
