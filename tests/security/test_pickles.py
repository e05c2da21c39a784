"""Pickles and copies: values and errors can be copied whole; clients, keys and connections can't."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import pushsdk
from pushsdk import (
    UNSET,
    AsyncPushClient,
    Attempt,
    AttemptEnded,
    CampaignCreated,
    DrainReport,
    MobilePush,
    Outcome,
    PushClient,
    PushError,
    RetryPolicy,
    RetryScheduled,
    SendAbandoned,
)
from pushsdk.claims import ClaimStore, MemoryClaims, PostgresClaims, RedisClaims, SqliteClaims
from pushsdk.spark import DirectoryClaims

ATTEMPT = Attempt(outcome=Outcome.REJECTED, status=400, reason="HTTP 400", seconds=0.1)
ABANDONED = SendAbandoned(outcome=Outcome.UNKNOWN, user_ids=("u",), attempts=(ATTEMPT,))
NEEDED: dict[type, dict[str, Any]] = {
    Attempt: {"outcome": Outcome.ACCEPTED},
    AttemptEnded: {"endpoint": "push", "users": 1, "number": 1, "attempt": ATTEMPT},
    RetryScheduled: {"endpoint": "push", "users": 1, "number": 1, "wait": 0.1, "attempt": ATTEMPT},
    pushsdk.ClientPaused: {"seconds": 1.0},
    pushsdk.Placeholder: {"name": "first_name", "fallback": "there", "start": 0, "end": 26},
    pushsdk.Problem: {"path": "$.title", "code": "languages", "message": "advice"},
    pushsdk.Progress: {"stage": "sending"},
    pushsdk.RequestSplit: {"status": 413, "users": 2, "calls": 1},
    pushsdk.SendNotBegun: {"users": 1, "seconds_left": 0.1, "seconds_needed": 0.2},
    pushsdk.Row: {"user_id": "u", "outcome": Outcome.ACCEPTED},
    SendAbandoned: {"outcome": Outcome.UNKNOWN, "user_ids": ("u",)},
    CampaignCreated: {"uuid": "x"},
    pushsdk.Receipt: {"users": 1, "attempts": (ATTEMPT,)},
    DrainReport: {"unknown": ("u",), "abandoned": (ABANDONED,)},
    RetryPolicy: {"statuses": {500: Outcome.REJECTED}, "retry_on": {408}},
    MobilePush: {"title": {"en": "t"}, "badge_count": 0},
}
PUBLIC = [getattr(pushsdk, name) for name in pushsdk.__all__]
STRUCTS = [kind for kind in PUBLIC if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
ERRORS = [kind for kind in PUBLIC if isinstance(kind, type) and issubclass(kind, PushError)]
WAYS = pytest.mark.parametrize(
    "way", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"]
)
Way = Callable[[Any], Any]


@WAYS
@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_struct_comes_back_equal(kind: type, way: Way) -> None:
    value = kind(**NEEDED.get(kind, {}))
    assert way(value) == value
    assert type(way(value)) is kind


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_struct_is_frozen(kind: type) -> None:
    for name in kind.__struct_fields__[:1]:
        with pytest.raises(AttributeError):
            setattr(kind(**NEEDED.get(kind, {})), name, None)


FIELDS = {
    "status": 429,
    "headers": {"Retry-After": "7"},
    "body": b"slow down",
    "retry_after": 7.0,
    "external_id": "spring-1",
    "outcomes": {"user-4711": Outcome.UNKNOWN},
}


@WAYS
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_comes_back_with_all_it_knows_and_shows_no_user(kind: type[PushError], way: Way) -> None:
    error = kind("what happened", outcome=Outcome.UNKNOWN, attempts=(ATTEMPT,), user_ids=("user-4711",))
    for name, value in FIELDS.items():
        if hasattr(kind, name):
            setattr(error, name, value)
    back = way(error)
    assert type(back) is kind
    assert (back.args, str(back), vars(back)) == (error.args, "what happened", vars(error))
    assert (back.outcome, back.attempts, back.user_ids) == (Outcome.UNKNOWN, (ATTEMPT,), ("user-4711",))
    assert not any(word in f"{error} {error!r} {error.args}" for word in ("4711", "slow down", "spring-1"))


@WAYS
def test_unset_stays_a_singleton(way: Way) -> None:
    assert way(MobilePush()).title is UNSET


@WAYS
@pytest.mark.parametrize(
    "hidden",
    [
        lambda client: client,
        lambda client: client.with_options(timeout=1.0),
        lambda client: client._credentials,
        lambda client: client._credentials.key,
    ],
    ids=["client", "view", "credentials", "key"],
)
def test_nothing_that_knows_the_key_is_pickled_or_copied(hidden: Way, way: Way) -> None:
    client = AsyncPushClient("https://push.example", "key")
    if way is copy.copy and hidden(client) is client._credentials:
        pytest.skip("a shallow copy of an inner object stays in this process")
    with pytest.raises(TypeError):
        way(hidden(client))


@WAYS
@pytest.mark.parametrize(
    "make",
    [
        MemoryClaims,
        lambda: SqliteClaims("claims.db"),
        lambda: DirectoryClaims("claims"),
        lambda: RedisClaims("redis://host/0"),
        lambda: PostgresClaims("postgresql://host/database"),
        lambda: PushClient("https://push.example", "key"),
    ],
    ids=["memory", "sqlite", "directory", "redis", "postgres", "sync client"],
)
def test_a_claim_store_or_sync_client_is_not_pickled_or_copied_and_the_error_says_what_to_do(
    make: Callable[[], ClaimStore | PushClient], way: Way
) -> None:
    with pytest.raises(TypeError, match="make one in each process"):
        way(make())
