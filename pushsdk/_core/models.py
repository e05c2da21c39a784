"""Messages, campaigns and their parts as frozen structs, and the documented values of their fields.

Shapes only: ``values`` checks types at encoding, ``lint`` advises. Fields have the order of the interface document,
which is also their order on the wire.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Self, TypedDict, TypeVar

import msgspec
from msgspec import UNSET as UNSET
from msgspec import UnsetType as UnsetType

# The interface document has no bounds. Most parsers hold 64 bits, and would change a larger number.
INT64 = msgspec.Meta(ge=-(2**63), le=2**63 - 1)
T = TypeVar("T")

# The enumerated fields accept any str: the interface document has one value of each as an example. Editors complete
# that value; msgspec does not allow a Literal beside str.
if TYPE_CHECKING:
    MessageTypeName = Literal["MOBILE_PUSH"] | str
    ActionName = Literal["DEFAULT"] | str
    PriorityName = Literal["NORMAL"] | str
    MediaTypeName = Literal["IMAGE"] | str
    InterruptionLevelName = Literal["PASSIVE"] | str
    RelevanceScoreName = Literal["SCORE_MAX"] | str
    ClickActionName = Literal["DEEP_LINKING"] | str
    ActionCategoryTypeName = Literal["PREDEFINED_CATEGORY"] | str
    ScheduleTypeName = Literal["START_NOW"] | str
else:
    MessageTypeName = ActionName = PriorityName = MediaTypeName = InterruptionLevelName = str
    RelevanceScoreName = ClickActionName = ActionCategoryTypeName = ScheduleTypeName = str


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of all models: camelCase on the wire, unset fields left out.

    The repr shows only the names of fields that are set, so that user ids and texts don't reach a log.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(name for name, _ in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, ...) for name in self.__struct_fields__ if getattr(self, name) is not UNSET]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of these fields; ``UNSET`` leaves a field out."""
        return msgspec.structs.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, as they are on the wire."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class ActionButton(Model, frozen=True, kw_only=True):
    """A button on the Android notification."""

    label: str | UnsetType = UNSET
    """Text on the button."""
    url: str | UnsetType = UNSET
    """URL that the button opens."""
    click_action: ClickActionName | UnsetType = UNSET
    """Action of a click. Documented: ``"DEEP_LINKING"``."""
    key_vals: Mapping[str, str] | UnsetType = UNSET
    """Custom data of the button."""


class ActionComponent(Model, frozen=True, kw_only=True):
    """One action of an action category."""

    action_id: str | UnsetType = UNSET
    """Identifier of the action."""
    url: str | UnsetType = UNSET
    """URL that the action opens."""
    click_action: ClickActionName | UnsetType = UNSET
    """Action of a click. Documented: ``"DEEP_LINKING"``."""
    key_vals: Mapping[str, str] | UnsetType = UNSET
    """Custom data of the action."""
    use_webview: bool | UnsetType = UNSET
    """True to open the URL in a web view."""


class ActionCategory(Model, frozen=True, kw_only=True):
    """The actions of an iOS notification."""

    type: ActionCategoryTypeName | UnsetType = UNSET
    """Documented: ``"PREDEFINED_CATEGORY"``."""
    name: str | UnsetType = UNSET
    """Name of the category."""
    action_components: Sequence[ActionComponent] | UnsetType = UNSET
    """Actions in the category."""


