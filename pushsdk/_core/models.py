"""Messages, campaigns and their parts as frozen structs, and their fields' documented values.

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

# The enumerated fields accept any str: the interface document has one value for each as an example. Editors complete
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

    The repr shows only the names of set fields, so that user ids and texts don't reach a log.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(name for name, _ in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, ...) for name in self.__struct_fields__ if getattr(self, name) is not UNSET]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for these fields; ``UNSET`` leaves a field out."""
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
    """Click action. Documented: ``"DEEP_LINKING"``."""
    key_vals: Mapping[str, str] | UnsetType = UNSET
    """The button's custom data."""


class ActionComponent(Model, frozen=True, kw_only=True):
    """One action in an action category."""

    action_id: str | UnsetType = UNSET
    """Action identifier."""
    url: str | UnsetType = UNSET
    """URL that the action opens."""
    click_action: ClickActionName | UnsetType = UNSET
    """Click action. Documented: ``"DEEP_LINKING"``."""
    key_vals: Mapping[str, str] | UnsetType = UNSET
    """The action's custom data."""
    use_webview: bool | UnsetType = UNSET
    """True to open the URL in a web view."""


class ActionCategory(Model, frozen=True, kw_only=True):
    """The actions on an iOS notification."""

    type: ActionCategoryTypeName | UnsetType = UNSET
    """Documented: ``"PREDEFINED_CATEGORY"``."""
    name: str | UnsetType = UNSET
    """Category name."""
    action_components: Sequence[ActionComponent] | UnsetType = UNSET
    """Actions in the category."""


class MobilePush(Model, frozen=True, kw_only=True):
    """The push message, for a direct push or for a campaign. No field is required; unset fields are not sent."""

    type: MessageTypeName = "MOBILE_PUSH"
    """Message kind. Documented: ``"MOBILE_PUSH"``."""
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
    """Action for a click on the notification. Documented: ``"DEFAULT"``."""
    android_action_url: str | UnsetType = UNSET
    """Action URL on Android."""
    ios_action_url: str | UnsetType = UNSET
    """Action URL on iOS."""
    key_vals: Mapping[str, str] | UnsetType = UNSET
    """Custom data that is delivered with the message."""
    big_image_url: str | UnsetType = UNSET
    """Large image URL."""
    large_icon_url: str | UnsetType = UNSET
    """Large icon URL."""
    small_icon_resource_id: str | UnsetType = UNSET
    """The small icon's resource identifier."""
    android_channel: str | UnsetType = UNSET
    """Notification channel on Android."""
    priority: PriorityName | UnsetType = UNSET
    """Delivery priority. Documented: ``"NORMAL"``."""
    android_action_buttons: Sequence[ActionButton] | UnsetType = UNSET
    """Buttons on the Android notification."""
    sound_file_name: str | UnsetType = UNSET
    """Name of the sound file to play."""
    rich_media_url: str | UnsetType = UNSET
    """Rich media URL."""
    media_type: MediaTypeName | UnsetType = UNSET
    """Rich media kind. Documented: ``"IMAGE"``."""
    interruption_level: InterruptionLevelName | UnsetType = UNSET
    """Interruption level on iOS. Documented: ``"PASSIVE"``."""
    badge_count: Annotated[int, INT64] | UnsetType = UNSET
    """Number on the badge. The interface document does not define its bounds."""
    relevance_score: RelevanceScoreName | UnsetType = UNSET
    """Relevance score on iOS. Documented: ``"SCORE_MAX"``."""
    content_available: bool | UnsetType = UNSET
    """Content-available flag."""
    action_category: ActionCategory | UnsetType = UNSET
    """The notification's action category."""


class Segment(Model, frozen=True, kw_only=True):
    """A campaign's audience."""

    query: str | UnsetType = UNSET
    """Query that selects the audience."""
    primary_key: str | UnsetType = UNSET
    """The query column that has the user id."""


class Schedule(Model, frozen=True, kw_only=True):
    """A campaign's start."""

    type: ScheduleTypeName | UnsetType = UNSET
    """Schedule kind. Documented: ``"START_NOW"``."""
    start_ts: Annotated[int, INT64] | UnsetType = UNSET
    """Start. The interface document does not define the unit."""


