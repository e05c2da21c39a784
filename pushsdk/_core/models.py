"""Messages, campaigns and their parts as frozen structs, and their fields' documented values.

Shapes only: ``values`` checks types at encoding, ``lint`` advises. Fields have the order of the interface document,
which is also their order on the wire.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Protocol, Self, TypedDict, TypeVar

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
    """A button on the Android notification.

    Attributes:
        label: Text on the button.
        url: URL that the button opens.
        click_action: Click action. Documented: ``"DEEP_LINKING"``.
        key_vals: The button's custom data.
    """

    label: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    click_action: ClickActionName | UnsetType = UNSET
    key_vals: Mapping[str, str] | UnsetType = UNSET


class ActionComponent(Model, frozen=True, kw_only=True):
    """One action in an action category.

    Attributes:
        action_id: Action identifier.
        url: URL that the action opens.
        click_action: Click action. Documented: ``"DEEP_LINKING"``.
        key_vals: The action's custom data.
        use_webview: True to open the URL in a web view.
    """

    action_id: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    click_action: ClickActionName | UnsetType = UNSET
    key_vals: Mapping[str, str] | UnsetType = UNSET
    use_webview: bool | UnsetType = UNSET


class ActionCategory(Model, frozen=True, kw_only=True):
    """The actions on an iOS notification.

    Attributes:
        type: Documented: ``"PREDEFINED_CATEGORY"``.
        name: Category name.
        action_components: Actions in the category.
    """

    type: ActionCategoryTypeName | UnsetType = UNSET
    name: str | UnsetType = UNSET
    action_components: Sequence[ActionComponent] | UnsetType = UNSET


class MobilePush(Model, frozen=True, kw_only=True):
    """The push message, for a direct push or for a campaign. No field is required; unset fields are not sent.

    Attributes:
        type: Message kind. Documented: ``"MOBILE_PUSH"``.
        ios_enabled: True to send to iOS devices.
        android_enabled: True to send to Android devices.
        title: Title by language code, such as ``{"en": "Hello {{ first_name | 'there' }}"}``.
        subtitle: Subtitle by language code, like ``title``; may be empty.
        body: Text by language code, like ``title``.
        collapse_id: Identifier that collapses messages: a later push with the same id replaces this one.
        ttl: Time to live. The interface document does not define the unit.
        action: Action for a click on the notification. Documented: ``"DEFAULT"``.
        android_action_url: Action URL on Android.
        ios_action_url: Action URL on iOS.
        key_vals: Custom data that is delivered with the message.
        big_image_url: Large image URL.
        large_icon_url: Large icon URL.
        small_icon_resource_id: The small icon's resource identifier.
        android_channel: Notification channel on Android.
        priority: Delivery priority. Documented: ``"NORMAL"``.
        android_action_buttons: Buttons on the Android notification.
        sound_file_name: Name of the sound file to play.
        rich_media_url: Rich media URL.
        media_type: Rich media kind. Documented: ``"IMAGE"``.
        interruption_level: Interruption level on iOS. Documented: ``"PASSIVE"``.
        badge_count: Number on the badge. The interface document does not define its bounds.
        relevance_score: Relevance score on iOS. Documented: ``"SCORE_MAX"``.
        content_available: Content-available flag.
        action_category: The notification's action category.
    """

    type: MessageTypeName = "MOBILE_PUSH"
    ios_enabled: bool | UnsetType = UNSET
    android_enabled: bool | UnsetType = UNSET
    title: Mapping[str, str] | UnsetType = UNSET
    subtitle: Mapping[str, str] | UnsetType = UNSET
    body: Mapping[str, str] | UnsetType = UNSET
    collapse_id: str | UnsetType = UNSET
    ttl: Annotated[int, INT64] | UnsetType = UNSET
    action: ActionName | UnsetType = UNSET
    android_action_url: str | UnsetType = UNSET
    ios_action_url: str | UnsetType = UNSET
    key_vals: Mapping[str, str] | UnsetType = UNSET
    big_image_url: str | UnsetType = UNSET
    large_icon_url: str | UnsetType = UNSET
    small_icon_resource_id: str | UnsetType = UNSET
    android_channel: str | UnsetType = UNSET
    priority: PriorityName | UnsetType = UNSET
    android_action_buttons: Sequence[ActionButton] | UnsetType = UNSET
    sound_file_name: str | UnsetType = UNSET
    rich_media_url: str | UnsetType = UNSET
    media_type: MediaTypeName | UnsetType = UNSET
    interruption_level: InterruptionLevelName | UnsetType = UNSET
    badge_count: Annotated[int, INT64] | UnsetType = UNSET
    relevance_score: RelevanceScoreName | UnsetType = UNSET
    content_available: bool | UnsetType = UNSET
    action_category: ActionCategory | UnsetType = UNSET


class Segment(Model, frozen=True, kw_only=True):
    """A campaign's audience.

    Attributes:
        query: Query that selects the audience.
        primary_key: The query column that has the user id.
    """

    query: str | UnsetType = UNSET
    primary_key: str | UnsetType = UNSET


class Schedule(Model, frozen=True, kw_only=True):
    """A campaign's start.

    Attributes:
        type: Schedule kind. Documented: ``"START_NOW"``.
        start_ts: Start. The interface document does not define the unit.
    """

    type: ScheduleTypeName | UnsetType = UNSET
    start_ts: Annotated[int, INT64] | UnsetType = UNSET


class CampaignRequest(Model, frozen=True, kw_only=True):
    """A request to create a campaign.

    Attributes:
        name: Campaign name.
        external_id: Your identifier, by which you look the campaign up.
        segment: The campaign's audience.
        schedule: The campaign's start.
        message: Message to send.
    """

    name: str | UnsetType = UNSET
    external_id: str | UnsetType = UNSET
    segment: Segment | UnsetType = UNSET
    schedule: Schedule | UnsetType = UNSET
    message: MobilePush | UnsetType = UNSET


class PushRequest(Model, frozen=True, kw_only=True):
    """A direct push.

    Attributes:
        user_ids: Users to send to.
        message: Message to send.
        custom_fields: Any JSON object.
    """

    user_ids: Sequence[str] | UnsetType = UNSET
    message: MobilePush | UnsetType = UNSET
    custom_fields: Mapping[str, Any] | UnsetType = UNSET


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


class CollectionNotStr(Protocol):
    """A collection with user ids: a list, set, tuple or queryset, dict keys, an array or a column.

    A str iterates over its characters, so ``Iterable[str]`` would accept a file name. It is not a ``CollectionNotStr``
    for type checkers, as only a str can be asked for in it.
    """

    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...


class AnnotateTheDictAs(Generic[T]):
    """The type of no value, so only ``Any`` is assignable to it. Type checkers show its name for a wrong dict."""


# Beside a TypedDict, Mapping[str, Any] would accept every dict literal, and a misspelled name with it.
UntypedMapping = Mapping[str, AnnotateTheDictAs[T]]
"""A mapping whose values have the type ``Any``, such as a message from ``json.load``."""
AnyMessage = MobilePush | MobilePushDict | UntypedMapping[MobilePushDict]
AnyCampaign = CampaignRequest | CampaignDict | UntypedMapping[CampaignDict]
AnyRequest = PushRequest | PushRequestDict | UntypedMapping[PushRequestDict]
