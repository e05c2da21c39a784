"""Pickles and copies: values and errors can be copied whole; clients, keys and connections can't."""

from __future__ import annotations

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
    PartialError,
    PushError,
    RejectedError,
    RetryPolicy,
    RetryScheduled,
    SendAbandoned,
)
from pushsdk.claims import ClaimStore, DirectoryClaims, MemoryClaims, PostgresClaims, RedisClaims, SqliteClaims

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


@WAYS
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_comes_back_with_all_it_knows(kind: type[PushError], way: Way) -> None:
    error = kind("what happened", outcome=Outcome.UNKNOWN, attempts=(ATTEMPT,), user_ids=("u", "v"))
    copy = way(error)
    assert (type(copy), str(copy), vars(copy)) == (kind, "what happened", vars(error))
    assert (copy.outcome, copy.attempts, copy.user_ids) == (Outcome.UNKNOWN, (ATTEMPT,), ("u", "v"))


@WAYS
def test_the_data_of_an_error_comes_back_too(way: Way) -> None:
    rejected = RejectedError("no", attempts=(ATTEMPT,))
    rejected.status, rejected.headers, rejected.body = 400, {"X-A": "a"}, b"body"
    copy = way(rejected)
    assert (copy.status, copy.headers, copy.body) == (400, {"X-A": "a"}, b"body")
    partial = PartialError("some", user_ids=("u", "v"))
    partial.outcomes = {"u": Outcome.ACCEPTED, "v": Outcome.UNKNOWN}
    assert way(partial).users(Outcome.UNKNOWN) == ("v",)


@WAYS
def test_unset_stays_a_singleton(way: Way) -> None:
    assert way(MobilePush()).title is UNSET


@WAYS
@pytest.mark.parametrize(
    "hidden",
    [
        lambda client: client,
        lambda client: client.with_options(timeout=1.0),
        lambda client: client._engine.settings.credentials,
        lambda client: client._engine.settings.credentials.fixed,
        lambda client: client._engine.settings,
        lambda client: client._engine,
    ],
    ids=["client", "view", "credentials", "key", "settings", "engine"],
)
def test_nothing_that_knows_the_key_is_pickled_or_copied(hidden: Way, way: Way) -> None:
    client = AsyncPushClient("https://push.example", "key")
    settings = client._engine.settings
    if way is copy.copy and hidden(client) in (settings, settings.credentials, client._engine):
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
    ],
    ids=["memory", "sqlite", "directory", "redis", "postgres"],
)
def test_a_claim_store_is_not_pickled_or_copied_and_the_error_says_what_to_do(
    make: Callable[[], ClaimStore], way: Way
) -> None:
    with pytest.raises(TypeError, match="make one in each process"):
        way(make())