class CampaignRequest(Model, frozen=True, kw_only=True):
    """A request to create a campaign."""

    name: str | UnsetType = UNSET
    """Campaign name."""
    external_id: str | UnsetType = UNSET
    """Your identifier, by which you look the campaign up."""
    segment: Segment | UnsetType = UNSET
    """The campaign's audience."""
    schedule: Schedule | UnsetType = UNSET
    """The campaign's start."""
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
    """Click action. Documented: ``"DEEP_LINKING"``."""
    keyVals: Mapping[str, str]
    """The button's custom data."""


class ActionComponentDict(TypedDict, total=False):
    """An ``ActionComponent`` as a dict, with the names on the wire."""

    actionId: str
    """Action identifier."""
    url: str
    """URL that the action opens."""
    clickAction: ClickActionName
    """Click action. Documented: ``"DEEP_LINKING"``."""
    keyVals: Mapping[str, str]
    """The action's custom data."""
    useWebview: bool
    """True to open the URL in a web view."""


class ActionCategoryDict(TypedDict, total=False):
    """An ``ActionCategory`` as a dict, with the names on the wire."""

    type: ActionCategoryTypeName
    """Documented: ``"PREDEFINED_CATEGORY"``."""
    name: str
    """Category name."""
    actionComponents: Sequence[ActionComponent | ActionComponentDict]
    """Actions in the category."""


class MobilePushDict(TypedDict, total=False):
    """A ``MobilePush`` as a dict, with the names on the wire: ``bigImageUrl`` is ``MobilePush.big_image_url``."""

    type: MessageTypeName
    """Message kind. Documented: ``"MOBILE_PUSH"``."""
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
    """Action for a click on the notification. Documented: ``"DEFAULT"``."""
    androidActionUrl: str
    """Action URL on Android."""
    iosActionUrl: str
    """Action URL on iOS."""
    keyVals: Mapping[str, str]
    """Custom data that is delivered with the message."""
    bigImageUrl: str
    """Large image URL."""
    largeIconUrl: str
    """Large icon URL."""
    smallIconResourceId: str
    """The small icon's resource identifier."""
    androidChannel: str
    """Notification channel on Android."""
    priority: PriorityName
    """Delivery priority. Documented: ``"NORMAL"``."""
    androidActionButtons: Sequence[ActionButton | ActionButtonDict]
    """Buttons on the Android notification."""
    soundFileName: str
    """Name of the sound file to play."""
    richMediaUrl: str
    """Rich media URL."""
    mediaType: MediaTypeName
    """Rich media kind. Documented: ``"IMAGE"``."""
    interruptionLevel: InterruptionLevelName
    """Interruption level on iOS. Documented: ``"PASSIVE"``."""
    badgeCount: int
    """Number on the badge. The interface document does not define its bounds."""
    relevanceScore: RelevanceScoreName
    """Relevance score on iOS. Documented: ``"SCORE_MAX"``."""
    contentAvailable: bool
    """Content-available flag."""
    actionCategory: ActionCategory | ActionCategoryDict
    """The notification's action category."""


class SegmentDict(TypedDict, total=False):
    """A ``Segment`` as a dict, with the names on the wire."""

    query: str
    """Query that selects the audience."""
    primaryKey: str
    """The query column that has the user id."""


class ScheduleDict(TypedDict, total=False):
    """A ``Schedule`` as a dict, with the names on the wire."""

    type: ScheduleTypeName
    """Schedule kind. Documented: ``"START_NOW"``."""
    startTs: int
    """Start. The interface document does not define the unit."""


class CampaignDict(TypedDict, total=False):
    """A ``CampaignRequest`` as a dict, with the names on the wire: ``externalId`` is its ``external_id``."""

    name: str
    """Campaign name."""
    externalId: str
    """Your identifier, by which you look the campaign up."""
    segment: Segment | SegmentDict
    """The campaign's audience."""
    schedule: Schedule | ScheduleDict
    """The campaign's start."""
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