class MobilePush(Model, frozen=True, kw_only=True):
    """The push message, for a direct push or for a campaign. No field is required; unset fields are not sent."""

    type: MessageTypeName = "MOBILE_PUSH"
    """Kind of the message. Documented: ``"MOBILE_PUSH"``."""
    ios_enabled: bool | UnsetType = UNSET
    """True to send to iOS devices."""
    android_enabled: bool | UnsetType = UNSET
    """True to send to Android devices."""
    title: Mapping[str, str] | UnsetType = UNSET
    """Title by language code, such as ``{"en": "Hello {{ first_name | 'there' }}"}``."""
    subtitle: Mapping[str, str] | UnsetType = UNSET
    """Subtitle by language code, like ``title``; may be empty."""
    body: Mapping[str, str] | UnsetType = UNSET
    """Text by language code, like ``title``."""
    collapse_id: str | UnsetType = UNSET
    """Identifier that collapses messages: a later push with the same id replaces this one."""
    ttl: Annotated[int, INT64] | UnsetType = UNSET
    """Time to live. The interface document does not define the unit."""
    action: ActionName | UnsetType = UNSET
    """Action of a click on the notification. Documented: ``"DEFAULT"``."""
    android_action_url: str | UnsetType = UNSET
    """URL of the action on Android."""
    ios_action_url: str | UnsetType = UNSET
    """URL of the action on iOS."""
    key_vals: Mapping[str, str] | UnsetType = UNSET
    """Custom data that is delivered with the message."""
    big_image_url: str | UnsetType = UNSET
    """URL of a large image."""
    large_icon_url: str | UnsetType = UNSET
    """URL of a large icon."""
    small_icon_resource_id: str | UnsetType = UNSET
    """Identifier of the small icon's resource."""
    android_channel: str | UnsetType = UNSET
    """Notification channel on Android."""
    priority: PriorityName | UnsetType = UNSET
    """Delivery priority. Documented: ``"NORMAL"``."""
    android_action_buttons: Sequence[ActionButton] | UnsetType = UNSET
    """Buttons on the Android notification."""
    sound_file_name: str | UnsetType = UNSET
    """Name of the sound file to play."""
    rich_media_url: str | UnsetType = UNSET
    """URL of rich media."""
    media_type: MediaTypeName | UnsetType = UNSET
    """Kind of the rich media. Documented: ``"IMAGE"``."""
    interruption_level: InterruptionLevelName | UnsetType = UNSET
    """Interruption level on iOS. Documented: ``"PASSIVE"``."""
    badge_count: Annotated[int, INT64] | UnsetType = UNSET
    """Number on the badge. The interface document does not define its bounds."""
    relevance_score: RelevanceScoreName | UnsetType = UNSET
    """Relevance score on iOS. Documented: ``"SCORE_MAX"``."""
    content_available: bool | UnsetType = UNSET
    """Content-available flag."""
    action_category: ActionCategory | UnsetType = UNSET
    """Action category of the notification."""


class Segment(Model, frozen=True, kw_only=True):
    """The audience of a campaign."""

    query: str | UnsetType = UNSET
    """Query that selects the audience."""
    primary_key: str | UnsetType = UNSET
    """Column of the query that has the user id."""


class Schedule(Model, frozen=True, kw_only=True):
    """The start of a campaign."""

    type: ScheduleTypeName | UnsetType = UNSET
    """Kind of the schedule. Documented: ``"START_NOW"``."""
    start_ts: Annotated[int, INT64] | UnsetType = UNSET
    """Start. The interface document does not define the unit."""


class CampaignRequest(Model, frozen=True, kw_only=True):
    """A request to create a campaign."""

    name: str | UnsetType = UNSET
    """Name of the campaign."""
    external_id: str | UnsetType = UNSET
    """Your own identifier, by which you look the campaign up."""
    segment: Segment | UnsetType = UNSET
    """Audience of the campaign."""
    schedule: Schedule | UnsetType = UNSET
    """Start of the campaign."""
    message: MobilePush | UnsetType = UNSET
    """Message to send."""


class PushRequest(Model, frozen=True, kw_only=True):
    """A direct push."""

    user_ids: Sequence[str] | UnsetType = UNSET
    """Users to send to."""
    message: MobilePush | UnsetType = UNSET
    """Message to send."""
    custom_fields: Mapping[str, Any] | UnsetType = UNSET
    """Any JSON object."""


