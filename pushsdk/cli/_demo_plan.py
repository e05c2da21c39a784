"""What the demo sends and which faults it meets: messages, users, sizes, rules. Values and arithmetic only."""

from __future__ import annotations

import random
import uuid

from msgspec import Struct

from pushsdk import (
    Action,
    ActionButton,
    ActionCategory,
    ActionCategoryType,
    ActionComponent,
    CampaignRequest,
    ClickAction,
    InterruptionLevel,
    MediaType,
    MobilePush,
    Priority,
    RelevanceScore,
    Schedule,
    ScheduleType,
    Segment,
)
from pushsdk._core.placeholders import placeholder
from pushsdk.emulator import Fault

__all__ = ["CAMPAIGN", "MESSAGE", "Plan", "Rule", "personal"]

_SHOP = "https://shop.example"
_APP = "shop://spring"

# Short: the emulator's limit of users is found by halving, which stops where the ids are less than half of the bytes.
MESSAGE = MobilePush(
    ios_enabled=True,
    android_enabled=True,
    title={"en": "The spring sale is open"},
    body={"en": "Today and tomorrow: a fifth off everything."},
)

CAMPAIGN = CampaignRequest(
    name="Spring sale",
    external_id="spring-sale",
    segment=Segment(query="SELECT user_id FROM customers WHERE newsletter", primary_key="user_id"),
    schedule=Schedule(type=ScheduleType.START_NOW, start_ts=1_775_000_000),
    message=MobilePush(
        ios_enabled=True,
        android_enabled=True,
        title={"en": f"Hello {placeholder('first_name', 'there')}", "de": f"Hallo {placeholder('first_name', 'du')}"},
        subtitle={},
        body={"en": "The spring sale is open.", "de": "Alles ein Fünftel billiger."},
        collapse_id="spring-sale",
        ttl=86_400,
        action=Action.DEFAULT,
        android_action_url=_APP,
        ios_action_url=_APP,
        key_vals={"campaign": "spring"},
        big_image_url=f"{_SHOP}/spring.png",
        large_icon_url=f"{_SHOP}/icon.png",
        small_icon_resource_id="ic_shop",
        android_channel="offers",
        priority=Priority.NORMAL,
        android_action_buttons=[
            ActionButton(label="Look", url=_APP, click_action=ClickAction.DEEP_LINKING, key_vals={"button": "look"})
        ],
        sound_file_name="chime.wav",
        rich_media_url=f"{_SHOP}/spring.gif",
        media_type=MediaType.IMAGE,
        interruption_level=InterruptionLevel.PASSIVE,
        badge_count=1,
        relevance_score=RelevanceScore.SCORE_MAX,
        content_available=False,
        action_category=ActionCategory(
            type=ActionCategoryType.PREDEFINED_CATEGORY,
            name="offer",
            action_components=[
                ActionComponent(
                    action_id="look",
                    url=_APP,
                    click_action=ClickAction.DEEP_LINKING,
                    key_vals={"button": "look"},
                    use_webview=False,
                )
            ],
        ),
    ),
)


def personal(number: int) -> MobilePush:
    """The message to one user only: no other is equal, so nothing can be merged with it."""
    return MobilePush(
        ios_enabled=True,
        android_enabled=True,
        title={"en": f"Hello {placeholder('first_name', 'there')}"},
        body={"en": f"Your order {number} is on its way."},
    )


class Rule(Struct, frozen=True):
    """A fault rule, and in words: what the service does by it, and after the colon what the client does about it."""

    fault: Fault
    words: str

    @property
    def name(self) -> str:
        """What its hits are counted under."""
        return self.fault.name or ""


class Plan:
    """Who is sent what, and what goes wrong, for a number of users and of personalized messages.

    Every rule finds its requests, and at least 9 of 10 users are accepted, from 500 users and 50 messages on. The
    rules that leave an answer unknown have a bound, as each of their hits costs the users of one request.
    """

    def __init__(self, *, users: int, personalized: int, seed: int) -> None:
        draws = random.Random(seed)  # noqa: S311 - repeatable is the point
        ids = [str(uuid.UUID(int=draws.getrandbits(128), version=4)) for _ in range(users + personalized)]
        self.merged: list[str] = ids[:users]
        self.single: list[str] = ids[users:]
        self.poisonous: str = draws.choice(self.merged)
        self.seed = seed
        # Below the client's own maximum of 1000, so that it has something to learn; a lost request stays about 1 %.
        self.limit: int = min(500, max(8, users // 100))
        self.rules: list[Rule] = self._rules()

    @property
    def size(self) -> int:
        """All users."""
        return len(self.merged) + len(self.single)

    @property
    def faults(self) -> list[Fault]:
        """The rules as the emulator takes them."""
        return [rule.fault for rule in self.rules]

    def _rules(self) -> list[Rule]:
        hits = min(10, max(1, len(self.single) // 100))
        # So many requests there are at least, and one share is left over: each of the rules gets its hits.
        every = (len(self.merged) // self.limit + len(self.single)) // (hits + 1)
        last = every * hits
        wait = {"Retry-After": "1"}
        return [
            Rule(
                Fault.status(413, name="too_large", endpoint="push", more_than_users=self.limit),
                f"413 above {self.limit} users: halved",
            ),
            Rule(
                Fault.status(400, name="poisonous_user", endpoint="push", user=self.poisonous),
                "400 for one user: found by halving",
            ),
            Rule(
                Fault.status(429, name="throttled", endpoint="push", headers=wait, first=20),
                "429, Retry-After 1: waited, repeated",
            ),
            Rule(
                Fault.reset_after(name="answer_lost", endpoint="push", every=every, first=last),
                "taken, then reset: not repeated",
            ),
            Rule(
                Fault.reset_after(name="batch_answer_lost", endpoint="push", more_than_users=1, every=20, first=40),
                "the same to a merged request",
            ),
            Rule(
                Fault.reset_before(name="request_lost", endpoint="push", every=every, first=last),
                "reset, not taken: not repeated",
            ),
            Rule(
                Fault.status(503, name="unavailable", endpoint="push", every=every, first=last),
                "503, no Retry-After: not repeated",
            ),
        ]
