"""Messages, campaigns and their parts as frozen structs, and the documented values of their fields.

Shapes only: ``wire`` validates and encodes, ``lint`` advises. Fields have the order of the interface document, which
is also their order on the wire.
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

# The interface document has no bounds. Most parsers hold 64 bits, and would change a larger number.
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Texts = Mapping[str, str]

Path = tuple[str | int, ...]
"""A path in a resource: keys and indexes from the root."""


def show_path(path: Path) -> str:
    """Return the path as text, such as ``$.message.androidActionButtons[0].url``.

    A key that can't be a field name or a language code is shown as ``[...]``: it may be a user id.
    """
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else _show_key(part) for part in path)


def _show_key(key: str) -> str:
    return f".{key}" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,40}", key) else "[...]"


# The enumerated fields accept any str: the interface document has one value of each as an example.
class MessageType:
    """Values of ``MobilePush.type``."""

    MOBILE_PUSH: Final = "MOBILE_PUSH"


class Action:
    """Values of ``MobilePush.action``."""

    DEFAULT: Final = "DEFAULT"


class Priority:
    """Values of ``MobilePush.priority``."""

    NORMAL: Final = "NORMAL"


class MediaType:
    """Values of ``MobilePush.media_type``."""

    IMAGE: Final = "IMAGE"


class InterruptionLevel:
    """Values of ``MobilePush.interruption_level``."""

    PASSIVE: Final = "PASSIVE"


class RelevanceScore:
    """Values of ``MobilePush.relevance_score``."""

    SCORE_MAX: Final = "SCORE_MAX"


class ClickAction:
    """Values of ``ActionButton.click_action`` and ``ActionComponent.click_action``."""

    DEEP_LINKING: Final = "DEEP_LINKING"


class ActionCategoryType:
    """Values of ``ActionCategory.type``."""

    PREDEFINED_CATEGORY: Final = "PREDEFINED_CATEGORY"


class ScheduleType:
    """Values of ``Schedule.type``."""

    START_NOW: Final = "START_NOW"


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of all models: camelCase on the wire, unset fields left out.

    The repr shows only the names of fields that are set, so that user ids and texts don't reach a log.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(name for name, _ in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, ...) for name in self.__struct_fields__ if getattr(self, name) is not UNSET]


class ActionButton(Model, frozen=True, kw_only=True):
    """A button on the Android notification."""

    label: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    click_action: str | UnsetType = UNSET
    key_vals: Texts | UnsetType = UNSET


class ActionComponent(Model, frozen=True, kw_only=True):
    """One action of an action category."""

    action_id: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    click_action: str | UnsetType = UNSET
    key_vals: Texts | UnsetType = UNSET
    use_webview: bool | UnsetType = UNSET


class ActionCategory(Model, frozen=True, kw_only=True):
    """The actions of an iOS notification."""

    type: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    action_components: Sequence[ActionComponent] | UnsetType = UNSET


class MobilePush(Model, frozen=True, kw_only=True):
    """The push message, for a direct push or for a campaign.

    ``title``, ``subtitle`` and ``body`` map a language code to a text, which may contain placeholders. The interface
    document does not define the unit of ``ttl`` or the bounds of ``badge_count``. No field is required; unset fields
    are not sent, except ``type``.
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
    """The audience of a campaign: ``primary_key`` names the column of ``query`` with the user id."""

    query: str | UnsetType = UNSET
    primary_key: str | UnsetType = UNSET


class Schedule(Model, frozen=True, kw_only=True):
    """The start of a campaign. The interface document does not define the unit of ``start_ts``."""

    type: str | UnsetType = UNSET
    start_ts: Integer | UnsetType = UNSET


class CampaignRequest(Model, frozen=True, kw_only=True):
    """A request to create a campaign. ``external_id`` is your own name for looking the campaign up."""

    name: str | UnsetType = UNSET
    external_id: str | UnsetType = UNSET
    segment: Segment | UnsetType = UNSET
    schedule: Schedule | UnsetType = UNSET
    message: MobilePush | UnsetType = UNSET


class PushRequest(Model, frozen=True, kw_only=True):
    """A direct push. ``custom_fields`` is any JSON object."""

    user_ids: Sequence[str] | UnsetType = UNSET
    message: MobilePush | UnsetType = UNSET
    custom_fields: Mapping[str, Any] | UnsetType = UNSET


class CampaignCreated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The response to a created campaign."""

    uuid: str


set_public_module(__name__)