class CampaignCreated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The response to a created campaign."""

    uuid: str


class ActionButtonDict(TypedDict, total=False):
    """An ``ActionButton`` as a dict, with the names on the wire."""

    label: str
    """Text on the button."""
    url: str
    """URL that the button opens."""
    clickAction: ClickActionName
    """Action of a click. Documented: ``"DEEP_LINKING"``."""
    keyVals: Mapping[str, str]
    """Custom data of the button."""


class ActionComponentDict(TypedDict, total=False):
    """An ``ActionComponent`` as a dict, with the names on the wire."""

    actionId: str
    """Identifier of the action."""
    url: str
    """URL that the action opens."""
    clickAction: ClickActionName
    """Action of a click. Documented: ``"DEEP_LINKING"``."""
    keyVals: Mapping[str, str]
    """Custom data of the action."""
    useWebview: bool
    """True to open the URL in a web view."""


class ActionCategoryDict(TypedDict, total=False):
    """An ``ActionCategory`` as a dict, with the names on the wire."""

    type: ActionCategoryTypeName
    """Documented: ``"PREDEFINED_CATEGORY"``."""
    name: str
    """Name of the category."""
    actionComponents: Sequence[ActionComponent | ActionComponentDict]
    """Actions in the category."""


class MobilePushDict(TypedDict, total=False):
    """A ``MobilePush`` as a dict, with the names on the wire: ``bigImageUrl`` is ``MobilePush.big_image_url``."""

    type: MessageTypeName
    """Kind of the message. Documented: ``"MOBILE_PUSH"``."""
    iosEnabled: bool
    """True to send to iOS devices."""
    androidEnabled: bool
    """True to send to Android devices."""
    title: Mapping[str, str]
    """Title by language code, such as ``{"en": "Hello {{ first_name | 'there' }}"}``."""
    subtitle: Mapping[str, str]
    """Subtitle by language code, like ``title``; may be empty."""
    body: Mapping[str, str]
    """Text by language code, like ``title``."""
    collapseId: str
    """Identifier that collapses messages: a later push with the same id replaces this one."""
    ttl: int
    """Time to live. The interface document does not define the unit."""
    action: ActionName
    """Action of a click on the notification. Documented: ``"DEFAULT"``."""
    androidActionUrl: str
    """URL of the action on Android."""
    iosActionUrl: str
    """URL of the action on iOS."""
    keyVals: Mapping[str, str]
    """Custom data that is delivered with the message."""
    bigImageUrl: str
    """URL of a large image."""
    largeIconUrl: str
    """URL of a large icon."""
    smallIconResourceId: str
    """Identifier of the small icon's resource."""
    androidChannel: str
    """Notification channel on Android."""
    priority: PriorityName
    """Delivery priority. Documented: ``"NORMAL"``."""
    androidActionButtons: Sequence[ActionButton | ActionButtonDict]
    """Buttons on the Android notification."""
    soundFileName: str
    """Name of the sound file to play."""
    richMediaUrl: str
    """URL of rich media."""
    mediaType: MediaTypeName
    """Kind of the rich media. Documented: ``"IMAGE"``."""
    interruptionLevel: InterruptionLevelName
    """Interruption level on iOS. Documented: ``"PASSIVE"``."""
    badgeCount: int
    """Number on the badge. The interface document does not define its bounds."""
    relevanceScore: RelevanceScoreName
    """Relevance score on iOS. Documented: ``"SCORE_MAX"``."""
    contentAvailable: bool
    """Content-available flag."""
    actionCategory: ActionCategory | ActionCategoryDict
    """Action category of the notification."""


class SegmentDict(TypedDict, total=False):
    """A ``Segment`` as a dict, with the names on the wire."""

    query: str
    """Query that selects the audience."""
    primaryKey: str
    """Column of the query that has the user id."""


class ScheduleDict(TypedDict, total=False):
    """A ``Schedule`` as a dict, with the names on the wire."""

    type: ScheduleTypeName
    """Kind of the schedule. Documented: ``"START_NOW"``."""
    startTs: int
    """Start. The interface document does not define the unit."""


class CampaignDict(TypedDict, total=False):
    """A ``CampaignRequest`` as a dict, with the names on the wire: ``externalId`` is its ``external_id``."""

    name: str
    """Name of the campaign."""
    externalId: str
    """Your own identifier, by which you look the campaign up."""
    segment: Segment | SegmentDict
    """Audience of the campaign."""
    schedule: Schedule | ScheduleDict
    """Start of the campaign."""
    message: MobilePush | MobilePushDict
    """Message to send."""


class PushRequestDict(TypedDict, total=False):
    """A ``PushRequest`` as a dict, with the names on the wire."""

    userIds: Sequence[str]
    """Users to send to."""
    message: MobilePush | MobilePushDict
    """Message to send."""
    customFields: Mapping[str, Any]
    """Any JSON object."""


class AnnotateTheDictAs(Generic[T]):
    """The type of no value, so only ``Any`` is assignable to it. Type checkers show its name for a wrong dict."""


# Beside a TypedDict, Mapping[str, Any] would accept every dict literal, and a misspelled name with it.
UntypedMapping = Mapping[str, AnnotateTheDictAs[T]]
"""A mapping whose values have the type ``Any``, such as a message from ``json.load``."""
